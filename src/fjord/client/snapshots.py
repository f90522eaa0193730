"""Snapshots: tables as they were at one moment; the blocking shell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, TypeVar, overload

from fjord import commands
from fjord.client.address import shown_at
from fjord.client.calls import Call, Result, Run, follow
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


class Snapshot:
    """Key/value tables and streams as they were when it was opened, whatever is written since."""

    def __init__(
        self,
        run: Run,
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

    def kv(self, table: str = commands.DEFAULT_TABLE) -> SnapshotKv:
        """Returns a key/value table to read; values with persist=False are not in it."""
        return SnapshotKv(self._read, KvCalls(table, self._stamps))

    def stream(self, table: str) -> SnapshotStream:
        """Returns a stream to read."""
        schemas = self._schemas_of(table, decode_settings)

        def look(call: Call[Result]) -> Result:
            return follow(self._read, schemas.reading(call))

        return SnapshotStream(look, KvCalls(table, self._stamps, schemas), schemas)

    def _read(self, call: Call[Result]) -> Result:
        return self._run(as_of(self.seq, call))


class SnapshotEntries:
    """Keys and values of a table, as of a snapshot."""

    def __init__(self, run: Run, calls: KvCalls) -> None:
        self._run = run
        self._calls = calls

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._calls.table!r}>"

    @overload
    def get(self, key: Key) -> Any: ...
    @overload
    def get(self, key: Key, default: Default) -> Any | Default: ...
    def get(self, key: Key, default: object = None) -> object:
        """Returns the value of a key, or `default` if there was none."""
        return self._run(self._calls.get_many([key])).get(key, default)

    def get_many(self, keys: Iterable[AnyKey]) -> dict[AnyKey, Any]:
        """Returns the values of those keys that had one."""
        return self._run(self._calls.get_many(keys))

    def exists(self, key: Key) -> bool:
        """Says whether a key had a value, without fetching it."""
        return self._run(self._calls.exists(key))

    @overload
    def items(self) -> Iterator[tuple[str, Any]]: ...
    @overload
    def items(self, prefix: AnyKey) -> Iterator[tuple[AnyKey, Any]]: ...
    def items(self, prefix: Key = "") -> Iterator[tuple[Key, Any]]:
        """Yields keys that begin with `prefix`, in order, and their values, a page at a time."""
        return self._walk(self._calls.items(Span(prefix=prefix)))

    @overload
    def keys(self) -> Iterator[str]: ...
    @overload
    def keys(self, prefix: AnyKey) -> Iterator[AnyKey]: ...
    def keys(self, prefix: Key = "") -> Iterator[Key]:
        """Yields keys that begin with `prefix`, in order, without their values."""
        return self._walk(self._calls.keys(Span(prefix=prefix)))

    def __contains__(self, key: Key) -> bool:
        return self.exists(key)

    def __getitem__(self, key: Key) -> Any:
        return self.get_many([key])[key]

    def _walk(self, walk: Walk[Row]) -> Iterator[Row]:
        while (call := walk.next_call()) is not None:
            yield from self._run(call)


class SnapshotKv(SnapshotEntries):
    """A key/value table as of a snapshot; like `fjord.Kv`, for reading."""

    def entry(self, key: Key) -> Entry | None:
        """Returns the value of `key` with its type and dates, None if there was none."""
        return self._run(self._calls.entry(key))

    def range(
        self, start: AnyKey, stop: AnyKey | None = None, *, limit: int | None = None
    ) -> Iterator[tuple[AnyKey, Value]]:
        """Yields keys and values from `start` up to before `stop`, a page at a time."""
        return self._walk(self._calls.items(Span(start=start, stop=stop, limit=limit)))

    def match(self, pattern: AnyKey, *, limit: int | None = None) -> Iterator[tuple[AnyKey, Value]]:
        """Yields keys in which a regular expression (RE2) is found, and their values."""
        return self._walk(self._calls.items(Span(match=pattern, limit=limit)))

    def entries(self, span: Span[AnyKey]) -> Iterator[tuple[AnyKey, Entry]]:
        """Yields keys and entries of a span: bounds, prefix, regular expression and limit."""
        return self._walk(self._calls.entries(span))


class SnapshotStream(SnapshotEntries):
    """A stream as of a snapshot; its keys and values are there in mode latest."""

    def __init__(self, run: Run, calls: KvCalls, schemas: Schemas) -> None:
        super().__init__(run, calls)
        self._schemas = schemas

    def read(self, n: int = COUNT, *, after: int = 0) -> MessageBatch:
        """Returns messages behind a seq, at most `n`; perhaps none."""
        return follow(self._run, read_on(self._cursor(after), n, None))

    def batches(self, n: int = COUNT, *, after: int = 0) -> Iterator[MessageBatch]:
        """Yields all messages behind a seq, at most `n` at a time."""
        cursor, is_over = self._cursor(after), False
        while not is_over:
            batch = follow(self._run, read_on(cursor, n, None))
            is_over = batch.end_of_snapshot
            if len(batch):
                yield batch

    def _cursor(self, after: int) -> Cursor:
        return Cursor(self._calls.table, check_seq("after", after), schemas=self._schemas)
