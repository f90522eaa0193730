"""A clock that only moves when a test moves it."""

from __future__ import annotations

_START_US = 1_700_000_000_000_000


class SimClock:
    """Wall time and monotonic time that a test sets."""

    def __init__(self, wall_us: int = _START_US) -> None:
        self._wall_us = wall_us
        self._monotonic_us = 0

    def wall_us(self) -> int:
        return self._wall_us

    def monotonic_us(self) -> int:
        return self._monotonic_us

    def pause(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Lets time pass."""
        self._wall_us += round(seconds * 1_000_000)
        self._monotonic_us += round(seconds * 1_000_000)

    def jump(self, seconds: float) -> None:
        """Sets the wall clock, as an administrator or a time server does."""
        self._wall_us += round(seconds * 1_000_000)
