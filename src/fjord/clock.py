"""The only caller of `time`.

Three times, all integers of microseconds.  Wall time is what users see and may jump.  Monotonic
time never goes back but means nothing after a restart.  Lease time is the last lease time in the
journal plus the monotonic time since, so a lease survives clock jumps and restarts.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from fjord import limits


class Clock(Protocol):
    """The time sources of the engine."""

    def wall_us(self) -> int: ...

    def monotonic_us(self) -> int: ...

    def pause(self, seconds: float) -> None:
        """Lets other processes run for a moment; only for bounded waits on another process."""


class SystemClock:
    """The clock of the machine."""

    def wall_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1000

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)


class LeaseClock:
    """Lease time: continues where the journal stopped, at the speed of monotonic time."""

    def __init__(self, clock: Clock, last_lease_us: int) -> None:
        self._clock = clock
        self.base_us = last_lease_us - clock.monotonic_us()  # lease time minus monotonic time

    def lease_us(self) -> int:
        return self.base_us + self._clock.monotonic_us()


class Stamps:
    """Strictly growing wall-clock stamps, so that a client's later write always wins.

    If the clock was far ahead for a while, stamps start again from its current time: writes with
    future stamps were refused, and all following ones would be, too.
    """

    def __init__(self, clock: Clock) -> None:
        self._now_us = clock.wall_us
        self._last_us = 0
        self.renew()

    def renew(self) -> None:
        """Called after a fork: a thread that no longer exists may have held the lock."""
        self._guard = threading.RLock()  # a signal handler may interrupt

    def next_us(self) -> int:
        now_us = self._now_us()
        with self._guard:
            next_us = self._last_us + 1
            if not now_us < next_us <= now_us + limits.TIMESTAMP_AHEAD_US_MAX:
                next_us = now_us
            self._last_us = next_us
            return next_us
