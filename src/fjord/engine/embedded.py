"""An engine in the user's process, with one lock, a shared fsync and a thread for upkeep.

A thread that waits for jobs or messages holds no lock meanwhile; `waits` wakes it.  The upkeep
thread also watches the dates for all waiting threads and listeners.  Cold blocks are read by the
calling thread, while others continue; they are written by a thread of its own and a child process.
"""

from __future__ import annotations

import collections
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from fjord import commands, limits
from fjord.clock import Clock, SystemClock
from fjord.columns import Strings
from fjord.commands import Changed, Command, Next, Read, Refusal, Reply
from fjord.commands.layout import registers
from fjord.engine import waits
from fjord.engine.cold import Errand, LazyCold
from fjord.engine.engine import Engine
from fjord.engine.read_only import ReadOnlyEngine
from fjord.engine.sealing import Rounds, Shelf
from fjord.engine.waits import Stage
from fjord.errors import ClosedError, Code, FjordError

_log: Final = logging.getLogger(__name__)
# All threads of a process are one client: a lock held by one of them is held by all.
_CLIENT: Final = 1
_NO_SHELF: Final = Refusal(code=Code.FAILED, text="this database was opened without cold blocks")

T = TypeVar("T")
_Told = tuple[waits.Listening["Listener"], Changed]
executes = registers("execute")


class Embedded:
    """Runs commands of any thread on an engine; each reply is durable when it returns."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock | None = None,
        *,
        cold: LazyCold | None = None,
        shelf: Shelf | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock or SystemClock()
        self._cold = cold  # reads blocks
        self._running = threading.Lock()
        self._waits: waits.Waits[_Waiter] = waits.Waits()  # threads that wait for jobs or messages
        self._listeners: waits.Listeners[Listener] = waits.Listeners(engine)
        # Changes to notify, in the order in which they were applied, with the seq to wait for.
        self._pending: collections.deque[tuple[int, list[_Told]]] = collections.deque()
        self._telling = threading.Lock()
        self._ticker = Ticker(self.upkeep, self._clock)
        # Without a shelf nothing is sealed.
        self._rounds = Rounds(engine, shelf, self._turn, self._clock) if shelf else None
        self._round: threading.Thread | None = None  # seals what is due
        self._has_seal_failed = False  # the last time, which was logged

    def execute(self, command: Command) -> Reply:
        execute = type(command).row.execute
        reply: Reply = self._answer(command, None) if execute is None else execute(self, command)
        return reply

    def listen(self, command: commands.Listen | commands.ListenJobs) -> Listener:
        """Returns a listener for changes of keys, or of jobs, from now on."""
        listener = Listener(self, command)
        with self._running:
            self._engine.check_usable()
            if isinstance(command, commands.ListenJobs):
                problem = waits.jobs_problem(self._engine, command.table)
                if problem is not None:
                    raise problem.error()
                self._listeners.add(listener, 0, command.table, [waits.JOBS_KEY])
                self._listeners.look(command.table, self._clock.wall_us())
            else:
                self._listeners.add(listener, 0, command.table, command.keys.rows())
            due_us = self._due_us()
        self._ticker.wake_at(due_us)
        return listener

    def forget(self, listener: Listener) -> None:
        with self._running:
            self._listeners.drop(listener)

    def close(self) -> None:
        self._ticker.stop()
        if self._rounds is not None:
            self._rounds.stop()
            self._rounds.join()
            under_way = self._round
            if under_way is not None:
                under_way.join()
        if self._cold is not None:
            self._cold.close()
        try:
            with self._running:
                self._engine.close()
        finally:
            self._wake_all()
            for listener in self._listeners:
                listener.end(ClosedError())

    def upkeep(self) -> int:
        """Does what is due; returns the wall time when more is due."""
        try:
            with self._running:
                self._engine.upkeep()
                now_us = self._clock.wall_us()
                self._waits.reach(now_us)
                seen_seq, due_us = self._note(self._listeners.reach(now_us))
                self._begin_round(now_us)
            self._finish(seen_seq)
        except BaseException:
            self._wake_all()
            raise
        return due_us

    def _answer(self, command: Command, waiter: _Waiter | None) -> Reply:
        """Runs a command, and reads cold blocks for it if needed."""
        if type(command).row.look is None:
            reply = self._run(command, waiter)
            if self._cold is not None:
                self._cold.note(command, reply)
            return reply
        errand = Errand(command)
        while True:
            answer = errand.take(self._run(errand.command, waiter))
            if answer is None:
                answer = errand.look(self._cold)
            elif self._cold is not None:
                self._cold.note(command, answer)
            if answer is not None:
                return answer

    def _run(self, command: Command, waiter: _Waiter | None) -> Reply:
        """Runs a command; a waiter for whom there is nothing is parked before others run."""

        def run() -> Reply:
            (reply,) = self._engine.run([command], (_CLIENT,))
            if waiter is not None:
                waiter.has_to_wait = self._waits.settle(waiter, reply, self._clock.monotonic_us())
            return reply

        return self._turn(run)

    def _turn(self, call: Callable[[], T]) -> T:
        """Makes a call on the engine; returns when everything that it saw is durable."""
        try:
            with self._running:
                found = call()
                seen_seq, due_us = self._note()
            self._finish(seen_seq)
        except BaseException:
            self._wake_all()
            raise
        self._ticker.wake_at(due_us)
        return found

    def _note(self, told: Iterable[Changed] = ()) -> tuple[int, int]:
        """Wakes waiters; returns the seq that must become durable, and when upkeep is due."""
        seen_seq, news = self._engine.applied_seq, self._engine.take_news()
        if news.appended:
            self._waits.append(news.appended)
        if news.arrivals:
            now_us = self._clock.wall_us()
            self._waits.arrive(news.arrivals, now_us)
            told = [*told, *self._listeners.arrive(news.arrivals, now_us)]
        self._notify()
        if self._listeners.keys:
            self._pending.append((seen_seq, self._listeners.match([*told, *news.changed])))
        return seen_seq, self._due_us()

    def _due_us(self) -> int:
        now_us = self._clock.wall_us()
        looks = [self._waits.look_us(now_us), self._listeners.look_us(now_us)]
        if self._rounds is not None and self._round is None:
            looks.append(self._rounds.due_us())
        return min([self._engine.upkeep_due_us(), *(one for one in looks if one is not None)])

    def _finish(self, seen_seq: int) -> None:
        """Makes everything durable up to a seq, and notifies listeners of what is durable."""
        if self._engine.durable_seq < seen_seq:
            self._engine.sync()
        if not self._pending:
            return
        with self._telling:  # one at a time, to keep the order
            while self._pending and self._pending[0][0] <= self._engine.durable_seq:
                for listening, change in self._pending.popleft()[1]:
                    if not listening.is_over:
                        listening.listener.put(change)

    # -- waiting for jobs and messages ------------------------------------------------------------

    @executes(Next, Read)
    def _take(self, command: Next | Read) -> Reply:
        """Runs a command whenever there may be something, until its wait is over."""
        if not command.wait_us:
            return self._answer(command, None)
        deadline_us = self._clock.monotonic_us() + command.wait_us
        ready = threading.Condition(self._running)
        waiter = _Waiter(command=command, deadline_us=deadline_us, ready=ready)
        try:
            while True:
                reply = self._answer(command, waiter)
                if not waiter.has_to_wait:
                    return reply
                self._wait(waiter)
        finally:
            with self._running:
                self._waits.leave(waiter)
                self._notify()

    def _wait(self, waiter: _Waiter) -> None:
        with self._running:
            left_us = max(0, waiter.deadline_us - self._clock.monotonic_us())
            waiter.ready.wait_for(lambda: waiter.stage is not Stage.PARKED, left_us / 1_000_000)
            if waiter.stage is Stage.PARKED:  # it timed out and takes once more
                self._waits.leave(waiter)
                waiter.stage = Stage.LAST

    def _notify(self) -> None:
        for waiter in self._waits.take_woken():
            waiter.ready.notify()

    def _wake_all(self) -> None:
        """Wakes all waiting threads, so that they see the error."""
        with self._running:
            self._waits.wake_all()
            self._notify()

    # -- cold blocks and history ------------------------------------------------------------------

    def _begin_round(self, now_us: int) -> None:
        """Starts sealing what is due, on a thread of its own."""
        due_us = self._rounds.due_us() if self._rounds and self._round is None else None
        if due_us is not None and due_us <= now_us:
            self._round = threading.Thread(target=self._seal, name="fjord-seal", daemon=True)
            self._round.start()

    def _seal(self) -> None:
        assert self._rounds is not None
        try:
            self._rounds.round()
            self._has_seal_failed = False
        except ClosedError:
            pass  # the next start seals the same range
        except (FjordError, OSError) as error:
            # The failure is counted, and retried after a pause; repeated failures are logged once.
            if not self._has_seal_failed:
                _log.warning("sealing failed, and will be retried: %s", error)
            self._has_seal_failed = True
        finally:
            with self._running:
                self._round = None
                due_us = self._due_us()
            self._ticker.wake_at(due_us)

    @executes(commands.Stats)
    def _stats(self, command: commands.Stats) -> Reply:
        with self._running:
            found = self._engine.stats()
        if self._rounds is not None:
            found |= self._rounds.stats()
        return numbers(found if self._cold is None else found | self._cold.stats())

    @executes(commands.SealNow)
    def _seal_now(self, command: commands.SealNow) -> Reply:
        return _NO_SHELF if self._rounds is None else self._rounds.seal(command)

    @executes(commands.Scan, commands.Span)
    def _scan(self, command: commands.Scan | commands.Span) -> Reply:
        try:
            return self._engine.scan(command)
        except OSError:
            self._engine.check_usable()  # a scan during close() finds its files closed
            raise


@dataclass(slots=True, kw_only=True, eq=False)
class _Waiter(waits.Wait):
    """A thread that waits for jobs or messages."""

    ready: threading.Condition  # it is not parked any more
    has_to_wait: bool = False  # it found nothing the last time; only its own thread uses this


class Listener:
    """Changes of some keys, in order; a listener that falls behind is ended with an error."""

    def __init__(self, embedded: Embedded, command: commands.Listen | commands.ListenJobs) -> None:
        self._embedded = embedded
        self._ready = threading.Condition()
        self._waiting: collections.deque[Changed] = collections.deque()
        self._end: FjordError | None = None
        self.command = command

    def put(self, change: Changed) -> None:
        with self._ready:
            if len(self._waiting) >= limits.LISTENED_KEYS_MAX:
                text = f"{limits.LISTENED_KEYS_MAX} changes were not read in time; listen again"
                self._end = Refusal(code=Code.SLOW_CONSUMER, text=text).error()
            elif self._end is None:
                self._waiting.append(change)
            self._ready.notify_all()

    def end(self, error: FjordError) -> None:
        with self._ready:
            self._end = self._end or error
            self._ready.notify_all()

    def wait(self, timeout: float | None = None) -> Changed | None:
        """Returns the next change; None if there is none within `timeout` seconds.

        Raises:
            ClosedError: if the listener, or the database, was closed.
            RefusedError: with SLOW_CONSUMER, if too many changes were not taken.
        """
        with self._ready:
            self._ready.wait_for(lambda: self._waiting or self._end is not None, timeout)
            if self._waiting:
                return self._waiting.popleft()
            if self._end is not None:
                raise self._end
            return None

    def __iter__(self) -> Iterator[Changed]:
        while True:
            try:
                change = self.wait()
            except ClosedError:
                return
            assert change is not None
            yield change

    def close(self) -> None:
        self._embedded.forget(self)
        self.end(ClosedError("this listener is closed"))


class EmbeddedReader:
    """Like `Embedded`, for a directory that is open for reading only."""

    def __init__(self, engine: ReadOnlyEngine, *, cold: LazyCold | None = None) -> None:
        self._engine = engine
        self._cold = cold
        self._running = threading.Lock()

    def execute(self, command: Command) -> Reply:
        errand = Errand(command)
        while True:
            with self._running:
                if isinstance(command, commands.Scan | commands.Span):
                    return self._engine.scan(command)
                if isinstance(command, commands.Stats):
                    return numbers(self._engine.stats())
                (reply,) = self._engine.run([errand.command])
            answer = errand.take(reply) or errand.look(self._cold)
            if answer is not None:
                return answer

    def listen(self, command: commands.Listen | commands.ListenJobs) -> Listener:
        raise FjordError("a database opened with read_only=True cannot listen")

    def close(self) -> None:
        if self._cold is not None:
            self._cold.close()
        with self._running:
            self._engine.close()


def numbers(found: dict[str, int]) -> commands.Numbers:
    """Returns named numbers as a reply."""
    names = sorted(found)
    return commands.Numbers(
        names=Strings.of([name.encode() for name in names]), values=[found[name] for name in names]
    )


# -- the upkeep thread of an embedded engine ------------------------------------------------------


# An earlier date wakes the thread only if it is earlier by more than this.
_SLACK_US: Final = 1000


class Ticker:
    """Calls `tick`, which returns when to call it again, and sleeps in between."""

    def __init__(self, tick: Callable[[], int], clock: Clock) -> None:
        self._tick = tick  # returns a wall time
        self._clock = clock
        self._changed = threading.Condition()
        self._due_us: int | None = None  # monotonic: it does not change when the wall clock is set
        self._stopped = False
        self._thread: threading.Thread | None = None

    def wake_at(self, wall_us: int) -> None:
        """Ensures that there is a tick at this wall time, or earlier."""
        due_us = wall_us - self._clock.wall_us() + self._clock.monotonic_us()
        planned_us = self._due_us
        if planned_us is not None and planned_us <= due_us + _SLACK_US:
            return
        with self._changed:
            if self._due_us is None or due_us < self._due_us:
                self._due_us = due_us
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(target=self._run, name="fjord-upkeep", daemon=True)
                self._thread.start()
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while self._wait():
            try:
                self.wake_at(self._tick())
            except FjordError:
                return  # the engine failed or is closed: the next call of a user gets the error

    def _wait(self) -> bool:
        """Waits until a tick is due; returns False after `stop`."""
        with self._changed:
            while not self._stopped:
                if self._due_us is None:
                    self._changed.wait()
                elif (wait_us := self._due_us - self._clock.monotonic_us()) > 0:
                    self._changed.wait(wait_us / 1_000_000)
                else:
                    self._due_us = None
                    return True
            return False
