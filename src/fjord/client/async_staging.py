"""Staging for asyncio: the same as `client.staging`, awaited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fjord.client.calls import AsyncRun, follow_async
from fjord.client.staging import StagingCalls
from fjord.columns import Strings
from fjord.commands import Committed


class AsyncStaging:
    """Rows of one table that are staged and committed; each method is that of `Staging`."""

    def __init__(self, run: AsyncRun, calls: StagingCalls) -> None:
        self._run = run
        self._calls = calls

    async def append(self, types: bytes, keys: Strings, values: Strings) -> int:
        return await self._run(self._calls.append(types, keys, values))

    async def push(self, **columns: Any) -> int:
        return await self._run(self._calls.push(**columns))

    async def set(self, **columns: Any) -> int:
        return await self._run(self._calls.set(**columns))

    async def commit(self, writer: str, batch: int, stages: Sequence[int]) -> Committed:
        return await follow_async(self._run, self._calls.commit(writer, batch, stages))

    async def last_batch(self, writer: str) -> int | None:
        return await self._run(self._calls.last_batch(writer))
