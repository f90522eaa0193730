"""Looking for frames where none is expected any more: behind damage, or behind a torn frame.

A frame begins at a multiple of 8, and its header's checksum is salted with the journal and the
segment.  So what is found is a frame of this life of this segment, and nothing else: neither a
user's bytes nor what a recycled file held before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fjord import disk as disks
from fjord import limits
from fjord.journal import frame as frames
from fjord.journal.frame import Frame

_CHUNK_BYTES: Final = 1 * limits.MIB
_ZEROS: Final = bytes(_CHUNK_BYTES + frames.FRAME_HEADER_BYTES)

# For each byte whether a frame's length may have it: as its lowest, its highest, or any other.
_EIGHTS: Final = bytes(byte % 8 == 0 for byte in range(256))
_HIGH: Final = bytes(byte <= limits.FRAME_BYTES_MAX >> 24 for byte in range(256))
_SOME: Final = bytes(byte != 0 for byte in range(256))


def find_headers(file: disks.File, offset: int, salt: bytes) -> Iterator[tuple[int, Frame]]:
    """Yields the frame headers from `offset` on with their places, whether the bodies are whole.

    Assumes that `offset` is a multiple of 8.
    """
    while data := file.read(offset, len(_ZEROS)):
        # Most of a segment that is not full is zeros.
        for position in () if _ZEROS.startswith(data) else _candidates(data):
            frame = frames.decode_frame(data, position, salt)
            if frame is not None and position < _CHUNK_BYTES:
                yield offset + position, frame
        offset += _CHUNK_BYTES


def _candidates(data: bytes) -> list[int]:
    """Returns where a length may stand: a multiple of 8, not 0, and not beyond the largest.

    A loop over all words would take half a second for a segment, and recovery waits for it.  So
    each byte of the lengths is judged for all words at once, in one large number.
    """
    whole = data[: len(data) & ~7]
    first, second, third, fourth = (whole[byte::8] for byte in range(4))
    possible = _judge(first, _EIGHTS) & _judge(fourth, _HIGH)
    possible &= _judge(first, _SOME) | _judge(second, _SOME) | _judge(third, _SOME)
    flags = possible.to_bytes(len(first), "little")
    found = []
    word = flags.find(1)
    while word >= 0:
        found.append(8 * word)
        word = flags.find(1, word + 1)
    return found


def _judge(column: bytes, verdicts: bytes) -> int:
    return int.from_bytes(column.translate(verdicts), "little")
