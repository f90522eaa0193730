"""The asyncio shell of a database: like `fjord.Database`, with every call awaited."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from fjord import commands, limits
from fjord.client import (
    declared_tables,
    node_calls,
    scan_calls,
    schemas,
    snapshot_calls,
    span_calls,
    stream_calls,
)
from fjord.client.address import shown_at
from fjord.client.async_connection import AsyncConnection
from fjord.client.async_jobs import AsyncJobs
from fjord.client.async_kv import AsyncKv
from fjord.client.async_listening import AsyncChanges
from fjord.client.async_snapshots import AsyncSnapshot
from fjord.client.async_staging import AsyncStaging
from fjord.client.async_streams import AsyncStream
from fjord.client.calls import Call, Result, follow_async
from fjord.client.declared_tables import Made
from fjord.client.entries import Key, Seconds
from fjord.client.job_calls import JobCalls
from fjord.client.job_settings import JobSettings
from fjord.client.kv_calls import KvCalls
from fjord.client.listening import Told
from fjord.client.node_calls import TableInfo
from fjord.client.scan_calls import Kinds, Piece, ScanWalk, scan_of
from fjord.client.span_calls import SpanBounds, SpanInfo
from fjord.client.staging import StagingCalls
from fjord.client.stream_calls import BlockInfo, StreamCalls
from fjord.client.stream_settings import StreamSettings
from fjord.client.transaction import Transaction
from fjord.clock import Stamps, SystemClock
from fjord.commands import Changed, Scanned
from fjord.errors import UnavailableError


async def connect(url: str, *, timeout: float = limits.REPLY_SECONDS_MAX) -> AsyncDatabase:
    """Connects to a daemon, for example at `fjord://127.0.0.1:17994`.

    A connection that breaks is made again, and what can be sent again is, exactly once in effect.

    Args:
        url: the daemon's address.
        timeout: how many seconds a call may take, with all its tries.

    Raises:
        UnavailableError: if nobody answers there.
    """
    connection = AsyncConnection(url, timeout=timeout)
    await connection.open()
    return AsyncDatabase(connection)


class AsyncDatabase:
    """What `fjord.aio.connect` returns; each method is that of `fjord.Database`, awaited."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._clock = SystemClock()
        self._stamps = Stamps(self._clock)
        self._schemas_of = schemas.shared()

    def __repr__(self) -> str:
        return f"<AsyncDatabase{shown_at(self._connection.name)}>"

    def kv(self, table: str = commands.DEFAULT_TABLE) -> AsyncKv:
        """Returns a key/value table; it comes into being with its first write."""
        calls = KvCalls(table, self._stamps)
        return AsyncKv(self._run, calls, self._listen, name=self._connection.name)

    def jobs(self, table: str, **settings: Unpack[JobSettings]) -> AsyncJobs:
        """Returns a jobs table; it comes into being with its first job."""
        calls = JobCalls(table, self._stamps, self._schemas_of)
        name = self._connection.name
        return AsyncJobs(self._run, calls, self._listen, name=name, settings=settings)

    async def create_jobs(
        self, table: str, *, change: bool = False, **settings: Unpack[JobSettings]
    ) -> AsyncJobs:
        await self._run(JobCalls(table, self._stamps).create(settings, change=change))
        return self.jobs(table)

    def stream(self, table: str, **settings: Unpack[StreamSettings]) -> AsyncStream:
        """Returns a stream; it comes into being with its first message."""
        calls = StreamCalls(table, self._schemas_of)
        return AsyncStream(
            self._run,
            calls,
            KvCalls(table, self._stamps, calls.schemas),
            name=self._connection.name,
            settings=settings,
        )

    async def create_stream(self, table: str, **settings: Unpack[StreamSettings]) -> AsyncStream:
        await self._run(StreamCalls(table).create(settings))
        return self.stream(table)

    async def create_tables(
        self, tables: declared_tables.Tables, *, change: bool = False, dry_run: bool = False
    ) -> list[Made]:
        steps = declared_tables.steps(tables, change=change, dry_run=dry_run)
        return await follow_async(self._run, steps)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Gathers the writes of an `async with` block; they are not awaited, only its end is."""
        name = self._connection.name
        gathered = Transaction(self._stamps, name=name, schemas_of=self._schemas_of)
        try:
            yield gathered
            gathered.results = await follow_async(self._run, gathered.steps())
        except BaseException:
            gathered.fail()
            raise

    @contextlib.asynccontextmanager
    async def snapshot(self, *, lifetime: Seconds | None = None) -> AsyncIterator[AsyncSnapshot]:
        """Shows streams and key/value tables as they are now to an `async with` block."""
        opened = await self._run(snapshot_calls.open_call(lifetime))
        try:
            name, schemas_of = self._connection.name, self._schemas_of
            yield AsyncSnapshot(self._run, opened, self._stamps, name=name, schemas_of=schemas_of)
        except UnavailableError:
            raise  # it is closed when its time is over
        except BaseException:
            await self._run(snapshot_calls.close_call(opened.snapshot))
            raise
        await self._run(snapshot_calls.close_call(opened.snapshot))

    async def tables(self) -> list[TableInfo]:
        return await self._run(node_calls.tables_call())

    async def table(self, name: str) -> TableInfo:
        return await self._run(node_calls.table_call(name))

    async def drop(self, name: str) -> None:
        await self._run(node_calls.drop_call(name))

    async def stats(self) -> dict[str, int]:
        return await self._run(node_calls.stats_call())

    async def ping(self) -> float:
        begun_us = self._clock.monotonic_us()
        await self._run(node_calls.ping_call())
        return (self._clock.monotonic_us() - begun_us) / 1_000_000

    # -- history ----------------------------------------------------------------------------------

    def scan(
        self,
        table: str,
        start_seq: int = 1,
        end_seq: int = 0,
        *,
        ops: Kinds | None = None,
        key_prefix: Key = "",
    ) -> AsyncIterator[Scanned]:
        """Yields the durable ops of a table, in order, in bounded pieces."""
        scan = scan_of(table, start_seq, end_seq, ops=ops, key_prefix=key_prefix)
        return self._pieces(scan_calls.stored(scan))

    async def scan_arrow(
        self,
        table: str,
        start_seq: int = 1,
        end_seq: int = 0,
        *,
        columns: Sequence[str] = (),
        ops: Kinds | None = None,
        key_prefix: Key = "",
    ) -> AsyncIterator[Any]:
        """Yields the durable history of a table as pyarrow tables, in bounded pieces."""
        scan = scan_of(table, start_seq, end_seq, ops=ops, key_prefix=key_prefix)
        walk = scan_calls.as_arrow(scan, columns, is_remote=True)
        async for found in self._pieces(walk):
            if found.num_rows:
                yield found

    async def _pieces(self, walk: ScanWalk[Piece]) -> AsyncIterator[Piece]:
        while (call := walk.next_call()) is not None:
            yield await self._run(call)

    async def span(self, table: str, after: int = 0, **bounds: Unpack[SpanBounds]) -> SpanInfo:
        """Returns where a batch of a table's history ends that begins behind a seq."""
        command = span_calls.span_of(table, after, **bounds)
        return await follow_async(self._run, span_calls.spanned(command))

    def staging(self, table: str) -> AsyncStaging:
        """Returns what stages rows of a table, and commits them exactly once."""
        return AsyncStaging(self._run, StagingCalls(table))

    async def blocks(self, table: str) -> list[BlockInfo]:
        return await follow_async(self._run, stream_calls.blocks(table))

    async def seal(self, table: str = "") -> None:
        await self._run(stream_calls.seal_call(table))

    async def replace_blocks(self, table: str, names: Sequence[str], new: BlockInfo) -> None:
        """Puts one cold block in the place of some that follow each other."""
        await self._run(stream_calls.replace_call(table, names, new))

    async def run(self, call: Call[Result]) -> Result:
        """Runs a call that was built elsewhere, for what the tables here do not offer."""
        return await self._run(call)

    async def close(self) -> None:
        self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _run(self, call: Call[Result]) -> Result:
        return call.result(await self._connection.execute(call.command))

    def _listen(
        self, command: commands.Listen | commands.ListenJobs, read: Callable[[Changed], Told]
    ) -> AsyncChanges[Told]:
        return AsyncChanges(self._connection.address, self._connection.name, command, read)
