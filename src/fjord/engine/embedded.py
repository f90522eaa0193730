"""Using an engine inside a process: one lock, one fsync for as many threads as wait for it, and
one thread for upkeep.

A thread that waits for jobs or messages holds nothing meanwhile; `waits` says when it takes again.
The thread for upkeep keeps the dates for all of them, and for those who listen.  Cold blocks are
read by whoever asks for them, while others go on; they are written on a thread of their own, by a
child process.
"""

from __future__ import annotations

import collections
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from fjord import limits
from fjord.clock import Clock, SystemClock
from fjord.columns import Strings
from fjord.commands import (
    ARRIVED,
    Changed,
    Command,
    Listen,
    ListenJobs,
    Next,
    Numbers,
    Read,
    Refusal,
    Reply,
    Scan,
    SealNow,
    Span,
    Stats,
    Taken,
)
from fjord.commands.layout import registers
from fjord.engine.cold import Errand, LazyCold
from fjord.engine.engine import Engine
from fjord.engine.read_only import ReadOnlyEngine
from fjord.engine.rounds import Rounds, Shelf
from fjord.engine.ticker import Ticker
from fjord.engine.waits import (
    JOBS_KEY,
    Arrivals,
    Dates,
    Readers,
    Waits,
    is_empty,
    is_read_empty,
    jobs_problem,
    moment,
)
from fjord.errors import ClosedError, Code, FjordError

_log: Final = logging.getLogger(__name__)
# All threads of a process are one client: a lock that one of them holds is held by all.
_CLIENT: Final = 1
_NO_SHELF: Final = Refusal(code=Code.FAILED, text="this database was opened without cold blocks")

T = TypeVar("T")
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
        self._waits: Waits[_Waiter] = Waits()  # threads that wait for jobs
        self._readers: Readers[_Waiter] = Readers()  # threads that wait for messages
        self._dates = Dates(engine.first_date_us)
        self._listeners: dict[tuple[str, bytes], list[Listener]] = {}
        # What is to be told, in the order in which it was applied, with the seq it waits for.
        self._untold: collections.deque[tuple[int, list[Changed]]] = collections.deque()
        self._telling = threading.Lock()
        self._ticker = Ticker(self.upkeep, self._clock)
        # Without a shelf nothing is sealed.
        self._rounds = Rounds(engine, shelf, self._turn, self._clock) if shelf else None
        self._round: threading.Thread | None = None  # that seals what is due
        self._has_seal_failed = False  # the last time, which was logged

    def execute(self, command: Command) -> Reply:
        execute = type(command).row.execute
        reply: Reply = self._pursue(command, None) if execute is None else execute(self, command)
        return reply

    def listen(self, command: Listen | ListenJobs) -> Listener:
        """Returns what changes of keys, or of jobs, from now on, as it changes."""
        listener = Listener(self, command)
        with self._running:
            self._engine.check_usable()
            if isinstance(command, ListenJobs):
                problem = jobs_problem(self._engine.tables, command.table)
                if problem is not None:
                    raise problem.error()
                self._listeners.setdefault((command.table, JOBS_KEY), []).append(listener)
                self._dates.look(command.table, self._clock.wall_us())
            else:
                for key in command.keys.rows():
                    self._listeners.setdefault((command.table, key), []).append(listener)
                    self._engine.watch(command.table, key)
            due_us = self._due_us()
        self._ticker.wake_at(due_us)
        return listener

    def forget(self, listener: Listener) -> None:
        with self._running:
            for where in [key for key, found in self._listeners.items() if listener in found]:
                self._listeners[where].remove(listener)
                if not self._listeners[where]:
                    del self._listeners[where]
                    if where[1] == JOBS_KEY:
                        self._dates.forget(where[0])
                    else:
                        self._engine.unwatch(*where)

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
        listeners: set[Listener] = set()
        try:
            with self._running:
                listeners = {one for found in self._listeners.values() for one in found}
                self._engine.close()
        finally:
            self._rouse()
            for listener in listeners:
                listener.end(ClosedError())

    def upkeep(self) -> int:
        """Does what is due; returns the wall time when there is more to do."""
        try:
            with self._running:
                self._engine.upkeep()
                now_us = self._clock.wall_us()
                _wake(self._waits.reach(now_us))
                seen_seq, due_us = self._note(self._dates.reach(now_us))
                self._begin_round(now_us)
            self._finish(seen_seq)
        except BaseException:
            self._rouse()
            raise
        return due_us

    def _pursue(self, command: Command, waiter: _Waiter | None) -> Reply:
        """Runs a command, and follows it into cold blocks."""
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
        """Runs a command; a waiter that it brings nothing is parked before anybody else runs."""

        def run() -> Reply:
            (reply,) = self._engine.run([command], (_CLIENT,))
            if waiter is not None:
                self._park(waiter, reply)
            return reply

        return self._turn(run)

    def _turn(self, call: Callable[[], T]) -> T:
        """Makes a call on the engine; returns when everything is durable that it has seen."""
        try:
            with self._running:
                found = call()
                seen_seq, due_us = self._note()
            self._finish(seen_seq)
        except BaseException:
            self._rouse()
            raise
        self._ticker.wake_at(due_us)
        return found

    def _note(self, told: Iterable[Changed] = ()) -> tuple[int, int]:
        """Returns up to where all must be durable now, and when upkeep is due."""
        seen_seq, news = self._engine.applied_seq, self._engine.take_news()
        if news.appended:
            _wake(self._readers.wake(news.appended))
        arrived = self._note_arrivals(news.arrivals) if news.arrivals else ()
        if self._listeners:
            self._untold.append((seen_seq, [*told, *arrived, *news.changed]))
        return seen_seq, self._due_us()

    def _note_arrivals(self, arrivals: Arrivals) -> list[Changed]:
        """Wakes who waits for jobs that came; returns what those are told who listen."""
        now_us = self._clock.wall_us()
        _wake(self._waits.arrive(arrivals, now_us))
        heard = [table for table in arrivals if (table, JOBS_KEY) in self._listeners]
        for table in heard:
            self._dates.look(table, now_us)
        return [moment(table, ARRIVED, now_us) for table in heard]

    def _due_us(self) -> int:
        now_us = self._clock.wall_us()
        looks = [self._waits.look_us(now_us), self._dates.look_us(now_us)]
        if self._rounds is not None and not self._is_sealing():
            looks.append(self._rounds.due_us())
        return min([self._engine.upkeep_due_us(), *(one for one in looks if one is not None)])

    def _finish(self, seen_seq: int) -> None:
        """Makes everything durable that was seen, and tells what is durable by now."""
        if self._engine.durable_seq < seen_seq:
            self._engine.sync()
        if not self._untold:
            return
        with self._telling:  # one at a time, or a listener would hear the last word first
            while self._untold and self._untold[0][0] <= self._engine.durable_seq:
                self._tell(self._untold.popleft()[1])

    def _tell(self, changed: Iterable[Changed]) -> None:
        for change in changed:
            for listener in self._listeners.get((change.table, change.key), ()):
                listener.put(change)

    # -- waiting for jobs and messages -------------------------------------------------------------

    @executes(Next, Read)
    def _take(self, command: Next | Read) -> Reply:
        """Runs a command again whenever there may be something, until its wait is over."""
        if not command.wait_us:
            return self._pursue(command, None)
        waiter = _Waiter(command, self._running, self._clock.monotonic_us() + command.wait_us)
        try:
            while True:
                reply = self._pursue(command, waiter)
                if not waiter.has_to_wait:
                    return reply
                self._wait(waiter)
        finally:
            with self._running:
                self._leave(waiter)

    def _park(self, waiter: _Waiter, reply: Reply) -> None:
        found_nothing = is_empty(reply) or is_read_empty(waiter.command, reply)
        waiter.has_to_wait = found_nothing and waiter.left_us(self._clock) > 0
        if not waiter.has_to_wait:
            return
        waiter.is_parked = True
        if type(reply) is Taken:
            self._waits.park(waiter, reply.next_at_us)
        else:
            self._readers.park(waiter.command.table, waiter)

    def _leave(self, waiter: _Waiter) -> None:
        _wake(self._waits.leave(waiter))
        self._readers.leave(waiter.command.table, waiter)

    def _wait(self, waiter: _Waiter) -> None:
        with self._running:
            left_us = max(0, waiter.left_us(self._clock))
            waiter.ready.wait_for(lambda: not waiter.is_parked, left_us / 1_000_000)
            if waiter.is_parked:  # its time is over: it takes once more
                waiter.is_parked = False
                waiter.deadline_us = 0
                self._leave(waiter)

    def _rouse(self) -> None:
        """Lets all who wait find out by themselves what is wrong."""
        with self._running:
            _wake(self._waits.rouse())
            _wake(self._readers.rouse())

    # -- cold blocks and history ------------------------------------------------------------------

    def _begin_round(self, now_us: int) -> None:
        """Begins to seal what is due, on a thread of its own."""
        due_us = None if self._rounds is None or self._is_sealing() else self._rounds.due_us()
        if due_us is not None and due_us <= now_us:
            self._round = threading.Thread(target=self._seal, name="fjord-seal", daemon=True)
            self._round.start()

    def _is_sealing(self) -> bool:
        return self._round is not None

    def _seal(self) -> None:
        assert self._rounds is not None
        try:
            self._rounds.round()
            self._has_seal_failed = False
        except ClosedError:
            pass  # the next start seals the same range
        except (FjordError, OSError) as error:
            # It is counted, and tried again after a rest; what goes on failing is said once.
            if not self._has_seal_failed:
                _log.warning("sealing failed, and is tried again: %s", error)
            self._has_seal_failed = True
        finally:
            with self._running:
                self._round = None
                due_us = self._due_us()
            self._ticker.wake_at(due_us)

    @executes(Stats)
    def _stats(self, command: Stats) -> Reply:
        with self._running:
            found = self._engine.stats()
        if self._rounds is not None:
            found |= self._rounds.stats()
        return numbers(found if self._cold is None else found | self._cold.stats())

    @executes(SealNow)
    def _seal_now(self, command: SealNow) -> Reply:
        return _NO_SHELF if self._rounds is None else self._rounds.seal(command)

    @executes(Scan, Span)
    def _scan(self, command: Scan | Span) -> Reply:
        try:
            return self._engine.scan(command)
        except OSError:
            self._engine.check_usable()  # a scan beside close() finds its files closed
            raise


class _Waiter:
    """A thread that waits for jobs or messages."""

    def __init__(self, command: Next | Read, lock: threading.Lock, deadline_us: int) -> None:
        self.command = command
        self.ready = threading.Condition(lock)  # it is not parked any more
        self.is_parked = False
        self.has_to_wait = False  # it found nothing the last time; others do not touch this
        self.deadline_us = deadline_us  # monotonic

    def left_us(self, clock: Clock) -> int:
        return self.deadline_us - clock.monotonic_us()


def _wake(waiters: Iterable[_Waiter]) -> None:
    for waiter in waiters:
        waiter.is_parked = False
        waiter.ready.notify()


class Listener:
    """Changes of some keys, in order; whoever does not take them in time is told so."""

    def __init__(self, embedded: Embedded, command: Listen | ListenJobs) -> None:
        self._embedded = embedded
        self._ready = threading.Condition()
        self._waiting: collections.deque[Changed] = collections.deque()
        self._end: FjordError | None = None
        self.command = command

    def put(self, change: Changed) -> None:
        with self._ready:
            if len(self._waiting) >= limits.LISTENED_KEYS_MAX:
                text = f"{limits.LISTENED_KEYS_MAX} changes wait to be taken; listen again"
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
    """The same for a directory that is open for reading only."""

    def __init__(self, engine: ReadOnlyEngine, *, cold: LazyCold | None = None) -> None:
        self._engine = engine
        self._cold = cold
        self._running = threading.Lock()

    def execute(self, command: Command) -> Reply:
        if isinstance(command, Scan | Span):
            with self._running:
                return self._engine.scan(command)
        if isinstance(command, Stats):
            with self._running:
                return numbers(self._engine.stats())
        errand = Errand(command)
        while True:
            with self._running:
                (reply,) = self._engine.run([errand.command])
            answer = errand.take(reply) or errand.look(self._cold)
            if answer is not None:
                return answer

    def listen(self, command: Listen | ListenJobs) -> Listener:
        raise FjordError("a database that was opened with read_only=True cannot listen")

    def close(self) -> None:
        if self._cold is not None:
            self._cold.close()
        with self._running:
            self._engine.close()


def numbers(found: dict[str, int]) -> Numbers:
    """Returns named numbers as a reply."""
    names = sorted(found)
    return Numbers(
        names=Strings.of([name.encode() for name in names]), values=[found[name] for name in names]
    )
