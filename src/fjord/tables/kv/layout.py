"""What the index holds of key/value tables: entries, marks and schedules, byte by byte.

    KV         table id u32 BE | key                    -> entry
    KV_MARKS   table id u32 BE | key                    -> mark
    KV_EXPIRY  expiry u64 BE | table id u32 BE | key    -> row

    entry  = base                                         if the rest follows from it
           | base, held u64, created u64, expires u64, ttl u64, links u64
           | base, held u64, target                       for an alias
    base   = row u64, timestamp u64, pointer (segment, offset, size, crc u32 each), type u8
    mark   = row u64, accessed u64, expires u64, worked until u64

A *row* is identified for ever by the seq of its first write.  `held` is the seq of the row that
holds it now: packing rewrites rows, and they keep their identity.  Without `held`, it is the row
itself; `created` is then the timestamp, and `links` the row.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from fjord import ops, values
from fjord.layouts import POINTER, PREFIX_BYTES, Fields
from fjord.tables.state import Pointer

_BASE: Final = Fields(row="Q", timestamp_us="Q") + POINTER + Fields(type="B")
_FULL: Final = _BASE + Fields(held="Q", created_us="Q", expires_at_us="Q", ttl_us="Q", links="Q")
BASE: Final = _BASE.packed()
FULL: Final = _FULL.packed()
# The same entries, without the fields that a write does not need; in the first, the row stands for
# the last four.
BASE_REPLACED: Final = _BASE.picked("row", "timestamp_us", "size", "type")
FULL_REPLACED: Final = _FULL.picked(
    "timestamp_us", "size", "type", "held", "created_us", "expires_at_us", "links"
)
MARK: Final = struct.Struct("<QQQQ")
ROW: Final = struct.Struct("<Q")
TYPE_AT: Final = _BASE.span("type").start
# The largest type of a value; larger ones are tombstones and aliases.
VALUE_TYPE_MAX: Final = values.ROW  # streams of mode latest may have rows

EXPIRY_BYTES: Final = 8
_ALIAS_HEAD: Final = BASE.size + ROW.size
_new = tuple.__new__


class KvEntry(NamedTuple):
    """The index entry of a key."""

    row: int  # seq of the row when it was first written
    timestamp_us: int
    segment: int
    offset: int
    size: int  # of the value, or of an alias's target
    crc: int
    type: int  # of the value, or ops.TOMBSTONE, or ops.ALIAS
    held: int  # seq of the row that holds it now
    created_us: int  # of a tombstone: when it was buried, in lease time
    expires_at_us: int  # 0 = never; a mark may say later
    ttl_us: int
    links: int  # aliases with a row before this one no longer count

    @property
    def is_value(self) -> bool:
        return self.type <= VALUE_TYPE_MAX

    @property
    def pointer(self) -> Pointer:
        return Pointer(self.segment, self.offset, self.size, self.crc, self.held)


class Mark(NamedTuple):
    """What was recorded about a row since it was written; void for any other row."""

    row: int
    accessed_us: int
    expires_at_us: int
    worked_until_us: int  # lease time


# The mark of a row that has none.
NO_MARK: Final = Mark(0, 0, 0, 0)


def decode(data: bytes) -> KvEntry:
    if len(data) == BASE.size:
        base = BASE.unpack(data)
        row, timestamp_us = base[0], base[1]
        return _new(KvEntry, (*base, row, timestamp_us, 0, 0, row))
    if data[TYPE_AT] == ops.ALIAS:
        base, (held,) = BASE.unpack_from(data), ROW.unpack_from(data, BASE.size)
        return _new(KvEntry, (*base, held, base[1], 0, 0, base[0]))
    return _new(KvEntry, FULL.unpack(data))


def decode_target(data: bytes) -> bytes:
    """Returns the key, without its table, that an alias leads to."""
    return data[_ALIAS_HEAD:]


def encode_tombstone(row: int, timestamp_us: int, held: int, buried_us: int) -> bytes:
    return FULL.pack(row, timestamp_us, 0, 0, 0, 0, ops.TOMBSTONE, held, buried_us, 0, 0, 0)


def encode_alias(row: int, timestamp_us: int, held: int, target: bytes) -> bytes:
    base = BASE.pack(row, timestamp_us, 0, 0, len(target), 0, ops.ALIAS)
    return base + ROW.pack(held) + target


def decode_mark(data: bytes | None, row: int) -> Mark:
    """Returns the mark if it belongs to this row, else `NO_MARK`."""
    if data is None:
        return NO_MARK
    mark = Mark(*MARK.unpack(data))
    return mark if mark.row == row else NO_MARK


encode_mark: Final[Callable[[int, int, int, int], bytes]] = MARK.pack


def expiry_of(entry: KvEntry, mark: Mark) -> int:
    """Returns when a row expires, marks included; 0 = never."""
    return max(entry.expires_at_us, mark.expires_at_us) if entry.expires_at_us else 0


def schedule_key(expires_at_us: int, index_key: bytes) -> bytes:
    return expires_at_us.to_bytes(EXPIRY_BYTES, "big") + index_key


def decode_schedule(key: bytes) -> tuple[int, bytes]:
    """Returns the expiry and the index key of an item of KV_EXPIRY."""
    return int.from_bytes(key[:EXPIRY_BYTES], "big"), key[EXPIRY_BYTES:]


def replaced(index_key: bytes, entry: KvEntry | None) -> tuple[int, int]:
    """Returns `previous` and `freed` of a row that replaces an entry; 0 for no entry."""
    return (entry.held, row_bytes(entry, index_key)) if entry else (0, 0)


def row_bytes(entry: KvEntry, index_key: bytes) -> int:
    """Returns what a row counts toward the live bytes of the journal."""
    return ops.ROW_BYTES + len(index_key) - PREFIX_BYTES + entry.size
