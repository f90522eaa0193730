"""A journal while it is packed: the statistics of the daemon, and its size on disk."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import fjord
from fjord import limits

_LOOK_SECONDS = 0.2
_QUIET_SECONDS = 3.0
_SETTLE_SECONDS_MAX = 300.0
_BLOCK_BYTES = 512  # the unit of st_blocks, on every file system


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalState:
    """Numbers of `db.stats()` at one moment."""

    journal_bytes: int
    live_bytes: int
    segments: int
    packed_segments: int  # since the start of the daemon

    @classmethod
    def of(cls, numbers: dict[str, int]) -> Self:
        missing = set(cls.__dataclass_fields__) - set(numbers)
        if missing:
            raise RuntimeError(f"db.stats() does not report {', '.join(sorted(missing))}")
        return cls(**{name: numbers[name] for name in cls.__dataclass_fields__})

    def is_packing_due(self, segment_bytes: int) -> bool:
        """Returns whether packing is running, by its own rule."""
        return self.journal_bytes > limits.PACK_RATIO * self.live_bytes + 2 * segment_bytes


def settle(db: fjord.Database) -> JournalState:
    """Waits until packing has nothing more to do.

    Raises:
        RuntimeError: if there is no end of it.
    """
    start = quiet_since = time.perf_counter()
    state = JournalState.of(db.stats())
    while time.perf_counter() - quiet_since < _QUIET_SECONDS:
        if time.perf_counter() - start > _SETTLE_SECONDS_MAX:
            raise RuntimeError(f"packing did not settle in {_SETTLE_SECONDS_MAX:.0f} s: {state}")
        time.sleep(_LOOK_SECONDS)
        before, state = state, JournalState.of(db.stats())
        if state != before:
            quiet_since = time.perf_counter()
    return state


def disk_bytes(directory: Path) -> int:
    """Returns the disk space of a directory, with allocated space, as counted by the kernel."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.lstat().st_blocks * _BLOCK_BYTES
        except FileNotFoundError:
            pass  # a segment that was packed after the directory was listed
    return total
