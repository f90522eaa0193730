"""Commands of streams, subscribers, snapshots and blocks, and their replies; part of `commands`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fjord.columns import Strings

# -- messages -------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Append:
    """Adds messages, all of them or none; answered with Done: the seq of the last one.

    They get consecutive seqs.  In mode latest each replaces the message with the same key; with
    dates, unless that has a later one: then it is left out, and gets no seq.
    """

    table: str
    types: bytes  # one type byte a message
    keys: Strings  # in mode log a key may be empty
    values: Strings
    timestamps_us: Sequence[int] | None = None  # None: the date of the commit


@dataclass(slots=True, kw_only=True)
class Erase:
    """Takes the messages of keys away, in mode latest: readers are told by tombstones.

    Answered with Acted: `missing` are the positions of keys that had none.
    """

    table: str
    keys: Strings


@dataclass(slots=True, kw_only=True)
class Read:
    """Asks for the messages after a seq, in order, up to the end of a snapshot.

    A reader begins a snapshot with `until` 0, and sends back the one that it was given until it
    is told that the snapshot has ended.
    """

    table: str
    after: int  # 0 = from the beginning
    until: int = 0  # the last seq that counts; 0 = of what there is now
    count: int = 0  # at most so many; 0 = the server's maximum
    bytes_max: int = 0  # about so much; 0 = the server's maximum
    wait_us: int = 0  # how long to wait for the first one
    subscriber: str = ""  # who reads, if it has a name: whose blocks stay in memory
    once: bool = False  # True: the reader does not care for the rest of the snapshot


# -- subscribers ----------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Subscribe:
    """Makes a subscriber; one that is there stays where it is.  Answered with Position."""

    table: str
    name: str
    start: int  # streams.Start
    at: int = 0  # the seq, or the moment in Unix microseconds


@dataclass(slots=True, kw_only=True)
class Acknowledge:
    """Moves a subscriber's mark forward; one that is farther already stays.

    Answered with Position.  Refused with STALE_EPOCH if somebody has sought meanwhile, or if
    `expected` is not where the mark is.
    """

    table: str
    name: str
    seq: int  # everything up to here is processed
    epoch: int  # as Position said
    expected: int = -1  # where the mark has to be; -1 = anywhere


@dataclass(slots=True, kw_only=True)
class Seek:
    """Sets a subscriber's mark, also back; its epoch grows.  Answered with Position."""

    table: str
    name: str
    start: int  # streams.Start
    at: int = 0


@dataclass(slots=True, kw_only=True)
class Rest:
    """Lets a subscriber sleep: nothing is loaded ahead for it; or wakes it up."""

    table: str
    name: str
    asleep: bool


@dataclass(slots=True, kw_only=True)
class Unsubscribe:
    """Takes a subscriber away.  Answered with Done."""

    table: str
    name: str


@dataclass(slots=True, kw_only=True)
class ListSubscribers:
    """Asks for subscribers by name, a bounded page.  Answered with Subscribers."""

    table: str
    start: str = ""  # the first name that counts
    count: int = 0  # at most so many; 0 = the server's maximum


@dataclass(slots=True, kw_only=True)
class Lag:
    """Asks how far behind a subscriber is.

    Answered with Numbers: messages (how many are ahead of its mark) and seqs (how many seqs).
    """

    table: str
    name: str
    after: int = -1  # count from here instead of from its mark; for whoever counts in blocks


# -- snapshots ------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class OpenSnapshot:
    """Keeps stream and key/value tables readable as they are now.  Answered with Opened."""

    lifetime_us: int = 0  # how long at most; 0 = the longest there is


@dataclass(slots=True, kw_only=True)
class CloseSnapshot:
    """Lets a snapshot go; one that is gone is no error.  Answered with Done."""

    snapshot: int


@dataclass(slots=True, kw_only=True)
class AsOf:
    """Runs reads as if it was the moment of a snapshot.  Answered with Replies.

    The commands are Get, Range and Read; values with persist=0 and locks are not part of it.
    Refused with SNAPSHOT_GONE if the snapshot is not open any more.
    """

    snapshot: int
    commands: Sequence[object]


# -- blocks ---------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class ListBlocks:
    """Asks for the cold blocks of a table in order, a bounded page.  Answered with BlockList."""

    table: str
    after: int = 0  # only blocks that end behind this seq
    count: int = 0


@dataclass(slots=True, kw_only=True)
class SealNow:
    """Writes everything that is durable to cold blocks now; answered with Done when it is."""

    table: str = ""  # only of this table


# -- replies --------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Messages:
    """Messages in order, perhaps none, as ops: STREAM_APPEND or STREAM_MOVE (see `ops`).

    The messages of a STREAM_APPEND have consecutive seqs from `first_seqs[i]` on, and the moment
    `walls_us[i]`.  Those of a STREAM_MOVE have their seqs in its column `row` and their moments
    in `at_us`; one of type TOMBSTONE says that its key is gone.
    """

    first_seqs: Sequence[int]
    walls_us: Sequence[int]
    ops: Strings
    after: int  # where to read on; everything up to here was given
    until: int  # the end of the snapshot
    ended: bool  # the snapshot is read to its end: `after` is `until`
    rows: int  # how many messages there are


@dataclass(slots=True, kw_only=True)
class InBlock:
    """Not for users: what is asked for is in a cold block; whoever runs the command looks there.

    A Read is answered from the block.  Of a Subscribe or a Seek to a moment, and of a Lag, the
    block says the rest: the command is then run again, see `engine.cold`.
    """

    table: int
    first: int  # seq range that the block covers
    last: int
    name: str
    after: int  # where to begin in it
    until: int  # the end of the snapshot
    crc: int  # CRC32C of its file


@dataclass(slots=True, kw_only=True)
class Position:
    """Where a subscriber is."""

    seq: int  # everything up to here is processed
    epoch: int  # grows with each seek; a subscriber that is made again has another one
    asleep: bool
    created: bool  # it was made just now


@dataclass(slots=True, kw_only=True)
class Subscribers:
    """Subscribers by name."""

    names: Strings
    seqs: Sequence[int]
    epochs: Sequence[int]
    moved_us: Sequence[int]  # when the mark was last set
    asleep: bytes  # one a subscriber, 0 or 1
    next_name: str  # where the next page begins; empty: there is no more


@dataclass(slots=True, kw_only=True)
class Opened:
    """A snapshot that is open."""

    snapshot: int  # its seq
    wall_us: int  # its moment
    until_us: int  # wall time when it is closed by itself, if the clock is not set meanwhile


@dataclass(slots=True, kw_only=True)
class BlockList:
    """Cold blocks of a table, in order."""

    NUMBERS = ("firsts", "lasts", "rows", "sizes", "min_us", "max_us", "crcs")

    location: str  # where they are, as the node calls it
    firsts: Sequence[int]  # seq range that a block covers: no gap between blocks
    lasts: Sequence[int]
    rows: Sequence[int]
    sizes: Sequence[int]  # bytes of the file
    min_us: Sequence[int]
    max_us: Sequence[int]
    crcs: Sequence[int]  # CRC32C of the file
    names: Strings
    next_after: int  # where the next page begins; 0: there is no more
