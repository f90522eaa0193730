"""Commands of sessions and tables, and the replies that many commands share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from fjord import limits
from fjord.columns import Strings
from fjord.commands.layout import *
from fjord.errors import Code, RefusedError

# A connection that has chosen no table speaks to this one.
DEFAULT_TABLE: Final = "default"
# Of the messages above function 16.  A peer that says another one in HELLO is refused.
REVISION: Final = 2

_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_-]{{0,{limits.NAME_BYTES_MAX - 1}}}\Z")

# -- replies --------------------------------------------------------------------------------------


@reply(0, "refusal")
class Refusal(Reply):
    """The command was refused and nothing changed."""

    code: Code = field(TEXT, of=Code)
    text: str = field(TEXT)

    @classmethod
    def of(cls, error: RefusedError) -> Refusal:
        return cls(code=error.code, text=error.text)

    def error(self) -> RefusedError:
        return RefusedError.of(self.code, self.text)


@reply(1, "token")
class Done(Reply):
    """It is done, and as durable as was asked: the token (master, seq) names the moment."""

    master: bytes = field(UUID)  # UUID of the writer that gave out `seq`
    seq: int = field(U64)  # everything up to here includes this command's effect


@reply(4, "tables")
class TableList(Reply):
    """Tables by name."""

    ids: Sequence[int] = field(U64S, shown="id")
    kinds: bytes = field(U8S, shown="kind")
    names: Strings = field(STRINGS, shown="name")
    settings: Strings = field(STRINGS)


@reply(5, "numbers")
class Numbers(Reply):
    """Numbers by name; which ones is said in docs/operations.md."""

    values: Sequence[int] = field(U64S, shown="number")
    names: Strings = field(STRINGS, shown="name")


@reply(11, "welcome")
class Welcome(Reply):
    """Who answers."""

    client: bytes = field(UUID)  # as it was said, or a new one if it was all zeros
    master: bytes = field(UUID)  # UUID of the writer
    version: str = field(TEXT)  # of Fjord


@reply(19, "replies", size=lambda all_: sum(type(one).row.size(one) for one in all_.replies))
class Replies(Reply):
    """One reply to each command of a batch."""

    replies: Sequence[Reply]


# -- commands -------------------------------------------------------------------------------------


@command(0, "NOP", answer=Done, in_batch=InBatch.PLAIN, reads=True)
class Nop(Command):
    """Does nothing, and is answered after the writes and reads before it."""


@command(17, "HELLO", answer=Welcome, retry=Retry.NEVER)
class Hello(Command):
    """Says who the client is, so that it can number its calls."""

    revision: int = field(U64, argument=True, default=REVISION)
    client: bytes = field(UUID)  # 16 bytes that no other client has


@command(18, "USE", answer=Done)
class Use(Command):
    """Chooses the table of the seed functions for the rest of the connection."""

    table: str = field(NAME)


def _retry_of_batch(batch: Batch) -> Retry:
    # A writer that is farther already is refused, so the server need not keep the answer.  Locks
    # would be held by a connection that does not know of them; with a number they are refused.
    names = {type(one).row.name for one in batch.commands}
    is_fenced = "ADVANCE" in names and names.isdisjoint({"LOCK_MANY", "UNLOCK_MANY"})
    return Retry.AS_IS if is_fenced else Retry.NUMBERED


def _is_in_batch(row: Row) -> bool:
    return row.in_batch is not InBatch.NEVER


@command(19, "BATCH", answer=Replies, retry=_retry_of_batch, holds=_is_in_batch)
class Batch(Command):
    """Runs commands as one: all of them or none, visible at one moment."""

    commands: Sequence[Command]


@internal()
class Numbered(Command):
    """A command with the number that its client gave it: a retry with it is applied once."""

    command: Command
    client: bytes  # 16 bytes, as HELLO said
    number: int  # ascending from 1


@command(20, "TABLES", answer=TableList, in_batch=InBatch.PLAIN, reads=True)
class ListTables(Command):
    """Asks which tables there are."""

    name: str = field(NAME, default="")  # only this one


@command(21, "CREATE_TABLE", answer=Done, retry=Retry.NUMBERED, in_batch=InBatch.NUMBERED)
class CreateTable(Command):
    """Makes a table; one that is there, and is the same, is no error."""

    name: str = field(NAME)
    kind: int = field(U64, argument=True)  # Kind.number
    # One that is there, with a period, gets these with a new generation.
    changes: bool = field(Flag.OVERWRITE, default=False)
    settings: bytes = field(BLOB, default=b"")


@command(22, "DROP_TABLE", answer=Done, retry=Retry.NUMBERED, in_batch=InBatch.NUMBERED, frees=True)
class DropTable(Command):
    """Takes a table away with all that is in it."""

    name: str = field(NAME)


@command(23, "STATS", answer=Numbers)
class Stats(Command):
    """Asks for the numbers by which a node is watched."""


def name_problem(name: str) -> Refusal | None:
    """Says what is wrong with a table's name, or None."""
    if _NAME.match(name):
        return None
    return Refusal(
        code=Code.BAD_NAME,
        text="a name is 1 to 128 of A-Z a-z 0-9 _ -, and does not begin with -",
    )
