"""Snapshots: reads as of one moment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import TYPE_CHECKING

from fjord import commands
from fjord.client.address import shown_at
from fjord.client.calls import Call, Result, ask, expect, expect_rows
from fjord.client.entries import AnyKey, Entry, Key, Seconds, date, delay_us
from fjord.client.kv import AsyncItems, KvCalls
from fjord.client.messages import MessageBatch
from fjord.client.pages import Span
from fjord.client.schemas import Schemas, SchemasOf
from fjord.client.subscribers import COUNT, Cursor, check_seq, read_on
from fjord.clock import Stamps
from fjord.commands import Opened, Reply
from fjord.streams import decode_settings
from fjord.values import Value

if TYPE_CHECKING:
    from fjord.client.runner import AsyncRunner


def open_call(lifetime: Seconds | None) -> Call[Opened]:
    """Returns the call that opens a snapshot.

    Raises:
        ValueError: if the lifetime is 0.
    """
    lifetime_us = delay_us(lifetime, "lifetime")
    if lifetime is not None and not lifetime_us:
        raise ValueError("lifetime must be more than 0 seconds; leave it out for the longest")
    return ask(commands.OpenSnapshot(lifetime_us=lifetime_us), Opened)


def as_of(snapshot: int, call: Call[Result]) -> Call[Result]:
    """Returns the same read as of a snapshot."""
    if isinstance(call.command, commands.Nop | commands.ListTables):
        return call  # get_many of nothing; columns, which are kept as long as their rows

    def read(reply: Reply) -> Result:
        found = expect(reply, commands.Replies).replies
        expect_rows(len(found), 1)
        return call.result(found[0])

    return Call(commands.AsOf(snapshot=snapshot, commands=[call.command]), read)


# -- snapshots for asyncio: the same as `fjord.Snapshot`, awaited ---------------------------------


class AsyncSnapshot:
    """Key/value tables and streams as they were when the snapshot was opened."""

    def __init__(
        self, runner: AsyncRunner, opened: Opened, stamps: Stamps, schemas_of: SchemasOf = Schemas
    ) -> None:
        self._runner = runner  # reads as of the snapshot
        self._opened = opened
        self._stamps = stamps
        self._schemas_of = schemas_of

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of seq {self.seq}{shown_at(self._runner.name)}>"

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
        """When it closes."""
        return date(self._opened.until_us)

    def kv(self, table: str = commands.DEFAULT_TABLE) -> AsyncSnapshotKv:
        """Returns a key/value table to read; values with persist=False are not in it."""
        return AsyncSnapshotKv(self._runner, KvCalls(table, self._stamps))

    def stream(self, table: str) -> AsyncSnapshotStream:
        """Returns a stream to read."""
        schemas = self._schemas_of(table, decode_settings)
        return AsyncSnapshotStream(self._runner, KvCalls(table, self._stamps, schemas))


class AsyncSnapshotEntries(AsyncItems):
    """Keys and values of a table, as of a snapshot."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._calls.table!r}>"


class AsyncSnapshotKv(AsyncSnapshotEntries):
    """A key/value table as of a snapshot; like `fjord.Kv`, for reading."""

    async def entry(self, key: Key) -> Entry | None:
        """Returns the value of `key` with its type and dates, None if there was none."""
        return await self._look(self._calls.entry(key))

    def range(
        self, start: AnyKey, stop: AnyKey | None = None, *, limit: int | None = None
    ) -> AsyncIterator[tuple[AnyKey, Value]]:
        """Yields keys and values from `start` up to, but not including, `stop`, page by page."""
        return self._walk(self._calls.items(Span(start=start, stop=stop, limit=limit)))

    def match(
        self, pattern: AnyKey, *, limit: int | None = None
    ) -> AsyncIterator[tuple[AnyKey, Value]]:
        """Yields keys that contain a match of a regular expression (RE2), and their values."""
        return self._walk(self._calls.items(Span(match=pattern, limit=limit)))

    def entries(self, span: Span[AnyKey]) -> AsyncIterator[tuple[AnyKey, Entry]]:
        """Yields keys and entries of a span: bounds, prefix, regular expression and limit."""
        return self._walk(self._calls.entries(span))


class AsyncSnapshotStream(AsyncSnapshotEntries):
    """A stream as of a snapshot; keys and values work in mode latest."""

    async def read(self, n: int = COUNT, *, after: int = 0) -> MessageBatch:
        """Returns at most `n` messages after a seq, possibly none."""
        return await self._runner.follow(read_on(self._cursor(after), n, None))

    async def batches(self, n: int = COUNT, *, after: int = 0) -> AsyncIterator[MessageBatch]:
        """Yields all messages after a seq, at most `n` at a time."""
        cursor, is_over = self._cursor(after), False
        while not is_over:
            batch = await self._runner.follow(read_on(cursor, n, None))
            is_over = batch.end_of_snapshot
            if len(batch):
                yield batch

    def _cursor(self, after: int) -> Cursor:
        return Cursor(self._calls.table, check_seq("after", after), schemas=self._calls.schemas)
