"""A second reader of journals, written from docs/journal-format.md alone.

It shares nothing with `fjord.journal`: it looks at every multiple of 8 of every file for a frame
of any segment of the journal, and judges by checksums.  So what it finds is what can be read, and
a repair is held to that.
"""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import google_crc32c

PACKED, LOST = 5, 6


class Frame(NamedTuple):
    """What a frame says, wherever it stands."""

    first_seq: int
    rows: int
    wall_us: int
    body: bytes

    @property
    def last_seq(self) -> int:
        return self.first_seq + self.rows - 1

    def ops(self) -> list[tuple[int, bytes]]:
        """Opcode and columns of each op."""
        found, at = [], 0
        while at < len(self.body):
            opcode, _, _, _, _, length = struct.unpack_from("<BBHIII", self.body, at)
            found.append((opcode, self.body[at + 16 : at + length]))
            at += length
        return found

    @property
    def is_lost(self) -> bool:
        return [opcode for opcode, _ in self.ops()] == [LOST]


class Found(NamedTuple):
    """What can be read of a journal."""

    frames: set[Frame]
    durable_seq: int  # the highest that any frame's header vouches for
    has_uuid: bool = True  # False: no header is left that says of which journal the frames are

    @property
    def begin_seq(self) -> int:
        """Where the journal begins, as its last readable note says."""
        notes = [
            (frame.first_seq, struct.unpack_from("<QQ", columns)[1])
            for frame in self.frames
            for opcode, columns in frame.ops()
            if opcode == PACKED
        ]
        return max(notes)[1] if notes else 1

    def said(self) -> set[Frame]:
        """The frames that say something, from where the journal begins."""
        begin_seq = self.begin_seq
        return {one for one in self.frames if one.first_seq >= begin_seq and not one.is_lost}


def read(journal: Path) -> Found:
    """Reads all that can be read of the segments in a folder."""
    files = {path: path.read_bytes() for path in sorted(journal.glob("*.seg"))}
    shards: Counter[bytes] = Counter()
    numbers = {int(path.stem) for path in files}
    for data in files.values():
        known = _header(data)
        if known is not None:
            shards[known[1]] += 1
            numbers.add(known[0])
    if not shards:
        return Found(set(), 0, has_uuid=False)
    shard = shards.most_common(1)[0][0]
    salts = [shard + struct.pack("<Q", number) for number in sorted(numbers)]
    frames: set[Frame] = set()
    durable_seq = 0
    for data in files.values():
        for offset in range(64, len(data) - 63, 8):
            length, crc = struct.unpack_from("<II", data, offset)
            if not 64 < length <= 32 * 2**20 or length % 8:
                continue
            head = data[offset : offset + 4] + data[offset + 8 : offset + 64]
            if not any(google_crc32c.value(salt + head) == crc for salt in salts):
                continue
            first, rows, _, wall, _, durable, body_crc = struct.unpack_from(
                "<QIIQQQI", data, offset + 8
            )
            durable_seq = max(durable_seq, durable)
            body = data[offset + 64 : offset + length]
            if len(body) == length - 64 and google_crc32c.value(body) == body_crc:
                frames.add(Frame(first, rows, wall, body))
    return Found(frames, durable_seq)


def _header(data: bytes) -> tuple[int, bytes] | None:
    """Number and UUID of a segment whose header is whole."""
    if len(data) < 64 or data[:12] != b"FJORDSEG\x01\0\0\0":
        return None
    (crc,) = struct.unpack_from("<I", data, 12)
    if google_crc32c.value(data[:12] + bytes(4) + data[16:64]) != crc:
        return None
    return struct.unpack_from("<Q", data, 16)[0], data[32:48]


def places(path: Path) -> list[tuple[int, int]]:
    """Offset and length of each frame of an undamaged segment, in order."""
    data, at, found = path.read_bytes(), 64, []
    while at + 64 <= len(data):
        (length,) = struct.unpack_from("<I", data, at)
        if not length:
            break
        found.append((at, length))
        at += length
    return found
