"""Ops: the one vocabulary of durable change.

Everything durable is one ordered stream of ops, and state is `fold(apply, ops)`.  An op of n rows
takes n consecutive seqs and stores n rows of columns.  It is *resolved*: whoever decided it looked
everything up, so applying it only writes.

    op      = opcode u8, flags u8 (0), reserved u16 (0), table u32, rows u32, length u32, column*
    column  = numbers | strings                     each padded to a multiple of 8
    length  = of the whole op, header and padding included

To change an op: never change the columns of a released opcode.  Give the new layout a new opcode,
keep the old one readable for ever, and add a sample of it to tests/compat.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

from fjord import columns
from fjord.columns import Strings

HEADER = struct.Struct("<BBHIII")


class Opcode(enum.IntEnum):
    """What an op does; 0 is reserved so that zeroed bytes are never an op."""

    TAKEOVER = 1  # a writer began: its UUID.  From here on seqs are that writer's.
    CREATE_TABLE = 2  # a table got a name, a kind and settings; `table` is its id
    DROP_TABLE = 3  # a table lost its name; its rows are purged bit by bit
    FORGET_TABLE = 4  # the last row of a dropped table is purged
    PACKED = 5  # the journal begins at this segment and seq; what is before may go
    LOST = 6  # these seqs were damaged and could not be repaired; without columns
    ANSWERED = 7  # a numbered batch of a client was applied: its answer, should it ask again
    FORGET_CLIENT = 8  # a client has not been heard of for long; its answers go
    KV_INSERT = 16  # keys that had no entry got values that never expire
    KV_SET = 17  # keys got values; everything that may be said of one
    KV_MOVE = 18  # rows of a segment that goes are said again, as they are, tombstones too
    KV_DELETE = 19  # keys lost their values; the tombstone keeps the timestamp
    KV_EXPIRE = 20  # the same, because their time was over
    KV_MARK = 21  # rows were touched or taken for work: expiry, last access, worked-on deadline
    KV_UNSCHEDULE = 22  # an expiry no longer holds
    KV_PURGE = 23  # keys lost their entries without a trace
    KV_LINK = 24  # keys became further keys of other keys' values
    JOB_ADD = 32  # jobs wait that did not before
    JOB_REPLACE = 33  # jobs that wait got new data, by the rule of merging
    JOB_MOVE = 34  # jobs of a segment that goes are said again, as they are
    JOB_TAKE = 35  # jobs were handed out; the seq of a row is its xid
    JOB_DONE = 36  # jobs that were handed out are done
    JOB_TOUCH = 37  # leases got longer
    JOB_WAIT = 38  # jobs wait again, or otherwise: taken, dead or waiting ones
    JOB_BURY = 39  # jobs went to the dead letters
    JOB_REMOVE = 40  # jobs of any state are gone
    JOB_LEASE = 41  # a note of when leases are over is said again
    JOB_UNLEASE = 42  # such a note goes
    STREAM_APPEND = 48  # messages of a log, as they came
    STREAM_PUT = 49  # keys of a stream that keeps the latest got messages
    STREAM_ERASE = 50  # such keys lost theirs; the tombstone is a message too
    STREAM_MOVE = 51  # such messages of a segment that goes are said again, as they are
    STREAM_PURGE = 52  # tombstones that everybody has seen are gone
    STREAM_FORGET = 53  # appends that are in a block are no longer found in the journal
    SUBSCRIBER = 54  # a subscriber was made, or its mark was set
    UNSUBSCRIBE = 55  # a subscriber is gone
    SNAPSHOT = 56  # the state at this seq can be read until a deadline
    SNAPSHOT_END = 57  # no more
    VERSION = 58  # what the index had before is kept for snapshots
    VERSION_DROP = 59  # such are gone
    HISTORY = 60  # how far a table is in cold blocks
    BLOCK = 61  # a cold block is there, or is to go
    BLOCK_GONE = 62  # it is gone


U8: Final = "B"
U64: Final = "Q"
STRINGS: Final = "strings"
ColumnKind = columns.NumberKind | Literal["strings"]

_ENCODER_OF: Final[dict[ColumnKind, Callable[[Any], columns.Buffer]]] = {
    U8: columns.encode_u8,
    U64: columns.encode_u64,
    STRINGS: Strings.encode,
}

# The payload, where an op has one, is the last column: its place follows from the op's length.
#
# previous  seq of the row that holds what this one replaces, 0 = none
# freed     bytes that count as live for that row, see `row_bytes`
# links     keys that were linked before this seq no longer count, 0 = before this row
# buried    lease time when a tombstone was made; for one that moves it stands in `created`
# row       seq that the row had when it was first written: its identity for ever
COLUMNS: Final[dict[Opcode, tuple[tuple[str, ColumnKind], ...]]] = {
    Opcode.TAKEOVER: (("seq", U64), ("uuid", STRINGS)),
    Opcode.CREATE_TABLE: (("kind", U8), ("name", STRINGS), ("settings", STRINGS)),
    Opcode.DROP_TABLE: (("name", STRINGS),),
    Opcode.FORGET_TABLE: (("name", STRINGS),),
    Opcode.PACKED: (("segment", U64), ("seq", U64)),
    Opcode.LOST: (),
    Opcode.ANSWERED: (
        ("at_us", U64),
        ("number", U64),
        ("client", STRINGS),
        ("answer", STRINGS),
    ),
    Opcode.FORGET_CLIENT: (
        ("at_us", U64),  # the note of this date goes
        ("is_gone", U8),  # 1: and so does all else of the client
        ("client", STRINGS),
    ),
    Opcode.KV_INSERT: (
        ("timestamp_us", U64),
        ("type", U8),
        ("key", STRINGS),
        ("value", STRINGS),
    ),
    Opcode.KV_SET: (
        ("timestamp_us", U64),
        ("expires_at_us", U64),  # 0 = never
        ("ttl_us", U64),  # how long a touch lets it live, 0 = not at all
        ("created_us", U64),
        ("links", U64),
        ("previous", U64),
        ("freed", U64),
        ("type", U8),
        ("key", STRINGS),
        ("value", STRINGS),
    ),
    Opcode.KV_MOVE: (
        ("row", U64),
        ("timestamp_us", U64),
        ("expires_at_us", U64),
        ("ttl_us", U64),
        ("created_us", U64),  # of a tombstone: when it was buried
        ("links", U64),
        ("accessed_us", U64),  # 0 = never
        ("worked_until_us", U64),  # lease time, 0 = not worked on
        ("previous", U64),
        ("type", U8),  # also TOMBSTONE, and ALIAS: its value is the target
        ("key", STRINGS),
        ("value", STRINGS),
    ),
    Opcode.KV_DELETE: (
        ("timestamp_us", U64),
        ("buried_us", U64),
        ("previous", U64),
        ("freed", U64),
        ("key", STRINGS),
    ),
    Opcode.KV_EXPIRE: (
        ("timestamp_us", U64),
        ("buried_us", U64),
        ("expires_at_us", U64),  # the expiry that came
        ("previous", U64),
        ("freed", U64),
        ("key", STRINGS),
    ),
    Opcode.KV_MARK: (
        ("row", U64),
        ("accessed_us", U64),  # 0 = there is no mark any more
        ("expires_at_us", U64),  # from now on, 0 = never
        ("worked_until_us", U64),
        ("key", STRINGS),
    ),
    Opcode.KV_UNSCHEDULE: (("expires_at_us", U64), ("key", STRINGS)),
    Opcode.KV_PURGE: (("previous", U64), ("freed", U64), ("key", STRINGS)),
    Opcode.KV_LINK: (
        ("timestamp_us", U64),
        ("previous", U64),
        ("freed", U64),
        ("key", STRINGS),
        ("target", STRINGS),
    ),
    # lane      hash of the domain where the table has fairness by domain, else 0
    # probe     which of the keys with the same hash this is; 255: the key is not looked up
    # place     lane, priority, process date, row: 25 bytes, as docs/journal-format.md says
    # image     a place, and all else that the index knows of a job but its value
    # slot      hash and probe of a key that is looked up, 17 bytes, or nothing
    # at        xid of a taken job, row of a dead one, 0 for one that waits
    # lease     deadline whose note goes with this row alone, 0 = none
    Opcode.JOB_ADD: (
        ("inserted_us", U64),
        ("updated_us", U64),
        ("process_at_us", U64),
        ("expires_at_us", U64),  # 0 = never
        ("lane", U64),
        ("priority", U8),
        ("probe", U8),
        ("type", U8),
        ("key", STRINGS),
        ("domain", STRINGS),  # as it was given; nothing: that of the key
        ("value", STRINGS),
    ),
    Opcode.JOB_REPLACE: (
        ("row", U64),
        ("inserted_us", U64),
        ("updated_us", U64),
        ("process_at_us", U64),
        ("expires_at_us", U64),
        ("lane", U64),
        ("was_expires_at_us", U64),
        ("previous", U64),
        ("freed", U64),
        ("priority", U8),
        ("probe", U8),
        ("type", U8),
        ("was", STRINGS),  # place
        ("key", STRINGS),
        ("domain", STRINGS),
        ("value", STRINGS),
    ),
    Opcode.JOB_MOVE: (
        ("at", U64),
        ("previous", U64),
        ("state", U8),
        ("head", STRINGS),  # what the index has before the image: see docs/journal-format.md
        ("image", STRINGS),
        ("value", STRINGS),
    ),
    Opcode.JOB_TAKE: (
        ("deadline_us", U64),  # lease time
        ("lease_us", U64),
        ("started_us", U64),  # wall time
        ("row", U64),
        ("image", STRINGS),
    ),
    Opcode.JOB_DONE: (
        ("xid", U64),
        ("lease", U64),
        ("row", U64),
        ("previous", U64),
        ("freed", U64),
    ),
    Opcode.JOB_TOUCH: (
        ("xid", U64),
        ("lease", U64),
        ("deadline_us", U64),
        ("lease_us", U64),
        ("started_us", U64),
        ("image", STRINGS),
    ),
    Opcode.JOB_WAIT: (
        ("at", U64),
        ("lease", U64),
        ("row", U64),
        ("process_at_us", U64),
        ("state", U8),  # before
        ("how", U8),
        ("priority", U8),
        ("timeouts", U8),
        ("was", STRINGS),  # place of one that waited, else nothing
        ("image", STRINGS),  # from now on
    ),
    Opcode.JOB_BURY: (
        ("at", U64),
        ("lease", U64),
        ("row", U64),
        ("died_us", U64),  # wall time
        ("state", U8),  # before
        ("how", U8),
        ("timeouts", U8),
        ("image", STRINGS),
        ("reason", STRINGS),
    ),
    Opcode.JOB_REMOVE: (
        ("at", U64),
        ("lease", U64),
        ("row", U64),
        ("expires_at_us", U64),  # of one that waited
        ("previous", U64),
        ("freed", U64),
        ("state", U8),  # before
        ("how", U8),
        ("place", STRINGS),
        ("slot", STRINGS),  # of one that waited
    ),
    Opcode.JOB_LEASE: (("deadline_us", U64), ("xid", U64), ("count", U64)),
    Opcode.JOB_UNLEASE: (("deadline_us", U64), ("xid", U64)),
    # was       seq that a message of the same key had which is replaced, 0 = none
    Opcode.STREAM_APPEND: (("type", U8), ("key", STRINGS), ("value", STRINGS)),
    Opcode.STREAM_PUT: (
        ("was", U64),
        ("previous", U64),
        ("freed", U64),
        ("type", U8),
        ("key", STRINGS),
        ("value", STRINGS),
    ),
    Opcode.STREAM_ERASE: (
        ("buried_us", U64),
        ("was", U64),
        ("previous", U64),
        ("freed", U64),
        ("key", STRINGS),
    ),
    Opcode.STREAM_MOVE: (
        ("row", U64),
        ("at_us", U64),  # wall time of the commit that brought it
        ("buried_us", U64),  # of a tombstone
        ("previous", U64),
        ("type", U8),  # also TOMBSTONE
        ("key", STRINGS),
        ("value", STRINGS),
    ),
    Opcode.STREAM_PURGE: (("row", U64), ("previous", U64), ("freed", U64), ("key", STRINGS)),
    Opcode.STREAM_FORGET: (("last", U64), ("freed", U64)),  # last seq of each append
    Opcode.SUBSCRIBER: (
        ("position", U64),
        ("epoch", U64),
        ("moved_us", U64),  # wall time
        ("is_asleep", U8),
        ("name", STRINGS),
    ),
    Opcode.UNSUBSCRIBE: (("name", STRINGS),),
    Opcode.SNAPSHOT: (
        ("snapshot", U64),  # 0 = the seq of this row
        ("deadline_us", U64),  # lease time
        ("wall_us", U64),
        ("largest", U64),  # table id so far: tables with larger ones are younger
        ("is_pass", U8),  # 1: it was opened for a reader, and ends with what it reads
    ),
    Opcode.SNAPSHOT_END: (("deadline_us", U64), ("snapshot", U64)),
    Opcode.VERSION: (
        ("snapshot", U64),  # the newest that was open
        ("tree", U8),
        ("key", STRINGS),  # of the index
        ("image", STRINGS),  # what the index had there
    ),
    Opcode.VERSION_DROP: (("snapshot", U64), ("tree", U8), ("key", STRINGS)),
    Opcode.HISTORY: (
        ("sealed", U64),  # everything up to here is in blocks
        ("forgotten", U64),  # appends up to here are not found in the journal any more
        ("sealing", U64),  # up to here blocks are being written, 0 = no
        ("tag", U64),  # a number that makes the names of these blocks unique
    ),
    Opcode.BLOCK: (
        ("first", U64),
        ("last", U64),
        ("rows", U64),
        ("bytes", U64),
        ("min_us", U64),
        ("max_us", U64),
        ("crc", U64),
        ("is_retired", U8),  # 1: its file is to go
        ("name", STRINGS),
    ),
    Opcode.BLOCK_GONE: (("last", U64),),
}

# Beside the types of values, 0 to 5, an entry of a key/value table may be one of these.
TOMBSTONE: Final = 0xFF
ALIAS: Final = 0xFE
# What a row counts for beside its key and its payload when it is told how much of the journal
# lives: its share of headers and columns.
ROW_BYTES: Final = 96

_ENCODERS: Final[dict[Opcode, tuple[Callable[[Any], columns.Buffer], ...]]] = {
    opcode: tuple(_ENCODER_OF[kind] for _, kind in named) for opcode, named in COLUMNS.items()
}


def _number_count(opcode: Opcode) -> int:
    """Returns how many columns of numbers an op begins with; all others are strings."""
    kinds = [kind for _, kind in COLUMNS[opcode]]
    count = kinds.index(STRINGS) if STRINGS in kinds else len(kinds)
    assert STRINGS not in kinds[:count]
    assert set(kinds[count:]) <= {STRINGS}
    return count


# The numbers of an op of one row are packed in one go.
_ONE_ROW: Final[dict[Opcode, tuple[int, Callable[..., bytes]]]] = {
    opcode: (
        count := _number_count(opcode),
        struct.Struct("<" + "".join({U8: "B7x", U64: "Q"}[kind] for _, kind in named[:count])).pack,
    )
    for opcode, named in COLUMNS.items()
}

Numbers = Sequence[int]
Column = Numbers | Strings


class Op(NamedTuple):
    """One durable change of `rows` rows."""

    opcode: Opcode
    table: int
    rows: int
    columns: tuple[Column, ...]  # in the order of COLUMNS[opcode]

    def column(self, name: str) -> Column:
        names = [column_name for column_name, _ in COLUMNS[self.opcode]]
        return self.columns[names.index(name)]


class Place(NamedTuple):
    """Where an op stands: what apply needs to know beside the op itself."""

    seq: int  # of the op's first row
    segment: int
    payload: int  # offset in the segment of the last column's bytes
    wall_us: int = 0  # of the commit
    data: columns.Buffer = b""  # the whole op as it stands there


def part(op: Op, start: int, end: int) -> Op:
    """Returns an op with some of the rows of another one."""
    columns_ = tuple(_column_part(column, start, end) for column in op.columns)
    return op._replace(rows=end - start, columns=columns_)


def _column_part(column: Column, start: int, end: int) -> Column:
    if not isinstance(column, Strings):
        return column[start:end]
    base = column.offsets[start]
    offsets = [offset - base for offset in column.offsets[start : end + 1]]
    return Strings(offsets, column.data[base : column.offsets[end]])


def encode(op: Op) -> tuple[bytes, int]:
    """Returns the op's bytes and where in them its payload begins."""
    opcode, table, rows, found = op
    if len(found) != len(COLUMNS[opcode]):
        raise ValueError(f"{opcode.name} has {len(COLUMNS[opcode])} columns, not {len(found)}")
    parts: list[columns.Buffer] = [b""]
    if rows == 1:
        count, pack = _ONE_ROW[opcode]
        numbers = [column[0] for column in found[:count]]
        parts.append(pack(*numbers))
        parts += [column.encode() for column in found[count:]]  # type: ignore[union-attr]
    else:
        for encode_, column in zip(_ENCODERS[opcode], found, strict=True):
            parts += column.parts() if isinstance(column, Strings) else (encode_(column),)
    length = HEADER.size + sum(map(len, parts))
    parts[0] = HEADER.pack(opcode, 0, 0, table, rows, length)
    return b"".join(parts), _payload_start(op, length)


def decode(view: memoryview, start: int) -> tuple[Op, int, int]:
    """Reads the op at `start`: returns it, where its payload begins, and where it ends.

    Assumes that a checksum vouches for the bytes.

    Raises:
        ValueError: if they are no op all the same.
    """
    if start + HEADER.size > len(view):
        raise ValueError("an op is cut short")
    number, flags, reserved, table, rows, length = HEADER.unpack_from(view, start)
    end = start + length
    if flags or reserved or length < HEADER.size or end > len(view) or not rows:
        raise ValueError("the header of an op is wrong")
    opcode = Opcode(number)
    position = start + HEADER.size
    found: list[Column] = []
    inside = view[:end]
    column: Column
    for _, kind in COLUMNS[opcode]:
        if kind == STRINGS:
            column, position = columns.decode_strings(inside, position, rows)
        else:
            column, position = columns.decode_numbers(inside, position, rows, kind)
        found.append(column)
    if position != end:
        raise ValueError("an op is longer than its columns")
    op = Op(opcode, table, rows, tuple(found))
    return op, start + _payload_start(op, length), end


def _payload_start(op: Op, length: int) -> int:
    last = op.columns[-1] if op.columns else ()
    return length - columns.aligned(len(last.data)) if isinstance(last, Strings) else length
