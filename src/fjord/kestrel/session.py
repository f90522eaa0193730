"""What one connection asks for, done: which items it has open, and what the status allows.

A session does its requests one after the other.  Items that it opens stay its own until it closes
or aborts them, or until it ends: then all go back to the head, in the order that they had there.

Where the queues are is the matter of a `Backend`; who waits, and what is sent when, that of a
`Peer`.  Nothing here knows a socket.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Protocol

import fjord
from fjord.clock import Clock
from fjord.kestrel.backends import Backend
from fjord.kestrel.codec import Item
from fjord.kestrel.config import Standing, Status
from fjord.kestrel.protocols import KestrelRequest, Outcome, Reply, Verb

_log = logging.getLogger("fjord.kestrel")


class Peer(Protocol):
    """Who asks."""

    @property
    def address(self) -> str: ...

    @property
    def is_crowded(self) -> bool:
        """Says whether there is little room for items that are to be sent."""
        ...

    async def room(self, item_bytes: int) -> bool:
        """Waits for room for an item; False if there was nothing to wait for."""
        ...

    async def send(self, request: KestrelRequest, reply: Reply) -> None: ...

    async def wait(self, queue: str, until_us: int) -> bool:
        """Returns when it is worth to look again, or False if the time is over."""
        ...


@dataclass(slots=True, kw_only=True)
class House:
    """What all sessions of a server share."""

    clock: Clock
    open_max: int  # items that one session may have open of one queue
    stop: Callable[[], None]  # ends the server
    deleted: Callable[[str], None]  # told that a queue is gone, with all that is open of it
    reloaded: Callable[[], None]  # told that the configuration may be another one
    started_us: int
    standing: Standing
    refuse_writes_over: int | None = None  # connections
    refuse_reads_over: int | None = None  # connections
    connections: int = 0
    total_connections: int = 0
    total_items: int = 0
    cmd_get: int = 0
    cmd_set: int = 0
    cmd_peek: int = 0
    get_hits: int = 0
    get_misses: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def blocks_reads(self) -> bool:
        over = self.refuse_reads_over
        if over is not None and self.connections > over:
            return True
        return self.standing.enforced is Status.QUIESCENT

    @property
    def blocks_writes(self) -> bool:
        over = self.refuse_writes_over
        if over is not None and self.connections > over:
            return True
        return self.standing.enforced is not Status.UP


_BLOCKED: Final = Reply(Outcome.BLOCKED)
_DONE: Final = Reply(Outcome.DONE)
_NO_ITEM: Final = Reply(Outcome.ITEM)
# What changes queues by itself, and is blocked with puts.
_WRITES: Final = frozenset(
    {
        Verb.PUT,
        Verb.FLUSH,
        Verb.FLUSH_ALL,
        Verb.FLUSH_EXPIRED,
        Verb.FLUSH_ALL_EXPIRED,
        Verb.DELETE,
    }
)


class Session:
    """One connection's requests and open items."""

    def __init__(self, queues: Backend, house: House, peer: Peer) -> None:
        self._queues = queues
        self._house = house
        self._peer = peer
        self._open: dict[str, deque[int]] = {}  # xids by queue, the first opened first
        self._done: dict[Verb, Callable[[KestrelRequest], Awaitable[Reply]]] = {
            Verb.PUT: self._put,
            Verb.GET: self._get,
            Verb.MONITOR: self._monitor,
            Verb.CONFIRM: self._confirm,
            Verb.FLUSH: self._flush,
            Verb.FLUSH_ALL: self._flush_all,
            Verb.FLUSH_EXPIRED: self._flush_expired,
            Verb.FLUSH_ALL_EXPIRED: self._flush_all_expired,
            Verb.DELETE: self._delete,
            Verb.STATS: self._stats,
            Verb.DUMP_STATS: self._dump_stats,
            Verb.VERSION: self._version,
            Verb.STATUS: self._status,
            Verb.RELOAD: self._reload,
            Verb.QUIT: self._quit,
            Verb.SHUTDOWN: self._shutdown,
            Verb.BROKEN: self._broken,
        }

    async def serve(self, request: KestrelRequest) -> Reply:
        """Does what is asked; returns the reply, or the last one of several."""
        if request.verb in _WRITES and self._house.blocks_writes:
            return _BLOCKED
        return await self._done[request.verb](request)

    async def abort_all(self) -> None:
        """Gives back all that is open, the last opened first, so that their order is kept.

        Raises:
            OSError: if there is no space; what is not given back is open still.
        """
        for queue in list(self._open):
            xids = self._open[queue]
            while xids:
                await self._queues.unremove(queue, xids[-1])
                self._trace("abort", queue, xids.pop())
            del self._open[queue]

    @property
    def has_open(self) -> bool:
        return bool(self._open)

    def held(self) -> list[tuple[str, int]]:
        """Returns queues and xids of all that is open."""
        return [(queue, xid) for queue, xids in self._open.items() for xid in xids]

    def forget(self, queue: str, xids: AbstractSet[int] | None) -> None:
        """These items of a queue are its own no more; None: none of them are."""
        mine = self._open.pop(queue, None)
        if mine is None or xids is None:
            return
        left = deque(xid for xid in mine if xid not in xids)
        if left:
            self._open[queue] = left

    # -- items ------------------------------------------------------------------------------------

    async def _put(self, request: KestrelRequest) -> Reply:
        expires_ms = self._expires_ms(request)
        stored = 0
        for item in request.items:
            self._house.cmd_set += 1
            is_stored = await self._queues.add(request.queue, item, expires_ms)
            stored += is_stored
            self._trace("put" if is_stored else "put refused", request.queue, size=len(item))
        self._house.total_items += stored
        return Reply(Outcome.COUNT, item_count=stored)

    def _expires_ms(self, request: KestrelRequest) -> int:
        if not request.expires_in_ms:
            return request.expires_at_ms
        return max(1, self._house.clock.wall_us() // 1000 + request.expires_in_ms)

    async def _get(self, request: KestrelRequest) -> Reply:
        for one in request.before:
            reply = await self._get(one)
            if reply.outcome is not Outcome.ITEM:
                return reply
            await self._peer.send(one, Reply(Outcome.MORE, data=reply.data))
        house, queue = self._house, request.queue
        if request.aborts:
            await self._abort(queue)
            return _NO_ITEM
        await self._close_before(request)
        if request.closes and not request.opens:
            return _NO_ITEM
        if self._open_count(queue) and not request.peeks and not request.opens:
            return Reply(Outcome.HAS_OPEN)
        if house.blocks_reads:
            return _BLOCKED
        if request.opens and self._open_count(queue) >= house.open_max:
            return Reply(Outcome.TOO_MANY_OPEN, item_count=house.open_max)
        house.cmd_peek += request.peeks
        house.cmd_get += not request.peeks
        item = await self._fetch(request, self._until_us(request))
        return _NO_ITEM if item is None else Reply(Outcome.ITEM, data=bytes(item.data))

    async def _monitor(self, request: KestrelRequest) -> Reply:
        await self._close_before(request)
        if self._house.blocks_reads:
            return _BLOCKED
        until_us = self._until_us(request)
        sent = 0
        while (
            self._open_count(request.queue) < self._house.open_max
            and (not request.item_count or sent < request.item_count)
            and self._house.clock.monotonic_us() < until_us
        ):
            self._house.cmd_get += 1
            item = await self._fetch(request, until_us)
            if item is None:
                break
            await self._peer.send(request, Reply(Outcome.MORE, data=bytes(item.data)))
            sent += 1
        return _NO_ITEM

    async def _fetch(self, request: KestrelRequest, until_us: int) -> Item | None:
        """Takes an item, or looks at it; waits for it as long as was asked for."""
        queue, house = request.queue, self._house
        what = "peek" if request.peeks else "open" if request.opens else "get"
        while True:
            if self._peer.is_crowded:
                await self._make_room(queue)
            if request.peeks:
                item = await self._queues.peek(queue)
            else:
                item = await self._queues.remove(queue, opens=request.opens)
            if item is not None:
                house.get_hits += 1
                if request.opens:
                    self._open.setdefault(queue, deque()).append(item.xid)
                elif request.peeks and request.wait_ms:
                    self._queues.wake(queue)  # the item is there still, for the next one
                self._trace(what, queue, item.xid, size=len(item.data))
                return item
            if (
                not request.wait_ms
                or house.blocks_reads
                or not await self._peer.wait(queue, until_us)
            ):
                house.get_misses += 1
                self._trace(f"{what} nothing", queue)
                return None

    async def _make_room(self, queue: str) -> None:
        """Waits until the item at the head may be taken: what is taken has to be sent."""
        is_made = False
        try:
            while self._peer.is_crowded:
                item = await self._queues.peek(queue)
                if item is None or not await self._peer.room(len(item.data)):
                    break
            is_made = True
        finally:
            if not is_made:
                self._queues.wake(queue)  # if it was told of the item, that is for the next one

    async def _confirm(self, request: KestrelRequest) -> Reply:
        if self._open_count(request.queue) < request.item_count:
            return Reply(Outcome.NOT_OPEN)
        await self._close(request.queue, request.item_count)
        return _DONE

    async def _close_before(self, request: KestrelRequest) -> None:
        if request.closes_all:
            await self._close(request.queue, self._open_count(request.queue))
        elif request.closes:
            await self._close(request.queue, 1)

    async def _close(self, queue: str, count: int) -> None:
        for _ in range(min(count, self._open_count(queue))):
            xid = self._open[queue][0]
            await self._queues.confirm(queue, xid)
            self._pop(queue)
            self._trace("close", queue, xid)

    async def _abort(self, queue: str) -> None:
        if self._open_count(queue):
            xid = self._open[queue][0]
            await self._queues.unremove(queue, xid)
            self._pop(queue)
            self._trace("abort", queue, xid)

    def _pop(self, queue: str) -> None:
        """The item that was opened first is done: not before, as then it has to be given back."""
        xids = self._open[queue]
        xids.popleft()
        if not xids:
            del self._open[queue]

    def _open_count(self, queue: str) -> int:
        return len(self._open.get(queue, ()))

    def _until_us(self, request: KestrelRequest) -> int:
        return self._house.clock.monotonic_us() + request.wait_ms * 1000

    def _trace(self, what: str, queue: str, xid: int = 0, *, size: int | None = None) -> None:
        """Logs what was done, if that is wanted of the queue; the item itself never is."""
        if self._queues.traces(queue):
            fields = {"queue": queue, "client": self._peer.address, "xid": xid, "size": size}
            shown = {name: value for name, value in fields.items() if value not in (0, None)}
            _log.info(what, extra={"fields": shown, "is_asked_for": True})

    # -- queues -----------------------------------------------------------------------------------

    async def _flush(self, request: KestrelRequest) -> Reply:
        await self._queues.flush(request.queue)
        return _DONE

    async def _flush_all(self, request: KestrelRequest) -> Reply:
        for queue in await self._queues.names():
            await self._queues.flush(queue)
        return _DONE

    async def _flush_expired(self, request: KestrelRequest) -> Reply:
        return Reply(Outcome.COUNT, item_count=await self._queues.flush_expired(request.queue))

    async def _flush_all_expired(self, request: KestrelRequest) -> Reply:
        counts = [await self._queues.flush_expired(queue) for queue in await self._queues.names()]
        return Reply(Outcome.COUNT, item_count=sum(counts))

    async def _delete(self, request: KestrelRequest) -> Reply:
        await self._queues.delete(request.queue)
        self._house.deleted(request.queue)
        return _DONE

    # -- the server -------------------------------------------------------------------------------

    async def _stats(self, request: KestrelRequest) -> Reply:
        house = self._house
        queues = {queue: await self._queues.stats(queue) for queue in await self._queues.names()}
        fields: dict[str, int | str] = {
            "uptime": (house.clock.monotonic_us() - house.started_us) // 1_000_000,
            "time": house.clock.wall_us() // 1_000_000,
            "version": fjord.__version__,
            "curr_items": sum(int(one.get("items", 0)) for one in queues.values()),
            "total_items": house.total_items,
            "bytes": sum(int(one.get("bytes", 0)) for one in queues.values()),
            "reserved_memory_ratio": "0.000",
            "curr_connections": house.connections,
            "total_connections": house.total_connections,
            "cmd_get": house.cmd_get,
            "cmd_set": house.cmd_set,
            "cmd_peek": house.cmd_peek,
            "get_hits": house.get_hits,
            "get_misses": house.get_misses,
            "bytes_read": house.bytes_read,
            "bytes_written": house.bytes_written,
            **self._queues.counts(),
        }
        for queue, one in queues.items():
            fields |= {f"queue_{queue}_{name}": value for name, value in one.items()}
        return Reply(Outcome.FIELDS, fields=_shown(fields))

    async def _dump_stats(self, request: KestrelRequest) -> Reply:
        known = await self._queues.names()
        wanted = [queue for queue in known if not request.words or queue in request.words]
        shown = [(queue, _shown(await self._queues.stats(queue))) for queue in wanted]
        return Reply(Outcome.QUEUES, queues=tuple(shown))

    async def _version(self, request: KestrelRequest) -> Reply:
        return Reply(Outcome.WORD, word=fjord.__version__)

    async def _status(self, request: KestrelRequest) -> Reply:
        if not request.words:
            return Reply(Outcome.WORD, word=self._house.standing.told.value)
        wanted = request.words[0]
        if wanted not in list(Status):
            return Reply(Outcome.BROKEN, word=f"Unknown status: {wanted}")
        self._house.standing.change(Status(wanted))
        return _DONE

    async def _reload(self, request: KestrelRequest) -> Reply:
        await self._queues.reload()
        self._house.reloaded()
        return _DONE

    async def _quit(self, request: KestrelRequest) -> Reply:
        return _DONE

    async def _shutdown(self, request: KestrelRequest) -> Reply:
        self._house.stop()
        return _DONE

    async def _broken(self, request: KestrelRequest) -> Reply:
        return Reply(Outcome.BROKEN)


def _shown(fields: dict[str, int | str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(value)) for name, value in fields.items())
