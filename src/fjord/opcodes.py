"""Opcodes: what ops there are, and the facts of each that everybody needs.

A row of `Opcode` says the number of an op, its columns, and what it is in the history of its table;
`tables.meaning` says what it does.

To change an op: never change the columns of a released opcode.  Give the new layout a new opcode,
keep the old one readable for ever, and add a sample of it to tests/compat.
"""

from __future__ import annotations

import enum
from typing import Final, Literal

from fjord import columns

U8: Final = "B"
U64: Final = "Q"
STRINGS: Final = "strings"
ONCE: Final = "once"  # a u64, whatever the number of rows
ColumnKind = columns.NumberKind | Literal["strings", "once"]
Columns = tuple[tuple[str, ColumnKind], ...]


def _op(
    number: int, *columns: tuple[str, ColumnKind], shown: str | None = None, sealed: bool = False
) -> tuple[int, Columns, str | None, bool]:
    """Returns a row.

    Args:
        shown: its name in the column `op` of a table's history; "": each row says its own.
        sealed: its rows go to cold blocks.
    """
    return number, columns, shown, sealed


# The payload, where an op has one, is the last column: its place follows from the op's length.
#
# previous  seq of the row that holds what this one replaces, 0 = none
# freed     bytes that count as live for that row, see `row_bytes`
# links     keys that were linked before this seq no longer count, 0 = before this row
# buried    lease time when a tombstone was made; for one that moves it stands in `created`
# row       seq that the row had when it was first written: its identity for ever
class Opcode(enum.IntEnum):
    """What an op does; 0 is reserved so that zeroed bytes are never an op."""

    columns: Columns
    position: dict[str, int]  # of each column, by its name
    shown: str | None
    is_sealed: bool

    def __new__(
        cls,
        number: int,
        columns: Columns = (),
        shown: str | None = None,
        is_sealed: bool = False,  # noqa: FBT001, FBT002
    ) -> Opcode:
        self = int.__new__(cls, number)
        self._value_ = number
        self.columns, self.shown, self.is_sealed = columns, shown, is_sealed
        self.position = {name: at for at, (name, _) in enumerate(columns)}
        return self

    # A writer began: its UUID.  From here on seqs are that writer's.
    TAKEOVER = _op(1, ("seq", U64), ("uuid", STRINGS))
    # A table got a name, a kind and settings; `table` is its id.
    CREATE_TABLE = _op(2, ("kind", U8), ("name", STRINGS), ("settings", STRINGS))
    # A table lost its name; its rows are purged bit by bit.
    DROP_TABLE = _op(3, ("name", STRINGS))
    # The last row of a dropped table is purged.
    FORGET_TABLE = _op(4, ("name", STRINGS))
    # The journal begins at this segment and seq; what is before may go.
    PACKED = _op(5, ("segment", U64), ("seq", U64))
    # These seqs were damaged and could not be repaired; without columns.
    LOST = _op(6)
    # Numbered commands of clients were applied: their answers, should they ask again.
    ANSWERED = _op(
        7,
        ("at_us", U64),
        ("number", U64),
        ("client", STRINGS),
        ("answer", STRINGS),
    )
    # A client has not been heard of for long; its answers go.
    FORGET_CLIENT = _op(
        8,
        ("at_us", U64),  # the note of this date goes
        ("is_gone", U8),  # 1: and so does all else of the client
        ("client", STRINGS),
    )
    # Keys that had no entry got values that never expire.
    KV_INSERT = _op(
        16,
        ("timestamp_us", U64),
        ("type", U8),
        ("key", STRINGS),
        ("value", STRINGS),
        shown="SET",
    )
    # Keys got values; everything that may be said of one.
    KV_SET = _op(
        17,
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
        shown="SET",
    )
    # Rows of a segment that goes are said again, as they are, tombstones too.
    KV_MOVE = _op(
        18,
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
        shown="MOVE",
    )
    # Keys lost their values; the tombstone keeps the timestamp.
    KV_DELETE = _op(
        19,
        ("timestamp_us", U64),
        ("buried_us", U64),
        ("previous", U64),
        ("freed", U64),
        ("key", STRINGS),
        shown="DELETE",
    )
    # The same, because their time was over.
    KV_EXPIRE = _op(
        20,
        ("timestamp_us", U64),
        ("buried_us", U64),
        ("expires_at_us", U64),  # the expiry that came
        ("previous", U64),
        ("freed", U64),
        ("key", STRINGS),
        shown="EXPIRE",
    )
    # Rows were touched or taken for work: expiry, last access, worked-on deadline.
    KV_MARK = _op(
        21,
        ("row", U64),
        ("accessed_us", U64),  # 0 = there is no mark any more
        ("expires_at_us", U64),  # from now on, 0 = never
        ("worked_until_us", U64),
        ("key", STRINGS),
    )
    # An expiry no longer holds.
    KV_UNSCHEDULE = _op(22, ("expires_at_us", U64), ("key", STRINGS))
    # Keys lost their entries without a trace.
    KV_PURGE = _op(23, ("previous", U64), ("freed", U64), ("key", STRINGS), shown="PURGE")
    # Keys became further keys of other keys' values.
    KV_LINK = _op(
        24,
        ("timestamp_us", U64),
        ("previous", U64),
        ("freed", U64),
        ("key", STRINGS),
        ("target", STRINGS),
    )

    # lane      hash of the domain where the table has fairness by domain, else 0
    # probe     which of the keys with the same hash this is; 255: the key is not looked up
    # place     lane, priority, process date, row: 25 bytes, as docs/journal-format.md says
    # image     a place, and all else that the index knows of a job but its value
    # slot      hash and probe of a key that is looked up, 17 bytes, or nothing
    # at        xid of a taken job, row of a dead one, 0 for one that waits
    # lease     deadline whose note goes with this row alone, 0 = none

    # Jobs wait that did not before.
    JOB_ADD = _op(
        32,
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
        shown="ADD",
        sealed=True,
    )
    # Jobs that wait got new data, by the rule of merging.
    JOB_REPLACE = _op(
        33,
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
        shown="REPLACE",
        sealed=True,
    )
    # Jobs of a segment that goes are said again, as they are.
    JOB_MOVE = _op(
        34,
        ("at", U64),
        ("previous", U64),
        ("state", U8),
        ("head", STRINGS),  # what the index has before the image: see docs/journal-format.md
        ("image", STRINGS),
        ("value", STRINGS),
        shown="",
    )
    # Jobs were handed out; the seq of a row is its xid.
    JOB_TAKE = _op(
        35,
        ("deadline_us", U64),  # lease time
        ("lease_us", U64),
        ("started_us", U64),  # wall time
        ("row", U64),
        ("image", STRINGS),
        shown="TAKE",
        sealed=True,
    )
    # Jobs that were handed out are done.
    JOB_DONE = _op(
        36,
        ("xid", U64),
        ("lease", U64),
        ("row", U64),
        ("previous", U64),
        ("freed", U64),
        shown="DONE",
        sealed=True,
    )
    # Leases got longer.
    JOB_TOUCH = _op(
        37,
        ("xid", U64),
        ("lease", U64),
        ("deadline_us", U64),
        ("lease_us", U64),
        ("started_us", U64),
        ("image", STRINGS),
    )
    # Jobs wait again, or otherwise: taken, dead or waiting ones.
    JOB_WAIT = _op(
        38,
        ("at", U64),
        ("lease", U64),
        ("row", U64),
        ("process_at_us", U64),
        ("state", U8),  # before
        ("how", U8),
        ("priority", U8),
        ("timeouts", U8),
        ("was", STRINGS),  # place of one that waited, else nothing
        ("image", STRINGS),  # from now on,
        shown="",
        sealed=True,
    )
    # Jobs went to the dead letters.
    JOB_BURY = _op(
        39,
        ("at", U64),
        ("lease", U64),
        ("row", U64),
        ("died_us", U64),  # wall time
        ("state", U8),  # before
        ("how", U8),
        ("timeouts", U8),
        ("image", STRINGS),
        ("reason", STRINGS),
        shown="DEAD",
        sealed=True,
    )
    # Jobs of any state are gone.
    JOB_REMOVE = _op(
        40,
        ("at", U64),
        ("lease", U64),
        ("row", U64),
        ("expires_at_us", U64),  # of one that waited
        ("previous", U64),
        ("freed", U64),
        ("state", U8),  # before
        ("how", U8),
        ("place", STRINGS),
        ("slot", STRINGS),  # of one that waited,
        shown="",
        sealed=True,
    )
    # A note of when leases are over is said again.
    JOB_LEASE = _op(41, ("deadline_us", U64), ("xid", U64), ("count", U64))
    # Such a note goes.
    JOB_UNLEASE = _op(42, ("deadline_us", U64), ("xid", U64))

    # was       seq that a message of the same key had which is replaced, 0 = none

    # Messages of a log, as they came.
    STREAM_APPEND = _op(
        48, ("type", U8), ("key", STRINGS), ("value", STRINGS), shown="APPEND", sealed=True
    )
    # Keys of a stream that keeps the latest got messages.
    STREAM_PUT = _op(
        49,
        ("was", U64),
        ("previous", U64),
        ("freed", U64),
        ("type", U8),
        ("key", STRINGS),
        ("value", STRINGS),
        shown="SET",
        sealed=True,
    )
    # Such keys lost theirs; the tombstone is a message too.
    STREAM_ERASE = _op(
        50,
        ("buried_us", U64),
        ("was", U64),
        ("previous", U64),
        ("freed", U64),
        ("key", STRINGS),
        shown="DELETE",
        sealed=True,
    )
    # Such messages of a segment that goes are said again, as they are.
    STREAM_MOVE = _op(
        51,
        ("row", U64),
        ("at_us", U64),  # wall time of the commit that brought it
        ("buried_us", U64),  # of a tombstone; of a message its date, 0 = at_us
        ("previous", U64),
        ("type", U8),  # also TOMBSTONE
        ("key", STRINGS),
        ("value", STRINGS),
        shown="MOVE",
    )
    # Tombstones that everybody has seen are gone.
    STREAM_PURGE = _op(52, ("row", U64), ("previous", U64), ("freed", U64), ("key", STRINGS))
    # Appends that are in a block are no longer found in the journal: the last seq of each.
    STREAM_FORGET = _op(53, ("last", U64), ("freed", U64))
    # A subscriber was made, or its mark was set.
    SUBSCRIBER = _op(
        54,
        ("position", U64),
        ("epoch", U64),
        ("moved_us", U64),  # wall time
        ("is_asleep", U8),
        ("name", STRINGS),
    )
    # A subscriber is gone.
    UNSUBSCRIBE = _op(55, ("name", STRINGS))
    # The state at this seq can be read until a deadline.
    SNAPSHOT = _op(
        56,
        ("snapshot", U64),  # 0 = the seq of this row
        ("deadline_us", U64),  # lease time
        ("wall_us", U64),
        ("largest", U64),  # table id so far: tables with larger ones are younger
        ("is_pass", U8),  # 1: it was opened for a reader, and ends with what it reads,
    )
    # No more.
    SNAPSHOT_END = _op(57, ("deadline_us", U64), ("snapshot", U64))
    # What the index had before is kept for snapshots.
    VERSION = _op(
        58,
        ("snapshot", U64),  # the newest that was open
        ("tree", U8),
        ("key", STRINGS),  # of the index
        ("image", STRINGS),  # what the index had there,
    )
    # Such are gone.
    VERSION_DROP = _op(59, ("snapshot", U64), ("tree", U8), ("key", STRINGS))
    # How far a table is in cold blocks.
    HISTORY = _op(
        60,
        ("sealed", U64),  # everything up to here is in blocks
        ("forgotten", U64),  # appends up to here are not found in the journal any more
        ("sealing", U64),  # up to here blocks are being written, 0 = no
        ("tag", U64),  # a number that makes the names of these blocks unique,
    )
    # A cold block is there, or is to go.
    BLOCK = _op(
        61,
        ("first", U64),
        ("last", U64),
        ("rows", U64),
        ("bytes", U64),
        ("min_us", U64),
        ("max_us", U64),
        ("crc", U64),
        ("is_retired", U8),  # 1: its file is to go
        ("name", STRINGS),
    )
    # It is gone.
    BLOCK_GONE = _op(62, ("last", U64))
    # An op is kept that holds only once it is committed.
    STAGE = _op(
        64,
        ("at_us", U64),  # wall time
        # STREAM_APPEND: as it is.  JOB_ADD and KV_SET: what is asked for; what only a decision can
        # tell is 0.
        ("op", STRINGS),
    )

    # stage     seq of the STAGE; the others say where its op rests

    # Such ops will be run, one after the other.
    STAGE_DECIDED = _op(
        65,
        ("stage", U64),
        ("at_us", U64),
        ("rows", U64),
        ("segment", U64),
        ("offset", U64),
        ("size", U64),
        ("crc", U64),
    )
    # Such ops are run, in blocks, or dropped.
    STAGE_GONE = _op(66, ("stage", U64), ("freed", U64))
    # Messages of a log that were staged get seqs: these rows are theirs.
    STREAM_COMMIT = _op(
        67,
        ("stage", ONCE),
        ("segment", ONCE),
        ("offset", ONCE),
        ("size", ONCE),
        ("crc", ONCE),
        ("freed", ONCE),
        sealed=True,
    )
    # The last batch of a writer; without a table: how far it is.
    WRITER = _op(
        68,
        ("batch", U64),
        ("at_us", U64),  # wall time
        ("name", STRINGS),
        ("stages", STRINGS),  # that are run one after the other: a u64 each,
    )
    # A writer was not heard of for long, or is not needed any more.
    WRITER_GONE = _op(69, ("name", STRINGS))
    # Keys of a stream that keeps the latest got messages with dates.
    STREAM_PUT_AT = _op(
        70,
        ("timestamp_us", U64),
        ("was", U64),
        ("previous", U64),
        ("freed", U64),
        ("type", U8),
        ("key", STRINGS),
        ("value", STRINGS),
        shown="SET",
        sealed=True,
    )
    # A jobs table with a period began a generation.
    GENERATION = _op(
        71,
        ("generation", U64),  # id, larger than those of tables
        ("number", U64),
        ("began_us", U64),
        ("first_row", U64),
        ("schema", U64),
    )
    # One has no jobs any more.
    GENERATION_GONE = _op(72, ("generation", U64))
