"""The asyncio shell: many requests in flight on one connection, each awaited by its caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Protocol, Self, cast

from fjord import commands, limits
from fjord.client.address import parse_url
from fjord.client.calls import Call, Result
from fjord.client.database import scan_call
from fjord.client.kv import AnyKey, Default, Entry, Key, KvCalls
from fjord.client.link import Link
from fjord.clock import Stamps, SystemClock
from fjord.commands import Reply, Scanned
from fjord.errors import ClosedError, FjordError, RemoteProtocolError, UnavailableError
from fjord.values import Value

_WATCH_SECONDS = 1.0


async def connect(url: str, *, timeout: float = limits.REPLY_SECONDS_MAX) -> AsyncDatabase:
    """Connects to a daemon, for example at `fjord://127.0.0.1:17994`.

    Raises:
        UnavailableError: if nobody answers there.
    """
    host, port = parse_url(url)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(limits.CONNECT_SECONDS_MAX):
            _, channel = await loop.create_connection(_Channel, host, port)
    except OSError as error:
        raise UnavailableError(
            f"no daemon answers at {url} ({error}); is `fjord serve` running?"
        ) from error
    return AsyncDatabase(channel, timeout)


class _Channel(asyncio.Protocol):
    """Matches replies with the futures that wait for them."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._link = Link()
        self._waiting: dict[int, tuple[asyncio.Future[Reply], float]] = {}  # with its deadline
        self._watch: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._room = asyncio.Semaphore(limits.IN_FLIGHT_MAX)
        self._lost: FjordError | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for identifier, reply in self._link.receive(data):
                future, _ = self._waiting.pop(identifier)
                self._room.release()
                if not future.done():
                    future.set_result(reply)
        except RemoteProtocolError as error:
            self._give_up(error)

    def connection_lost(self, error: Exception | None) -> None:
        reason = f" ({error})" if error else ""
        self._give_up(
            UnavailableError(
                f"the connection broke{reason}; commands that were under way "
                "may or may not have been applied"
            )
        )

    async def execute(self, command: commands.Command, timeout: float) -> Reply:
        await self._room.acquire()
        # The place is given back with the reply, not here: a request whose caller was cancelled
        # is still in flight.
        try:
            if self._lost is not None:
                raise self._lost
            identifier, message = self._link.send(command)
        except FjordError:
            self._room.release()
            raise
        assert self._transport is not None
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._waiting[identifier] = (future, self._loop.time() + timeout)
        self._transport.write(message)
        if self._watch is None:
            self._watch = self._loop.call_later(_WATCH_SECONDS, self._check_deadlines)
        return await future

    def close(self) -> None:
        self._give_up(ClosedError("this connection is closed; connect again"))

    def _check_deadlines(self) -> None:
        """One timer for all requests, since a timer for each costs more than the request."""
        self._watch = None
        now = self._loop.time()
        if any(deadline < now for _, deadline in self._waiting.values()):
            self._give_up(UnavailableError("the server did not answer in time; connect again"))
        elif self._waiting:
            self._watch = self._loop.call_later(_WATCH_SECONDS, self._check_deadlines)

    def _give_up(self, error: FjordError) -> None:
        self._lost = self._lost or error
        if self._transport is not None:
            self._transport.close()
        while self._waiting:
            _, (future, _) = self._waiting.popitem()
            self._room.release()
            if not future.done():
                future.set_exception(self._lost)


class _AsyncRun(Protocol):
    async def __call__(self, call: Call[Result], /) -> Result: ...


class AsyncKv:
    """A key/value table; like `fjord.Kv`, with every call awaited."""

    def __init__(self, run: _AsyncRun, calls: KvCalls) -> None:
        self._run = run
        self._calls = calls

    async def set(
        self,
        key: Key,
        value: Value,
        *,
        expires_at: datetime | None = None,
        overwrite: bool = True,
        persist: bool = True,
    ) -> None:
        call = self._calls.set_many(
            {key: value}, expires_at=expires_at, overwrite=overwrite, persist=persist
        )
        await self._run(call)

    async def get(self, key: Key, default: Default | None = None) -> Value | Default:
        return (await self._run(self._calls.get_many([key]))).get(key, default)

    async def entry(self, key: Key) -> Entry | None:
        return await self._run(self._calls.entry(key))

    async def delete(self, key: Key) -> None:
        await self._run(self._calls.delete_many([key]))

    async def set_many(
        self,
        items: Mapping[AnyKey, Value],
        *,
        expires_at: datetime | None = None,
        overwrite: bool = True,
        persist: bool = True,
    ) -> None:
        call = self._calls.set_many(
            items, expires_at=expires_at, overwrite=overwrite, persist=persist
        )
        await self._run(call)

    async def get_many(self, keys: Iterable[AnyKey]) -> dict[AnyKey, Value]:
        return await self._run(self._calls.get_many(keys))

    async def delete_many(self, keys: Iterable[Key]) -> None:
        await self._run(self._calls.delete_many(keys))


class AsyncDatabase:
    """What `fjord.aio.connect` returns."""

    def __init__(self, channel: _Channel, timeout: float) -> None:
        self._channel = channel
        self._timeout = timeout
        self._stamps = Stamps(SystemClock())

    def kv(self, table: str = commands.DEFAULT_TABLE) -> AsyncKv:
        """Returns a key/value table; it comes into being with its first write."""
        return AsyncKv(self._run, KvCalls(table, self._stamps))

    async def scan(
        self, table: str, start_seq: int = 1, end_seq: int = 0
    ) -> AsyncIterator[Scanned]:
        """Yields the durable ops of a table, in order, in bounded pieces."""
        while True:
            piece = await self._run(scan_call(table, start_seq, end_seq))
            yield piece
            start_seq, end_seq = piece.next_seq, piece.end_seq
            if start_seq >= end_seq:
                return

    async def close(self) -> None:
        self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _run(self, call: Call[Result]) -> Result:
        return call.result(await self._channel.execute(call.command, self._timeout))
