"""The bounds that an operator may change, and the memory that all sessions share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from fjord import limits
from fjord.clock import Clock

# Looking at all sessions again is worth it only so often.
_RECOUNT_US: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a daemon allows; the defaults are those of `fjord.limits`."""

    idle_seconds: float = limits.IDLE_SECONDS_MAX
    message_seconds: float = limits.MESSAGE_SECONDS_MAX
    memory_bytes: int = limits.SERVER_MEMORY_BYTES_MAX
    connections: int = limits.CONNECTIONS_MAX


class Holder(Protocol):
    """Whoever keeps bytes for a peer: a session."""

    def kept_bytes(self) -> int:
        """Returns what is kept beside requests under way: output, and half a message."""
        ...


class Memory:
    """What requests under way, replies not taken and half messages hold, over all sessions.

    Sessions add and take away their requests in `used_bytes` themselves, since that is done for
    every request.  What else they keep they say with `note`, and only when it is worth a word.
    """

    def __init__(self, clock: Clock, bytes_max: int) -> None:
        self._clock = clock
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._kept: dict[Holder, int] = {}
        self._counted_us = 0

    def note(self, holder: Holder, kept_bytes: int) -> None:
        before = self._kept.pop(holder, 0)
        if kept_bytes:
            self._kept[holder] = kept_bytes
        self.used_bytes += kept_bytes - before

    def is_exceeded(self) -> bool:
        """Says whether the bound is reached; peers may have taken output without a word."""
        if self.used_bytes <= self.bytes_max:
            return False
        self.recount()
        return self.used_bytes > self.bytes_max

    def recount(self) -> None:
        """Looks at what sessions keep now, if the last look was not a moment ago."""
        now_us = self._clock.monotonic_us()
        if now_us - self._counted_us < _RECOUNT_US:
            return
        self._counted_us = now_us
        for holder in list(self._kept):
            self.note(holder, holder.kept_bytes())
