"""Staying awake for a moment after a reply: most clients that wait for one ask again at once.

Waking a processor takes longer than serving a request.  So the loop looks for requests again and
again for some microseconds, instead of going to sleep.
"""

from __future__ import annotations

import asyncio

from fjord.clock import Clock


class Awake:
    """Keeps a loop awake."""

    def __init__(self, clock: Clock, awake_us: int) -> None:
        """`awake_us` says how long after the last reply; 0 = not at all."""
        self._clock = clock
        self._awake_us = awake_us
        self._until_us = 0
        self._is_awake = False

    def replied(self) -> None:
        """A reply was sent just now."""
        if not self._awake_us:
            return
        self._until_us = self._clock.monotonic_us() + self._awake_us
        if not self._is_awake:
            self._is_awake = True
            self._stay(asyncio.get_running_loop())

    def _stay(self, loop: asyncio.AbstractEventLoop) -> None:
        """Lets the loop look for requests once more."""
        self._is_awake = self._clock.monotonic_us() < self._until_us
        if self._is_awake:
            loop.call_soon(self._stay, loop)
