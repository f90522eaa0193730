"""Commands and replies: what may be asked of Fjord, and what it answers.

These records are the one language between all shells and the engine: a client builds a command,
`wire` carries it, `tables` decides it.  Every command is a batch; one entry is a batch of one.
Nobody changes a record once it is made; they are not frozen only because freezing makes them
twice as slow to make, and one is made for every request.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fjord import limits
from fjord.columns import Strings
from fjord.errors import Code, RefusedError

# A connection that has chosen no table speaks to this one.
DEFAULT_TABLE: Final = "default"

_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_-]{{0,{limits.NAME_BYTES_MAX - 1}}}\Z")


@dataclass(slots=True, kw_only=True)
class Nop:
    """Does nothing, and is answered after the writes and reads before it."""


@dataclass(slots=True, kw_only=True)
class Set:
    """Gives values to keys; all of them or none."""

    table: str
    keys: Strings
    types: bytes  # one type byte a key
    values: Strings
    timestamps_us: Sequence[int]  # the client's, one a key; the largest one wins
    expires_at_us: int = 0  # 0 = never
    overwrite: bool = True  # False: refuse if any of the keys is there
    persist: bool = True  # False: memory only, gone with the process


@dataclass(slots=True, kw_only=True)
class Get:
    """Asks for the values of keys."""

    table: str
    keys: Strings


@dataclass(slots=True, kw_only=True)
class Delete:
    """Takes the values of keys away; a missing key is no error."""

    table: str
    keys: Strings
    timestamp_us: int


@dataclass(slots=True, kw_only=True)
class Scan:
    """Asks for the ops of a table, in order, from `start_seq` up to before `end_seq`."""

    table: str
    start_seq: int
    end_seq: int  # 0 = everything that is durable now
    bytes_max: int = limits.SCAN_BYTES_MAX


Command = Nop | Set | Get | Delete | Scan


@dataclass(slots=True, kw_only=True)
class Done:
    """It is done, and as durable as was asked: the token (master, seq) names the moment."""

    master: bytes  # UUID of the writer that gave out `seq`
    seq: int  # everything up to here includes this command's effect


@dataclass(slots=True, kw_only=True)
class Entries:
    """Values in the order of the keys asked for; a missing one has type MISSING."""

    MISSING = 0xFF

    types: bytes
    values: Strings
    timestamps_us: Sequence[int]
    expires_at_us: Sequence[int]


@dataclass(slots=True, kw_only=True)
class Scanned:
    """Ops as they are stored, perhaps none.  Row i of an op has the seq `first_seqs[op] + i`."""

    first_seqs: Sequence[int]
    walls_us: Sequence[int]  # wall time of the commit
    last_seqs: Sequence[int]  # last seq of the commit that the op belongs to
    ops: Strings
    next_seq: int  # where to go on; equal to `end_seq` when there is no more
    end_seq: int  # the end that was asked for, or the durable end at that moment


@dataclass(slots=True, kw_only=True)
class Refusal:
    """The command was refused and nothing changed."""

    code: Code
    text: str

    def error(self) -> RefusedError:
        return RefusedError.of(self.code, self.text)


Reply = Done | Entries | Scanned | Refusal


def name_problem(name: str) -> Refusal | None:
    """Says what is wrong with a table's name, or None."""
    if _NAME.match(name):
        return None
    return Refusal(
        code=Code.BAD_NAME,
        text="a name is 1 to 128 of A-Z a-z 0-9 _ -, and does not begin with -",
    )
