"""The bounds of all sessions together: what an operator may change, and the memory they hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fjord import limits
from fjord.clock import Clock

# How often all sessions are examined again, at most.
_RECOUNT_US: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bounds that an operator may change; the defaults are those of `fjord.limits`."""

    idle_seconds: float = limits.IDLE_SECONDS_MAX
    message_seconds: float = limits.MESSAGE_SECONDS_MAX
    memory_bytes: int = limits.SERVER_MEMORY_BYTES_MAX
    connections: int = limits.CONNECTIONS_MAX


class Memory:
    """The memory of requests in flight, unread replies and partial messages of all sessions.

    Sessions add and take away their requests in `used_bytes` themselves, since that is done for
    every request.  What else they keep they say with `note`, and only when it is worth a word.
    """

    def __init__(self, clock: Clock, bytes_max: int) -> None:
        self._clock = clock
        self.bytes_max = bytes_max
        self.used_bytes = 0
        # By what a session keeps now, as it says when it is asked.
        self._kept: dict[Callable[[], int], int] = {}
        self._counted_us = 0

    def note(self, kept_bytes: Callable[[], int], kept: int) -> None:
        """Notes how much a session keeps, and whom to ask again."""
        before = self._kept.pop(kept_bytes, 0)
        if kept:
            self._kept[kept_bytes] = kept
        self.used_bytes += kept - before

    def is_exceeded(self) -> bool:
        """Returns whether the bound is reached; peers may have read output unnoticed."""
        if self.used_bytes <= self.bytes_max:
            return False
        self.recount()
        return self.used_bytes > self.bytes_max

    def recount(self) -> None:
        """Asks sessions how much they keep, unless that was done a moment ago."""
        now_us = self._clock.monotonic_us()
        if now_us - self._counted_us < _RECOUNT_US:
            return
        self._counted_us = now_us
        for kept_bytes in list(self._kept):
            self.note(kept_bytes, kept_bytes())
