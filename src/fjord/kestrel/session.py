"""Does what one connection asks for: which items it has open, and what the status allows.

A session does its requests one after the other.  Items that it opens stay its own until it closes
or aborts them, or until it ends: then all go back to the head, in the order that they had there.

A `Backend` knows where the queues are; a `Connection` waits and sends.  No socket is known here.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final

from fjord.kestrel.codec import Item
from fjord.kestrel.config import Status
from fjord.kestrel.protocols import KestrelRequest, Outcome, Reply, Verb

if TYPE_CHECKING:
    from fjord.kestrel.server import Connection, Server

_log = logging.getLogger("fjord.kestrel")

# The version in replies: that of the Kestrel whose behavior this is.  libmemcached, and
# with it memcstat, memcping and PHP, takes a server whose major version is 0 for broken.
VERSION: Final = "2.4.1"

_BLOCKED: Final = Reply(Outcome.BLOCKED)
_DONE: Final = Reply(Outcome.DONE)
_NO_ITEM: Final = Reply(Outcome.ITEM)
# These are blocked when the status is `readonly`.
_WRITES: Final = {verb for verb in Verb if verb.startswith(("put", "flush", "delete"))}


class Session:
    """One connection's requests and open items."""

    def __init__(self, server: Server, peer: Connection) -> None:
        self._server = server
        self._queues = server.backend
        self._clock = server.clock
        self._counts = server.counts
        self._peer = peer
        self._open: dict[str, deque[int]] = {}  # xids by queue, the first opened first

    async def serve(self, request: KestrelRequest) -> Reply:
        """Does what is asked; returns the reply, or the last one of several."""
        if request.verb in _WRITES and self._server.blocks_writes:
            return _BLOCKED
        return await _HANDLERS[request.verb](self, request)

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
        queue, items = request.queue, request.items
        self._counts["cmd_set"] += len(items)
        stored = await self._queues.add(queue, items, self._expires_ms(request))
        count = sum(stored)
        self._counts["total_items"] += count
        if self._queues.traces(queue):
            for item, is_stored in zip(items, stored, strict=True):
                self._trace("put" if is_stored else "put refused", queue, size=len(item))
        return Reply(Outcome.COUNT, count, stored)

    def _expires_ms(self, request: KestrelRequest) -> int:
        if not request.expires_in_ms:
            return request.expires_at_ms
        return max(1, self._clock.wall_us() // 1000 + request.expires_in_ms)

    async def _get(self, request: KestrelRequest) -> Reply:
        for one in request.before:
            reply = await self._get(one)
            if reply.outcome is not Outcome.ITEM:
                return reply
            await self._peer.send(one, Reply(Outcome.MORE, data=reply.data))
        queue, open_max = request.queue, self._server.options.open_max
        if request.aborts:
            await self._close(queue, 1, aborts=True)
            return _NO_ITEM
        await self._close_before(request)
        if request.closes and not request.opens:
            return _NO_ITEM
        if self._open_count(queue) and not request.peeks and not request.opens:
            return Reply(Outcome.HAS_OPEN)
        if self._server.blocks_reads:
            return _BLOCKED
        if request.opens and self._open_count(queue) >= open_max:
            return Reply(Outcome.TOO_MANY_OPEN, item_count=open_max)
        self._counts["cmd_peek" if request.peeks else "cmd_get"] += 1
        item = await self._fetch(request, self._until_us(request))
        return _NO_ITEM if item is None else Reply(Outcome.ITEM, data=bytes(item.data))

    async def _monitor(self, request: KestrelRequest) -> Reply:
        await self._close_before(request)
        if self._server.blocks_reads:
            return _BLOCKED
        until_us = self._until_us(request)
        sent = 0
        while (
            self._open_count(request.queue) < self._server.options.open_max
            and (not request.item_count or sent < request.item_count)
            and self._clock.monotonic_us() < until_us
        ):
            self._counts["cmd_get"] += 1
            item = await self._fetch(request, until_us)
            if item is None:
                break
            await self._peer.send(request, Reply(Outcome.MORE, data=bytes(item.data)))
            sent += 1
        return _NO_ITEM

    async def _fetch(self, request: KestrelRequest, until_us: int) -> Item | None:
        """Takes an item, or looks at it; waits for it as long as was asked for."""
        queue = request.queue
        what = "peek" if request.peeks else "open" if request.opens else "get"
        while True:
            if self._peer.is_crowded:
                await self._make_room(queue)
            if request.peeks:
                item = await self._queues.peek(queue)
            else:
                item = await self._queues.remove(queue, opens=request.opens)
            if item is not None:
                self._counts["get_hits"] += 1
                if request.opens:
                    self._open.setdefault(queue, deque()).append(item.xid)
                elif request.peeks and request.wait_ms:
                    self._queues.wake(queue)  # the item is there still, for the next one
                self._trace(what, queue, item.xid, size=len(item.data))
                return item
            if (
                not request.wait_ms
                or self._server.blocks_reads
                or not await self._peer.wait(queue, until_us)
            ):
                self._counts["get_misses"] += 1
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
                self._queues.wake(queue)  # it may have been woken for the item: wake the next one

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

    async def _close(self, queue: str, count: int, *, aborts: bool = False) -> None:
        """Confirms the items that were opened first, or gives them back."""
        end = self._queues.unremove if aborts else self._queues.confirm
        for _ in range(min(count, self._open_count(queue))):
            xid = self._open[queue][0]
            await end(queue, xid)
            # Not before: if this fails, it has to be given back.
            self.forget(queue, {xid})
            self._trace("abort" if aborts else "close", queue, xid)

    def _open_count(self, queue: str) -> int:
        return len(self._open.get(queue, ()))

    def _until_us(self, request: KestrelRequest) -> int:
        return self._clock.monotonic_us() + request.wait_ms * 1000

    def _trace(self, what: str, queue: str, xid: int = 0, *, size: int | None = None) -> None:
        """Logs what was done, if that is wanted of the queue; the item itself never is."""
        if self._queues.traces(queue):
            fields = {"queue": queue, "client": self._peer.address, "xid": xid, "size": size}
            shown = {name: value for name, value in fields.items() if value not in (0, None)}
            _log.info(what, extra={"fields": shown, "is_asked_for": True})

    # -- queues -----------------------------------------------------------------------------------

    async def _flush(self, request: KestrelRequest) -> Reply:
        for queue in await self._meant(request):
            await self._queues.flush(queue)
        return _DONE

    async def _flush_expired(self, request: KestrelRequest) -> Reply:
        counts = [await self._queues.flush_expired(queue) for queue in await self._meant(request)]
        return Reply(Outcome.COUNT, item_count=sum(counts))

    async def _meant(self, request: KestrelRequest) -> list[str]:
        """Returns the queue of a request, or all of them."""
        return [request.queue] if request.queue else await self._queues.names()

    async def _delete(self, request: KestrelRequest) -> Reply:
        await self._queues.delete(request.queue)
        self._server.forget(request.queue, None)
        return _DONE

    # -- the server -------------------------------------------------------------------------------

    async def _stats(self, request: KestrelRequest) -> Reply:
        match request.words:
            case ("reset",):
                kept = {"curr_connections": self._counts["curr_connections"]}
                self._counts.update(dict.fromkeys(self._counts, 0) | kept)
                self._queues.counts.update(dict.fromkeys(self._queues.counts, 0))
                return _DONE
            case ("settings",):
                options = self._server.options  # of those that memcached has
                most, largest = options.connections_max, options.item_bytes_max
                shown = {"maxconns": most, "item_size_max": largest}
                return Reply(Outcome.FIELDS, fields=_shown({**shown, "cas_enabled": "no"}))
            case ("items" | "slabs" | "sizes",):
                return Reply(Outcome.FIELDS)  # of a memory that no queue has
        queues = {queue: await self._queues.stats(queue) for queue in await self._queues.names()}
        counts = dict(self._counts)
        fields: dict[str, int | str] = {
            "uptime": (self._clock.monotonic_us() - self._server.started_us) // 1_000_000,
            "time": self._clock.wall_us() // 1_000_000,
            "version": VERSION,
            "curr_items": sum(int(one.get("items", 0)) for one in queues.values()),
            "total_items": counts.pop("total_items"),
            "bytes": sum(int(one.get("bytes", 0)) for one in queues.values()),
            "reserved_memory_ratio": "0.000",
            **counts,
            **self._queues.counts,
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
        return Reply(Outcome.WORD, word=VERSION)

    async def _status(self, request: KestrelRequest) -> Reply:
        standing = self._server.standing
        if not request.words:
            return Reply(Outcome.WORD, word=standing.told.value.upper())
        wanted = request.words[0]
        if wanted not in list(Status):
            return Reply(Outcome.BROKEN, word=f"Unknown status: {wanted}")
        standing.change(Status(wanted))
        return _DONE

    async def _reload(self, request: KestrelRequest) -> Reply:
        await self._queues.reload()
        self._server.changed.set()
        return _DONE

    async def _quit(self, request: KestrelRequest) -> Reply:
        if request.verb is Verb.SHUTDOWN:
            self._server.stop()
        return _DONE

    async def _broken(self, request: KestrelRequest) -> Reply:
        return Reply(Outcome.BROKEN)


_HANDLERS: Final[dict[Verb, Callable[[Session, KestrelRequest], Awaitable[Reply]]]] = {
    Verb.PUT: Session._put,
    Verb.GET: Session._get,
    Verb.MONITOR: Session._monitor,
    Verb.CONFIRM: Session._confirm,
    Verb.FLUSH: Session._flush,
    Verb.FLUSH_ALL: Session._flush,
    Verb.FLUSH_EXPIRED: Session._flush_expired,
    Verb.FLUSH_ALL_EXPIRED: Session._flush_expired,
    Verb.DELETE: Session._delete,
    Verb.STATS: Session._stats,
    Verb.DUMP_STATS: Session._dump_stats,
    Verb.VERSION: Session._version,
    Verb.STATUS: Session._status,
    Verb.RELOAD: Session._reload,
    Verb.QUIT: Session._quit,
    Verb.SHUTDOWN: Session._quit,
    Verb.BROKEN: Session._broken,
}


def _shown(fields: dict[str, int | str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(value)) for name, value in fields.items())
