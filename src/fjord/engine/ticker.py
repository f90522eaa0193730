"""The one thread of an embedded engine: it does what is due when it is due."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from fjord.clock import Clock
from fjord.errors import FjordError

# The thread is not told of a date that is earlier by less.
_SLACK_US: Final = 1000


class Ticker:
    """Calls `tick`, which says when it is to be called again, and sleeps otherwise."""

    def __init__(self, tick: Callable[[], int], clock: Clock) -> None:
        self._tick = tick  # returns a wall time
        self._clock = clock
        self._changed = threading.Condition()
        self._due_us: int | None = None  # monotonic: it stays when the wall clock is set
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
                return  # the engine failed or is closed: the next call of a user is told why

    def _wait(self) -> bool:
        """Returns when a tick is due; False when there will be no more."""
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
