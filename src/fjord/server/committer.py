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

# Blocks that are read at the same time; each may hold one answer.
_COLD_THREADS: Final = 2
# So long after a write it is looked at what all of them have come to: dead jobs, blocks to write.
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
    wait: WaitingRequest | None  # takes the reply in the place of the session
    key: Origin | WaitingRequest  # whose queue it stands in; a request that waited has its own


Finish = Callable[[], None]


class Call(NamedTuple):
    """A call on the engine by the daemon itself."""

    run: Callable[[], None]
    finish: Finish


class _Backlog:
    """What waits for a group, by who asks for it: each has a share of every group.

    So whoever asks for little is in the next group, however much others have asked for.
    """

    def __init__(self) -> None:
        self.queues: OrderedDict[Origin | WaitingRequest, deque[Pending]] = OrderedDict()

    def put_back(self, taken: Sequence[Pending]) -> None:
        """Lets what was taken be the next again, in the same order."""
        for pending in reversed(taken):
            self.queues.setdefault(pending.key, deque()).appendleft(pending)
            self.queues.move_to_end(pending.key, last=False)

    def take(self, set_aside: Callable[[Pending], None]) -> list[Pending]:
        """Takes commands up to the bound, or up to one after which something has to be done."""
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
        self._has_written = False  # what others have to hear of
        self._is_sooner = False  # upkeep may be due earlier than it said
        self._look_timer: asyncio.TimerHandle | None = None
        self._begun_us = 0  # when the group began that is under way
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
        """Runs a command with the next group; none of the group comes behind one with `after`."""
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
        """Reads history beside the groups; the reply comes when it is there."""

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
        """Counts a refusal, and says when a disk begins to be full."""
        self._counters.refusals[code] += 1
        if code is Code.DISK_FULL and not self._is_disk_full:
            self._is_disk_full = True
            logs.note(logging.ERROR, "the disk is full: writes are refused")

    def release(self) -> None:
        """Goes on with what was held, since a peer has taken its replies, or is gone."""
        self._backlog.put_back(self._held)
        self._held.clear()
        self.waits.release()
        self._schedule()
        for pool in self._pools:
            pool.release()

    async def drain(self) -> None:
        """Returns when everything that was submitted is answered; nobody waits any more then."""
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
        if self._has_work and not self._scheduled and not self._syncing:
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
        """Sends wake-ups from now on, of all tables; the first are of jobs that wait already."""
        self._wakeups = wakeups
        self._engine.watched.watch_tables()
        self.listeners.hears_all = True
        for table, counts in self._engine.job_counts().items():
            self.look_at_dates(table)
            if counts.waiting:
                wakeups.note(table, What.ARRIVED)
        self._sync_step()

    def look_at_dates(self, table: str) -> None:
        """Begins to tell of dates of a jobs table, since somebody listens to it."""
        self.listeners.look(table, self._clock.wall_us())
        self._plan_dates()

    def _plan_dates(self) -> None:
        self._dates.set_wall(self.listeners.look_us(self._clock.wall_us()))

    def _tell_dates(self) -> None:
        """Tells of dates that have come, once everything is durable that they may come from."""
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
        """Tells listeners of changes that are durable."""
        told, self._told = self._told, []
        self._counters.changes += tell(told)
        if self._wakeups:
            self._wakeups.tell()

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
        """Says when a disk that was full has room again."""
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
    """Tells of changes that are durable; returns of how many."""
    messages: dict[Origin, list[bytes]] = {}
    for listening, change in told:
        if not listening.is_over:
            message = wire.encode_change(listening.identifier, change)
            messages.setdefault(listening.listener, []).append(message)
    for origin, some in messages.items():
        origin.push(some)
    return sum(map(len, messages.values()))


def scan(engine: Engine, command: Scan | Span) -> Reply:
    """Answers both; what is asked for as Arrow is turned into it here, not on the loop."""
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
#     due            a step between two groups; the engine itself asks for a rest after each, so
#                    that requests have the loop most of the time
#
# The committer makes the steps, since they must not meet a group or a sync under way.


# Steps that find nothing to do, although they are due, are not tried on and on.
_RETRY_SECONDS: Final = 1.0
# The timer is not set again for less.
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
        self._wake = wake  # called when a step should be made
        self._timer: asyncio.Handle | None = None
        # Monotonic time that the timer is set for: it stays when the wall clock is set.
        self._timer_due_us = math.inf
        self._is_stopped = False
        self._was_vain = False  # the last step found nothing to do
        self.is_due = False  # a step should be made as soon as it can

    def note_writes(self) -> None:
        """Takes note that a group has written, after which something may be due earlier."""
        due_us = self._engine.upkeep_due_us()
        if not self.is_due and self._monotonic_us(due_us) + _SLACK_US < self._timer_due_us:
            self._plan(due_us)

    def plan(self) -> None:
        """Sets the timer for whatever is due next."""
        self._plan(self._engine.upkeep_due_us())

    def step(self) -> None:
        """Makes one step and plans the next."""
        self.is_due = False
        begun_us = self._clock.monotonic_us()
        has_more = self._engine.upkeep()
        self._histogram.observe(self._clock.monotonic_us() - begun_us)
        due_us = 0 if has_more else self._engine.upkeep_due_us()
        is_due = due_us <= self._clock.wall_us()
        if is_due:
            # No date is earlier than this one, so nothing shortens the rest.
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
