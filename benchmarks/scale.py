"""The amount of work: a full run, or a little to see that every part works."""

from __future__ import annotations

from dataclasses import dataclass

from fjord import limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Sizes of a run."""

    rounds: int  # the number of rounds of which the median is taken
    divisor: int  # every number of rows is divided by it
    segment_bytes: int  # of the journal, where packing is measured

    def of(self, full: int) -> int:
        """Scales a number of rows or requests of a full run."""
        return max(1, full // self.divisor)


FULL = Scale(rounds=5, divisor=1, segment_bytes=limits.SEGMENT_BYTES)
SMALL = Scale(rounds=1, divisor=50, segment_bytes=256 * limits.KIB)
