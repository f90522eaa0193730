"""Using an engine inside a process: one lock, one fsync for as many threads as wait for it, and
one thread for upkeep.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Iterable, Iterator

from fjord import limits
from fjord.clock import Clock, SystemClock
from fjord.columns import Strings
from fjord.commands import Changed, Command, Listen, Numbers, Refusal, Reply, Scan, Stats
from fjord.engine.engine import Engine
from fjord.engine.read_only import ReadOnlyEngine
from fjord.errors import ClosedError, Code, FjordError

# All threads of a process are one client: a lock that one of them holds is held by all.
_CLIENT = 1


class Embedded:
    """Runs commands of any thread on an engine; each reply is durable when it returns."""

    def __init__(self, engine: Engine, clock: Clock | None = None) -> None:
        self._engine = engine
        self._clock = clock or SystemClock()
        self._running = threading.Lock()
        self._listeners: dict[tuple[str, bytes], list[Listener]] = {}
        # What is to be told, in the order in which it was applied, with the seq it waits for.
        self._untold: collections.deque[tuple[int, list[Changed]]] = collections.deque()
        self._telling = threading.Lock()
        self._ticker = _Ticker(self)

    def execute(self, command: Command) -> Reply:
        if isinstance(command, Scan):
            return self._scan(command)
        if isinstance(command, Stats):
            with self._running:
                return numbers(self._engine.stats())
        with self._running:
            (reply,) = self._engine.run([command], (_CLIENT,))
            seen_seq, due_us = self._note()
        self._finish(seen_seq)
        self._ticker.wake_at(due_us)
        return reply

    def listen(self, command: Listen) -> Listener:
        """Returns what changes of keys, from now on, as it changes."""
        listener = Listener(self, command)
        with self._running:
            self._engine.check_usable()
            for key in command.keys.rows():
                self._listeners.setdefault((command.table, key), []).append(listener)
                self._engine.watch(command.table, key)
        return listener

    def forget(self, listener: Listener) -> None:
        with self._running:
            for where in [key for key, found in self._listeners.items() if listener in found]:
                self._listeners[where].remove(listener)
                if not self._listeners[where]:
                    del self._listeners[where]
                    self._engine.unwatch(*where)

    def close(self) -> None:
        self._ticker.stop()
        with self._running:
            self._engine.close()
            listeners = {one for found in self._listeners.values() for one in found}
        for listener in listeners:
            listener.end(ClosedError())

    def upkeep(self) -> int | None:
        """Does what is due; returns the wall time when there is more to do."""
        with self._running:
            self._engine.upkeep()
            seen_seq, due_us = self._note()
        self._finish(seen_seq)
        return due_us

    def wait_us(self, due_us: int) -> int:
        return max(0, due_us - self._clock.wall_us())

    def _note(self) -> tuple[int, int]:
        """Returns up to where all must be durable now, and when upkeep is due."""
        seen_seq = self._engine.applied_seq
        if self._listeners:
            self._untold.append((seen_seq, self._engine.take_changes()))
        return seen_seq, self._engine.upkeep_due_us()

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

    def _scan(self, command: Scan) -> Reply:
        try:
            return self._engine.scan(command)
        except OSError:
            self._engine.check_usable()  # a scan beside close() finds its files closed
            raise


class Listener:
    """Changes of some keys, in order; whoever does not take them in time is told so."""

    def __init__(self, embedded: Embedded, command: Listen) -> None:
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


class _Ticker:
    """The one thread that does upkeep when it is due, and sleeps otherwise."""

    def __init__(self, embedded: Embedded) -> None:
        self._embedded = embedded
        self._changed = threading.Condition()
        self._due_us: int | None = None
        self._stopped = False
        self._thread: threading.Thread | None = None

    def wake_at(self, due_us: int | None) -> None:
        """Ensures that upkeep runs at this wall time, or earlier."""
        if due_us is None or (self._due_us is not None and self._due_us <= due_us):
            return
        with self._changed:
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
                due_us = self._embedded.upkeep()
            except FjordError:
                return  # the engine failed or is closed: the next call of a user is told why
            with self._changed:
                if due_us is not None:
                    self._due_us = min(due_us, self._due_us or due_us)

    def _wait(self) -> bool:
        """Returns when upkeep is due; False when there will be no more."""
        with self._changed:
            while not self._stopped:
                if self._due_us is None:
                    self._changed.wait()
                elif wait_us := self._embedded.wait_us(self._due_us):
                    self._changed.wait(wait_us / 1_000_000)
                else:
                    self._due_us = None
                    return True
            return False


class EmbeddedReader:
    """The same for a directory that is open for reading only."""

    def __init__(self, engine: ReadOnlyEngine) -> None:
        self._engine = engine
        self._running = threading.Lock()

    def execute(self, command: Command) -> Reply:
        with self._running:
            if isinstance(command, Scan):
                return self._engine.scan(command)
            if isinstance(command, Stats):
                return numbers(self._engine.stats())
            return self._engine.run([command])[0]

    def listen(self, command: Listen) -> Listener:
        raise FjordError("a database that was opened with read_only=True cannot listen")

    def close(self) -> None:
        with self._running:
            self._engine.close()


def numbers(found: dict[str, int]) -> Numbers:
    """Returns named numbers as a reply."""
    names = sorted(found)
    return Numbers(
        names=Strings.of([name.encode() for name in names]), values=[found[name] for name in names]
    )
