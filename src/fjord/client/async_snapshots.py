"""Snapshots for asyncio: the same as `fjord.Snapshot`, awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import Any, TypeVar, overload

from fjord import commands
from fjord.client.address import shown_at
from fjord.client.calls import AsyncRun, Call, Result, follow_async
from fjord.client.entries import AnyKey, Entry, Key, date
from fjord.client.kv_calls import KvCalls
from fjord.client.pages import Row, Span, Walk
from fjord.client.schemas import Schemas, SchemasOf
from fjord.client.snapshot_calls import as_of
from fjord.client.stream_batch import MessageBatch
from fjord.client.stream_places import COUNT, Cursor, check_seq, read_on
from fjord.clock import Stamps
from fjord.commands import Opened
from fjord.streams import decode_settings
from fjord.values import Value

Default = TypeVar("Default")


class AsyncSnapshot:
    """Tables as they were when it was opened; each method is that of `fjord.Snapshot`, awaited."""

    def __init__(
        self,
        run: AsyncRun,
        opened: Opened,
        stamps: Stamps,
        *,
        name: str = "",
        schemas_of: SchemasOf = Schemas,
    ) -> None:
        self._run = run
        self._opened = opened
        self._stamps = stamps
        self._schemas_of = schemas_of
        self._name = name  # of the database

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of seq {self.seq}{shown_at(self._name)}>"

    @property
    def seq(self) -> int:
        """Everything up to this seq is in it, and nothing else."""
        return self._opened.snapshot

    @property
    def at(self) -> datetime:
        """When it was opened."""
        return date(self._opened.wall_us)

    @property
    def expires_at(self) -> datetime:
        """When it is closed by itself."""
        return date(self._opened.until_us)

    def kv(self, table: str = commands.DEFAULT_TABLE) -> AsyncSnapshotKv:
        return AsyncSnapshotKv(self._read, KvCalls(table, self._stamps))

    def stream(self, table: str) -> AsyncSnapshotStream:
        schemas = self._schemas_of(table, decode_settings)

        async def look(call: Call[Result]) -> Result:
            return await follow_async(self._read, schemas.reading(call))

        return AsyncSnapshotStream(look, KvCalls(table, self._stamps, schemas), schemas)

    async def _read(self, call: Call[Result]) -> Result:
        return await self._run(as_of(self.seq, call))


class AsyncSnapshotEntries:
    """Keys and values of a table, as of a snapshot."""

    def __init__(self, run: AsyncRun, calls: KvCalls) -> None:
        self._run = run
        self._calls = calls

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._calls.table!r}>"

    @overload
    async def get(self, key: Key) -> Any: ...
    @overload
    async def get(self, key: Key, default: Default) -> Any | Default: ...
    async def get(self, key: Key, default: object = None) -> object:
        return (await self._run(self._calls.get_many([key]))).get(key, default)

    async def get_many(self, keys: Iterable[AnyKey]) -> dict[AnyKey, Any]:
        return await self._run(self._calls.get_many(keys))

    async def exists(self, key: Key) -> bool:
        return await self._run(self._calls.exists(key))

    @overload
    def items(self) -> AsyncIterator[tuple[str, Any]]: ...
    @overload
    def items(self, prefix: AnyKey) -> AsyncIterator[tuple[AnyKey, Any]]: ...
    def items(self, prefix: Key = "") -> AsyncIterator[tuple[Key, Any]]:
        return self._walk(self._calls.items(Span(prefix=prefix)))

    @overload
    def keys(self) -> AsyncIterator[str]: ...
    @overload
    def keys(self, prefix: AnyKey) -> AsyncIterator[AnyKey]: ...
    def keys(self, prefix: Key = "") -> AsyncIterator[Key]:
        return self._walk(self._calls.keys(Span(prefix=prefix)))

    async def _walk(self, walk: Walk[Row]) -> AsyncIterator[Row]:
        while (call := walk.next_call()) is not None:
            for row in await self._run(call):
                yield row


class AsyncSnapshotKv(AsyncSnapshotEntries):
    """A key/value table as of a snapshot; like `fjord.Kv`, for reading."""

    async def entry(self, key: Key) -> Entry | None:
        return await self._run(self._calls.entry(key))

    def range(
        self, start: AnyKey, stop: AnyKey | None = None, *, limit: int | None = None
    ) -> AsyncIterator[tuple[AnyKey, Value]]:
        return self._walk(self._calls.items(Span(start=start, stop=stop, limit=limit)))

    def match(
        self, pattern: AnyKey, *, limit: int | None = None
    ) -> AsyncIterator[tuple[AnyKey, Value]]:
        return self._walk(self._calls.items(Span(match=pattern, limit=limit)))

    def entries(self, span: Span[AnyKey]) -> AsyncIterator[tuple[AnyKey, Entry]]:
        return self._walk(self._calls.entries(span))


class AsyncSnapshotStream(AsyncSnapshotEntries):
    """A stream as of a snapshot; its keys and values are there in mode latest."""

    def __init__(self, run: AsyncRun, calls: KvCalls, schemas: Schemas) -> None:
        super().__init__(run, calls)
        self._schemas = schemas

    async def read(self, n: int = COUNT, *, after: int = 0) -> MessageBatch:
        return await follow_async(self._run, read_on(self._cursor(after), n, None))

    async def batches(self, n: int = COUNT, *, after: int = 0) -> AsyncIterator[MessageBatch]:
        cursor, is_over = self._cursor(after), False
        while not is_over:
            batch = await follow_async(self._run, read_on(cursor, n, None))
            is_over = batch.end_of_snapshot
            if len(batch):
                yield batch

    def _cursor(self, after: int) -> Cursor:
        return Cursor(self._calls.table, check_seq("after", after), schemas=self._schemas)
