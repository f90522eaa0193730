"""The asyncio shell of a database: like `fjord.Database`, with every call awaited."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self, Unpack

from fjord import commands, limits
from fjord.client import node_calls
from fjord.client.address import shown_at
from fjord.client.async_connection import AsyncConnection
from fjord.client.async_jobs import AsyncJobs
from fjord.client.async_kv import AsyncKv
from fjord.client.async_listening import AsyncChanges
from fjord.client.calls import Call, Result
from fjord.client.job_calls import JobCalls
from fjord.client.job_settings import JobSettings
from fjord.client.kv_calls import KvCalls
from fjord.client.listening import Told
from fjord.client.node_calls import TableInfo
from fjord.client.transaction import Transaction
from fjord.clock import Stamps, SystemClock
from fjord.commands import Changed, Scanned


async def connect(url: str, *, timeout: float = limits.REPLY_SECONDS_MAX) -> AsyncDatabase:
    """Connects to a daemon, for example at `fjord://127.0.0.1:17994`.

    A connection that breaks is made again, and what can be sent again is, exactly once in effect.

    Args:
        url: the daemon's address.
        timeout: how many seconds a call may take, with all its tries.

    Raises:
        UnavailableError: if nobody answers there.
    """
    connection = AsyncConnection(url, timeout=timeout)
    await connection.open()
    return AsyncDatabase(connection)


class AsyncDatabase:
    """What `fjord.aio.connect` returns; each method is that of `fjord.Database`, awaited."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._clock = SystemClock()
        self._stamps = Stamps(self._clock)

    def __repr__(self) -> str:
        return f"<AsyncDatabase{shown_at(self._connection.name)}>"

    def kv(self, table: str = commands.DEFAULT_TABLE) -> AsyncKv:
        """Returns a key/value table; it comes into being with its first write."""
        calls = KvCalls(table, self._stamps)
        return AsyncKv(self._run, calls, self._listen, name=self._connection.name)

    def jobs(self, table: str, **settings: Unpack[JobSettings]) -> AsyncJobs:
        """Returns a jobs table; it comes into being with its first job."""
        calls = JobCalls(table, self._stamps)
        name = self._connection.name
        return AsyncJobs(self._run, calls, self._listen, name=name, settings=settings)

    async def create_jobs(self, table: str, **settings: Unpack[JobSettings]) -> AsyncJobs:
        await self._run(JobCalls(table, self._stamps).create(settings))
        return self.jobs(table)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Gathers the writes of an `async with` block; they are not awaited, only its end is."""
        gathered = Transaction(self._stamps, name=self._connection.name)
        yield gathered
        gathered.results = await self._run(gathered.call())

    async def tables(self) -> list[TableInfo]:
        return await self._run(node_calls.tables_call())

    async def table(self, name: str) -> TableInfo:
        return await self._run(node_calls.table_call(name))

    async def drop(self, name: str) -> None:
        await self._run(node_calls.drop_call(name))

    async def stats(self) -> dict[str, int]:
        return await self._run(node_calls.stats_call())

    async def ping(self) -> float:
        begun_us = self._clock.monotonic_us()
        await self._run(node_calls.ping_call())
        return (self._clock.monotonic_us() - begun_us) / 1_000_000

    async def scan(
        self, table: str, start_seq: int = 1, end_seq: int = 0
    ) -> AsyncIterator[Scanned]:
        """Yields the durable ops of a table, in order, in bounded pieces."""
        while True:
            piece = await self._run(node_calls.scan_call(table, start_seq, end_seq))
            yield piece
            start_seq, end_seq = piece.next_seq, piece.end_seq
            if start_seq >= end_seq:
                return

    async def close(self) -> None:
        self._connection.close()

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
        return call.result(await self._connection.execute(call.command))

    def _listen(
        self, command: commands.Listen | commands.ListenJobs, read: Callable[[Changed], Told]
    ) -> AsyncChanges[Told]:
        return AsyncChanges(self._connection.address, self._connection.name, command, read)
