"""How much all connections keep together: what was received of requests, and replies not sent yet.

A few bytes of each connection are not counted, so small requests go through whatever others do.
Beyond them:

- who sends more than there is room for is told so, and ended;
- who asks for an item waits until there is room for it, since an item that was taken and cannot be
  sent would be lost; for that there is some more room, so that who sends does not hold up who asks;
- while somebody waits or is to be ended, clients that have not read their replies for long give
  way: what they have open goes back.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final, Protocol

from fjord import limits
from fjord.clock import Clock

# Four of the largest items.  Python and the kernel have some more of each while it is passed on.
BYTES_MAX: Final = 256 * limits.MIB
# Of each connection, and not counted: some requests of usual size.
FREE_BYTES: Final = 32 * limits.KIB
# A client that reads gets the largest item in that time.
_STALLED_US: Final = 30_000_000
_LOOK_SECONDS: Final = 1.0


class Holder(Protocol):
    """Who keeps bytes, and can be ended."""

    def drop(self) -> None: ...


class Memory:
    """The bytes of all connections."""

    def __init__(self, clock: Clock, bytes_max: int = BYTES_MAX) -> None:
        self._clock = clock
        self._bytes_max = bytes_max
        self._over_bytes = bytes_max + bytes_max // 4
        self.used = 0
        self._stalled: dict[Holder, int] = {}  # since when; those that wait longest first
        self._released = asyncio.Event()

    @property
    def is_over(self) -> bool:
        return self.used >= self._over_bytes

    def change(self, bytes_more: int) -> None:
        """Counts bytes that are kept, or, below 0, that are kept no more."""
        self.used += bytes_more
        if bytes_more < 0:
            self._released.set()

    def fits(self, bytes_more: int) -> bool:
        """Says whether there is room for so many."""
        if self.used + bytes_more > self._bytes_max:
            self._drop_stalled()
        return self.used + bytes_more <= self._bytes_max

    async def room(self) -> None:
        """Returns when an item may be taken, which is counted then."""
        while not self._has_room():
            self._released.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._released.wait(), _LOOK_SECONDS)

    def stall(self, holder: Holder) -> None:
        """Notes that a client does not read."""
        self._stalled[holder] = self._clock.monotonic_us()

    def unstall(self, holder: Holder) -> None:
        self._stalled.pop(holder, None)

    def _has_room(self) -> bool:
        if self.is_over:
            self._drop_stalled()
        return not self.is_over

    def _drop_stalled(self) -> None:
        before_us = self._clock.monotonic_us() - _STALLED_US
        for holder, since_us in list(self._stalled.items()):
            if since_us > before_us:
                return
            del self._stalled[holder]
            holder.drop()
