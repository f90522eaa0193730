"""What reads a text in pieces, for the tests of this folder."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator


def whole(text: bytes) -> Callable[[int], bytes]:
    return io.BytesIO(text).read


def bytewise(text: bytes, step: int = 1) -> Callable[[int], bytes]:
    """Returns what gives less than it is asked for."""
    file = io.BytesIO(text)
    return lambda count: file.read(min(count, step))


def endless(pieces: Iterator[bytes]) -> Callable[[int], bytes]:
    """Returns what gives pieces as they are asked for, so that a long text is never in memory."""

    def read(count: int) -> bytes:
        found: list[bytes] = []
        size = 0
        while size < count and (piece := next(pieces, None)) is not None:
            found.append(piece)
            size += len(piece)
        return b"".join(found)

    return read
