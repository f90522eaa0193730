"""Bytes as they come from a peer, and the messages at their front."""

from __future__ import annotations


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

    def feed(self, data: bytes) -> None:
        if self.start == len(self.data):
            self.data, self.start = data, 0
            return
        if isinstance(self.data, bytes):
            self.data = bytearray(self.data[self.start :])
        elif self.start:
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
        return len(self.data) - self.start >= self._needed

    def take(self, offset: int, size: int) -> bytes:
        """Returns bytes at `offset` behind the front, without using them up."""
        begin = self.start + offset
        return bytes(self.data[begin : begin + size])

    def consume(self, size: int) -> None:
        self.start += size
        self._needed = 1
