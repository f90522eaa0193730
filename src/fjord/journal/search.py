"""Searching for frames in unexpected places: after damage or a torn frame, or in other files.

A frame begins at a multiple of 8, and its header's checksum is salted with the journal and the
segment.  So what is found is a frame of the current life of this segment, and nothing else: neither
bytes of a user nor what a recycled file held before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from fjord import disk as disks
from fjord import limits
from fjord.journal import frame as frames
from fjord.journal.frame import Frame

_ZEROS: Final = bytes(limits.CHUNK_BYTES + frames.FRAME_HEADER_BYTES)

# For each byte value, whether a frame's length may contain it: as its lowest, highest, or other
# byte.
_EIGHTS: Final = bytes(byte % 8 == 0 for byte in range(256))
_HIGH: Final = bytes(byte <= limits.FRAME_BYTES_MAX >> 24 for byte in range(256))
_SOME: Final = bytes(byte != 0 for byte in range(256))


def find_headers(file: disks.File, offset: int, salt: bytes) -> Iterator[tuple[int, Frame]]:
    """Yields the frame headers from `offset` on with their offsets, whole bodies or not.

    Assumes that `offset` is a multiple of 8.
    """
    for position, head in find_heads(file, offset):
        frame = frames.decode_frame(head, 0, salt)
        if frame is not None:
            yield position, frame


class Stray(NamedTuple):
    """The header of a frame in the file of another segment."""

    frame: Frame
    path: str
    offset: int


class Strays:
    """Frames in files of other segments: written to a wrong place, or their file is misnamed.

    All files are searched once, on first use.
    """

    def __init__(
        self, disk: disks.Disk, paths: Mapping[int, str], salts: Mapping[int, bytes]
    ) -> None:
        self._disk = disk
        self._paths = paths  # by the numbers in the file names
        self._salts = salts
        self._found: dict[int, list[Stray]] | None = None

    def of(self, segment: int) -> list[Stray]:
        """Returns the frames that belong to a segment, whole or not."""
        if self._found is None:
            self._found = self._search()
        return self._found.get(segment, [])

    def paths(self) -> set[str]:
        """Returns the files in which such frames were found, if they were searched."""
        found = (self._found or {}).values()
        return {stray.path for strays in found for stray in strays}

    def _search(self) -> dict[int, list[Stray]]:
        segments = {frames.mark_of_salt(salt): number for number, salt in self._salts.items()}
        found: dict[int, list[Stray]] = {}
        for number, path in self._paths.items():
            # It was packed meanwhile, or cannot be read.
            with contextlib.suppress(OSError), contextlib.closing(self._disk.open(path)) as file:
                for offset, head in find_heads(file, frames.SEGMENT_HEADER_BYTES):
                    segment = segments.get(frames.mark_of(head), number)
                    frame = frames.decode_frame(head, 0, self._salts[segment])
                    if frame is not None and segment != number:
                        found.setdefault(segment, []).append(Stray(frame, path, offset))
        return found


def find_heads(file: disks.File, offset: int) -> Iterator[tuple[int, bytes]]:
    """Yields possible frame headers from `offset` on, with their offsets."""
    while data := file.read(offset, len(_ZEROS)):
        # Most of a partly filled segment is zeros.
        for position in () if _ZEROS.startswith(data) else _candidates(data):
            head = data[position : position + frames.FRAME_HEADER_BYTES]
            if position < limits.CHUNK_BYTES and len(head) == frames.FRAME_HEADER_BYTES:
                yield offset + position, head
        offset += limits.CHUNK_BYTES


def _candidates(data: bytes) -> list[int]:
    """Returns the possible positions of a length: a multiple of 8, not 0, and not too large.

    A loop over all words would take half a second per segment, while recovery waits for it.  So
    each byte of the lengths is judged for all words at once, as one large number.
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
