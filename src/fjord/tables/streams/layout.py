"""What the index holds of streams, subscribers, snapshots and blocks, byte by byte.

    STREAM_OPS    table id u32 BE | last seq u64 BE          -> append
    STREAM_SEQS   table id u32 BE | seq u64 BE               -> key
    SUBSCRIBERS   table id u32 BE | name                     -> subscriber
    SNAPSHOTS     deadline u64 BE | snapshot u64 BE          -> snapshot
    VERSIONS      snapshot u64 BE | tree u8 | key of a tree  -> what was there
    HISTORY       table id u32 BE                            -> history
    BLOCKS        table id u32 BE | last seq u64 BE          -> block
    REPLACED      table id u32 BE | last seq u64 BE | name   -> block

    append      = rows, segment, offset, size, crc u32 each, wall time u64; stage u64, if it was one
    snapshot    = wall time, held, largest table id u64 each, is a reader's u8
    subscriber  = mark, epoch, moved, held u64 each, asleep u8
    history     = sealed, forgotten, sealing, tag, held u64 each
    block       = first, rows, bytes, min time, max time, crc u64 each, retired u8, name

An append is found by the last of its seqs, so that the first one found from a seq on contains that
seq, or follows it.  The entries of a stream that keeps the latest are those of a key/value table,
see `kv.layout`; STREAM_SEQS has them in the order of arrival.  The timestamp of such an entry is
the date of its message, `created` the moment of its commit: they are equal if the message came
without a date.  `held` is the seq of the row that holds it now, see `kv.layout`.  The max time of a
replaced block is when it was replaced: that of its rows is not needed any more.
"""

from __future__ import annotations

import enum
import struct
from typing import Final, NamedTuple

from fjord import ops
from fjord.history import Block
from fjord.layouts import POINTER, PREFIX_BYTES, Fields, prefix_of, table_of
from fjord.tables.kv.layout import KvEntry
from fjord.tables.state import Moment, Pointer


class Use(enum.IntEnum):
    """The state of a block, as in the op BLOCK."""

    LIVE = 0
    RETIRED = 1  # its files can be removed
    REPLACED = 2  # another one has replaced it; its files are removed later
    REMOVED = 3  # it was replaced, and its files are removed


SEQ: Final = struct.Struct(">Q")
APPEND: Final = (Fields(rows="I") + POINTER + Fields(wall_us="Q")).packed()
STAGED: Final = struct.Struct("<Q")
SUBSCRIBER: Final = struct.Struct("<QQQQB")
SNAPSHOT_KEY: Final = struct.Struct(">QQ")
SNAPSHOT: Final = struct.Struct("<QQQ?")
VERSION_KEY: Final = struct.Struct(">QB")
HISTORY: Final = struct.Struct("<QQQQQ")
BLOCK: Final = struct.Struct("<QQQQQQB")
_BLOCK_KEY_BYTES: Final = PREFIX_BYTES + SEQ.size


class Append(NamedTuple):
    """Messages of a log that came in one op."""

    first: int
    last: int
    segment: int
    offset: int  # of the whole op
    size: int
    crc: int
    wall_us: int
    stage: int = 0  # the seq with which it was staged

    @property
    def rows(self) -> int:
        return self.last - self.first + 1

    @property
    def pointer(self) -> Pointer:
        return Pointer(self.segment, self.offset, self.size, self.crc, self.stage)


class Subscriber(NamedTuple):
    """The position of a subscriber."""

    seq: int
    epoch: int
    moved_us: int
    held: int
    asleep: int


class History(NamedTuple):
    """How far a table is sealed."""

    sealed: int = 0
    forgotten: int = 0
    sealing: int = 0
    tag: int = 0
    held: int = 0


def seq_key(prefix: bytes, seq: int) -> bytes:
    return prefix + SEQ.pack(seq)


def seq_of(key: bytes) -> int:
    return int.from_bytes(key[PREFIX_BYTES:], "big")


def moment_of(entry: KvEntry) -> int:
    """Returns when a message was committed, whatever its date; tombstones have no other moment."""
    return entry.timestamp_us if entry.type == ops.TOMBSTONE else entry.created_us


def decode_append(key: bytes, data: bytes) -> Append:
    rows, *rest = APPEND.unpack_from(data)
    last = seq_of(key)
    stage = STAGED.unpack_from(data, APPEND.size) if len(data) > APPEND.size else ()
    return Append(last - rows + 1, last, *rest, *stage)


def decode_subscriber(data: bytes) -> Subscriber:
    return Subscriber._make(SUBSCRIBER.unpack(data))


def decode_history(data: bytes | None) -> History:
    return History._make(HISTORY.unpack(data)) if data else History()


def decode_snapshot(key: bytes, data: bytes) -> tuple[int, Moment]:
    """Returns a snapshot with its times."""
    deadline_us, snapshot = SNAPSHOT_KEY.unpack(key)
    wall_us, _, largest, is_pass = SNAPSHOT.unpack(data)
    return snapshot, Moment(deadline_us, wall_us, largest, is_pass)


def version_keys(op: ops.Op) -> list[bytes]:
    """Returns the keys of the versions of VERSION or VERSION_DROP."""
    snapshots, trees, keys, *_ = op.columns
    heads = map(VERSION_KEY.pack, snapshots, trees)
    return [head + key for head, key in zip(heads, keys.rows(), strict=True)]


def encode_block(block: Block, *, is_retired: bool) -> bytes:
    _, first, _, *numbers, name = block
    return BLOCK.pack(first, *numbers, is_retired) + name.encode()


def decode_block(key: bytes, data: bytes) -> tuple[Block, bool]:
    """Returns a block, and whether it is retired."""
    first, *numbers, is_retired = BLOCK.unpack_from(data)
    last, name = seq_of(key[:_BLOCK_KEY_BYTES]), data[BLOCK.size :].decode()
    block = Block._make((table_of(key), first, last, *numbers, name))
    return block, bool(is_retired)


def block_key(block: Block) -> bytes:
    return seq_key(prefix_of(block.table), block.last)


def replaced_key(block: Block) -> bytes:
    """Returns the key of a replaced block: others may end at the same seq."""
    return block_key(block) + block.name.encode()
