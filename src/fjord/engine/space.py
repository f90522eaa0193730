"""Whether the disk has space for what users write, and when it has it again.

    refused -> full -> ... packing, or somebody else, frees space ... -> it would fit -> not full

A disk stays full until a write of the refused size would fit: a small one that fits meanwhile
changes nothing.  Whether it would is tried, since only the disk knows its quotas and limits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fjord import limits
from fjord.engine.layout import Parts

# What is looked for at a start, when nothing was refused yet.
_ORDINARY_BYTES: Final = 4 * limits.KIB
# The file system is asked so often how much is free.
_LOOK_US: Final = 1_000_000


class Space:
    """The space under one data directory."""

    def __init__(self, parts: Parts, grow: Callable[[], bool]) -> None:
        self._disk = parts.disk
        self._directory = parts.layout.root
        self._clock = parts.clock
        self._writer = parts.writer
        self._index = parts.index
        self._grow = grow  # makes the index larger; False on a full disk
        self._short = (-_LOOK_US, False)  # monotonic: when it was looked at, and what was found
        self.body_bytes = 0  # of the largest frame that was refused
        self._lacks_index = False  # the index could not grow
        self.is_full = False  # writes are refused

    def stats(self) -> dict[str, int]:
        return {"disk_full": int(self.is_full), "free_bytes": self._free_bytes()}

    @property
    def is_short(self) -> bool:
        """Says that the disk is full, or will be when the segment is."""
        now_us = self._clock.monotonic_us()
        if now_us - self._short[0] >= _LOOK_US:
            self._short = (now_us, self._free_bytes() < self._writer.following_bytes)
        return self.is_full or self._short[1]

    def note_lack(self, body_bytes: int = 0, *, of_index: bool = False) -> None:
        """Takes note that there was no space for a frame, or for a larger index."""
        self.body_bytes = max(self.body_bytes, body_bytes)
        self._lacks_index = self._lacks_index or of_index

    def refuse(self) -> bool:
        """Takes note that a write is refused; says whether it is the first."""
        is_first, self.is_full = not self.is_full, True
        return is_first

    def note_write(self) -> None:
        """Takes note that a write was not refused; others of that size may still be."""
        if self._writer.has_room(self.body_bytes) and self._index.has_reserve():
            self._clear()

    def look_at_start(self) -> None:
        """Finds out whether ordinary writes would be refused."""
        self.note_lack(_ORDINARY_BYTES, of_index=True)
        self.is_full = True
        self.look()

    def look(self) -> None:
        """Tries whether what was refused would fit now."""
        has_index = not self._lacks_index or self._index.has_reserve() or self._grow()
        if has_index and self._writer.could_take(self.body_bytes):
            self._clear()

    def _free_bytes(self) -> int:
        return self._disk.free_bytes(self._directory)

    def _clear(self) -> None:
        self.is_full = self._lacks_index = False
        self.body_bytes = 0
