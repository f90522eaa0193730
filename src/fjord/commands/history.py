"""Commands about the history of a table and its cold blocks, and their replies."""

from __future__ import annotations

from collections.abc import Sequence

from fjord import limits
from fjord.columns import Strings
from fjord.commands.layout import *
from fjord.commands.session import Done, Refusal
from fjord.errors import Code

# -- replies --------------------------------------------------------------------------------------


@reply(14, "piece")
class Scanned(Reply):
    """Stored ops, possibly none.  Row i of an op has the seq `first_seqs[op] + i`."""

    next_seq: int = field(U64)  # where to go on; equal to `end_seq` when there is no more
    end_seq: int = field(U64)  # the end that was asked for, or the durable end at that moment
    first_seqs: Sequence[int] = field(U64S, shown="first seq")
    walls_us: Sequence[int] = field(TIMES, shown="wall time")  # of the commit
    last_seqs: Sequence[int] = field(U64S, shown="last seq of the commit")
    ops: Strings = field(OPS, shown="op")


@reply(15, "Arrow piece")
class ScannedArrow(Reply):
    """Rows of a table's history in an Arrow IPC stream, possibly none.

    Only rows whose keys begin with the prefix are in it.  Of `Scanned`, which has ops as they are
    stored, only those are left out in which no row has such a key.
    """

    next_seq: int = field(U64)
    end_seq: int = field(U64)
    stream: bytes = field(BLOB)


@reply(16, "span")
class Spanned(Reply):
    """The extent of a batch.

    `seq` is the end of the last commit that has rows of the table, or `after` if there is none.
    Only rows of history count (`history.HISTORIC`, and all rows of key/value tables).
    """

    seq: int = field(U64)
    rows: int = field(U64, shown="rows of the batch")  # of the table, behind `after`, up to `seq`
    size: int = field(U64)  # bytes of their ops
    wall_us: int = field(TIME, shown="wall time")  # of the commit that ends at `seq`; 0 if none
    examined: int = field(U64)  # everything up to here was looked at: where to go on if `is_more`
    is_more: bool = field(BOOL, shown="more")  # one call looks at a bounded part of the journal
    durable_seq: int = field(U64)
    first_seq: int = field(U64, shown="first seq of the journal")
    epoch: bytes = field(UUID)  # of the takeover in whose time `seq` was written


@reply(17, "blocks")
class BlockList(Reply):
    """Cold blocks of a table, in order."""

    NUMBERS = ("firsts", "lasts", "rows", "sizes", "min_us", "max_us", "crcs")

    next_after: int = field(U64)  # where the next page begins; 0: there is no more
    location: str = field(TEXT)  # where they are, as the node calls it
    firsts: Sequence[int] = field(U64S, shown="first seq")  # no gap between blocks
    lasts: Sequence[int] = field(U64S, shown="last seq")
    rows: Sequence[int] = field(U64S, shown="rows of the block")
    sizes: Sequence[int] = field(U64S, shown="size")  # bytes of the file
    min_us: Sequence[int] = field(TIMES, shown="earliest")
    max_us: Sequence[int] = field(TIMES, shown="latest")
    crcs: Sequence[int] = field(U64S, shown="crc")  # CRC32C of the file
    names: Strings = field(STRINGS, shown="name")


# -- commands -------------------------------------------------------------------------------------


@command(64, "SCAN", answer=Scanned)
class Scan(Command):
    """Returns the ops of a table, in order, from `start_seq` up to, but not including, `end_seq`.

    Answered with Scanned, or with ScannedArrow if that was asked for.
    """

    table: str = field(NAME)
    start_seq: int = field(U64, argument=True)
    arrow: bool = field(Flag.DATA, default=False)
    end_seq: int = field(U64)  # 0 = everything that is durable now
    bytes_max: int = field(U32, default=limits.SCAN_BYTES_MAX, shown="largest size")
    opcodes: bytes = field(BLOB, default=b"")  # only ops of these kinds; empty = of all
    key_prefix: bytes = field(BLOB, default=b"")  # only what is about keys that begin so
    # Only these columns, of ScannedArrow; empty = all.
    columns: Sequence[str] = field(TEXTS, default=(), shown="column")

    def checked(self) -> Scan | Refusal:
        """Returns the command, or what is wrong with the columns that it names."""
        if self.columns and not self.arrow:
            text = "ops have all their columns: set bit 10 to choose some"
            return Refusal(code=Code.BAD_BATCH, text=text)
        if len(set(self.columns)) != len(self.columns):
            return Refusal(code=Code.BAD_BATCH, text="a column is named more than once")
        return self


@command(78, "BLOCKS", answer=BlockList, reads=True)
class ListBlocks(Command):
    """Lists the cold blocks of a table in order, a bounded page at a time."""

    table: str = field(NAME)
    after: int = field(U64, argument=True, default=0)  # only blocks that end behind this seq
    count: int = field(U64, default=0)


@command(79, "SEAL", answer=Done)
class SealNow(Command):
    """Writes all durable history to cold blocks now; answered when that is done."""

    # For as long as that takes; who asks for it has nothing else to wait for.
    wait_us = limits.WAIT_US_MAX
    table: str = field(NAME, default="")  # only of this table


@command(80, "SPAN", answer=Spanned)
class Span(Command):
    """Says where a batch of a table's history ends that begins after a seq.

    It looks at durable commits in the journal, in order, and takes each one whole: a batch never
    cuts a commit in two.  Refused with FORKED if `epoch` is given and is not the takeover in whose
    time seq `after` was written: what was read is not what is here.  Refused with BAD_RANGE if the
    journal begins behind `after`, and this table had rows there.
    """

    table: str = field(NAME)
    after: int = field(U64, argument=True)  # 0 = from the beginning of the journal
    until: int = field(U64, default=0)  # the last seq that counts; 0 = all that is durable
    # Commits are taken while they fit, the first one in any case; 0 = no bound.
    rows_max: int = field(U64, default=0, shown="most rows")
    bytes_max: int = field(U64, default=0, shown="largest size")  # of ops; 0 = no bound
    before_us: int = field(TIME, default=0)  # only commits before this wall time; 0 = all
    epoch: bytes = field(UUID, default=b"")  # of a takeover, or nothing


@command(84, "REPLACE_BLOCKS", answer=Done)
class ReplaceBlocks(Command):
    """Replaces neighbouring blocks with one.

    The file of the new one already exists.  Refused with BAD_RANGE if the old ones are not all
    there, in order and without a gap, or if the new one does not cover just what they did.  The
    files of the old ones go later.  Blocks that are replaced already stay so.
    """

    table: str = field(NAME)
    rows: int = field(U64, shown="rows of the block")
    size: int = field(U64)  # bytes of its file
    min_us: int = field(TIME, shown="earliest")
    max_us: int = field(TIME, shown="latest")
    crc: int = field(U64)  # CRC32C of its file
    name: str = field(TEXT)  # of the new one
    names: Sequence[str] = field(TEXTS, shown="replaced")  # of the old ones, in order
