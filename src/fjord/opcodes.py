"""Opcodes: what ops there are, and the columns of each.

To change an op: never change the columns of a released opcode.  Give the new layout a new opcode,
keep the old one readable for ever, and add a sample of it to tests/compat.
"""

from __future__ import annotations

import enum
from typing import Final, Literal

from fjord import columns


class Opcode(enum.IntEnum):
    """What an op does; 0 is reserved so that zeroed bytes are never an op."""

    TAKEOVER = 1  # a writer began: its UUID.  From here on seqs are that writer's.
    CREATE_TABLE = 2  # a table got a name, a kind and settings; `table` is its id
    DROP_TABLE = 3  # a table lost its name; its rows are purged bit by bit
    FORGET_TABLE = 4  # the last row of a dropped table is purged
    PACKED = 5  # the journal begins at this segment and seq; what is before may go
    LOST = 6  # these seqs were damaged and could not be repaired; without columns
    ANSWERED = 7  # numbered commands of clients were applied: their answers, should they ask again
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
    STAGE = 64  # an op is kept that holds only once it is committed
    STAGE_DECIDED = 65  # such ops will be run, one after the other
    STAGE_GONE = 66  # such ops are run, in blocks, or dropped
    STREAM_COMMIT = 67  # messages of a log that were staged get seqs: these rows are theirs
    WRITER = 68  # the last batch of a writer; without a table: how far it is
    WRITER_GONE = 69  # a writer was not heard of for long, or is not needed any more
    STREAM_PUT_AT = 70  # keys of a stream that keeps the latest got messages with dates
    GENERATION = 71  # a jobs table with a period began a generation
    GENERATION_GONE = 72  # one has no jobs any more


U8: Final = "B"
U64: Final = "Q"
STRINGS: Final = "strings"
ONCE: Final = "once"  # a u64, whatever the number of rows
ColumnKind = columns.NumberKind | Literal["strings", "once"]

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
        ("buried_us", U64),  # of a tombstone; of a message its date, 0 = at_us
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
    Opcode.STAGE: (
        ("at_us", U64),  # wall time
        # STREAM_APPEND: as it is.  JOB_ADD and KV_SET: what is asked for; what only a decision can
        # tell is 0.
        ("op", STRINGS),
    ),
    # stage     seq of the STAGE; the others say where its op rests
    Opcode.STAGE_DECIDED: (
        ("stage", U64),
        ("at_us", U64),
        ("rows", U64),
        ("segment", U64),
        ("offset", U64),
        ("size", U64),
        ("crc", U64),
    ),
    Opcode.STAGE_GONE: (("stage", U64), ("freed", U64)),
    Opcode.STREAM_COMMIT: (
        ("stage", ONCE),
        ("segment", ONCE),
        ("offset", ONCE),
        ("size", ONCE),
        ("crc", ONCE),
        ("freed", ONCE),
    ),
    Opcode.WRITER: (
        ("batch", U64),
        ("at_us", U64),  # wall time
        ("name", STRINGS),
        ("stages", STRINGS),  # that are run one after the other: a u64 each
    ),
    Opcode.WRITER_GONE: (("name", STRINGS),),
    Opcode.STREAM_PUT_AT: (
        ("timestamp_us", U64),
        ("was", U64),
        ("previous", U64),
        ("freed", U64),
        ("type", U8),
        ("key", STRINGS),
        ("value", STRINGS),
    ),
    Opcode.GENERATION: (
        ("generation", U64),  # id, larger than those of tables
        ("number", U64),
        ("began_us", U64),
        ("first_row", U64),
        ("schema", U64),
    ),
    Opcode.GENERATION_GONE: (("generation", U64),),
}
