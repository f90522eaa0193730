"""Commands of sessions and tables, and common replies."""

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
    """The command was refused, and nothing has changed."""

    code: Code = field(TEXT, of=Code)
    text: str = field(TEXT)

    @classmethod
    def of(cls, error: RefusedError) -> Refusal:
        return cls(code=error.code, text=error.text)

    def error(self) -> RefusedError:
        return RefusedError.of(self.code, self.text)


@reply(1, "token")
class Done(Reply):
    """The command is done and durable; (master, seq) names the moment."""

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
    """Numbers by name; docs/operations.md lists them."""

    values: Sequence[int] = field(U64S, shown="number")
    names: Strings = field(STRINGS, shown="name")


@reply(11, "welcome")
class Welcome(Reply):
    """Identifies the server."""

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
    """Does nothing; answered after the writes and reads before it."""


@command(17, "HELLO", answer=Welcome, retry=Retry.NEVER)
class Hello(Command):
    """Identifies the client, so that it can number its calls."""

    revision: int = field(U64, argument=True, default=REVISION)
    client: bytes = field(UUID)  # 16 bytes that no other client has


@command(18, "USE", answer=Done)
class Use(Command):
    """Selects the table of the seed functions for the rest of the connection."""

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
    """Runs commands as one: all or none, visible at the same moment."""

    commands: Sequence[Command]


@internal()
class Numbered(Command):
    """A command with its client's number, so that a retry is applied once."""

    command: Command
    client: bytes  # 16 bytes, as HELLO said
    number: int  # ascending from 1


@command(20, "TABLES", answer=TableList, in_batch=InBatch.PLAIN, reads=True)
class ListTables(Command):
    """Lists tables."""

    name: str = field(NAME, default="")  # only this one


@command(21, "CREATE_TABLE", answer=Done, retry=Retry.NUMBERED, in_batch=InBatch.NUMBERED)
class CreateTable(Command):
    """Creates a table; an existing one with the same settings is no error."""

    name: str = field(NAME)
    kind: int = field(U64, argument=True)  # Kind.number
    # One that is there, with a period, gets these with a new generation.
    changes: bool = field(Flag.OVERWRITE, default=False)
    settings: bytes = field(BLOB, default=b"")


@command(22, "DROP_TABLE", answer=Done, retry=Retry.NUMBERED, in_batch=InBatch.NUMBERED, frees=True)
class DropTable(Command):
    """Deletes a table with all its data."""

    name: str = field(NAME)


@command(23, "STATS", answer=Numbers)
class Stats(Command):
    """Returns the node's metrics."""


def name_problem(name: str) -> Refusal | None:
    """Returns what is wrong with a name, or None."""
    if _NAME.match(name):
        return None
    return Refusal(
        code=Code.BAD_NAME, text="a name is 1 to 128 of A-Z a-z 0-9 _ -, and does not begin with -"
    )
