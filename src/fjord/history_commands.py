"""Commands about the history of a table as a whole, and their replies; part of `commands`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Span:
    """Asks where a batch of a table's history ends that begins behind a seq.

    It looks at durable commits in the journal, in order, and takes each one whole: a batch never
    cuts a commit in two.  Answered with Spanned.  Refused with FORKED if `epoch` is given and is
    not the takeover in whose time seq `after` was written: what was read is not what is here.
    Refused with BAD_RANGE if the journal begins behind `after`, and this table had rows there.
    """

    table: str
    after: int  # 0 = from the beginning of the journal
    until: int = 0  # the last seq that counts; 0 = all that is durable
    rows_max: int = 0  # commits are taken while they fit, the first one in any case; 0 = no bound
    bytes_max: int = 0  # of ops as they are stored; 0 = no bound
    before_us: int = 0  # only commits that were written before this wall time; 0 = all
    epoch: bytes = b""  # UUID of a takeover, or nothing


@dataclass(slots=True, kw_only=True)
class Spanned:
    """How far a batch goes.

    `seq` is the end of the last commit that has rows of the table, or `after` if there is none.
    Only rows of history count (`history.HISTORIC`, and all rows of key/value tables).
    """

    seq: int
    rows: int  # of the table, behind `after`, up to `seq`
    size: int  # bytes of their ops
    wall_us: int  # when the commit that ends at `seq` was written; 0 if there is none
    examined: int  # everything up to here was looked at: where to go on if `is_more`
    is_more: bool  # one call looks at a bounded part of the journal: go on from `examined`
    durable_seq: int
    first_seq: int  # where the journal begins
    epoch: bytes  # UUID of the takeover in whose time `seq` was written


@dataclass(slots=True, kw_only=True)
class ReplaceBlocks:
    """Puts one block in the place of some that follow each other.  Answered with Done.

    The file of the new one is there already.  Refused with BAD_RANGE if the old ones are not all
    there, in order and without a gap, or if the new one does not cover just what they did.  The
    files of the old ones go later.
    """

    table: str
    names: Sequence[str]  # of the old ones, in order
    name: str  # of the new one
    rows: int
    size: int  # bytes of its file
    min_us: int
    max_us: int
    crc: int  # CRC32C of its file
