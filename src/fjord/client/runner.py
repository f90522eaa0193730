"""Runs calls; all tables of a database share one runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fjord.client.async_listening import AsyncChanges, AsyncExecutor
from fjord.client.async_waker import pause
from fjord.client.calls import Call, PacedSteps, Result, Steps
from fjord.client.declared_tables import ExpectedTable
from fjord.client.listening import Told
from fjord.client.snapshots import as_of
from fjord.commands import Changed, Listen, ListenJobs, Refusal
from fjord.errors import FjordError


class AsyncRunner:
    """Sends the commands of calls and returns their results."""

    def __init__(self, executor: AsyncExecutor, name: str = "") -> None:
        self.executor = executor
        self.name = name  # of the database: its address, or its directory

    async def run(self, call: Call[Result]) -> Result:
        reply = await self.executor.execute(call.command)
        if isinstance(reply, Refusal):
            raise reply.error()
        return call.read(reply)

    async def follow(self, steps: Steps[Result] | PacedSteps[Result]) -> Result:
        """Runs steps; returns their result."""
        found: Any = None
        try:
            step = next(steps)
            while True:
                try:
                    if isinstance(step, Call):
                        found = await self.run(step)
                    else:
                        await pause(step)
                except FjordError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(found)
        except StopIteration as end:
            result: Result = end.value
            return result

    def declaring(self, table: ExpectedTable) -> AsyncRunner:
        """Returns a runner that declares a table before its first call."""
        return AsyncDeclaringRunner(self, table)

    def listen(
        self, command: Listen | ListenJobs, read: Callable[[Changed], Told]
    ) -> AsyncChanges[Told]:
        return AsyncChanges(self.executor, command, read)


class AsyncSnapshotRunner(AsyncRunner):
    """Runs reads as of a snapshot."""

    def __init__(self, runner: AsyncRunner, snapshot: int) -> None:
        super().__init__(runner.executor, runner.name)
        self._snapshot = snapshot

    async def run(self, call: Call[Result]) -> Result:
        return await super().run(as_of(self._snapshot, call))


class AsyncDeclaringRunner(AsyncRunner):
    """Declares a table before its first call."""

    def __init__(self, runner: AsyncRunner, table: ExpectedTable) -> None:
        super().__init__(runner.executor, runner.name)
        self._runner = runner
        self._table: ExpectedTable | None = table  # None: done

    async def run(self, call: Call[Result]) -> Result:
        if self._table is not None:
            await self._runner.follow(self._table.steps())
            self._table = None
        return await super().run(call)
