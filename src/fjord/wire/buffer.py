"""Bytes as they come from a peer, and the messages at their front."""

from __future__ import annotations


class ReceiveBuffer:
    """Collects bytes; remembers how many are needed before another look is worth it."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.start = 0  # what lies before it is used up
        self._needed = 0

    def __len__(self) -> int:
        return len(self.data) - self.start

    def feed(self, data: bytes) -> None:
        if self.start:
            del self.data[: self.start]
            self.start = 0
        self.data += data

    def has(self, size: int) -> bool:
        """Says whether `size` bytes are there; if not, nothing more is tried before they are."""
        if len(self.data) - self.start >= size:
            return True
        self._needed = size
        return False

    def is_worth_a_look(self) -> bool:
        available = len(self.data) - self.start
        return 0 < available >= self._needed

    def take(self, offset: int, size: int) -> bytes:
        """Returns bytes at `offset` behind the front, without using them up."""
        begin = self.start + offset
        return bytes(self.data[begin : begin + size])

    def consume(self, size: int) -> None:
        self.start += size
        self._needed = 0
