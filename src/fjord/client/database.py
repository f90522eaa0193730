"""A database: a name space of tables over something that executes commands."""

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

    A connection that breaks is made again, and what can be sent again is, exactly once in effect.

    Args:
        url: the daemon's address.
        timeout: how many seconds a call may take, with all its tries.

    Raises:
        UnavailableError: if nobody answers there.
    """
    connection = AsyncConnection(url, timeout=timeout)
    await connection.open()
    return AsyncDatabase(connection, name=connection.name, is_remote=True)


class AsyncDatabase:
    """What `fjord.aio.connect` returns."""

    def __init__(self, executor: AsyncExecutor, *, name: str = "", is_remote: bool = False) -> None:
        self._executor = executor
        self.runner = AsyncRunner(executor, name)  # for calls that are built elsewhere, too
        self._run, self._follow = self.runner.run, self.runner.follow
        self._is_remote = is_remote  # a server, which answers scans in Arrow too
        self._clock = SystemClock()
        self._stamps = Stamps(self._clock)
        self._schemas_of = schemas.shared()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}{shown_at(self.runner.name)}>"

    def kv(self, table: str = commands.DEFAULT_TABLE) -> AsyncKv:
        """Returns a key/value table; it comes into being with its first write."""
        return AsyncKv(self.runner, KvCalls(table, self._stamps))

    def jobs(self, table: str, **settings: Unpack[JobSettings]) -> AsyncJobs:
        """Returns a jobs table; it comes into being with its first job.

        Settings that are given here are declared before jobs are first pushed or taken.  If the
        table is there, they must be those that it has; which others it has does not matter.
        Otherwise the first push or take raises an ExistsError that says what differs.

        Args:
            table: its name.
            settings:
                merge: False: a plain queue, in which keys need not differ, nor be there.
                fairness: "domain" hands out jobs of one domain after the other.
                lease: seconds that a worker may take, unless it says otherwise; 3600.
                timeouts_max: a job that fails or times out more often is dead; 5.
                debounce: pushing a job again moves it at most so many seconds beyond the moment
                    at which it was first pushed; 3600.
                history: False: what happened to jobs does not go to cold blocks.

        Raises:
            ValueError: if a setting cannot be meant.
        """
        calls = JobCalls(table, self._stamps, self._schemas_of)
        return AsyncJobs(self.runner, calls, settings)

    async def create_jobs(
        self, table: str, *, change: bool = False, **settings: Unpack[JobSettings]
    ) -> AsyncJobs:
        """Makes a jobs table, and returns it; one that is there, and is the same, is no error.

        Args:
            table: its name.
            change: True: one that is there, with a period, gets these settings and columns with
                a new generation, which begins now; jobs that wait keep the columns they have.
            settings: those of `jobs`.

        Raises:
            ExistsError: if it is there with other settings.
        """
        await self._run(JobCalls(table, self._stamps).create(settings, change=change))
        return self.jobs(table)

    def stream(self, table: str, **settings: Unpack[StreamSettings]) -> AsyncStream:
        """Returns a stream; it comes into being with its first message.

        Settings that are given here are declared before messages are first appended or read.  If
        the stream is there, they must be those that it has; which others it has does not matter.
        Otherwise the first append or read raises an ExistsError that says what differs.

        Args:
            table: its name.
            settings:
                mode: "log" keeps every message, "latest" the newest of each key; "log".
                history: whether what leaves the journal goes to cold blocks; a log always has
                    them.
                block_rows: a block is written when there are so many messages; 1,000,000.
                block_age: or when the oldest message has waited so many seconds; a day.
                retention: seconds after which messages go, a block at a time; never.
                retention_bytes: the oldest blocks go when all have more bytes; never.

        Raises:
            ValueError: if a setting cannot be meant.
            RefusedError: if this is no name of a table.
        """
        calls = StreamCalls(table, self._schemas_of)
        entries = KvCalls(table, self._stamps, calls.schemas)
        return AsyncStream(self.runner, calls, entries, settings)

    async def create_stream(self, table: str, **settings: Unpack[StreamSettings]) -> AsyncStream:
        """Makes a stream, and returns it; one that is there, and is the same, is no error.

        Raises:
            ExistsError: if it is there with other settings.
        """
        await self._run(StreamCalls(table).create(settings))
        return self.stream(table)

    async def create_tables(
        self, tables: declared_tables.Tables, *, change: bool = False, dry_run: bool = False
    ) -> list[Made]:
        """Makes the tables that a file declares; those that are there, and the same, stay.

        All are checked first, so none is made if one is wrong.

        Args:
            tables: a file of XML, see docs/declarations.md; or declarations.
            change: a jobs table that is there, has a period and differs begins a generation with
                what is declared.
            dry_run: makes nothing, and says what would be.

        Raises:
            DeclarationError: if something is wrong; the text says all of it, and where.
            ExistsError: if a table is there and differs; the text says in what.
        """
        steps = declared_tables.steps(tables, change=change, dry_run=dry_run)
        return await self._follow(steps)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Gathers the writes of an `async with` block, and does all of them or none at its end.

        An exception inside the block ends it, and nothing is sent.

        Raises:
            RefusedError: if any of the writes is refused; none is done then.
        """
        gathered = Transaction(self._stamps, name=self.runner.name, schemas_of=self._schemas_of)
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
            lifetime: seconds after which it is closed by itself; at most 900, which is usual.

        Raises:
            RefusedError: if too many are open (QUOTA); a read, if its time is over
                (SNAPSHOT_GONE).
        """
        opened = await self._run(snapshots.open_call(lifetime))
        closing = Call(commands.CloseSnapshot(snapshot=opened.snapshot), done)
        try:
            runner = AsyncSnapshotRunner(self.runner, opened.snapshot)
            yield AsyncSnapshot(runner, opened, self._stamps, self._schemas_of)
        except UnavailableError:
            raise  # it is closed when its time is over
        except BaseException:
            await self._run(closing)
            raise
        await self._run(closing)

    async def tables(self) -> list[TableInfo]:
        """Returns the tables that there are, by name."""
        return await self._run(declared_tables.tables_call())

    async def table(self, name: str) -> TableInfo:
        """Returns one table.

        Raises:
            NotFoundError: if there is no such table.
        """
        return await self._run(declared_tables.table_call(name))

    async def drop(self, name: str) -> None:
        """Takes a table away with all that is in it.

        Raises:
            NotFoundError: if there is no such table.
        """
        await self._run(Call(commands.DropTable(name=name), done))

    async def stats(self) -> dict[str, int]:
        """Returns the numbers by which a node is watched."""
        return await self._run(stats_call())

    async def ping(self) -> float:
        """Asks for an answer; returns how many seconds it took."""
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

        The end is fixed when the scan begins: `end_seq`, or everything that is durable then.
        It reads the journal.  Where that no longer goes back to `start_seq`, since the rest is in
        cold blocks, it is refused.

        Args:
            table: its name.
            start_seq: the first seq that counts.
            end_seq: the first one that no longer counts; 0: everything that is durable.
            ops: only ops of these kinds, such as ["STREAM_APPEND"]; see `fjord.ops`.
            key_prefix: leaves out ops of which no row has a key that begins so.

        Raises:
            NotFoundError: if there is no such table.
            RefusedError: if what it begins with is in cold blocks only; the text says where to
                begin.
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

        They have the columns of docs/spark.md; pieces without a row are left out.  Like `scan` it
        reads the journal, and is refused where that no longer goes back to `start_seq`.

        Args:
            table: its name.
            start_seq: the first seq that counts.
            end_seq: the first one that no longer counts; 0: everything that is durable.
            columns: only these, in this order; all unless given.
            ops: only rows of ops of these kinds.
            key_prefix: only rows whose keys begin so.

        Raises:
            NotFoundError: if there is no such table.
            RefusedError: if what it begins with is in cold blocks only.
            FjordError: if pyarrow is not installed.
        """
        scan = scan_of(table, start_seq, end_seq, ops=ops, key_prefix=key_prefix)
        walk = history.as_arrow(scan, columns, is_remote=self._is_remote)
        return (found async for found in self._pieces(walk) if found.num_rows)

    async def _pieces(self, walk: ScanWalk[Piece]) -> AsyncIterator[Piece]:
        while (call := walk.next_call()) is not None:
            yield await self._run(call)

    async def span(self, table: str, after: int = 0, **bounds: Unpack[SpanBounds]) -> SpanInfo:
        """Returns where a batch of a table's history ends that begins behind a seq.

        A batch ends where a commit ends, so that none is cut in two; `scan` and `scan_arrow` then
        read it.  Like them it looks at the journal.

        Args:
            table: its name.
            after: the seq behind which the batch begins; 0: the beginning.
            bounds:
                until: the last seq that counts; 0: everything that is durable.
                rows_max: commits are taken while they fit, the first one in any case; 0: all.
                bytes_max: the same for bytes of ops as they are stored.
                before: only commits that were written before this moment.
                epoch: what the span said that ended at `after`.

        Raises:
            NotFoundError: if there is no such table.
            RefusedError: with BAD_RANGE, if what it begins with is no longer in the journal; with
                FORKED, if the journal is not the one any more that was read up to `after`.
        """
        command = history.span_of(table, after, **bounds)
        return await self._follow(history.spanned(command))

    def staging(self, table: str) -> AsyncStaging:
        """Returns what stages rows of a table, and commits them exactly once."""
        return AsyncStaging(self.runner, table)

    async def blocks(self, table: str) -> list[BlockInfo]:
        """Returns the cold blocks that the history of a table is in, in order.

        Raises:
            NotFoundError: if there is no such table.
        """
        return await self._follow(history.blocks(table))

    async def seal(self, table: str = "") -> None:
        """Writes what is durable to cold blocks now: of one table, or of all that have history."""
        await self._run(Call(commands.SealNow(table=table), done))

    async def replace_blocks(self, table: str, names: Sequence[str], new: BlockInfo) -> None:
        """Puts one cold block in the place of some that follow each other.

        Whoever has written the new one, with all rows of the old ones, calls this.  Their files
        go an hour later.  Asking again for what is done is no error.

        Args:
            table: its name.
            names: of the old ones, in order.
            new: the new one; it covers the seqs from the first to the last of the old ones.

        Raises:
            NotFoundError: if there is no such table.
            RefusedError: with BAD_RANGE, if these are not the blocks that there are, or the new
                one does not fit.
        """
        await self._run(history.replace_call(table, names, new))

    async def close(self) -> None:
        self._executor.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
