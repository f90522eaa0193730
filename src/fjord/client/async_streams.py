"""A stream for asyncio: the same calls as `fjord.Stream`, awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, TypeVar, overload

from fjord.client import stream_calls
from fjord.client.address import shown_at
from fjord.client.async_subscribers import AsyncReader, AsyncSubscriber
from fjord.client.calls import AsyncRun, Call, Result, Steps, follow_async
from fjord.client.entries import AnyKey, Entry, Key, Seconds
from fjord.client.kv_calls import KvCalls
from fjord.client.pages import Row as Found
from fjord.client.pages import Span, Walk
from fjord.client.schemas import Row
from fjord.client.stream_batch import MessageBatch
from fjord.client.stream_calls import BlockInfo, Given, StreamCalls, SubscriberInfo
from fjord.client.stream_places import COUNT, Starting
from fjord.client.stream_settings import StreamSettings
from fjord.client.subscriber_calls import subscribe
from fjord.values import PLAIN_TYPES, Value

Default = TypeVar("Default")


class AsyncStream:
    """Messages in order; each method is that of `fjord.Stream`, awaited."""

    def __init__(
        self,
        run: AsyncRun,
        calls: StreamCalls,
        entries: KvCalls,
        *,
        name: str = "",
        settings: StreamSettings | None = None,
    ) -> None:
        self._run = run
        self._calls = calls
        self._entries = entries
        self._name = name  # of the database
        # What is still to be said before messages are appended or read.
        self._declaration = calls.declare(settings) if settings else None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._calls.table!r}{shown_at(self._name)}>"

    # -- writes -----------------------------------------------------------------------------------

    async def append(self, value: Value | Row, key: Key = "") -> int:
        if type(value) in PLAIN_TYPES:
            return await self._ask(self._calls.append(value, key))
        steps = self._calls.schemas.writing(lambda: self._calls.append(value, key))
        return await self._follow(steps)

    async def append_many(self, values: Given, keys: Iterable[Key] | None = None) -> int:
        return await self._follow(self._calls.appending(values, keys))

    async def delete(self, key: Key) -> bool:
        return await self._ask(self._calls.delete(key))

    async def delete_many(self, keys: Iterable[AnyKey]) -> list[AnyKey]:
        return await self._ask(self._calls.delete_many(keys))

    # -- reads ------------------------------------------------------------------------------------

    async def subscriber(self, name: str, *, start: Starting = "beginning") -> AsyncSubscriber:
        calls = await self._ask(subscribe(self._calls.table, name, start, self._calls.schemas))
        return AsyncSubscriber(self._run, calls)

    async def reader(self, *, start: Starting = "beginning") -> AsyncReader:
        return AsyncReader(self._run, await self._follow(self._calls.reader(start)))

    async def read(
        self,
        n: int = COUNT,
        *,
        after: int | MessageBatch = 0,
        wait: Seconds | None = None,
    ) -> MessageBatch:
        call = self._calls.read(n, after, wait)
        return await self._follow(self._calls.schemas.receiving(call))

    # -- the latest of each key -------------------------------------------------------------------

    @overload
    async def get(self, key: Key) -> Any: ...
    @overload
    async def get(self, key: Key, default: Default) -> Any | Default: ...
    async def get(self, key: Key, default: object = None) -> object:
        return (await self._look(self._entries.get_many([key]))).get(key, default)

    async def get_many(self, keys: Iterable[AnyKey]) -> dict[AnyKey, Any]:
        return await self._look(self._entries.get_many(keys))

    async def entry(self, key: Key) -> Entry | None:
        return await self._look(self._entries.entry(key))

    async def exists(self, key: Key) -> bool:
        return await self._ask(self._entries.exists(key))

    @overload
    def items(self) -> AsyncIterator[tuple[str, Any]]: ...
    @overload
    def items(self, prefix: AnyKey) -> AsyncIterator[tuple[AnyKey, Any]]: ...
    def items(self, prefix: Key = "") -> AsyncIterator[tuple[Key, Any]]:
        return self._walk(self._entries.items(Span(prefix=prefix)))

    @overload
    def keys(self) -> AsyncIterator[str]: ...
    @overload
    def keys(self, prefix: AnyKey) -> AsyncIterator[AnyKey]: ...
    def keys(self, prefix: Key = "") -> AsyncIterator[Key]:
        return self._walk(self._entries.keys(Span(prefix=prefix)))

    def values(self, prefix: Key = "") -> AsyncIterator[Any]:
        return (value async for _, value in self.items(prefix))

    def __aiter__(self) -> AsyncIterator[str]:
        return self.keys()

    # -- looking ----------------------------------------------------------------------------------

    async def subscribers(self) -> list[SubscriberInfo]:
        return await self._follow(self._calls.subscribers())

    async def blocks(self) -> list[BlockInfo]:
        return await self._follow(stream_calls.blocks(self._calls.table))

    # -- inside -----------------------------------------------------------------------------------

    async def _ask(self, call: Call[Result]) -> Result:
        if self._declaration is not None:
            await follow_async(self._run, self._declaration.steps())
            self._declaration = None
        return await self._run(call)

    async def _look(self, call: Call[Result]) -> Result:
        return await self._follow(self._calls.schemas.reading(call))

    async def _follow(self, steps: Steps[Result]) -> Result:
        return await follow_async(self._ask, steps)

    async def _walk(self, walk: Walk[Found]) -> AsyncIterator[Found]:
        while (call := walk.next_call()) is not None:
            for row in await self._look(call):
                yield row
