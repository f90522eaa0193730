"""Commands that stage rows and commit them later, exactly once, and what writers say of themselves.

A writer of many processes stages rows, each process some of them, and one process commits all that
were staged as one batch.  Batches of a writer have numbers, and a batch is committed once, however
often it is asked for.

A writer that stages nothing says in a transaction how far it is, and is refused if it is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fjord.commands.jobs import Push
from fjord.commands.kv import Set
from fjord.commands.layout import *
from fjord.commands.session import Done
from fjord.commands.streams import Append

# A writer whose name begins so writes a single batch.
WRITER_ONCE: Final = "once:"


@reply(18, "committed")
class Committed(Reply):
    """The last batch of a writer."""

    batch: int = field(SEQ)  # its last one, -1 = none
    is_new: bool = field(BOOL, shown="new")  # this call has committed it, or a part of it
    left: int = field(U32, shown="stages left")  # wait to be written: ask again
    rows: int = field(U64, shown="rows written")  # by this call
    seq: int = field(U64)


def _is_staged(row: Row) -> bool:
    return row.record in (Append, Push, Set)


@command(81, "STAGE", answer=Done, holds=_is_staged)
class Stage(Command):
    """Stores rows durably but invisibly; the seq in the reply is the number of the stage.

    Jobs and values with the timestamp 0 get that of the moment in which they are written: so what
    is committed later wins, whoever has staged it when.  A stage that is not committed within
    `limits.STAGE_US_MAX` is gone: so rows that are staged twice are committed once.
    """

    rows: Append | Push | Set  # the command that writes them


@command(82, "COMMIT", answer=Committed)
class CommitStages(Command):
    """Makes stages visible as a batch of a writer.

    Messages of a log become visible together, at one instant, in the order of `stages`.  Jobs,
    values and messages of a stream that keeps the latest follow one stage after the other: each
    call does one, and says how many are left; from the first call on it is decided that all of
    them will be there.

    A batch that was committed before is answered so, and nothing is done; its stages are dropped.
    Refused with STAGE_GONE if a stage is not there (any more).
    """

    table: str = field(NAME)
    batch: int = field(U64, argument=True)
    writer: str = field(TEXT)  # 1 to 128 characters
    stages: Sequence[int] = field(U64S, shown="stage", of=list)  # none: the batch is empty


@command(83, "WRITER", answer=Committed, reads=True)
class AskWriter(Command):
    """Returns the last batch of a writer; -1: there is none."""

    table: str = field(NAME)  # empty: a writer of no table, see Advance
    writer: str = field(TEXT)


@command(85, "ADVANCE", answer=Done, in_batch=InBatch.NUMBERED)
class Advance(Command):
    """Advances a writer without a table to `batch`.

    In a batch with what it writes it makes that happen once: who does not know whether the batch
    was applied sends it again, and it is refused with STALE_NUMBER if the writer is not at
    `expected`.  AskWriter tells where it is.  What lies between two numbers, such as records or
    bytes of a file, may be cut into other batches each time.
    """

    batch: int = field(U64, argument=True)  # larger than `expected`; 0 = the writer is over
    expected: int = field(SEQ)  # where it is by now, -1 = it is not known
    writer: str = field(TEXT)  # 1 to 128 bytes
