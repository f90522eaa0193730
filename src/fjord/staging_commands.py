"""Commands that stage rows and commit them later, exactly once, and their replies; part of
`commands`.

A writer of many processes stages rows, each process some of them, and one process commits all that
were staged as one batch.  Batches of a writer have numbers, and a batch is committed once, however
often it is asked for.
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

    table: str
    writer: str


@dataclass(slots=True, kw_only=True)
class Committed:
    """How far a writer is."""

    batch: int  # its last one, -1 = none
    is_new: bool  # this call has committed it, or a part of it
    left: int  # how many stages of it wait to be written: ask again
    rows: int  # that this call has written
    seq: int
