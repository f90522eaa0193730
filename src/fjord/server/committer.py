"""Group commit: everything that arrived while the last fsync ran is the next group.

    submit -> waiting -> run (decide, apply, write, commit) -> sync -> replies leave
                                                                    -> listeners are told
                                                                    -> who waits is woken
                                                                    -> a step of upkeep, if due

The engine runs on the loop's thread and never across an await.  Only fdatasync runs elsewhere,
and not even that when the group is one small request: handing it over costs more than it gains.
Nobody waits for a timer.  Scans and cold blocks are read beside the groups, on other threads.

A processor that sleeps takes a while to wake, as long as half an fsync where it is a virtual one.
So the loop stays awake for a moment after each reply, in case the client has another request.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from fjord import limits
from fjord.clock import Clock
from fjord.commands import Changed, Command, Refusal, Reply, Scan, Span
from fjord.engine import Engine
from fjord.engine.cold import LazyCold
from fjord.engine.watching import NO_NEWS
from fjord.errors import Code
from fjord.server import job_events, logs, reading, scans
from fjord.server.counters import Counters
from fjord.server.job_events import JobEvents
from fjord.server.listeners import Listeners, Told
from fjord.server.origin import After, Origin, Settle
from fjord.server.reading import Reads
from fjord.server.upkeep import Upkeep
from fjord.server.wakeups import Wakeups
from fjord.server.worker import Beside, Worker
from fjord.wire.wakeups import What

# Blocks that are read at the same time; each may hold one answer.
_COLD_THREADS: Final = 2
# So long after a write it is looked at what all of them have come to: dead jobs, blocks to write.
_LOOK_SECONDS: Final = 1.0
# Turns of the loop, while it stays awake, after which the clock is read.
_AWAKE_TURNS: Final = 32


class Pending(NamedTuple):
    """A command that waits for its group, or is in it."""

    origin: Origin
    client: int
    request: Any
    command: Command
    after: After | None
    settle: Settle | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a committer works with."""

    engine: Engine
    loop: asyncio.AbstractEventLoop
    clock: Clock
    counters: Counters
    listeners: Listeners
    on_failure: Callable[[Exception], None]
    awake_us: int  # how long to stay awake after a reply, 0 = sleep at once
    cold: LazyCold | None = None  # reads blocks
    on_writes: Callable[[], None] = lambda: None  # called a moment after something was written
    wakeups: Wakeups | None = None  # None: none are sent


class _Waiting:
    """What waits for a group, by who asks for it: each has a share of every group.

    So whoever asks for little is in the next group, however much others have asked for.
    """

    def __init__(self) -> None:
        self.queues: OrderedDict[Origin, deque[Pending]] = OrderedDict()

    def put_back(self, taken: Sequence[Pending]) -> None:
        """Lets what was taken be the next again, in the same order."""
        for pending in reversed(taken):
            origin = pending.origin
            if origin not in self.queues:
                self.queues[origin] = deque()
            self.queues[origin].appendleft(pending)
            self.queues.move_to_end(origin, last=False)

    def take(self, set_aside: Callable[[Pending], None]) -> list[Pending]:
        """Takes commands up to the bound, or up to one after which something has to be done."""
        queues = self.queues
        group: list[Pending] = []
        while queues:
            share = max(1, limits.GROUP_COMMANDS_MAX // len(queues))
            for origin in list(itertools.islice(queues, limits.GROUP_COMMANDS_MAX)):
                queue = queues[origin]
                queues.move_to_end(origin)
                for _ in range(min(share, len(queue))):
                    pending = queue.popleft()
                    if not queue:
                        del queues[origin]
                    if origin.is_stalled:
                        set_aside(pending)
                        continue
                    group.append(pending)
                    if pending.after is not None or len(group) == limits.GROUP_COMMANDS_MAX:
                        return group
        return group


class Committer:
    """Runs the commands of all sessions on one engine."""

    def __init__(self, parts: Parts) -> None:
        self._engine = parts.engine
        self._loop = parts.loop
        self._clock = parts.clock
        self._counters = parts.counters
        self._listeners = parts.listeners
        self._on_failure = parts.on_failure
        self._awake_us = parts.awake_us
        self._on_writes = parts.on_writes
        self._wakeups = parts.wakeups
        self._awake_until_us = 0
        self._is_awake = False
        # A call that lets the loop turn some times and then looks: each turn asks for the next.
        self._turn: tuple[Any, ...] = (self._stay_awake,)
        for _ in range(1, _AWAKE_TURNS):
            self._turn = (parts.loop.call_soon, *self._turn)
        self._waiting = _Waiting()
        self._held: list[Pending] = []  # of peers that do not take their replies
        self._told: list[Told] = []  # changes to tell when they are durable
        self._scheduled = False
        self._syncing = False
        self._has_written = False  # what others have to hear of
        self._is_sooner = False  # upkeep may be due earlier than it said
        self._look_timer: asyncio.TimerHandle | None = None
        self._begun_us = 0  # when the group began that is under way
        self._is_disk_full = False
        self._drained: asyncio.Future[None] | None = None
        self.jobs = self._follow_jobs(parts)
        self._worker = Worker("fjord-sync")
        self._scanner = Beside(parts.loop, "fjord-scan", on_idle=self._note_idle)
        self._cold = Beside(
            parts.loop, "fjord-cold", threads=_COLD_THREADS, on_idle=self._note_idle
        )
        self.sealing = Beside(parts.loop, "fjord-seal", on_idle=self._note_idle)
        self.reads = self._follow_reads(parts)
        self._upkeep = Upkeep(
            parts.engine, parts.loop, parts.clock, parts.counters.upkeep, self._tend
        )
        self._upkeep.plan()
        if parts.wakeups is not None:
            self._watch_tables(parts.wakeups)

    def submit(
        self,
        origin: Origin,
        request: Any,
        command: Command,
        after: After | None = None,
        settle: Settle | None = None,
    ) -> None:
        """Runs a command with the next group; none of the group comes behind one with `after`."""
        pending = Pending(origin, origin.client, request, command, after, settle)
        queues = self._waiting.queues
        if origin in queues:
            queues[origin].append(pending)
        else:
            queues[origin] = deque((pending,))
        if not self._scheduled and not self._syncing:
            self._scheduled = True
            self._loop.call_soon(self._run_group)

    def scan(self, origin: Origin, request: Any, command: Scan | Span) -> None:
        """Reads history beside the groups; the reply comes when it is there."""

        def finish(result: object, error: Exception | None) -> None:
            if error is not None:
                logs.note(logging.ERROR, "a scan failed", error=error)
                result = Refusal(code=Code.FAILED, text="the scan failed; the log says why")
            origin.answer(request, cast(Reply, result))
            origin.flush()

        self._scanner.put(origin, request, lambda: scans.scan(self._engine, command), finish)

    def note_refusal(self, code: Code) -> None:
        """Counts a refusal, and says when a disk begins to be full."""
        self._counters.refusals[code] += 1
        if code is Code.DISK_FULL and not self._is_disk_full:
            self._is_disk_full = True
            logs.note(logging.ERROR, "the disk is full: writes are refused")

    def release(self) -> None:
        """Goes on with what was held, since a peer has taken its replies, or is gone."""
        self._waiting.put_back(self._held)
        self._held.clear()
        self.jobs.release()
        self._schedule()
        for beside in self._besides():
            beside.release()

    def leave(self, client: int) -> None:
        """Gives free what a client held that is gone and has nothing under way."""
        self._engine.release(client)

    async def drain(self) -> None:
        """Returns when everything that was submitted is answered; nobody waits any more then."""
        self._upkeep.stop()
        self.jobs.stop()
        self.reads.stop()
        self._drained = self._loop.create_future()
        self._note_idle()
        await self._drained

    def close(self) -> None:
        self._upkeep.stop()
        if self._look_timer is not None:
            self._look_timer.cancel()
        self.jobs.close()
        self.reads.close()
        self._worker.close()
        for beside in self._besides():
            beside.close()

    # -- groups -----------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if self._waiting.queues and not self._scheduled and not self._syncing:
            self._scheduled = True
            self._loop.call_soon(self._run_group)

    def _run_group(self) -> None:
        self._scheduled = False
        group = self._waiting.take(self._set_aside)
        if not group:
            self._sync_step()  # of a step of upkeep that left it to this group
            self._note_idle()
            return
        self._begun_us = self._clock.monotonic_us()
        try:
            _, clients, _, wanted, _, _ = zip(*group, strict=True)
            replies = self._engine.run_some(wanted, clients)
            if len(replies) < len(group):
                self._waiting.put_back(group[len(replies) :])
                group = group[: len(replies)]
            self._note_news()
            after = group[-1].after
            if after is not None:
                replies[-1] = after(replies[-1])
                self._note_news()
            if self._is_disk_full:
                self._watch_disk()
            self._finish_group(group, replies)
            if self._has_written or self._engine.space.is_full:
                self._note_writes()
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing is acknowledged
            self._on_failure(error)

    def _note_writes(self) -> None:
        """Lets upkeep know if it may be due earlier, and looks at the rest in a moment."""
        self._has_written = False
        if self._look_timer is None and self._drained is None:
            self._look_timer = self._loop.call_later(_LOOK_SECONDS, self._look)
        # A refused write changes nothing, but upkeep has to make space for it.
        if self._is_sooner or self._engine.space.is_full:
            self._is_sooner = False
            self._upkeep.note_writes()

    def _look(self) -> None:
        self._look_timer = None
        try:
            self.jobs.look()
            self._on_writes()
            self._upkeep.note_writes()
        except Exception as error:  # noqa: BLE001 - as for a group
            self._on_failure(error)

    def _set_aside(self, pending: Pending) -> None:
        if pending.origin.is_open:
            self._held.append(pending)
        else:
            pending.origin.forget(pending.request)

    def _finish_group(self, group: Sequence[Pending], replies: Sequence[Reply]) -> None:
        unsynced_bytes = self._engine.unsynced_bytes
        if not unsynced_bytes:
            self._deliver(group, replies)
        elif len(group) == 1 and unsynced_bytes <= limits.INLINE_SYNC_BYTES_MAX:
            self._sync()
            self._deliver(group, replies)
        else:
            self._syncing = True
            self._worker.put(self._sync, self._after_sync(group, replies))

    def _sync(self) -> None:
        """Runs here or on the worker's thread, never on both at the same time."""
        begun_us = self._clock.monotonic_us()
        self._engine.sync()
        took_us = self._clock.monotonic_us() - begun_us
        self._counters.syncs.observe(took_us)
        if took_us > limits.SLOW_SYNC_US:
            logs.note(logging.WARNING, "a sync was slow", took_ms=took_us // 1000)

    def _after_sync(
        self, group: Sequence[Pending], replies: Sequence[Reply]
    ) -> Callable[[object, Exception | None], None]:
        def finish(result: object, error: Exception | None) -> None:
            self._syncing = False
            try:
                if error is not None:
                    raise error
                self._deliver(group, replies)
            except Exception as failure:  # noqa: BLE001 - as in `_run_group`
                self._on_failure(failure)

        return lambda result, error: self._call_back(finish, result, error)

    def _deliver(self, group: Sequence[Pending], replies: Sequence[Reply]) -> None:
        for (origin, _, request, command, _, settle), reply in zip(group, replies, strict=True):
            if settle is None or settle(origin, request, command, reply):
                origin.answer(request, reply)
        for pending in group:
            pending.origin.flush()
        if self._told or self._wakeups:
            self._tell()
        self._wake()
        now_us = self._clock.monotonic_us()
        if group:
            self._counters.groups.observe(now_us - self._begun_us)
        if self._upkeep.is_due:
            self._tend()
        if self._waiting.queues:
            self._schedule()
        if self._drained is not None:
            self._note_idle()
        if self._awake_us:
            self._awake_until_us = now_us + self._awake_us
            if not self._is_awake:
                self._is_awake = True
                self._loop.call_soon(*self._turn)

    def _wake(self) -> None:
        """Lets those go on who wait for what came."""
        jobs = self.jobs
        if jobs.waiting.tickets and (jobs.arrivals or jobs.waiting.is_unplanned):
            jobs.go_on()
        elif jobs.arrivals:
            jobs.arrivals.clear()
        if self.reads.appended:
            self.reads.go_on()

    def _stay_awake(self) -> None:
        """Lets the loop look for requests once more instead of going to sleep."""
        if self._clock.monotonic_us() < self._awake_until_us:
            self._loop.call_soon(*self._turn)
        else:
            self._is_awake = False

    # -- listeners and upkeep ----------------------------------------------------------------------

    def _note_news(self) -> None:
        """Matches what changed with the listenings as they are now; it is told after the sync."""
        news = self._engine.take_news()
        if news is NO_NEWS:
            return
        self._has_written = True
        self._is_sooner |= news.is_sooner
        arrived = self.jobs.note(news.arrivals) if news.arrivals else ()
        if news.appended:
            self.reads.note(news.appended)
        if self._wakeups is not None:
            for table in (*news.appended, *news.written):
                self._wakeups.note(table, What.CHANGED)
        if self._listeners.keys:
            self._told += self._listeners.match((*arrived, *news.changed))

    def _watch_tables(self, wakeups: Wakeups) -> None:
        """From now on there is news of all tables; the first is of jobs that wait already."""
        self._engine.watched.watch_tables()
        for table, counts in self._engine.job_counts().items():
            self.jobs.listen(table)
            if counts.waiting:
                wakeups.note(table, What.ARRIVED)
        self._sync_step()

    def _tell(self) -> None:
        told, self._told = self._told, []
        self._counters.changes += self._listeners.tell(told)
        if self._wakeups:
            self._wakeups.tell()

    def _follow_jobs(self, parts: Parts) -> JobEvents:
        return JobEvents(
            job_events.Parts(
                source=parts.engine,
                loop=parts.loop,
                clock=parts.clock,
                counters=parts.counters,
                listeners=parts.listeners,
                submit=self.submit,
                tell=self._tell_soon,
                on_failure=parts.on_failure,
                wakeups=parts.wakeups,
            )
        )

    def _follow_reads(self, parts: Parts) -> Reads:
        return Reads(
            reading.Parts(
                loop=parts.loop,
                clock=parts.clock,
                counters=parts.counters,
                submit=self.submit,
                beside=self._cold,
                cold=parts.cold,
            )
        )

    def _tell_soon(self, changes: Sequence[Changed]) -> None:
        """Tells what is so by itself, once everything is durable that it may come from."""
        self._told += self._listeners.match(changes)
        if not self._syncing and not self._waiting.queues:  # else it is told with the next group
            self._sync_step()

    def _tend(self) -> None:
        """Makes a step of upkeep, unless a sync is under way: then after it."""
        if self._syncing:
            return
        try:
            self._upkeep.step()
            self._watch_disk()
            self._note_news()
            if self._has_written:
                self._note_writes()
            self._wake()
        except Exception as error:  # noqa: BLE001 - as for a group
            self._on_failure(error)
            return
        if not self._waiting.queues:  # else the next group's sync is the step's sync too
            self._sync_step()

    def _sync_step(self) -> None:
        if self._engine.unsynced_bytes:
            self._syncing = True
            self._worker.put(self._sync, self._after_sync((), ()))
        elif self._told or self._wakeups:
            self._tell()

    def _watch_disk(self) -> None:
        """Says when a disk that was full has room again."""
        if self._is_disk_full and not self._engine.space.is_full:
            self._is_disk_full = False
            logs.note(logging.WARNING, "the disk has room again")

    def _call_back(
        self,
        finish: Callable[[object, Exception | None], None],
        result: object,
        error: Exception | None,
    ) -> None:
        self._loop.call_soon_threadsafe(finish, result, error)

    def _note_idle(self) -> None:
        if self._drained is None or self._drained.done():
            return
        under_way = self._syncing or self._scheduled or self._waiting.queues or self._held
        if not under_way and all(beside.is_idle for beside in self._besides()):
            self._drained.set_result(None)

    def _besides(self) -> tuple[Beside, ...]:
        return self._scanner, self._cold, self.sealing
