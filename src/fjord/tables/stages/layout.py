"""What the index holds of staged rows and of those who write them, byte by byte.

    STAGES    table id u32 BE | seq u64 BE  -> stage
    WRITERS   table id u32 BE | name        -> writer

    stage     = rows, segment, offset, size, crc u32 each, wall time u64, state u8
    writer    = batch, wall time, held u64 each, stage u64 BE *

A stage is known by the seq of the op that brought it.  `offset` is that of the op inside of it.
The stages of a writer are those that its last batch is written from, in order, those included that
are written already.
"""

from __future__ import annotations

import enum
import struct
from typing import Final, NamedTuple

from fjord.layouts import POINTER, Fields
from fjord.tables.state import Pointer
from fjord.tables.streams.layout import SEQ, seq_of

STAGE: Final = (Fields(rows="I") + POINTER + Fields(at_us="Q", state="B")).packed()
WRITER: Final = struct.Struct("<QQQ")


class StageState(enum.IntEnum):
    """How far a stage is."""

    PENDING = 0  # nobody has committed it
    DECIDED = 1  # it will be run
    COMMITTED = 2  # its messages have their seqs, and rest in it until they are in a block


class Staged(NamedTuple):
    """Rows that are staged."""

    seq: int
    rows: int
    segment: int
    offset: int
    size: int
    crc: int
    at_us: int
    state: int

    @property
    def pointer(self) -> Pointer:
        return Pointer(self.segment, self.offset, self.size, self.crc, self.seq)


class StageWriter(NamedTuple):
    """The last batch of a writer."""

    batch: int
    at_us: int
    held: int
    stages: tuple[int, ...]


def decode_stage(key: bytes, data: bytes) -> Staged:
    return Staged(seq_of(key), *STAGE.unpack(data))


def decode_writer(data: bytes) -> StageWriter:
    batch, at_us, held = WRITER.unpack_from(data)
    return StageWriter(batch, at_us, held, decode_seqs(data[WRITER.size :]))


def encode_seqs(seqs: tuple[int, ...]) -> bytes:
    return b"".join(map(SEQ.pack, seqs))


def decode_seqs(data: bytes) -> tuple[int, ...]:
    return tuple(seq for (seq,) in SEQ.iter_unpack(data))
