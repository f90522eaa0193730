"""Where the queues of a server are: in a directory, or in the jobs tables of a daemon.

In a directory, everything happens on the loop's thread, one request after the other, as a
`Collection` wants it.  Answers of all connections that asked meanwhile wait for one fsync: a
*settling* begins when all that is ready on the loop has been done.  If the fsync fails nobody knows
what is on disk, so nobody gets an answer and the server ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from itertools import compress
from typing import Final
from weakref import WeakKeyDictionary

from fjord import aio, kinds, limits
from fjord.clock import Clock
from fjord.commands import name_problem
from fjord.errors import Code, FjordError, NotFoundError, RefusedError
from fjord.jobs import decode_settings
from fjord.kestrel.codec import Item
from fjord.kestrel.collection import COUNTS, Collection
from fjord.kestrel.config import Configuration
from fjord.values import Value

_log = logging.getLogger("fjord.kestrel")

# How often timeouts are checked within the shortest of them, and the bounds of that.
_TIDIES_PER_BOUND: Final = 4
_TIDY_SECONDS_MIN: Final = 0.01
_TIDY_SECONDS_MAX: Final = 1.0


# Called when open items of a queue are taken from their holders; None = all of that queue.
Forget = Callable[[str, AbstractSet[int] | None], None]


class _Listening:
    """Clients that wait for items, by queue; first come, first served."""

    tidy_seconds: float | None = None  # how often to tidy; None: there is nothing to do
    shares_commits = False  # items that are added together cost no more than one

    def __init__(self) -> None:
        self.counts = dict.fromkeys(COUNTS, 0)
        self._listening: dict[str, dict[asyncio.Future[bool], None]] = {}

    def listen(self, queue: str) -> asyncio.Future[bool]:
        """Returns what becomes true when something may have come into a queue."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._listening.setdefault(queue, {})[future] = None
        return future

    def unlisten(self, queue: str, future: asyncio.Future[bool]) -> None:
        waiting = self._listening.get(queue, {})
        waiting.pop(future, None)
        if not waiting:
            self._listening.pop(queue, None)


class DirectoryBackend(_Listening):
    """A collection that many connections share."""

    def __init__(
        self,
        collection: Collection,
        config: Configuration,
        *,
        read_config: Callable[[], Configuration] | None = None,
    ) -> None:
        """`read_config` reads the configuration again, when somebody asks for it."""
        super().__init__()
        self._collection = collection
        self.counts = collection.counts
        collection.on_item = self.wake
        self._config = config
        self._read_config = read_config
        self._has_traces = False  # somewhere
        self._settling: asyncio.Future[None] | None = None
        self._configure()

    # -- items ------------------------------------------------------------------------------------

    async def add(self, queue: str, items: Sequence[bytes], expires_ms: int) -> list[bool]:
        """Adds items; returns for each whether it was stored."""
        return [self._collection.add(queue, item, expires_ms) for item in items]

    async def remove(self, queue: str, *, opens: bool) -> Item | None:
        return self._collection.remove(queue, opens=opens)

    async def peek(self, queue: str) -> Item | None:
        return self._collection.peek(queue)

    async def confirm(self, queue: str, xid: int) -> bool:
        return self._collection.confirm(queue, xid)

    async def unremove(self, queue: str, xid: int) -> bool:
        return self._collection.unremove(queue, xid)

    # -- queues -----------------------------------------------------------------------------------

    async def flush(self, queue: str) -> None:
        self._collection.flush(queue)

    async def delete(self, queue: str) -> None:
        self._collection.delete(queue)

    async def flush_expired(self, queue: str) -> int:
        return self._collection.flush_expired(queue)

    async def names(self) -> list[str]:
        return self._collection.names()

    async def stats(self, queue: str) -> dict[str, int | str]:
        found = self._collection.stats(queue)
        return {**found, "waiters": len(self._listening.get(queue, ()))} if found else found

    async def reload(self) -> None:
        """Reads the configuration again.

        Raises:
            UsageError: if it is none; then nothing changes.
            OSError: if it cannot be read; the same.
        """
        if self._read_config is not None:
            self._config = self._read_config()
            self._configure()
            self._collection.configure(self._config)

    def traces(self, queue: str) -> bool:
        """Says whether requests for a queue are logged."""
        if not self._has_traces:
            return False
        targets = self._config.aliases.get(queue, (queue,))
        return any(self._config.of(one).enable_trace for one in targets)

    def _configure(self) -> None:
        self._has_traces = any(self._config.given("enable_trace"))
        bounds = [
            bound_ms
            for name in ("max_queue_age_ms", "open_transaction_timeout_ms")
            for bound_ms in self._config.given(name)
            if isinstance(bound_ms, int)
        ]
        wanted = min(bounds, default=0) / 1000 / _TIDIES_PER_BOUND
        bounded = min(max(wanted, _TIDY_SECONDS_MIN), _TIDY_SECONDS_MAX)
        self.tidy_seconds = bounded if bounds else None

    # -- what time brings -------------------------------------------------------------------------

    async def tidy(self, forget: Forget) -> None:
        """Gives back what is open for too long, and deletes queues that nobody uses.

        Raises:
            OSError: if there is no space; the rest is for the next time.
        """
        for queue in self._collection.names():
            xids = self._collection.time_out(queue)
            if xids:
                forget(queue, set(xids))
                fields = {"queue": queue, "items": len(xids)}
                _log.info("items were open for too long", extra={"fields": fields})
            if queue not in self._listening and self._collection.is_unused(queue):
                await self.delete(queue)
                self.counts["queue_expires"] += 1
                _log.info("an unused queue was deleted", extra={"fields": {"queue": queue}})

    # -- answers ----------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Returns when all that was done so far may be answered: it is durable if it has to be.

        Raises:
            FjordError: if the disk does not promise anything.
            OSError: the same.
        """
        if not self._collection.wants_sync and self._settling is None:
            return
        if self._settling is None:
            loop = asyncio.get_running_loop()
            self._settling = loop.create_future()
            loop.call_soon(self._settle)
        await asyncio.shield(self._settling)

    def _settle(self) -> None:
        settling, self._settling = self._settling, None
        assert settling is not None
        try:
            self._collection.sync()
        except (FjordError, OSError) as error:
            settling.set_exception(error)
            settling.exception()  # nobody may be waiting for it any more
        else:
            settling.set_result(None)

    async def close(self) -> None:
        self._collection.close()

    # -- waiting ----------------------------------------------------------------------------------

    def wake(self, queue: str) -> None:
        """Wakes the client that has waited longest for a queue."""
        for future in self._listening.get(queue, ()):
            if not future.done():
                future.set_result(True)
                return


# -- queues that are jobs tables of a daemon, for clients of Kestrel ------------------------------
#
# A queue is a jobs table that does not merge.  An open item is a job under a lease, which is made
# longer for as long as its connection is there; should this process die, the lease ends and
# somebody else gets the job.  The daemon answers when something is durable, so there is nothing
# to settle.
#
# A listener of its table wakes those that wait for a queue.  What arrives while the answer to an
# empty take is under way is not missed: each arrival has a number, and a session that looked before
# the last one looks again instead of waiting.


# An open item of a process that died waits for so long until somebody else gets it.
_LEASE_SECONDS: Final = 60.0
_HEARTBEAT_SECONDS: Final = 15.0
# Tables that are listened to, with a connection each; those that nobody waits for give way.
_LISTENERS_MAX: Final = 256
_FLUSH_COUNT: Final = 1000
# A daemon takes dates a bit further ahead; the rest is for clocks that differ.
_AHEAD_MS_MAX: Final = limits.PROCESS_AHEAD_US_MAX // 1000 - 24 * 3600 * 1000


class JobsBackend(_Listening):
    """The jobs tables of a daemon, as queues."""

    shares_commits = True

    def __init__(self, db: aio.AsyncDatabase, clock: Clock) -> None:
        super().__init__()
        self._db = db
        self._clock = clock
        self._tables: dict[str, aio.AsyncJobs] = {}
        self._open: dict[tuple[str, int], aio.AsyncJob] = {}
        self._listeners: dict[str, asyncio.Task[None]] = {}
        self._arrivals: dict[str, int] = {}  # by queue; how many its listener has seen
        self._seen = WeakKeyDictionary[asyncio.Task[object], int]()  # arrivals when a task looked
        self._heartbeat = asyncio.create_task(self._beat())

    # -- items ------------------------------------------------------------------------------------

    async def add(self, queue: str, items: Sequence[bytes], expires_ms: int) -> list[bool]:
        """Adds items, as many in a commit as fit; returns for each whether it was stored."""
        now_ms = self._clock.wall_us() // 1000
        stored = [len(item) <= limits.VALUE_BYTES_MAX for item in items]
        if 0 < expires_ms <= now_ms:
            return stored  # they have expired already, which a jobs table does not take
        expires_at = None  # that is also for what is further ahead than a daemon takes
        if 0 < expires_ms <= now_ms + _AHEAD_MS_MAX:
            expires_at = datetime.fromtimestamp(expires_ms / 1000, UTC)
        values: list[bytes] = []
        size = 0
        for item in compress(items, stored):
            if values and size + len(item) > limits.VALUE_BYTES_MAX:
                await self._push(queue, values, expires_at)
                values, size = [], 0
            values.append(item)
            size += len(item)
        if values:
            await self._push(queue, values, expires_at)
        return stored

    async def _push(self, queue: str, values: list[bytes], expires_at: datetime | None) -> None:
        try:
            await self._table(queue).push_many(values=values, expires_at=expires_at)
        except RefusedError as error:
            if error.code is not Code.EMPTY_KEY:
                raise
            # Somebody has dropped the table since it was made, so it is made again.
            del self._tables[queue]
            await self._table(queue).push_many(values=values, expires_at=expires_at)

    async def remove(self, queue: str, *, opens: bool) -> Item | None:
        self._look(queue)
        lease = _LEASE_SECONDS if opens else None
        for job in await self._table(queue).next(1, lease=lease, done=not opens):
            if opens:
                self._open[queue, job.xid] = job
            return Item(_bytes(job.value), 0, 0, job.xid if opens else 0)
        return None

    async def peek(self, queue: str) -> Item | None:
        self._look(queue)
        try:
            jobs = await self._table(queue).peek(1)
        except NotFoundError:
            await self._db.create_jobs(queue, merge=False)
            return None
        return Item(_bytes(jobs[0].value), 0, 0) if jobs else None

    async def confirm(self, queue: str, xid: int) -> bool:
        job = self._open.pop((queue, xid), None)
        with contextlib.suppress(RefusedError):  # its lease was over, or its table is gone
            if job is not None:
                await job.done()
                return True
        return False

    async def unremove(self, queue: str, xid: int) -> bool:
        job = self._open.pop((queue, xid), None)
        with contextlib.suppress(FjordError):  # its lease will end
            if job is not None:
                await job.fail(count=False)
                return True
        return False

    # -- queues -----------------------------------------------------------------------------------

    async def flush(self, queue: str) -> None:
        if queue in await self.names():
            while await self._table(queue).next(_FLUSH_COUNT, done=True):
                pass

    async def delete(self, queue: str) -> None:
        self._tables.pop(queue, None)
        if queue in await self.names():  # other tables are not queues
            with contextlib.suppress(NotFoundError):
                await self._db.drop(queue)
        self._open = {key: job for key, job in self._open.items() if key[0] != queue}

    async def flush_expired(self, queue: str) -> int:
        return 0  # the daemon does it

    async def names(self) -> list[str]:
        """Returns the tables that are queues: those of jobs that are not merged."""
        tables = [table for table in await self._db.tables() if table.kind == kinds.Kind.JOBS]
        queues = [one.name for one in tables if not decode_settings(one.settings).merge]
        return sorted(queues)

    async def stats(self, queue: str) -> dict[str, int | str]:
        try:
            counts = await self._table(queue).count()
        except NotFoundError:
            return {}
        return {
            "items": counts.waiting,
            "waiters": len(self._listening.get(queue, ())),
            "open_transactions": counts.taken,
        }

    async def reload(self) -> None:
        pass  # settings of tables are fixed when they are made

    async def settle(self) -> None:
        pass

    def traces(self, queue: str) -> bool:
        return False

    async def tidy(self, forget: Forget) -> None:
        pass

    async def close(self) -> None:
        tasks = [self._heartbeat, *self._listeners.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._db.close()

    # -- waiting ----------------------------------------------------------------------------------

    def listen(self, queue: str) -> asyncio.Future[bool]:
        future = super().listen(queue)
        if self._seen.pop(_current(), -1) != self._arrivals.get(queue, 0):
            future.set_result(True)
        if queue not in self._listeners:
            self._make_room()
            self._listeners[queue] = asyncio.create_task(self._follow(queue))
        return future

    def wake(self, queue: str) -> None:
        """Wakes all that wait: a listener does not know how many items have come."""
        self._arrivals[queue] = self._arrivals.get(queue, 0) + 1
        for future in self._listening.get(queue, ()):
            if not future.done():
                future.set_result(True)

    def _look(self, queue: str) -> None:
        self._seen[_current()] = self._arrivals.get(queue, 0)

    def _make_room(self) -> None:
        idle = [queue for queue in self._listeners if queue not in self._listening]
        if len(self._listeners) >= _LISTENERS_MAX and idle:
            self._listeners.pop(idle[0]).cancel()

    async def _follow(self, queue: str) -> None:
        try:
            async with self._table(queue).listen() as changes:
                self.wake(queue)  # what came before it listened
                async for _ in changes:
                    self.wake(queue)
        except FjordError:
            pass  # those that wait look again, and get the error
        finally:
            if self._listeners.get(queue) is asyncio.current_task():
                del self._listeners[queue]
            self.wake(queue)

    # -- inside -----------------------------------------------------------------------------------

    def _table(self, queue: str) -> aio.AsyncJobs:
        found = self._tables.get(queue)
        if found is None:
            if (problem := name_problem(queue)) is not None:
                raise problem.error()
            found = self._tables[queue] = self._db.jobs(queue, merge=False)
        return found

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            queues = {queue for queue, _ in self._open}
            for queue in queues:
                jobs = [job for (name, _), job in self._open.items() if name == queue]
                with contextlib.suppress(FjordError):
                    await self._table(queue).touch_many(jobs, _LEASE_SECONDS)


Backend = DirectoryBackend | JobsBackend


def _current() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None
    return task


def _bytes(value: Value) -> bytes:
    if isinstance(value, bytes):
        return value
    return b"" if value is None else str(value).encode()
