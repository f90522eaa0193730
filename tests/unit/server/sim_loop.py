"""A loop whose time is that of a SimClock: it passes when the test says so."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable
from typing import Any, cast

from fjord.testing import SimClock

_THREAD_SECONDS = 10.0  # how long a thread may take that is under way


class Handle:
    """One call that the loop was asked for."""

    def __init__(
        self, due_us: int, call: Callable[..., object], arguments: tuple[Any, ...]
    ) -> None:
        self.due_us = due_us  # monotonic
        self._call = call
        self._arguments = arguments
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def run(self) -> None:
        if not self.is_cancelled:
            self._call(*self._arguments)


class SimLoop:
    """As much of an event loop as the server asks for."""

    def __init__(self, clock: SimClock) -> None:
        self.clock = clock
        self._ready: queue.SimpleQueue[Handle] = queue.SimpleQueue()
        self._timers: list[Handle] = []
        self.rings = 0  # timers that rang

    @property
    def as_loop(self) -> asyncio.AbstractEventLoop:
        return cast(asyncio.AbstractEventLoop, self)

    def call_soon(self, call: Callable[..., object], *arguments: Any) -> Handle:
        handle = Handle(0, call, arguments)
        self._ready.put(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, seconds: float, call: Callable[..., object], *arguments: Any) -> Handle:
        due_us = self.clock.monotonic_us() + round(seconds * 1e6)
        self._timers.append(Handle(due_us, call, arguments))
        return self._timers[-1]

    # -- the test ---------------------------------------------------------------------------------

    def until(self, condition: Callable[[], bool]) -> None:
        """Runs what is asked for, also by threads, until something has happened."""
        while not condition():
            self._ready.get(timeout=_THREAD_SECONDS).run()

    def run(self) -> None:
        """Runs what is asked for by now."""
        while not self._ready.empty():
            self._ready.get().run()

    def waits(self) -> list[float]:
        """Returns in how many seconds timers will ring."""
        now_us = self.clock.monotonic_us()
        return sorted((one.due_us - now_us) / 1e6 for one in self._timers if not one.is_cancelled)

    def pass_time(self, seconds: float) -> None:
        """Lets time pass, and timers ring at their moments."""
        end_us = self.clock.monotonic_us() + round(seconds * 1e6)
        self.run()
        while (handle := self._next(end_us)) is not None:
            self._timers.remove(handle)
            self.clock.advance(max(0, handle.due_us - self.clock.monotonic_us()) / 1e6)
            self.rings += 1
            handle.run()
            self.run()
        self.clock.advance((end_us - self.clock.monotonic_us()) / 1e6)

    def _next(self, end_us: int) -> Handle | None:
        self._timers = [one for one in self._timers if not one.is_cancelled]
        first = min(self._timers, key=lambda one: one.due_us, default=None)
        return first if first is not None and first.due_us <= end_us else None
