"""Bytes as they come from a peer, and the messages at their front."""

from __future__ import annotations

from typing import Final

# So much is worth to be passed on without a copy of its own.
_VIEW_BYTES_MIN: Final = 64 * 1024


class ReceiveBuffer:
    """Collects bytes; remembers how many are needed before another look is worth it.

    A message mostly comes in one piece, which is then looked at as it is; only what is left
    over is copied and added to.
    """

    def __init__(self) -> None:
        self.data: bytes | bytearray = b""
        self.start = 0  # what lies before it is used up
        self._needed = 1

    def __len__(self) -> int:
        return len(self.data) - self.start

    def feed(self, data: bytes | bytearray) -> None:
        if self.start == len(self.data):
            self.data, self.start = data, 0
            return
        if isinstance(self.data, bytes) or self.start:
            # Never in place: somebody may have a view of what is used up.
            self.data = bytearray(memoryview(self.data)[self.start :])
            self.start = 0
        self.data += data

    def has(self, size: int) -> bool:
        """Says whether `size` bytes are there; if not, nothing more is tried before they are."""
        if len(self.data) - self.start >= size:
            return True
        self._needed = size
        return False

    def is_worth_a_look(self) -> bool:
        return len(self.data) - self.start >= self._needed

    @property
    def missing(self) -> int:
        """How many bytes the message at the front lacks, as far as its beginning tells."""
        return max(0, self._needed - len(self)) if len(self) else 0

    def take_all(self) -> memoryview:
        """Returns all that is there and uses it up, for whoever puts a large message together."""
        found = memoryview(self.data)[self.start :]
        self.data, self.start, self._needed = b"", 0, 1
        return found

    def take(self, offset: int, size: int) -> bytes:
        """Returns bytes at `offset` behind the front, without using them up."""
        begin = self.start + offset
        if isinstance(self.data, bytes):
            return self.data[begin : begin + size]
        return bytes(memoryview(self.data)[begin : begin + size])  # a slice would be one copy more

    def body(self, offset: int, size: int) -> bytes | memoryview:
        """Returns the same for a message that is used up next; a large one is not copied."""
        if size < _VIEW_BYTES_MIN:
            return self.take(offset, size)
        begin = self.start + offset
        return memoryview(self.data)[begin : begin + size].toreadonly()

    def consume(self, size: int) -> None:
        self.start += size
        self._needed = 1
