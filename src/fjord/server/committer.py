"""Group commit: everything that arrived while the last fsync ran is the next group.

    submit -> waiting -> run (decide, apply, write, commit) -> sync -> replies are sent
                                                                    -> listeners are notified
                                                                    -> waiting requests are woken
                                                                    -> a step of upkeep, if due

The engine runs on the loop's thread and never across an await.  Only fdatasync runs elsewhere,
and not even that if the group is one small request, since switching threads would cost more than
it saves.  No request waits for a timer.  Scans and cold blocks are read on other threads.

A sleeping processor takes a while to wake, on a virtual machine as long as half an fsync.  So the
loop stays awake for a moment after each reply, in case the client has another request.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, cast

from fjord import commands, limits, wire
from fjord.clock import Clock
from fjord.commands import Changed, Command, Refusal, Reply, Scan, Scanned, ScannedArrow, Span
from fjord.engine import Engine
from fjord.engine.cold import LazyCold
from fjord.engine.news import NO_NEWS
from fjord.engine.waits import Listeners, Listening
from fjord.errors import Code, RefusedError
from fjord.server import logs
from fjord.server.alarm import Alarm
from fjord.server.counters import Counters, Histogram, count_deaths
from fjord.server.origin import After, Origin
from fjord.server.threads import ThreadPool, WorkerThread
from fjord.server.waits import WaitingRequest, WaitingRequests
from fjord.server.wakeups import Wakeups
from fjord.wire.wakeups import What

# Blocks that are read at the same time; each may keep one answer in memory.
_COLD_THREADS: Final = 2
# How long after a write its effects are checked: dead jobs, blocks to write.
_LOOK_SECONDS: Final = 1.0
# Turns of the loop, while it stays awake, after which the clock is read.
_AWAKE_TURNS: Final = 64


Told = tuple[Listening[Origin], Changed]


class Pending(NamedTuple):
    """A command that waits for its group, or is in it."""

    origin: Origin
    client: int
    request: Any
    command: Command
    after: After | None
    wait: WaitingRequest | None  # takes the reply instead of the session
    key: Origin | WaitingRequest  # the queue that it is in; a request that waited has its own


Finish = Callable[[], None]


class Call(NamedTuple):
    """A call on the engine by the daemon itself."""

    run: Callable[[], None]
    finish: Finish


class _Backlog:
    """Commands waiting for a group, by their sender: each sender has a share of every group.

    So a sender of few commands is in the next group, however many others have sent.
    """

    def __init__(self) -> None:
        self.queues: OrderedDict[Origin | WaitingRequest, deque[Pending]] = OrderedDict()

    def put_back(self, taken: Sequence[Pending]) -> None:
        """Puts back commands that were taken, in the same order."""
        for pending in reversed(taken):
            self.queues.setdefault(pending.key, deque()).appendleft(pending)
            self.queues.move_to_end(pending.key, last=False)

    def take(self, set_aside: Callable[[Pending], None]) -> list[Pending]:
        """Takes commands up to the bound, or up to one that has a follow-up action."""
        queues = self.queues
        group: list[Pending] = []
        while queues:
            share = max(1, limits.GROUP_COMMANDS_MAX // len(queues))
            for key in list(itertools.islice(queues, limits.GROUP_COMMANDS_MAX)):
                queue = queues[key]
                queues.move_to_end(key)
                for _ in range(min(share, len(queue))):
                    pending = queue.popleft()
                    if not queue:
                        del queues[key]
                    if pending.origin.is_stalled:
                        set_aside(pending)
                        continue
                    group.append(pending)
                    if pending.after is not None or len(group) == limits.GROUP_COMMANDS_MAX:
                        return group
        return group


class Committer:
    """Runs the commands of all sessions on one engine."""

    def __init__(
        self,
        engine: Engine,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        counters: Counters,
        *,
        on_failure: Callable[[Exception], None],
        cold: LazyCold | None = None,  # reads blocks
    ) -> None:
        self._engine = engine
        self._loop = loop
        self._clock = clock
        self._counters = counters
        self._on_failure = on_failure
        self.awake_us = 0  # how long to stay awake after a reply, 0 = sleep at once
        self._wakeups: Wakeups | None = None  # None: none are sent
        self.listeners: Listeners[Origin] = Listeners(engine)
        self.on_writes: Callable[[], None] = lambda: None  # called a moment after a write
        self._awake_until_us = 0
        self._is_awake = False
        # A call that lets the loop turn some times and then looks: each turn asks for the next.
        self._turn: tuple[Any, ...] = (self._stay_awake,)
        for _ in range(1, _AWAKE_TURNS):
            self._turn = (loop.call_soon, *self._turn)
        self._backlog = _Backlog()
        self._calls: deque[Call] = deque()  # of the daemon itself, one after each group
        self._given_back: list[commands.Fail] = []  # jobs of workers that are gone
        self._held: list[Pending] = []  # of peers that do not take their replies
        self._told: list[Told] = []  # changes to tell when they are durable
        self._scheduled = False
        self._syncing = False
        self._has_written = False  # news for others
        self._is_sooner = False  # upkeep may be due earlier than planned
        self._look_timer: asyncio.TimerHandle | None = None
        self._begun_us = 0  # when the current group began
        self._is_disk_full = False
        self._drained: asyncio.Future[None] | None = None
        self._dates = Alarm(loop, clock, self._tell_dates)
        self._syncer = WorkerThread("fjord-sync")
        self._scanner = ThreadPool(loop, "fjord-scan", on_idle=self._note_idle)
        self._cold = ThreadPool(loop, "fjord-cold", threads=_COLD_THREADS, on_idle=self._note_idle)
        self.sealing = ThreadPool(loop, "fjord-seal", on_idle=self._note_idle)
        self._pools = (self._scanner, self._cold, self.sealing)
        self.waits = WaitingRequests(self.submit, loop, clock, counters, self._cold, cold)
        self.waits.give_back = self._give_back
        self._upkeep = Upkeep(engine, loop, clock, counters.upkeep, self._tend)
        self._upkeep.plan()

    def submit(
        self,
        origin: Origin,
        request: Any,
        command: Command,
        after: After | None = None,
        wait: WaitingRequest | None = None,
    ) -> None:
        """Runs a command with the next group; a command with `after` is the last of its group."""
        key = origin if wait is None or wait.nothing is None else wait
        pending = Pending(origin, origin.client, request, command, after, wait, key)
        queues = self._backlog.queues
        if key in queues:
            queues[key].append(pending)
        else:
            queues[key] = deque((pending,))
        if not self._scheduled and not self._syncing:
            self._scheduled = True
            self._loop.call_soon(self._run_group)

    def call(self, run: Callable[[], None], finish: Finish) -> None:
        """Runs a call of the daemon itself after a group; `finish`, once what it wrote is durable.

        A call that raises stops the daemon.
        """
        self._calls.append(Call(run, finish))
        self._schedule()

    def scan(self, origin: Origin, request: Any, command: Scan | Span) -> None:
        """Reads history beside the groups, then replies."""

        def finish(result: object, error: Exception | None) -> None:
            if error is not None:
                logs.note(logging.ERROR, "a scan failed", error=error)
                result = Refusal(code=Code.FAILED, text="the scan failed; the log says why")
            origin.answer(request, cast(Reply, result))
            origin.flush()

        self._scanner.put(
            origin, lambda: scan(self._engine, command), finish, lambda: origin.forget(request)
        )

    def note_refusal(self, code: Code) -> None:
        """Counts a refusal, and logs when a disk becomes full."""
        self._counters.refusals[code] += 1
        if code is Code.DISK_FULL and not self._is_disk_full:
            self._is_disk_full = True
            logs.note(logging.ERROR, "the disk is full: writes are refused")

    def release(self) -> None:
        """Continues with held commands, since a peer has read its replies, or is gone."""
        self._backlog.put_back(self._held)
        self._held.clear()
        self.waits.release()
        self._schedule()
        for pool in self._pools:
            pool.release()

    async def drain(self) -> None:
        """Returns when everything submitted is answered; from then on no request waits."""
        self._upkeep.stop()
        self.waits.stop()
        count_deaths(self._engine, self._counters)
        self._dates.stop()
        self._drained = self._loop.create_future()
        self._note_idle()
        await self._drained

    def close(self) -> None:
        self._upkeep.stop()
        if self._look_timer is not None:
            self._look_timer.cancel()
        self.waits.close()
        self._dates.stop()
        self._syncer.close()
        for pool in self._pools:
            pool.close()

    # -- groups -----------------------------------------------------------------------------------

    def _give_back(self, fail: commands.Fail) -> None:
        """Gives back jobs that were taken for a worker that is gone, with those of others."""
        self._given_back.append(fail)
        if len(self._given_back) == 1:
            self.call(self._run_given_back, lambda: None)

    def _run_given_back(self) -> None:
        fails, self._given_back = self._given_back, []
        for reply in self._engine.run(fails):
            if type(reply) is Refusal:
                logs.note(logging.WARNING, "jobs could not be given back", code=reply.code)

    @property
    def _has_work(self) -> bool:
        return bool(self._backlog.queues or self._calls)

    def _schedule(self) -> None:
        if not self._scheduled and not self._syncing and self._has_work:
            self._scheduled = True
            self._loop.call_soon(self._run_group)

    def _run_group(self) -> None:
        self._scheduled = False
        if self._syncing:
            return  # it is scheduled again once that is done
        group = self._backlog.take(self._set_aside)
        if not group and not self._calls:
            self._sync_step()  # of a step of upkeep that left it to this group
            self._note_idle()
            return
        self._begun_us = self._clock.monotonic_us()
        try:
            replies = self._run_commands(group) if group else []
            finish = None
            if self._calls:
                call = self._calls.popleft()
                call.run()
                finish = call.finish
                self._note_news()
            if self._is_disk_full:
                self._watch_disk()
            self._finish_group(group, replies, finish)
            if self._has_written or self._engine.space.is_full:
                self._note_writes()
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing is acknowledged
            self._on_failure(error)

    def _run_commands(self, group: list[Pending]) -> list[Reply]:
        """Runs a group, or the first of it: the rest is put back."""
        _, clients, _, wanted, _, _, _ = zip(*group, strict=True)
        replies = self._engine.run_some(wanted, clients)
        if len(replies) < len(group):
            self._backlog.put_back(group[len(replies) :])
            del group[len(replies) :]
        after = group[-1].after
        if self._engine.news is not NO_NEWS:
            self._note_news()
        if after is not None:
            replies[-1] = after(replies[-1])
            self._note_news()
        return replies

    def _note_writes(self) -> None:
        """Tells upkeep if it may be due earlier, and plans a check of the other effects."""
        self._has_written = False
        if self._look_timer is None and self._drained is None:
            self._look_timer = self._loop.call_later(_LOOK_SECONDS, self._look)
        # A refused write changes nothing, but upkeep has to free space for it.
        if self._is_sooner or self._engine.space.is_full:
            self._is_sooner = False
            self._upkeep.note_writes()

    def _look(self) -> None:
        self._look_timer = None
        try:
            count_deaths(self._engine, self._counters)
            self.on_writes()
            self._upkeep.note_writes()
        except Exception as error:  # noqa: BLE001 - as for a group
            self._on_failure(error)

    def _set_aside(self, pending: Pending) -> None:
        origin, wait = pending.origin, pending.wait
        if origin.is_open:
            if wait is None or not self.waits.set_aside(wait):
                self._held.append(pending)
        elif wait is None:
            origin.forget(pending.request)
        else:
            self.waits.forget(wait)

    def _finish_group(
        self, group: Sequence[Pending], replies: Sequence[Reply], finish: Finish | None
    ) -> None:
        unsynced_bytes = self._engine.unsynced_bytes
        if not unsynced_bytes:
            self._deliver(group, replies, finish)
        elif len(group) <= 1 and unsynced_bytes <= limits.INLINE_SYNC_BYTES_MAX:
            self._sync()
            self._deliver(group, replies, finish)
        else:
            self._sync_on_thread(group, replies, finish)

    def _sync(self) -> None:
        """Runs here or on the worker's thread, never on both at the same time."""
        begun_us = self._clock.monotonic_us()
        self._engine.sync()
        took_us = self._clock.monotonic_us() - begun_us
        self._counters.syncs.observe(took_us)
        if took_us > limits.SLOW_SYNC_US:
            logs.note(logging.WARNING, "a sync was slow", took_ms=took_us // 1000)

    def _sync_on_thread(
        self,
        group: Sequence[Pending] = (),
        replies: Sequence[Reply] = (),
        finish: Finish | None = None,
    ) -> None:
        """Syncs on the worker's thread; the replies are delivered after it."""

        def deliver(error: Exception | None) -> None:
            self._syncing = False
            try:
                if error is not None:
                    raise error
                self._deliver(group, replies, finish)
            except Exception as failure:  # noqa: BLE001 - as in `_run_group`
                self._on_failure(failure)

        self._syncing = True
        call = self._loop.call_soon_threadsafe
        self._syncer.put(self._sync, lambda result, error: call(deliver, error))

    def _deliver(
        self, group: Sequence[Pending], replies: Sequence[Reply], finish: Finish | None
    ) -> None:
        for (origin, _, request, _, _, wait, _), reply in zip(group, replies, strict=True):
            if wait is None:
                origin.answer(request, reply)
            else:
                self.waits.settle(wait, reply)
        for pending in group:
            pending.origin.flush()
        if finish is not None:
            finish()
        if self._told or self._wakeups:
            self._tell()
        if not self.waits.by_origin:
            self.waits.news.clear()  # nobody waits for it
        elif self.waits.news or self.waits.is_unplanned:
            self.waits.go_on()
        now_us = self._clock.monotonic_us()
        if group:
            self._counters.groups.observe(now_us - self._begun_us)
        if self._upkeep.is_due:
            self._tend()
        self._schedule()
        if self._drained is not None:
            self._note_idle()
        self._awake_until_us = now_us + self.awake_us
        if self.awake_us and not self._is_awake:
            self._is_awake = True
            self._loop.call_soon(*self._turn)

    def _stay_awake(self) -> None:
        """Lets the loop check for requests once more instead of sleeping."""
        if self._clock.monotonic_us() < self._awake_until_us:
            self._loop.call_soon(*self._turn)
        else:
            self._is_awake = False

    # -- listeners and upkeep ----------------------------------------------------------------------

    def _note_news(self) -> None:
        """Matches changes with the current listeners; they are reported after the sync."""
        news = self._engine.take_news()
        if news is NO_NEWS:
            return
        self._has_written = True
        self._is_sooner |= news.is_sooner
        self.waits.news.append(news)
        if self._wakeups is not None:
            now_us = self._clock.wall_us()
            for table, arrival in news.arrivals.items():
                if arrival.first_us <= now_us:  # else it will be due
                    self._wakeups.note(table, What.ARRIVED)
            for table in (*news.appended, *news.written):
                self._wakeups.note(table, What.CHANGED)
        if self.listeners.keys or self._wakeups is not None:
            arrived = self.listeners.arrive(news.arrivals, self._clock.wall_us())
            self._told += self.listeners.match((*arrived, *news.changed))
            self._plan_dates()

    def send_wakeups(self, wakeups: Wakeups) -> None:
        """Sends wake-ups for all tables from now on; the first are for jobs already waiting."""
        self._wakeups = wakeups
        self._engine.watched.watch_tables()
        self.listeners.hears_all = True
        for table, counts in self._engine.job_counts().items():
            self.look_at_dates(table)
            if counts.waiting:
                wakeups.note(table, What.ARRIVED)
        self._sync_step()

    def look_at_dates(self, table: str) -> None:
        """Begins to report dates of a jobs table that has a listener."""
        self.listeners.look(table, self._clock.wall_us())
        self._plan_dates()

    def _plan_dates(self) -> None:
        self._dates.set_wall(self.listeners.look_us(self._clock.wall_us()))

    def _tell_dates(self) -> None:
        """Reports dates that were reached, once everything they depend on is durable."""
        try:
            changes = self.listeners.reach(self._clock.wall_us())
        except Exception as error:  # noqa: BLE001 - as for a group of commands
            self._on_failure(error)
            return
        if self._wakeups is not None:
            for change in changes:
                self._wakeups.note(change.table, What.DUE)
        self._plan_dates()
        if changes:
            self._tell_soon(changes)

    def _tell_soon(self, changes: Sequence[Changed]) -> None:
        self._told += self.listeners.match(changes)
        if not self._syncing and not self._has_work:  # else it is told with the next group
            self._sync_step()

    def _tell(self) -> None:
        """Notifies listeners of durable changes."""
        told, self._told = self._told, []
        self._counters.changes += tell(told)
        if self._wakeups:
            self._wakeups.tell()

    def _tend(self) -> None:
        """Runs a step of upkeep; after the sync, if one is running."""
        if self._syncing:
            return
        try:
            self._upkeep.step()
            self._watch_disk()
            self._note_news()
            if self._has_written:
                self._note_writes()
            self.waits.go_on()
        except Exception as error:  # noqa: BLE001 - as for a group
            self._on_failure(error)
            return
        if not self._has_work:  # else the next group's sync is the step's sync too
            self._sync_step()

    def _sync_step(self) -> None:
        if self._engine.unsynced_bytes:
            self._sync_on_thread()
        elif self._told or self._wakeups:
            self._tell()

    def _watch_disk(self) -> None:
        """Logs when a full disk has room again."""
        if self._is_disk_full and not self._engine.space.is_full:
            self._is_disk_full = False
            logs.note(logging.WARNING, "the disk has room again")

    def _note_idle(self) -> None:
        if self._drained is None or self._drained.done():
            return
        under_way = self._syncing or self._scheduled or self._has_work or self._held
        if not under_way and all(pool.is_idle for pool in self._pools):
            self._drained.set_result(None)


def tell(told: Iterable[Told]) -> int:
    """Reports durable changes; returns how many."""
    messages: dict[Origin, list[bytes]] = {}
    for listening, change in told:
        if not listening.is_over:
            message = wire.encode_change(listening.identifier, change)
            messages.setdefault(listening.listener, []).append(message)
    for origin, some in messages.items():
        origin.push(some)
    return sum(map(len, messages.values()))


def scan(engine: Engine, command: Scan | Span) -> Reply:
    """Answers both kinds; Arrow is made here, not on the loop."""
    reply = engine.scan(command)
    if isinstance(command, Span) or not command.arrow or not isinstance(reply, Scanned):
        return reply
    try:
        from fjord.blocks import rows  # noqa: PLC0415 - a large library, which few servers need
    except ModuleNotFoundError as error:
        return Refusal(code=Code.FAILED, text=f"this server has no Arrow: {error.name} is missing")
    try:
        stream = rows.to_ipc(
            reply,
            command.start_seq,
            reply.end_seq,
            columns=command.columns,
            key_prefix=command.key_prefix,
        )
    except RefusedError as error:
        return Refusal(code=error.code, text=error.text)
    return ScannedArrow(stream=stream, next_seq=reply.next_seq, end_seq=reply.end_seq)


# -- when the engine's upkeep gets its next step: expiry, packing, sweeping -----------------------
#
#     nothing due    a timer for the moment when something is; nothing polls
#     due            a step between two groups; the engine itself asks for a pause after each, so
#                    that requests have the loop most of the time
#
# The committer runs the steps, since they must not overlap with a group or a sync.


# Steps that are due but find nothing to do are not retried at once.
_RETRY_SECONDS: Final = 1.0
# The timer is not changed for smaller differences.
_SLACK_US: Final = 1000


class Upkeep:
    """Asks for steps when they are due."""

    def __init__(
        self,
        engine: Engine,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        histogram: Histogram,
        wake: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._loop = loop
        self._clock = clock
        self._histogram = histogram
        self._wake = wake  # called when a step should run
        self._timer: asyncio.Handle | None = None
        # Monotonic time that the timer is set for: it stays when the wall clock is set.
        self._timer_due_us = math.inf
        self._is_stopped = False
        self._was_vain = False  # the last step found nothing to do
        self.is_due = False  # a step should run as soon as possible

    def note_writes(self) -> None:
        """Notes that a group has written, so something may be due earlier."""
        due_us = self._engine.upkeep_due_us()
        if not self.is_due and self._monotonic_us(due_us) + _SLACK_US < self._timer_due_us:
            self._plan(due_us)

    def plan(self) -> None:
        """Sets the timer for whatever is due next."""
        self._plan(self._engine.upkeep_due_us())

    def step(self) -> None:
        """Runs one step and plans the next."""
        self.is_due = False
        begun_us = self._clock.monotonic_us()
        has_more = self._engine.upkeep()
        self._histogram.observe(self._clock.monotonic_us() - begun_us)
        due_us = 0 if has_more else self._engine.upkeep_due_us()
        is_due = due_us <= self._clock.wall_us()
        if is_due:
            # No date is earlier than this one, so nothing shortens the pause.
            self._set(_RETRY_SECONDS if self._was_vain and not has_more else 0.0, -math.inf)
        else:
            self._plan(due_us)
        self._was_vain = is_due and not has_more

    def stop(self) -> None:
        self._is_stopped = True
        self.is_due = False
        self._cancel()

    def _plan(self, due_us: int) -> None:
        self._set(max(0, due_us - self._clock.wall_us()) / 1e6, self._monotonic_us(due_us))

    def _monotonic_us(self, due_us: int) -> int:
        return due_us - self._clock.wall_us() + self._clock.monotonic_us()

    def _set(self, seconds: float, due_us: float) -> None:
        self._cancel()
        if self._is_stopped:
            return
        self._timer_due_us = due_us
        if seconds:
            self._timer = self._loop.call_later(seconds, self._ring)
        else:
            self._timer = self._loop.call_soon(self._ring)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_due_us = None, math.inf

    def _ring(self) -> None:
        self._timer, self._timer_due_us = None, math.inf
        self.is_due = True
        self._wake()
