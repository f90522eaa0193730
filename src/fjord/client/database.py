"""A database: the tables of a daemon or a directory."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Self, Unpack

from fjord import commands, limits
from fjord.client import declared_tables, history, schemas, snapshots
from fjord.client.address import shown_at
from fjord.client.async_connection import AsyncConnection
from fjord.client.async_listening import AsyncExecutor
from fjord.client.calls import Call, done, stats_call
from fjord.client.declared_tables import JobSettings, Made, StreamSettings, TableInfo
from fjord.client.entries import Key, Seconds
from fjord.client.history import BlockInfo, Kinds, Piece, ScanWalk, SpanBounds, SpanInfo, scan_of
from fjord.client.jobs.calls import JobCalls
from fjord.client.jobs.table import AsyncJobs
from fjord.client.kv import AsyncKv, KvCalls
from fjord.client.runner import AsyncRunner, AsyncSnapshotRunner
from fjord.client.snapshots import AsyncSnapshot
from fjord.client.staging import AsyncStaging
from fjord.client.streams import AsyncStream, StreamCalls
from fjord.client.transaction import Transaction
from fjord.clock import Stamps, SystemClock
from fjord.commands import Scanned
from fjord.errors import UnavailableError


async def connect(url: str, *, timeout: float = limits.REPLY_SECONDS_MAX) -> AsyncDatabase:
    """Connects to a daemon, for example at `fjord://127.0.0.1:17994`.

    It reconnects when a connection breaks, and retries what it can, with exactly-once effect.

    Args:
        url: the daemon's address.
        timeout: how many seconds a call may take, including retries.

    Raises:
        UnavailableError: if there is no answer.
    """
    connection = AsyncConnection(url, timeout=timeout)
    await connection.open()
    return AsyncDatabase(connection, name=connection.name, is_remote=True)


class AsyncDatabase:
    """The tables of a daemon; `fjord.aio.connect` returns it."""

    def __init__(self, executor: AsyncExecutor, *, name: str = "", is_remote: bool = False) -> None:
        self._executor = executor
        self._runner = AsyncRunner(executor, name)
        self._run, self._follow = self._runner.run, self._runner.follow
        self._is_remote = is_remote  # a server, which can answer scans in Arrow
        self._clock = SystemClock()
        self._stamps = Stamps(self._clock)
        self._schemas_of = schemas.shared()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}{shown_at(self._runner.name)}>"

    def kv(self, table: str = commands.DEFAULT_TABLE) -> AsyncKv:
        """Returns a key/value table; its first write creates it."""
        return AsyncKv(self._runner, KvCalls(table, self._stamps))

    def jobs(self, table: str, **settings: Unpack[JobSettings]) -> AsyncJobs:
        """Returns a jobs table; its first job creates it.

        The given settings are declared before the first push or take.  If the table exists, they
        must match its own; settings that are not given are not compared.  If they differ, the
        first push or take raises an ExistsError with the differences.

        Args:
            table: its name.
            settings:
                merge: False makes a plain queue, in which keys may repeat or be missing.
                fairness: "domain" lets domains take turns.
                lease: default length of a lease in seconds; 3600.
                timeouts_max: a job that fails or times out more often is dead; 5.
                debounce: how many seconds past its first push further pushes can postpone a job;
                    3600.
                history: False keeps the jobs' history out of cold blocks.

        Raises:
            ValueError: if a setting is invalid.
        """
        calls = JobCalls(table, self._stamps, self._schemas_of)
        return AsyncJobs(self._runner, calls, settings)

    async def create_jobs(
        self, table: str, *, change: bool = False, **settings: Unpack[JobSettings]
    ) -> AsyncJobs:
        """Creates a jobs table and returns it; an existing one must have the same settings.

        Args:
            table: its name.
            change: True begins a new generation of an existing table with a period, with these
                settings and columns; waiting jobs keep their columns.
            settings: those of `jobs`.

        Raises:
            ExistsError: if it exists with other settings.
        """
        await self._run(JobCalls(table, self._stamps).create(settings, change=change))
        return self.jobs(table)

    def stream(self, table: str, **settings: Unpack[StreamSettings]) -> AsyncStream:
        """Returns a stream; its first message creates it.

        The given settings are declared before the first append or read.  If the stream exists,
        they must match its own; settings that are not given are not compared.  If they differ,
        the first append or read raises an ExistsError with the differences.

        Args:
            table: its name.
            settings:
                mode: "log" keeps every message, "latest" the newest of each key; "log".
                history: whether messages that leave the journal go to cold blocks; always so for
                    a log.
                block_rows: a block is written when there are this many messages; 1,000,000.
                block_age: or when the oldest message is this many seconds old; a day.
                retention: seconds after which messages are removed, a block at a time; never.
                retention_bytes: the oldest blocks are removed while all are larger; never.

        Raises:
            ValueError: if a setting is invalid.
            RefusedError: if the name is invalid.
        """
        calls = StreamCalls(table, self._schemas_of)
        entries = KvCalls(table, self._stamps, calls.schemas)
        return AsyncStream(self._runner, calls, entries, settings)

    async def create_stream(self, table: str, **settings: Unpack[StreamSettings]) -> AsyncStream:
        """Creates a stream and returns it; an existing one must have the same settings.

        Raises:
            ExistsError: if it exists with other settings.
        """
        await self._run(StreamCalls(table).create(settings))
        return self.stream(table)

    async def create_tables(
        self, tables: declared_tables.Tables, *, change: bool = False, dry_run: bool = False
    ) -> list[Made]:
        """Creates the declared tables; existing ones must match their declarations.

        All are checked first, so none is created if one is wrong.

        Args:
            tables: an XML file (see docs/declarations.md), or declarations.
            change: an existing jobs table with a period that differs begins a generation with the
                declared settings.
            dry_run: creates nothing, and returns what would be created.

        Raises:
            DeclarationError: if a declaration is wrong; the text lists every problem and place.
            ExistsError: if an existing table differs; the text has the differences.
        """
        steps = declared_tables.steps(tables, change=change, dry_run=dry_run)
        return await self._follow(steps)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Gathers the writes of an `async with` block, and applies all or none at its end.

        If the block raises, nothing is sent.

        Raises:
            RefusedError: if any write is refused; then none is applied.
        """
        gathered = Transaction(self._stamps, name=self._runner.name, schemas_of=self._schemas_of)
        try:
            yield gathered
            gathered.results = await self._follow(gathered.steps())
        except BaseException:
            gathered.fail()
            raise

    @contextlib.asynccontextmanager
    async def snapshot(self, *, lifetime: Seconds | None = None) -> AsyncIterator[AsyncSnapshot]:
        """Shows streams and key/value tables as they are now to an `async with` block.

        Args:
            lifetime: seconds after which the snapshot closes; at most 900, the default.

        Raises:
            RefusedError: if too many are open (QUOTA); from a read, if the snapshot has expired
                (SNAPSHOT_GONE).
        """
        opened = await self._run(snapshots.open_call(lifetime))
        closing = Call(commands.CloseSnapshot(snapshot=opened.snapshot), done)
        try:
            runner = AsyncSnapshotRunner(self._runner, opened.snapshot)
            yield AsyncSnapshot(runner, opened, self._stamps, self._schemas_of)
        except UnavailableError:
            raise  # it closes when it expires
        except BaseException:
            await self._run(closing)
            raise
        await self._run(closing)

    async def tables(self) -> list[TableInfo]:
        """Returns all tables, by name."""
        return await self._run(declared_tables.tables_call())

    async def table(self, name: str) -> TableInfo:
        """Returns one table.

        Raises:
            NotFoundError: if there is no such table.
        """
        return await self._run(declared_tables.table_call(name))

    async def drop(self, name: str) -> None:
        """Deletes a table with all its data.

        Raises:
            NotFoundError: if there is no such table.
        """
        await self._run(Call(commands.DropTable(name=name), done))

    async def stats(self) -> dict[str, int]:
        """Returns the node's metrics."""
        return await self._run(stats_call())

    async def ping(self) -> float:
        """Returns how many seconds a round trip takes."""
        begun_us = self._clock.monotonic_us()
        await self._run(Call(commands.Nop(), done))
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
        """Yields the durable ops of a table, in order, in bounded pieces.

        The end is fixed when the scan begins: `end_seq`, or everything durable then.  The scan
        reads the journal, and is refused if `start_seq` is already in cold blocks only.

        Args:
            table: its name.
            start_seq: the first seq.
            end_seq: the seq to stop before; 0: everything durable.
            ops: only ops of these kinds, such as ["STREAM_APPEND"]; see `fjord.ops`.
            key_prefix: leaves out ops without a row whose key begins with this.

        Raises:
            NotFoundError: if there is no such table.
            RefusedError: if its beginning is in cold blocks only; the text says where to begin.
        """
        scan = scan_of(table, start_seq, end_seq, ops=ops, key_prefix=key_prefix)
        return self._pieces(history.stored(scan))

    def scan_arrow(
        self,
        table: str,
        start_seq: int = 1,
        end_seq: int = 0,
        *,
        columns: Sequence[str] = (),
        ops: Kinds | None = None,
        key_prefix: Key = "",
    ) -> AsyncIterator[Any]:
        """Yields the durable history of a table as pyarrow tables, in bounded pieces.

        They have the columns of docs/spark.md; pieces without rows are left out.  Like `scan` it
        reads the journal, and is refused if `start_seq` is already in cold blocks only.

        Args:
            table: its name.
            start_seq: the first seq.
            end_seq: the seq to stop before; 0: everything durable.
            columns: only these, in this order; by default all.
            ops: only rows of ops of these kinds.
            key_prefix: only rows whose keys begin with this.

        Raises:
            NotFoundError: if there is no such table.
            RefusedError: if its beginning is in cold blocks only.
            FjordError: if pyarrow is not installed.
        """
        scan = scan_of(table, start_seq, end_seq, ops=ops, key_prefix=key_prefix)
        walk = history.as_arrow(scan, columns, is_remote=self._is_remote)
        return (found async for found in self._pieces(walk) if found.num_rows)

    async def _pieces(self, walk: ScanWalk[Piece]) -> AsyncIterator[Piece]:
        while (call := walk.next_call()) is not None:
            yield await self._run(call)

    async def span(self, table: str, after: int = 0, **bounds: Unpack[SpanBounds]) -> SpanInfo:
        """Returns where a batch of a table's history ends that begins after a seq.

        A batch ends where a commit ends, so that none is split; read it with `scan` or
        `scan_arrow`.  Like these it reads the journal.

        Args:
            table: its name.
            after: the seq after which the batch begins; 0: the beginning.
            bounds:
                until: the last seq; 0: everything durable.
                rows_max: commits are taken while they fit, but at least one; 0: all.
                bytes_max: the same for bytes of stored ops.
                before: only commits written before this time.
                epoch: the epoch of the span that ended at `after`.

        Raises:
            NotFoundError: if there is no such table.
            RefusedError: with BAD_RANGE, if its beginning is no longer in the journal; with
                FORKED, if this is not the journal that was read up to `after`.
        """
        command = history.span_of(table, after, **bounds)
        return await self._follow(history.spanned(command))

    def staging(self, table: str) -> AsyncStaging:
        """Returns an object that stages rows of a table and commits them exactly once."""
        return AsyncStaging(self._runner, table)

    async def blocks(self, table: str) -> list[BlockInfo]:
        """Returns the cold blocks of a table, in order.

        Raises:
            NotFoundError: if there is no such table.
        """
        return await self._follow(history.blocks(table))

    async def seal(self, table: str = "") -> None:
        """Writes all durable history of one table, or of all tables, to cold blocks now."""
        await self._run(Call(commands.SealNow(table=table), done))

    async def replace_blocks(self, table: str, names: Sequence[str], new: BlockInfo) -> None:
        """Replaces neighbouring cold blocks with one that has all their rows.

        Write the new block first.  The old files are deleted an hour later.  Repeating the call
        is no error.

        Args:
            table: its name.
            names: the old blocks, in order.
            new: the new block, which covers the same seqs.

        Raises:
            NotFoundError: if there is no such table.
            RefusedError: with BAD_RANGE, if the old blocks do not exist, or the new one does not
                fit.
        """
        await self._run(history.replace_call(table, names, new))

    async def close(self) -> None:
        self._executor.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
