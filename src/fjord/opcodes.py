"""Opcodes: the ops, and the facts about each that all parts need.

A row of `Opcode` has the number of an op, its columns, and its name in the history of its table;
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


def _op(  # noqa: PLR0913 - each of them is a fact of its own
    number: int,
    *,
    once: str = "",
    u64: str = "",
    u8: str = "",
    strings: str = "",
    shown: str | None = None,
    sealed: bool = False,
) -> tuple[int, Columns, str | None, bool]:
    """Returns a row.

    Args:
        number: of the op; never changes.
        once, u64, u8, strings: names of its columns by their kinds, which stand in this order.
        shown: its name in the column `op` of a table's history; "": each row has its own.
        sealed: its rows go to cold blocks.
    """
    kinds: tuple[tuple[ColumnKind, str], ...] = (
        (ONCE, once),
        (U64, u64),
        (U8, u8),
        (STRINGS, strings),
    )
    columns = tuple((name, kind) for kind, names in kinds for name in names.split())
    return number, columns, shown, sealed


# The payload, where an op has one, is the last column: its place follows from the op's length.
#
# previous  seq of the row that holds what this one replaces, 0 = none
# freed     bytes that count as live for that row, see `row_bytes`
# links     keys that were linked before this seq no longer count, 0 = before this row
# buried    lease time when a tombstone was made; in a MOVE it is in `created`
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
    TAKEOVER = _op(1, u64="seq", strings="uuid")
    # A table got a name, a kind and settings; `table` is its id.
    CREATE_TABLE = _op(2, u8="kind", strings="name settings")
    # A table lost its name; its rows are purged bit by bit.
    DROP_TABLE = _op(3, strings="name")
    # The last row of a dropped table is purged.
    FORGET_TABLE = _op(4, strings="name")
    # The journal begins at this segment and seq; everything before may be removed.
    PACKED = _op(5, u64="segment seq")
    # These seqs were damaged and could not be repaired; without columns.
    LOST = _op(6)
    # Numbered commands of clients were applied: their answers, should they ask again.
    ANSWERED = _op(7, u64="at_us number", strings="client answer")
    # A client has been silent for long; its answers are removed.
    #   at_us: the note of this date is removed
    #   is_gone: 1 = everything else of the client is removed, too
    FORGET_CLIENT = _op(8, u64="at_us", u8="is_gone", strings="client")
    # Keys that had no entry got values that never expire.
    KV_INSERT = _op(16, u64="timestamp_us", u8="type", strings="key value", shown="SET")
    # Keys got values, with all possible properties.
    #   expires_at_us: 0 = never
    #   ttl_us: how long a touch extends its life, 0 = not at all
    KV_SET = _op(
        17,
        u64="timestamp_us expires_at_us ttl_us created_us links previous freed",
        u8="type",
        strings="key value",
        shown="SET",
    )
    # Packing writes rows again, unchanged, tombstones included.
    #   created_us: of a tombstone, when it was buried
    #   accessed_us: 0 = never
    #   worked_until_us: lease time, 0 = not worked on
    #   type: also TOMBSTONE, and ALIAS, whose value is the target
    KV_MOVE = _op(
        18,
        u64="row timestamp_us expires_at_us ttl_us created_us links accessed_us worked_until_us "
        "previous",
        u8="type",
        strings="key value",
        shown="MOVE",
    )
    # Keys lost their values; the tombstone keeps the timestamp.
    KV_DELETE = _op(19, u64="timestamp_us buried_us previous freed", strings="key", shown="DELETE")
    # The same, because their time was over.
    # Like KV_DELETE, because values have expired.
    KV_EXPIRE = _op(
        20, u64="timestamp_us buried_us expires_at_us previous freed", strings="key", shown="EXPIRE"
    )
    # Rows were touched or taken for work: expiry, last access, worked-on deadline.
    #   accessed_us: 0 = there is no mark any more
    #   expires_at_us: from now on, 0 = never
    KV_MARK = _op(21, u64="row accessed_us expires_at_us worked_until_us", strings="key")
    # An expiry no longer holds.
    KV_UNSCHEDULE = _op(22, u64="expires_at_us", strings="key")
    # Keys lost their entries without a trace.
    KV_PURGE = _op(23, u64="previous freed", strings="key", shown="PURGE")
    # Keys became further keys of other keys' values.
    KV_LINK = _op(24, u64="timestamp_us previous freed", strings="key target")

    # lane      hash of the domain where the table has fairness by domain, else 0
    # probe     which of the keys with the same hash this is; 255: the key is not looked up
    # place     lane, priority, process date, row: 25 bytes, as docs/journal-format.md says
    # image     a place, and all else that the index knows of a job but its value
    # slot      hash and probe of a key that is looked up, 17 bytes, or nothing
    # at        xid of a taken job, row of a dead one, 0 for one that waits
    # lease     deadline whose note goes with this row alone, 0 = none

    # Jobs wait that did not before.
    #   expires_at_us: 0 = never
    #   domain: as it was given; empty = that of the key
    JOB_ADD = _op(
        32,
        u64="inserted_us updated_us process_at_us expires_at_us lane",
        u8="priority probe type",
        strings="key domain value",
        shown="ADD",
        sealed=True,
    )
    # Waiting jobs got new data, by the rules of merging.
    #   was: place
    JOB_REPLACE = _op(
        33,
        u64="row inserted_us updated_us process_at_us expires_at_us lane was_expires_at_us "
        "previous freed",
        u8="priority probe type",
        strings="was key domain value",
        shown="REPLACE",
        sealed=True,
    )
    # Packing writes jobs again, unchanged.
    #   head: what the index has before the image, see docs/journal-format.md
    JOB_MOVE = _op(34, u64="at previous", u8="state", strings="head image value", shown="")
    # Jobs were handed out; the seq of a row is its xid.
    #   deadline_us: lease time
    #   started_us: wall time
    JOB_TAKE = _op(
        35, u64="deadline_us lease_us started_us row", strings="image", shown="TAKE", sealed=True
    )
    # Jobs that were handed out are done.
    JOB_DONE = _op(36, u64="xid lease row previous freed", shown="DONE", sealed=True)
    # Leases were extended.
    JOB_TOUCH = _op(37, u64="xid lease deadline_us lease_us started_us", strings="image")
    # Jobs wait again, or with changes: taken, dead or waiting ones.
    #   state: the one before
    #   was: place of one that waited, else nothing
    #   image: the new one
    JOB_WAIT = _op(
        38,
        u64="at lease row process_at_us",
        u8="state how priority timeouts",
        strings="was image",
        shown="",
        sealed=True,
    )
    # Jobs went to the dead letters.
    #   died_us: wall time
    #   state: the one before
    JOB_BURY = _op(
        39,
        u64="at lease row died_us",
        u8="state how timeouts",
        strings="image reason",
        shown="DEAD",
        sealed=True,
    )
    # Jobs of any state are gone.
    #   expires_at_us: of one that waited
    #   state: the one before
    #   slot: of one that waited
    JOB_REMOVE = _op(
        40,
        u64="at lease row expires_at_us previous freed",
        u8="state how",
        strings="place slot",
        shown="",
        sealed=True,
    )
    # Packing writes the note of leases again.
    JOB_LEASE = _op(41, u64="deadline_us xid count")
    # Such a note is removed.
    JOB_UNLEASE = _op(42, u64="deadline_us xid")

    # was       seq that a message of the same key had which is replaced, 0 = none

    # Messages of a log, as they came.
    STREAM_APPEND = _op(48, u8="type", strings="key value", shown="APPEND", sealed=True)
    # Keys of a stream that keeps the latest got messages.
    STREAM_PUT = _op(
        49, u64="was previous freed", u8="type", strings="key value", shown="SET", sealed=True
    )
    # Such keys lost theirs; the tombstone is a message too.
    STREAM_ERASE = _op(
        50, u64="buried_us was previous freed", strings="key", shown="DELETE", sealed=True
    )
    # Packing writes such messages again, unchanged.
    #   at_us: wall time of the commit that brought it
    #   buried_us: of a tombstone; of a message its date, 0 = at_us
    #   type: also TOMBSTONE
    STREAM_MOVE = _op(
        51, u64="row at_us buried_us previous", u8="type", strings="key value", shown="MOVE"
    )
    # Tombstones that everybody has seen are gone.
    STREAM_PURGE = _op(52, u64="row previous freed", strings="key")
    # Appends that are in a block are no longer looked up in the journal: the last seq of each.
    STREAM_FORGET = _op(53, u64="last freed")
    # A subscriber was created, or its mark was set.
    #   moved_us: wall time
    SUBSCRIBER = _op(54, u64="position epoch moved_us", u8="is_asleep", strings="name")
    # A subscriber is gone.
    UNSUBSCRIBE = _op(55, strings="name")
    # The state at this seq can be read until a deadline.
    #   snapshot: 0 = the seq of this row
    #   deadline_us: lease time
    #   largest: table id so far; tables with larger ones are younger
    #   is_pass: 1 = opened for a reader, and closed when it has reached its end
    SNAPSHOT = _op(56, u64="snapshot deadline_us wall_us largest", u8="is_pass")
    # It is closed.
    SNAPSHOT_END = _op(57, u64="deadline_us snapshot")
    # A replaced index entry is kept for snapshots.
    #   snapshot: the newest that was open
    #   key: of the index
    #   image: the entry
    VERSION = _op(58, u64="snapshot", u8="tree", strings="key image")
    # Such entries are removed.
    VERSION_DROP = _op(59, u64="snapshot", u8="tree", strings="key")
    # How far a table is sealed.
    #   sealed: everything up to here is in blocks
    #   forgotten: appends up to here are no longer looked up in the journal
    #   sealing: up to here blocks are being written, 0 = none
    #   tag: a number that makes the names of these blocks unique
    HISTORY = _op(60, u64="sealed forgotten sealing tag")
    # A cold block exists, or was retired.
    #   is_retired: 1 = its file is to be removed; see `Use` in `tables.streams.layout`
    BLOCK = _op(61, u64="first last rows bytes min_us max_us crc", u8="is_retired", strings="name")
    # It is removed.
    BLOCK_GONE = _op(62, u64="last")
    # An op is stored that only counts once it is committed.
    #   at_us: wall time
    #   op: STREAM_APPEND as it is; JOB_ADD and KV_SET as requested, 0 where a decision is needed
    STAGE = _op(64, u64="at_us", strings="op")

    # stage     seq of the STAGE; the other columns are the position of its op

    # Such ops will be run, one after the other.
    STAGE_DECIDED = _op(65, u64="stage at_us rows segment offset size crc")
    # Such ops are run, in blocks, or dropped.
    STAGE_GONE = _op(66, u64="stage freed")
    # Staged messages of a log get seqs: these rows are theirs.
    STREAM_COMMIT = _op(67, once="stage segment offset size crc freed", sealed=True)
    # The last batch of a writer; without a table: how far it is.
    #   at_us: wall time
    #   stages: those still to be run, a u64 each
    WRITER = _op(68, u64="batch at_us", strings="name stages")
    # A writer has been silent for long, or is not needed any more.
    WRITER_GONE = _op(69, strings="name")
    # Keys of a stream that keeps the latest got messages with dates.
    STREAM_PUT_AT = _op(
        70,
        u64="timestamp_us was previous freed",
        u8="type",
        strings="key value",
        shown="SET",
        sealed=True,
    )
    # A jobs table with a period began a generation.
    #   generation: id, larger than those of tables
    GENERATION = _op(71, u64="generation number began_us first_row schema")
    # A generation has no jobs any more.
    GENERATION_GONE = _op(72, u64="generation")
