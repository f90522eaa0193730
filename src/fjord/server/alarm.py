"""One timer of the event loop for the first of many deadlines."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

from fjord.clock import Clock

# Timers of the loop have a resolution of milliseconds, and an early alarm is useless.
_TICK_US: Final = 1000


class Alarm:
    """Rings at the time it is set for, or earlier if it was set for that before.

    The callback checks what is due, and sets the alarm again.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, call: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._call = call
        self._timer: asyncio.TimerHandle | None = None
        self._due_us = math.inf
        self._is_stopped = False

    def set(self, due_us: int | None) -> None:
        """Rings at this monotonic time at the latest; None does nothing."""
        if due_us is None or due_us >= self._due_us or self._is_stopped:
            return
        self._cancel()
        self._due_us = due_us
        ticks = max(1, math.ceil((due_us - self._clock.monotonic_us()) / _TICK_US))
        self._timer = self._loop.call_later(ticks * _TICK_US / 1e6, self._ring)

    def set_wall(self, due_us: int | None) -> None:
        """Like `set`, for a wall time; a change of the clock meanwhile is not noticed."""
        if due_us is not None:
            self.set(due_us - self._clock.wall_us() + self._clock.monotonic_us())

    def stop(self) -> None:
        """Cancels the alarm."""
        self._is_stopped = True
        self._cancel()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due_us = None, math.inf

    def _ring(self) -> None:
        self._timer, self._due_us = None, math.inf
        self._call()
