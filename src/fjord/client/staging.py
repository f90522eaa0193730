"""Staging: rows that many processes write, and one makes visible, exactly once.

    stage = staging.append(...)        in any process, any number of times
    staging.commit(writer, batch, stages)

Staged rows are invisible.  A batch of a writer is committed once, so a commit can always be
retried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fjord.client.calls import Call, Steps, ask, check_name, expect
from fjord.columns import Strings
from fjord.commands import Append, AskWriter, CommitStages, Committed, Done, Push, Reply, Set, Stage
from fjord.errors import Code, RemoteProtocolError

if TYPE_CHECKING:
    from fjord.client.runner import AsyncRunner


def commit_steps(table: str, writer: str, batch: int, stages: Sequence[int]) -> Steps[Committed]:
    """Repeats the commit until nothing is left to be written."""
    command = CommitStages(table=table, writer=writer, batch=batch, stages=list(stages))
    found: Committed = yield ask(command, Committed)
    rows, is_new, left = found.rows, found.is_new, found.left
    while left:
        found = yield ask(command, Committed)
        if found.left >= left:
            raise RemoteProtocolError(Code.BAD_CURSOR, "the server makes no progress")
        rows, left = rows + found.rows, found.left
        is_new = is_new or found.is_new
    return replace(found, rows=rows, is_new=is_new)


def _stage(rows: Append | Push | Set) -> Call[int]:
    return Call(Stage(rows=rows), lambda reply: expect(reply, Done).seq)


def _batch(reply: Reply) -> int | None:
    found = expect(reply, Committed)
    return None if found.batch < 0 else found.batch


class AsyncStaging:
    """Stages and commits rows of one table.  Columns are those of the commands."""

    def __init__(self, runner: AsyncRunner, table: str) -> None:
        self._runner = runner
        self._table = check_name(table)

    async def append(self, types: bytes, keys: Strings, values: Strings) -> int:
        """Stages messages of a stream; returns the number of the stage."""
        rows = Append(table=self._table, types=types, keys=keys, values=values)
        return await self._runner.run(_stage(rows))

    async def push(self, **columns: Any) -> int:
        """Stages jobs, as the columns of `commands.Push`; returns the number of the stage."""
        return await self._runner.run(_stage(Push(table=self._table, **columns)))

    async def set(self, **columns: Any) -> int:
        """Stages values, as the columns of `commands.Set`; returns the number of the stage."""
        return await self._runner.run(_stage(Set(table=self._table, **columns)))

    async def commit(self, writer: str, batch: int, stages: Sequence[int]) -> Committed:
        """Makes stages visible as a batch of a writer.

        Messages of a log become visible together.  Other rows are written a stage at a time; once
        this has begun, a retry of the same batch continues with the same rows.

        Args:
            writer: a name that is the same for all batches.
            batch: its number; one that is not larger than the last one is already committed.
            stages: in the order in which to write their rows.

        Returns:
            The result; `is_new` is False if the batch was committed before.

        Raises:
            RefusedError: with STAGE_GONE, if a stage no longer exists.
        """
        return await self._runner.follow(commit_steps(self._table, writer, batch, stages))

    async def last_batch(self, writer: str) -> int | None:
        """Returns the number of a writer's last batch, None if it has committed none."""
        return await self._runner.run(Call(AskWriter(table=self._table, writer=writer), _batch))
