"""Values that were read lately, in memory up to a number of bytes; the page cache holds the rest.

A value is kept when it is read for the second time within a while.  One that is read once, as in
a walk over a whole table, costs next to nothing and pushes nothing out.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

# Segment, offset, size, checksum: bytes that were taken back and written again are other bytes.
Key = tuple[int, int, int, int]

# What Python needs for an entry beside its bytes, measured.
ENTRY_BYTES: Final = 400
# A value larger than this share of the cache would push out too many others.
_LARGEST_SHARE: Final = 16
_SLOT_MASK: Final = 0xFFFF


class ValueCache:
    """The values that were read last.  Safe to use from several threads."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._guard = threading.Lock()
        self._values: OrderedDict[Key, bytes] = OrderedDict()
        self._seen = bytearray(_SLOT_MASK + 1)  # one byte each of what was read once
        self.size = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> bytes | None:
        data = self._values.get(key)
        if data is not None:
            try:
                self._values.move_to_end(key)
            except KeyError:
                pass  # another thread has dropped it since, which does not make it wrong
        return data

    def offer(self, key: Key, data: bytes) -> None:
        """Takes note that a value was read from disk, and keeps it if that is not the first time.

        Two values may share a slot; then one is kept a read earlier or later, no more.
        """
        mixed = key[1] ^ key[3]
        slot, print_ = mixed & _SLOT_MASK, mixed >> 24 & 0xFF
        if self._seen[slot] == print_:
            self._keep(key, data)
        else:
            self._seen[slot] = print_

    def forget(self, segment: int) -> None:
        """Drops the values of a segment."""
        with self._guard:
            for key in [key for key in self._values if key[0] == segment]:
                self.size -= len(self._values.pop(key)) + ENTRY_BYTES

    def _keep(self, key: Key, data: bytes) -> None:
        size = len(data) + ENTRY_BYTES
        if size * _LARGEST_SHARE > self._size_max:
            return
        with self._guard:
            if key not in self._values:
                self.size += size
            self._values[key] = data
            while self.size > self._size_max:
                self.size -= len(self._values.popitem(last=False)[1]) + ENTRY_BYTES
