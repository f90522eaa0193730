"""Segment headers and frames: the bytes of docs/journal-format.md, and nothing but the bytes.

    segment = header frame* end
    frame   = length u32, header crc u32, first seq u64, rows u32, ops u32, wall time u64,
              lease time u64, durable seq u64, body crc u32, 12 zero bytes, op*
    end     = length 0, or anything that is not a frame

The header's crc is salted with the journal's UUID and the segment's number, so neither bytes of
an older life of the file nor a user's value that looks like a frame are ever frames.  The body's
crc covers the ops alone, so a body can be copied elsewhere.

To change the format: raise VERSION, keep the old reader under its own name, freeze a sample of
the old version in tests/compat, and describe both in docs/journal-format.md.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

import google_crc32c

from fjord import limits, ops
from fjord.errors import CorruptionError

MAGIC = b"FJORDSEG"
VERSION = 1

_SEGMENT = struct.Struct("<8sIIQQ16sQQ")
_FRAME = struct.Struct("<IIQIIQQQI12x")
_NUMBER = struct.Struct("<Q")
SEGMENT_HEADER_BYTES = 64
FRAME_HEADER_BYTES = 64

assert _SEGMENT.size == SEGMENT_HEADER_BYTES
assert _FRAME.size == FRAME_HEADER_BYTES

checksum = google_crc32c.value
add_to_checksum = google_crc32c.extend
PlacedOp = tuple[ops.Op, ops.Place]


class SegmentHeader(NamedTuple):
    """The first 64 bytes of a segment."""

    segment: int
    first_seq: int  # everything below it is durable in earlier segments
    shard: bytes  # UUID of the journal that the segment belongs to
    created_us: int
    lease_us: int  # lease time when the segment was created

    @property
    def salt(self) -> bytes:
        """The prefix of the checksums of this segment's frames."""
        return self.shard + _NUMBER.pack(self.segment)

    def encode(self) -> bytes:
        crc = checksum(_SEGMENT.pack(MAGIC, VERSION, 0, *self))
        return _SEGMENT.pack(MAGIC, VERSION, crc, *self)


def decode_segment_header(data: bytes, path: str) -> SegmentHeader:
    """Decodes a segment's header.

    Raises:
        CorruptionError: if it is invalid, or of an unknown version.
    """
    if len(data) < SEGMENT_HEADER_BYTES:
        raise CorruptionError(path, 0, "it is shorter than a segment header")
    magic, version, _, *fields = _SEGMENT.unpack(data[:SEGMENT_HEADER_BYTES])
    if magic != MAGIC:
        raise CorruptionError(path, 0, "it does not begin with FJORDSEG")
    if version != VERSION:
        raise CorruptionError(path, 8, f"it has format version {version}, not {VERSION}")
    header = SegmentHeader(*fields)
    if header.encode() != data[:SEGMENT_HEADER_BYTES]:
        raise CorruptionError(path, 12, "the checksum of the segment header is wrong")
    return header


class Frame(NamedTuple):
    """The header of one commit: `rows` rows of ops that count all or not at all."""

    first_seq: int
    rows: int
    op_count: int
    wall_us: int
    lease_us: int
    durable_seq: int  # the durable seq when the frame was written
    length: int  # header and body
    body_crc: int

    @property
    def last_seq(self) -> int:
        return self.first_seq + self.rows - 1

    def encode(self, salt: bytes) -> bytes:
        """Returns the 64 bytes that precede the body, in the segment with that salt."""
        first_seq, rows, op_count, wall_us, lease_us, durable_seq, length, body_crc = self
        head = _FRAME.pack(
            length, 0, first_seq, rows, op_count, wall_us, lease_us, durable_seq, body_crc
        )
        crc = _header_crc(head, salt)
        return b"".join((head[:4], crc.to_bytes(4, "little"), head[8:]))


def decode_frame(data: bytes, offset: int, salt: bytes) -> Frame | None:
    """Returns the frame whose header is at `offset`, None if there is none with that salt."""
    head = data[offset : offset + FRAME_HEADER_BYTES]
    if len(head) < FRAME_HEADER_BYTES:
        return None
    length, crc, first_seq, rows, op_count, wall_us, lease_us, durable_seq, body_crc = (
        _FRAME.unpack(head)
    )
    if not is_frame_length(length) or _header_crc(head, salt) != crc:
        return None
    return Frame(first_seq, rows, op_count, wall_us, lease_us, durable_seq, length, body_crc)


def _header_crc(head: bytes, salt: bytes) -> int:
    return int(checksum(b"".join((salt, head[:4], head[8:]))))


def mark_of(head: bytes) -> int:
    """Returns the contribution of the salt to the checksum of a frame's header.

    It is the same for all frames of a salt, since a checksum of two parts is the sum of the
    contributions of the parts.  So it tells to which of many segments a frame belongs.
    """
    crc = int.from_bytes(head[4:8], "little")
    return crc ^ int(checksum(b"".join((head[:4], head[8:]))))


def body_of(head: bytes) -> tuple[int, int]:
    """Returns size and checksum of the body after a header, even if the header's own is wrong."""
    length, _, _, _, _, _, _, _, body_crc = _FRAME.unpack(head)
    return length - FRAME_HEADER_BYTES, body_crc


def mark_of_salt(salt: bytes) -> int:
    return mark_of(Frame(0, 0, 0, 0, 0, 0, 0, 0).encode(salt))


def is_frame_length(length: int) -> bool:
    return FRAME_HEADER_BYTES < length <= limits.FRAME_BYTES_MAX and length % 8 == 0


def decode_ops(frame: Frame, body: bytes, segment: int, offset: int) -> Iterator[PlacedOp]:
    """Yields the ops of a frame at `offset` of `segment`, with their places.

    Raises:
        ValueError: if the body is not `op_count` ops of `rows` rows.
    """
    view = memoryview(body)
    base = offset + FRAME_HEADER_BYTES
    position, seq = 0, frame.first_seq
    for _ in range(frame.op_count):
        start = position
        op, payload, position = ops.decode(view, start)
        data = view[start:position]
        yield op, ops.Place(seq, segment, base + payload, frame.wall_us, data)
        seq += op.rows
    if position != len(view) or seq != frame.last_seq + 1:
        raise ValueError("the ops of a frame do not match its header")


# -- file names of the journal; nothing else builds or parses them --------------------------------


_SEGMENT_NAME = re.compile(r"(\d{10})\.seg\Z")
# The suffix of a file that is being written; it does not count until it is renamed.
UNFINISHED = ".new"
# The suffix of a packed segment that is to be overwritten; a start continues with that.
UNWIPED = ".old"


def segment_path(directory: str, segment: int) -> str:
    return os.path.join(directory, f"{segment:010d}.seg")


def segment_number(name: str) -> int | None:
    """Returns the segment number in a file name, None for other files."""
    found = _SEGMENT_NAME.match(name)
    return int(found[1]) if found else None


def spare_path(directory: str) -> str:
    """Returns the name of the file that becomes the next segment."""
    return os.path.join(directory, "spare")
