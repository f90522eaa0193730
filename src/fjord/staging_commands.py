"""Commands that stage rows and commit them later, exactly once, their replies, and what writers say
of themselves; part of `commands`.

A writer of many processes stages rows, each process some of them, and one process commits all that
were staged as one batch.  Batches of a writer have numbers, and a batch is committed once, however
often it is asked for.

A writer that stages nothing says in a transaction how far it is, and is refused if it is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fjord.job_commands import Push
from fjord.stream_commands import Append

if TYPE_CHECKING:
    from fjord.commands import Set

# A writer whose name begins so writes a single batch.
WRITER_ONCE: Final = "once:"


@dataclass(slots=True, kw_only=True)
class Stage:
    """Keeps rows, durably, that nobody sees yet.  Answered with Done: `seq` is the stage's number.

    Jobs and values with the timestamp 0 get that of the moment in which they are written: so what
    is committed later wins, whoever has staged it when.  A stage that is not committed within
    `limits.STAGE_US_MAX` is gone.
    """

    rows: Append | Push | Set  # the command that writes them


@dataclass(slots=True, kw_only=True)
class CommitStages:
    """Makes stages visible, as a batch of a writer.  Answered with Committed.

    Messages of a log become visible together, at one instant, in the order of `stages`.  Jobs,
    values and messages of a stream that keeps the latest follow one stage after the other: each
    call does one, and says how many are left; from the first call on it is decided that all of
    them will be there.

    A batch that was committed before is answered so, and nothing is done; its stages are dropped.
    Refused with STAGE_GONE if a stage is not there (any more).
    """

    table: str
    writer: str  # 1 to 128 characters
    batch: int
    stages: Sequence[int]  # none: the batch is empty


@dataclass(slots=True, kw_only=True)
class AskWriter:
    """Asks for the last batch of a writer.  Answered with Committed; batch -1: there is none."""

    table: str  # empty: a writer of no table, see Advance
    writer: str


@dataclass(slots=True, kw_only=True)
class Advance:
    """Says that a writer of no table is at `batch` from now on.  Answered with Done.

    In a batch with what it writes it makes that happen once: who does not know whether the batch
    was applied sends it again, and it is refused with STALE_NUMBER if the writer is not at
    `expected`.  AskWriter tells where it is.  What lies between two numbers, such as records or
    bytes of a file, may be cut into other batches each time.
    """

    writer: str  # 1 to 128 bytes
    expected: int  # where it is by now, -1 = it is not known
    batch: int  # larger than `expected`; 0 = the writer is over, and is forgotten after a day


@dataclass(slots=True, kw_only=True)
class Committed:
    """How far a writer is."""

    batch: int  # its last one, -1 = none
    is_new: bool  # this call has committed it, or a part of it
    left: int  # how many stages of it wait to be written: ask again
    rows: int  # that this call has written
    seq: int
