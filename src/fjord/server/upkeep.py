"""When the engine's upkeep gets its next step: expiry, packing, sweeping.

    nothing due    a timer for the moment when something is; nothing polls
    due            a step between two groups; the engine itself asks for a rest after each, so
                   that requests have the loop most of the time

The committer makes the steps, since they must not meet a group or a sync under way.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final, Protocol

from fjord.clock import Clock
from fjord.server.counters import Histogram

# Steps that find nothing to do, although they are due, are not tried on and on.
_RETRY_SECONDS: Final = 1.0
# The timer is not set again for less.
_SLACK_US: Final = 1000


class Kept(Protocol):
    """What needs upkeep: the engine."""

    def upkeep(self) -> bool: ...

    def upkeep_due_us(self) -> int | None: ...


class Upkeep:
    """Asks for steps when they are due."""

    def __init__(
        self,
        kept: Kept,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        histogram: Histogram,
        wake: Callable[[], None],
    ) -> None:
        self._kept = kept
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
        due_us = self._kept.upkeep_due_us()
        if due_us is None or self.is_due:
            return
        if self._monotonic_us(due_us) + _SLACK_US < self._timer_due_us:
            self._plan(due_us)

    def plan(self) -> None:
        """Sets the timer for whatever is due next."""
        due_us = self._kept.upkeep_due_us()
        if due_us is not None:
            self._plan(due_us)

    def step(self) -> None:
        """Makes one step and plans the next."""
        self.is_due = False
        begun_us = self._clock.monotonic_us()
        has_more = self._kept.upkeep()
        took_us = self._clock.monotonic_us() - begun_us
        self._histogram.observe(took_us)
        if has_more:
            self._was_vain = False
            self._rest(0.0)
        else:
            self._plan_after()

    def stop(self) -> None:
        self._is_stopped = True
        self.is_due = False
        self._cancel()

    def _plan_after(self) -> None:
        due_us = self._kept.upkeep_due_us()
        is_due = due_us is not None and due_us <= self._clock.wall_us()
        if is_due:
            self._rest(_RETRY_SECONDS if self._was_vain else 0.0)
        elif due_us is not None:
            self._plan(due_us)
        self._was_vain = is_due

    def _plan(self, due_us: int) -> None:
        self._set(max(0, due_us - self._clock.wall_us()) / 1e6, self._monotonic_us(due_us))

    def _rest(self, seconds: float) -> None:
        self._set(seconds, -math.inf)  # no date is earlier, so nothing shortens the rest

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
