"""Commands of streams, subscribers and snapshots, and their replies."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from fjord import limits
from fjord.columns import Strings
from fjord.commands.jobs import Acted
from fjord.commands.layout import *
from fjord.commands.session import Done, Numbers, Replies

# -- replies --------------------------------------------------------------------------------------


@reply(8, "messages")
class Messages(Reply):
    """Messages in order, perhaps none, as ops: STREAM_APPEND or STREAM_MOVE (see `ops`).

    The messages of a STREAM_APPEND have consecutive seqs from `first_seqs[i]` on, and the moment
    `walls_us[i]`.  Those of a STREAM_MOVE have their seqs in its column `row` and their moments
    in `at_us`; one of type TOMBSTONE says that its key is gone.
    """

    after: int = field(U64)  # where to read on; everything up to here was given
    until: int = field(U64)  # the end of the snapshot
    rows: int = field(U32, shown="messages")  # how many messages there are
    ended: bool = field(BOOL)  # the snapshot is read to its end: `after` is `until`
    first_seqs: Sequence[int] = field(U64S, shown="first seq")
    walls_us: Sequence[int] = field(TIMES, shown="wall time")
    ops: Strings = field(OPS, shown="op")


@internal(size=lambda where: limits.READ_BYTES_MAX)  # it will be so large at most
class InBlock(Reply):
    """Internal: the data is in a cold block, which the caller of the engine reads.

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


@reply(9, "position")
class Position(Reply):
    """A subscriber's position."""

    seq: int = field(U64)  # everything up to here is processed
    epoch: int = field(U64)  # grows with each seek; differs if the subscriber is created again
    asleep: bool = field(BOOL)
    created: bool = field(BOOL)  # it was made just now


@reply(10, "subscribers")
class Subscribers(Reply):
    """Subscribers by name."""

    next_name: str = field(TEXT)  # where the next page begins; empty: there is no more
    seqs: Sequence[int] = field(U64S, shown="seq")
    epochs: Sequence[int] = field(U64S, shown="epoch")
    moved_us: Sequence[int] = field(TIMES)  # when the mark was last set
    asleep: bytes = field(U8S)  # one a subscriber, 0 or 1
    names: Strings = field(STRINGS, shown="name")


@reply(13, "snapshot")
class Opened(Reply):
    """An open snapshot."""

    snapshot: int = field(U64)  # its seq
    wall_us: int = field(TIME, shown="moment")
    until_us: int = field(TIME)  # wall time when it expires, if the clock is not set


# -- messages -------------------------------------------------------------------------------------


def _split_done(done: Done, found: Sequence[Append]) -> list[Done]:
    """Returns the token of the last message of each."""
    ends = accumulate(len(one.types) for one in found)
    rows = sum(len(one.types) for one in found)
    return [Done(master=done.master, seq=done.seq - rows + end) for end in ends]


@command(
    65,
    "APPEND",
    answer=Done,
    retry=Retry.NUMBERED,
    in_batch=InBatch.NUMBERED,
    merge=Merge(is_possible=lambda append: append.timestamps_us is None, split=_split_done),
)
class Append(Command):
    """Adds messages, all or none; returns the seq of the last one.

    They get consecutive seqs.  In mode latest each replaces the message with the same key; with
    dates, unless that has a later one: then it is left out, and gets no seq.
    """

    table: str = field(NAME)
    # None: the date of the commit.
    timestamps_us: Sequence[int] | None = field(
        TIMES, when=Flag.TIMEOUT, default=None, shown="date"
    )
    types: bytes = field(U8S, shown="type")
    keys: Strings = field(STRINGS, shown="key")  # in mode log a key may be empty
    values: Strings = field(STRINGS, shown="value")


@command(66, "ERASE", answer=Acted, retry=Retry.NUMBERED, in_batch=InBatch.NUMBERED)
class Erase(Command):
    """Deletes the messages of keys, in mode latest; readers receive tombstones.

    In the answer `missing` are the positions of keys that had none.
    """

    table: str = field(NAME)
    keys: Strings = field(STRINGS, shown="key")


@command(67, "READ", answer=Messages, reads=True, frees=True)
class Read(Command):
    """Returns the messages after a seq, in order, up to the end of a snapshot.

    A reader begins a snapshot with `until` 0, and sends back the one that it was given until it
    is told that the snapshot has ended.
    """

    table: str = field(NAME)
    after: int = field(U64, argument=True)  # 0 = from the beginning
    once: bool = field(Flag.DATA, default=False)  # the rest of the snapshot is not wanted
    until: int = field(U64, default=0)  # the last seq that counts; 0 = of what there is now
    count: int = field(U64, default=0)  # at most so many; 0 = the server's maximum
    bytes_max: int = field(U64, default=0, shown="largest size")  # about; 0 = the server's maximum
    wait_us: int = field(U64, default=0)  # how long to wait for the first one
    # Who reads, if it has a name: whose blocks stay in memory.
    subscriber: str = field(TEXT, default="")


# -- subscribers ----------------------------------------------------------------------------------


@command(68, "SUBSCRIBE", answer=Position, in_batch=InBatch.NUMBERED)
class Subscribe(Command):
    """Creates a subscriber; an existing one keeps its position."""

    table: str = field(NAME)
    at: int = field(U64, argument=True, default=0)  # the seq, or the moment in Unix microseconds
    start: int = field(U32)  # streams.Start
    name: str = field(TEXT)


@command(
    69,
    "ACKNOWLEDGE",
    answer=Position,
    # A second try would find the mark where the first one has put it.
    retry=lambda command: Retry.AS_IS if command.expected < 0 else Retry.NUMBERED,
    in_batch=InBatch.NUMBERED,
    frees=True,
)
class Acknowledge(Command):
    """Moves a subscriber's mark forward; a mark beyond the seq stays.

    Refused with STALE_EPOCH if somebody has sought meanwhile, or if `expected` is not where the
    mark is.
    """

    table: str = field(NAME)
    seq: int = field(U64, argument=True)  # everything up to here is processed
    epoch: int = field(U64)  # as Position said
    expected: int = field(SEQ, default=-1)  # where the mark has to be; -1 = anywhere
    name: str = field(TEXT)


@command(70, "SEEK", answer=Position, in_batch=InBatch.NUMBERED)
class Seek(Command):
    """Sets a subscriber's mark, backwards too; its epoch grows."""

    table: str = field(NAME)
    at: int = field(U64, argument=True, default=0)
    start: int = field(U32)  # streams.Start
    name: str = field(TEXT)


@command(71, "REST", answer=Position, in_batch=InBatch.NUMBERED)
class Rest(Command):
    """Turns a subscriber's loading ahead off or on."""

    table: str = field(NAME)
    asleep: bool = field(BOOL, argument=True)
    name: str = field(TEXT)


@command(
    72, "UNSUBSCRIBE", answer=Done, retry=Retry.NUMBERED, in_batch=InBatch.NUMBERED, frees=True
)
class Unsubscribe(Command):
    """Deletes a subscriber."""

    table: str = field(NAME)
    name: str = field(TEXT)


@command(73, "SUBSCRIBERS", answer=Subscribers, in_batch=InBatch.PLAIN, reads=True)
class ListSubscribers(Command):
    """Lists subscribers by name, a bounded page at a time."""

    table: str = field(NAME)
    count: int = field(U64, argument=True, default=0)  # at most so many; 0 = the server's maximum
    start: str = field(TEXT, default="", shown="first name")  # the first name that counts


@command(74, "LAG", answer=Numbers, reads=True)
class Lag(Command):
    """Says how far behind a subscriber is.

    Answered with Numbers: messages (how many are ahead of its mark) and seqs (how many seqs).
    """

    table: str = field(NAME)
    # Count from here instead of from its mark; for whoever counts in blocks.
    after: int = field(SEQ, argument=True, default=-1)
    name: str = field(TEXT)


# -- snapshots ------------------------------------------------------------------------------------


@command(75, "OPEN_SNAPSHOT", answer=Opened)
class OpenSnapshot(Command):
    """Keeps stream and key/value tables readable as they are now.

    One whose answer was lost is closed when its time is over.
    """

    lifetime_us: int = field(U64, argument=True, default=0)  # at most; 0 = the longest there is


@command(76, "CLOSE_SNAPSHOT", answer=Done, in_batch=InBatch.PLAIN, frees=True)
class CloseSnapshot(Command):
    """Closes a snapshot; a missing one is no error."""

    snapshot: int = field(U64, argument=True)


def _is_read_of_the_past(row: Row) -> bool:
    return row.name in ("GET_MANY", "RANGE", "READ")


@command(77, "AS_OF", answer=Replies, reads=True, holds=_is_read_of_the_past)
class AsOf(Command):
    """Runs reads as of a snapshot.

    The commands are Get, Range and Read; values with persist=0 and locks are not part of it.
    Refused with SNAPSHOT_GONE if the snapshot is not open any more.
    """

    snapshot: int
    commands: Sequence[Command]
