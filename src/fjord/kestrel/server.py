"""Serves queues over the memcache and the text protocol.

A connection has one task, which does its requests in order; replies are collected and sent when
there is nothing more to do, or when there are many, after the backend has settled.  A get that
waits is woken when an item comes.  A client that disconnects, or closes its sending side, no longer
waits; the items that it has open go back to the head.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, cast

from fjord import disk as disks
from fjord import limits
from fjord.clock import Clock
from fjord.errors import Code, DurabilityError, FjordError, RefusedError
from fjord.kestrel import protocols
from fjord.kestrel.backends import Backend
from fjord.kestrel.config import ServerConfig, Standing, Status
from fjord.kestrel.protocols import KestrelRequest, MemcacheReader, Outcome, Reply, TextReader, Verb
from fjord.kestrel.session import Session

_RETRY_SECONDS: Final = 1.0
# What a server counts, in the order of `stats`.
_COUNTS: Final = (
    "total_items",
    "curr_connections",
    "total_connections",
    "cmd_get",
    "cmd_set",
    "cmd_peek",
    "get_hits",
    "get_misses",
    "bytes_read",
    "bytes_written",
)


@contextlib.contextmanager
def _bearing() -> Iterator[None]:
    """Logs a full disk; what is done in here is tried again later."""
    try:
        yield
    except OSError as error:
        if not disks.is_full(error):
            raise
        _log.warning("the disk is full", extra={"fields": {"error": error}})


# Four of the largest items.  Python and the kernel have some more of each while it is passed on.
BYTES_MAX: Final = 256 * limits.MIB
# Of each connection, and not counted: some requests of usual size.
FREE_BYTES: Final = 32 * limits.KIB
# A client that reads gets the largest item in that time.
_STALLED_US: Final = 30_000_000
_LOOK_SECONDS: Final = 1.0


class ConnectionMemory:
    """The bytes of all connections."""

    def __init__(self, clock: Clock, bytes_max: int = BYTES_MAX) -> None:
        self._clock = clock
        self._bytes_max = bytes_max
        self._over_bytes = bytes_max + bytes_max // 4
        self.used = 0
        # How to end a client that does not read, and since when; the longest first.
        self._stalled: dict[Callable[[], None], int] = {}
        self._released = asyncio.Event()

    @property
    def is_over(self) -> bool:
        return self.used >= self._over_bytes

    def change(self, bytes_more: int) -> None:
        """Counts bytes that are kept, or, below 0, that are kept no more."""
        self.used += bytes_more
        if bytes_more < 0:
            self._released.set()

    def fits(self, bytes_more: int) -> bool:
        """Says whether there is room for more bytes."""
        if self.used + bytes_more > self._bytes_max:
            self._drop_stalled()
        return self.used + bytes_more <= self._bytes_max

    async def room(self) -> None:
        """Returns when an item may be taken, which is counted then."""
        while self.is_over:
            self._released.clear()
            self._drop_stalled()  # which may release some
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._released.wait(), _LOOK_SECONDS)

    def stall(self, drop: Callable[[], None]) -> None:
        """Notes that a client does not read, and how its connection is ended."""
        self._stalled[drop] = self._clock.monotonic_us()

    def unstall(self, drop: Callable[[], None]) -> None:
        self._stalled.pop(drop, None)

    def _drop_stalled(self) -> None:
        before_us = self._clock.monotonic_us() - _STALLED_US
        for drop, since_us in list(self._stalled.items()):
            if since_us > before_us:
                return
            del self._stalled[drop]
            drop()


_log = logging.getLogger("fjord.kestrel")

# What a client sends ahead of its replies is read up to here; an item may be larger.
_AHEAD_BYTES_MAX: Final = 1024 * 1024
# Replies that wait for the backend; more are sent first.
_REPLIES_MAX: Final = 256
_REPLY_BYTES_MAX: Final = 1024 * 1024
# A longer wait is made of several, so that no timer has to count to the end of time.
_WAIT_SECONDS_MAX: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions(ServerConfig):
    """How a server behaves: what its configuration says, and what the command line does."""

    item_bytes_max: int = protocols.ITEM_BYTES_MAX
    connections_max: int = 10_000
    is_exact: bool = False  # memcache replies are those of Kestrel, byte for byte
    memory_bytes_max: int = BYTES_MAX  # that all connections keep together
    awake_us: int = 0  # how long to stay awake after a reply, 0 = sleep at once


_Reader = MemcacheReader | TextReader


class Server:
    """Queues, served on listening sockets."""

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        options: ServerOptions,
        standing: Standing | None = None,
    ) -> None:
        self.backend = backend
        self.clock = clock
        self.options = options
        self.standing = standing or Standing(clock)
        self.started_us = clock.monotonic_us()
        self.counts = dict.fromkeys(_COUNTS, 0)
        self.idle_seconds = None if options.idle_ms is None else options.idle_ms / 1000
        self.memory = ConnectionMemory(clock, options.memory_bytes_max)
        self._awake_until_us = 0
        self._is_awake = False
        self._stopped = asyncio.Event()
        self._failure: BaseException | None = None
        self._listeners: list[asyncio.Server] = []
        self._connections: set[Connection] = set()
        self.changed = asyncio.Event()  # the sweeper looks again what there is to do
        self.orphans: list[Session] = []  # whose connections are gone, with items open
        self._sweeping: asyncio.Task[None] | None = None
        # When what has expired is looked for again.
        self._expiry_us = self.started_us + (options.sweep_ms or 0) * 1000

    async def start(self, at: socket.socket, text_at: socket.socket | None = None) -> None:
        """Accepts connections; the first socket is for memcache."""
        largest, is_exact = self.options.item_bytes_max, self.options.is_exact
        await self._listen(at, lambda: MemcacheReader(largest, is_exact=is_exact))
        if text_at is not None:
            await self._listen(text_at, lambda: TextReader(largest))
        self._sweeping = asyncio.create_task(self._sweep())

    def stop(self) -> None:
        self._stopped.set()

    async def run(self) -> None:
        """Serves until it is stopped, then ends all connections and closes the backend.

        Raises:
            FjordError: if the disk failed; OSError likewise.
        """
        await self._stopped.wait()
        await self.close()
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._failure is None:
            await self.backend.settle()  # what waits for it is answered before it is ended
            await self._give_back()
        tasks = [one.end() for one in list(self._connections)]
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._failure is None:
            await self.backend.settle()
            await self.backend.close()

    async def _give_back(self) -> None:
        """Gives back open items of all sessions in the order that they had."""
        sessions = [one.session for one in self._connections]
        held = sorted({one for session in sessions for one in session.held()}, reverse=True)
        with contextlib.suppress(OSError):  # each connection tries again, and logs it
            for queue, xid in held:
                await self.backend.unremove(queue, xid)
                self.forget(queue, {xid})

    def replied(self) -> None:
        """Keeps the loop awake for a moment: most clients ask again at once.

        Waking a processor takes longer than serving a request.
        """
        if self.options.awake_us:
            self._awake_until_us = self.clock.monotonic_us() + self.options.awake_us
            if not self._is_awake:
                self._stay_awake()

    def _stay_awake(self) -> None:
        self._is_awake = self.clock.monotonic_us() < self._awake_until_us
        if self._is_awake:
            asyncio.get_running_loop().call_soon(self._stay_awake)

    def fail(self, error: BaseException) -> None:
        """Ends the server: nobody knows what is on disk."""
        _log.critical("the disk failed", extra={"fields": {"error": error}})
        self._failure = self._failure or error
        self.stop()

    def joined(self, connection: Connection) -> bool:
        """Takes a connection in; False if there are too many."""
        if len(self._connections) >= self.options.connections_max or self._stopped.is_set():
            return False
        self._connections.add(connection)
        self.counts["curr_connections"] += 1
        self.counts["total_connections"] += 1
        return True

    def left(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self.counts["curr_connections"] -= 1

    def adopt(self, session: Session) -> None:
        """Takes over what a connection has left open."""
        self.orphans.append(session)
        self.changed.set()

    def forget(self, queue: str, xids: AbstractSet[int] | None) -> None:
        """Lets sessions forget open items of a queue; None: all of them."""
        for session in [one.session for one in self._connections] + self.orphans:
            session.forget(queue, xids)

    @property
    def blocks_reads(self) -> bool:
        return self._is_over(self.options.refuse_reads_over) or (
            self.standing.enforced is Status.QUIESCENT
        )

    @property
    def blocks_writes(self) -> bool:
        return self._is_over(self.options.refuse_writes_over) or (
            self.standing.enforced is not Status.UP
        )

    def _is_over(self, connections_max: int | None) -> bool:
        return connections_max is not None and self.counts["curr_connections"] > connections_max

    async def _listen(self, at: socket.socket, read: Callable[[], _Reader]) -> None:
        loop = asyncio.get_running_loop()
        self._listeners.append(await loop.create_server(lambda: Connection(self, read()), sock=at))

    # -- what time brings -------------------------------------------------------------------------

    async def _sweep(self) -> None:
        """Looks for what expires, times out or was left open, as often as each asks for."""
        try:
            while True:
                left_us = max(1, self._expiry_us - self.clock.monotonic_us())
                expiry_seconds = left_us / 1_000_000 if self.options.sweep_ms else None
                retry_seconds = _RETRY_SECONDS if self.orphans else None
                periods = (expiry_seconds, self.backend.tidy_seconds, retry_seconds)
                with contextlib.suppress(TimeoutError):
                    seconds = min(filter(None, periods), default=None)
                    await asyncio.wait_for(self.changed.wait(), seconds)
                    self.changed.clear()
                    continue
                await self._sweep_once()
        except (FjordError, OSError) as error:
            self.fail(error)

    async def _sweep_once(self) -> None:
        for session in self.orphans:
            with _bearing():
                await session.abort_all()
        self.orphans = [session for session in self.orphans if session.has_open]
        if self.backend.tidy_seconds is not None:
            with _bearing():
                await self.backend.tidy(self.forget)
        now_us = self.clock.monotonic_us()
        if self.options.sweep_ms and now_us >= self._expiry_us:
            self._expiry_us = now_us + self.options.sweep_ms * 1000
            for queue in await self.backend.names():
                with _bearing():
                    await self.backend.flush_expired(queue)
        await self.backend.settle()


class Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, server: Server, reader: _Reader) -> None:
        self._server = server
        self._reader = reader
        self._ahead: KestrelRequest | None = None  # the next one, if it was read already
        self.session = Session(server, self)
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()  # bytes came, or the end
        self._writable = asyncio.Event()
        self._writable.set()
        self._waiting: asyncio.Future[bool] | None = None
        self._replies: list[bytes] = []
        self._replies_bytes = 0
        self._unsent_bytes = 0  # that the client does not take
        self._counted_bytes = 0  # of all that is kept, what the server knows of
        self._is_refused = False  # it has sent more than there is room for
        self._is_eof = False
        self._is_ending = False
        self._is_busy = False

    # -- callbacks of the loop --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = made = cast(asyncio.Transport, transport)  # that of uvloop is no subclass
        if not self._server.joined(self):
            made.abort()
            return
        made.set_write_buffer_limits(high=FREE_BYTES)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def data_received(self, data: bytes) -> None:
        self._server.counts["bytes_read"] += len(data)
        self._news.set()
        if self._is_refused or not self._fits(len(data)):
            self._is_refused = True
            return
        self._reader.receive(data)
        if self._is_busy and self._reader.kept_bytes > _AHEAD_BYTES_MAX:
            assert self._transport is not None
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._is_eof = True
        self._news.set()
        if self._waiting is not None:
            _tell(self._waiting, arrived=False)
        return True  # what was asked before is still answered

    def connection_lost(self, error: Exception | None) -> None:
        self._writable.set()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def end(self) -> asyncio.Task[None]:
        """Ends the connection; its open items are given back."""
        assert self._task is not None
        self._task.cancel()
        return self._task

    # -- requests ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._serve()
        except (FjordError, OSError) as error:
            self._server.fail(error)
        except Exception as error:  # noqa: BLE001 - a mistake of ours costs a connection alone
            _log.exception("a request failed", extra={"fields": {"error": repr(error)}})
        finally:
            try:
                await self._give_back()
            finally:
                self._server.left(self)
                self._recount(ended=True)
                assert self._transport is not None
                self._transport.close()

    async def _give_back(self) -> None:
        """Gives back all open items; those that find no space on the disk are given back later."""
        try:
            with _bearing():
                await self.session.abort_all()
            if self.session.has_open:
                self._server.adopt(self.session)
        except (FjordError, OSError) as error:
            self._server.fail(error)

    async def _serve(self) -> None:
        shares_commits = self._server.backend.shares_commits
        while not self._is_ending:
            self._news.clear()
            request = self._ahead or self._reader.next_request()
            if request is not None:
                self._ahead, self._is_busy = None, True
                if shares_commits and request.verb is Verb.PUT:
                    await self._put(request)
                else:
                    await self.send(request, await self._reply(request))
                continue
            if self._is_refused:
                self._replies.append(self._reader.NO_MEMORY)
                break
            await self._flush()
            self._resume()
            if self._news.is_set():
                continue
            if self._is_eof:
                return
            try:
                await asyncio.wait_for(self._news.wait(), self._server.idle_seconds)
            except TimeoutError:
                return
        await self._flush()

    async def _put(self, first: KestrelRequest) -> None:
        """Does a put, with those after it that may share its commit; each has its own reply."""
        requests, items, size = [first], first.items, sum(map(len, first.items))
        while len(requests) < _REPLIES_MAX and (more := self._reader.next_request()) is not None:
            size += sum(map(len, more.items))
            if more[:2] != first[:2] or more[3:5] != first[3:5] or size > FREE_BYTES:
                # Of another queue or expiry, or too much: one commit has all of these, or none.
                self._ahead = more
                break
            requests.append(more)
            items += more.items
        reply = await self._reply(first._replace(items=items))
        at = 0
        for request in requests:
            if reply.stored:
                part = reply.stored[at : at + len(request.items)]
                reply = reply._replace(item_count=sum(part))
                at += len(part)
            await self.send(request, reply)
            if self._is_ending:
                return

    async def _reply(self, request: KestrelRequest) -> Reply:
        """Does a request; a failure ends the connection, not the server."""
        try:
            return await self.session.serve(request)
        except DurabilityError:
            raise
        except (FjordError, OSError) as error:
            if isinstance(error, RefusedError) and error.code is Code.BAD_NAME:
                return Reply(Outcome.BROKEN, word=error.text)
            fields = {"verb": request.verb.value, "queue": request.queue, "error": error}
            _log.warning("a request failed", extra={"fields": fields})
            return Reply(Outcome.FAILED)

    def _resume(self) -> None:
        self._is_busy = False
        self._recount()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # -- what the session asks for ----------------------------------------------------------------

    async def send(self, request: KestrelRequest, reply: Reply) -> None:
        data, ends = self._reader.encode(request, reply)
        self._is_ending = self._is_ending or ends
        if data:
            self._replies.append(data)
            self._replies_bytes += len(data)
            if self._replies_bytes > FREE_BYTES:
                self._recount()
        if len(self._replies) >= _REPLIES_MAX or self._replies_bytes >= _REPLY_BYTES_MAX:
            await self._flush()

    @property
    def address(self) -> str:
        assert self._transport is not None
        peer = self._transport.get_extra_info("peername")
        return f"{peer[0]}:{peer[1]}" if peer else "unknown"

    @property
    def is_crowded(self) -> bool:
        return self._server.memory.is_over

    async def room(self, item_bytes: int) -> bool:
        if self._replies:
            await self._flush()
        elif item_bytes > FREE_BYTES:
            await self._server.memory.room()
        else:
            return False
        return True

    async def wait(self, queue: str, until_us: int) -> bool:
        if self._replies:
            await self._flush()
            return True
        clock, backend = self._server.clock, self._server.backend
        left_us = until_us - clock.monotonic_us()
        if self._has_ended() or left_us <= 0:
            return False
        loop = asyncio.get_running_loop()
        self._waiting = future = backend.listen(queue)
        seconds = min(left_us / 1_000_000, _WAIT_SECONDS_MAX)
        timer = loop.call_later(seconds, lambda: _tell(future, arrived=False))
        arrived = False
        try:
            arrived = await future
        except asyncio.CancelledError:
            # It was woken for an item that it will not take, so wake the next one.
            if future.done() and not future.cancelled() and future.result():
                backend.unlisten(queue, future)
                backend.wake(queue)
            raise
        finally:
            timer.cancel()
            backend.unlisten(queue, future)
            self._waiting = None
        return arrived or (not self._has_ended() and clock.monotonic_us() < until_us)

    def _has_ended(self) -> bool:
        return self._is_eof  # a method, as it changes while others wait

    async def _flush(self) -> None:
        """Sends what is gathered, when the backend has settled."""
        if not self._replies:
            return
        await self._server.backend.settle()
        data = b"".join(self._replies)
        self._replies.clear()
        self._replies_bytes = 0
        assert self._transport is not None
        self._server.counts["bytes_written"] += len(data)
        self._transport.write(data)
        self._server.replied()
        if not self._writable.is_set():
            await self._drain(self._transport)
        self._recount()

    async def _drain(self, transport: asyncio.Transport) -> None:
        """Waits for a client that does not read; it asks for nothing meanwhile."""
        memory = self._server.memory
        self._unsent_bytes = transport.get_write_buffer_size()
        self._recount()
        memory.stall(self.drop)
        try:
            await self._writable.wait()
        finally:
            memory.unstall(self.drop)
            self._unsent_bytes = 0

    # -- memory -----------------------------------------------------------------------------------

    def drop(self) -> None:
        """Ends a connection whose client does not read, for others that want the room."""
        _log.warning("a client does not read", extra={"fields": {"client": self.address}})
        self._unsent_bytes = 0
        self._recount(ended=True)
        assert self._transport is not None
        self._transport.abort()

    def _fits(self, more_bytes: int) -> bool:
        """Counts bytes that are received; says whether there was room."""
        more_bytes = self._kept_bytes(more_bytes) - self._counted_bytes
        fits = more_bytes <= 0 or self._server.memory.fits(more_bytes)
        if fits and more_bytes > 0:
            self._count(more_bytes)
        return fits

    def _recount(self, *, ended: bool = False) -> None:
        self._count((0 if ended else self._kept_bytes()) - self._counted_bytes)

    def _count(self, more_bytes: int) -> None:
        if more_bytes:
            self._server.memory.change(more_bytes)
            self._counted_bytes += more_bytes

    def _kept_bytes(self, more_bytes: int = 0) -> int:
        kept = self._reader.kept_bytes + self._replies_bytes + self._unsent_bytes
        return max(0, kept + more_bytes - FREE_BYTES)


def _tell(future: asyncio.Future[bool], *, arrived: bool) -> None:
    if not future.done():
        future.set_result(arrived)
