"""Since when items are open, so that those which are open for too long can go back."""

from __future__ import annotations

from collections.abc import Collection

from fjord.clock import Clock


class Opened:
    """The times at which items of one queue were opened, by xid."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times_us: dict[int, int] = {}  # the first opened first

    def note(self, xid: int) -> None:
        self._times_us[xid] = self._clock.monotonic_us()

    def forget(self, xid: int) -> None:
        self._times_us.pop(xid, None)

    def too_long(self, timeout_ms: int, xids: Collection[int]) -> list[int]:
        """Returns which of these, all that are open, are so for longer, the first opened first."""
        now_us = self._clock.monotonic_us()
        if len(self._times_us) < len(xids):
            # They were opened when there was no timeout, so their time begins now.
            self._times_us = {xid: self._times_us.get(xid, now_us) for xid in xids}
        before_us = now_us - timeout_ms * 1000
        return [xid for xid, opened_us in self._times_us.items() if opened_us < before_us]
