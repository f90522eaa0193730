"""A database: a name space of tables over something that executes commands."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, Unpack

from fjord import commands
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
from fjord.client.calls import Call, Result, follow
from fjord.client.declared_tables import Made
from fjord.client.entries import Key, Seconds
from fjord.client.job_calls import JobCalls
from fjord.client.job_settings import JobSettings
from fjord.client.jobs import Jobs
from fjord.client.kv import Kv
from fjord.client.kv_calls import KvCalls
from fjord.client.listening import Listening
from fjord.client.node_calls import TableInfo
from fjord.client.scan_calls import Kinds, Piece, ScanWalk, scan_of
from fjord.client.snapshots import Snapshot
from fjord.client.span_calls import SpanBounds, SpanInfo
from fjord.client.staging import Staging, StagingCalls
from fjord.client.stream_calls import BlockInfo, StreamCalls
from fjord.client.stream_settings import StreamSettings
from fjord.client.streams import Stream
from fjord.client.transaction import Transaction
from fjord.clock import Stamps, SystemClock
from fjord.commands import Command, Reply, Scanned
from fjord.errors import UnavailableError


class Executor(Protocol):
    """A directory, or a connection to a daemon."""

    def execute(self, command: Command, /) -> Reply: ...

    def listen(self, command: commands.Listen | commands.ListenJobs, /) -> Listening:
        """Begins to listen.

        Raises:
            RefusedError: if that is refused.
        """
        ...

    def close(self) -> None: ...


class Database:
    """What `fjord.open` and `fjord.connect` return."""

    def __init__(self, executor: Executor, *, name: str = "", is_remote: bool = False) -> None:
        self._executor = executor
        self._name = name  # its address, or its directory
        self._is_remote = is_remote  # a server, which answers scans in Arrow too
        self._clock = SystemClock()
        self._stamps = Stamps(self._clock)
        self._schemas_of = schemas.shared()

    def __repr__(self) -> str:
        return f"<Database{shown_at(self._name)}>"

    def kv(self, table: str = commands.DEFAULT_TABLE) -> Kv:
        """Returns a key/value table; it comes into being with its first write."""
        calls = KvCalls(table, self._stamps)
        return Kv(self._run, calls, self._executor.listen, name=self._name)

    def jobs(self, table: str, **settings: Unpack[JobSettings]) -> Jobs:
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
        return Jobs(
            self._run,
            JobCalls(table, self._stamps, self._schemas_of),
            self._executor.listen,
            clock=self._clock,
            name=self._name,
            settings=settings,
        )

    def create_jobs(
        self, table: str, *, change: bool = False, **settings: Unpack[JobSettings]
    ) -> Jobs:
        """Makes a jobs table, and returns it; one that is there, and is the same, is no error.

        Args:
            table: its name.
            change: True: one that is there, with a period, gets these settings and columns with
                a new generation, which begins now; jobs that wait keep the columns they have.
            settings: those of `jobs`.

        Raises:
            ExistsError: if it is there with other settings.
        """
        self._run(JobCalls(table, self._stamps).create(settings, change=change))
        return self.jobs(table)

    def stream(self, table: str, **settings: Unpack[StreamSettings]) -> Stream:
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
        return Stream(
            self._run,
            calls,
            KvCalls(table, self._stamps, calls.schemas),
            name=self._name,
            settings=settings,
        )

    def create_stream(self, table: str, **settings: Unpack[StreamSettings]) -> Stream:
        """Makes a stream, and returns it; one that is there, and is the same, is no error.

        Raises:
            ExistsError: if it is there with other settings.
        """
        self._run(StreamCalls(table).create(settings))
        return self.stream(table)

    def create_tables(
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
        return follow(self._run, declared_tables.steps(tables, change=change, dry_run=dry_run))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Gathers the writes of a `with` block, and does all of them or none at its end.

        An exception inside the block ends it, and nothing is sent.

        Raises:
            RefusedError: if any of the writes is refused; none is done then.
        """
        gathered = Transaction(self._stamps, name=self._name, schemas_of=self._schemas_of)
        try:
            yield gathered
            gathered.results = follow(self._run, gathered.steps())
        except BaseException:
            gathered.fail()
            raise

    @contextlib.contextmanager
    def snapshot(self, *, lifetime: Seconds | None = None) -> Iterator[Snapshot]:
        """Shows streams and key/value tables as they are now to a `with` block.

        Args:
            lifetime: seconds after which it is closed by itself; at most 900, which is usual.

        Raises:
            RefusedError: if too many are open (QUOTA); a read, if its time is over
                (SNAPSHOT_GONE).
        """
        opened = self._run(snapshot_calls.open_call(lifetime))
        try:
            yield Snapshot(
                self._run, opened, self._stamps, name=self._name, schemas_of=self._schemas_of
            )
        except UnavailableError:
            raise  # it is closed when its time is over
        except BaseException:
            self._run(snapshot_calls.close_call(opened.snapshot))
            raise
        self._run(snapshot_calls.close_call(opened.snapshot))

    def tables(self) -> list[TableInfo]:
        """Returns the tables that there are, by name."""
        return self._run(node_calls.tables_call())

    def table(self, name: str) -> TableInfo:
        """Returns one table.

        Raises:
            NotFoundError: if there is no such table.
        """
        return self._run(node_calls.table_call(name))

    def drop(self, name: str) -> None:
        """Takes a table away with all that is in it.

        Raises:
            NotFoundError: if there is no such table.
        """
        self._run(node_calls.drop_call(name))

    def stats(self) -> dict[str, int]:
        """Returns the numbers by which a node is watched."""
        return self._run(node_calls.stats_call())

    def ping(self) -> float:
        """Asks for an answer; returns how many seconds it took."""
        begun_us = self._clock.monotonic_us()
        self._run(node_calls.ping_call())
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
    ) -> Iterator[Scanned]:
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
        return self._pieces(scan_calls.stored(scan))

    def scan_arrow(
        self,
        table: str,
        start_seq: int = 1,
        end_seq: int = 0,
        *,
        columns: Sequence[str] = (),
        ops: Kinds | None = None,
        key_prefix: Key = "",
    ) -> Iterator[Any]:
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
        walk = scan_calls.as_arrow(scan, columns, is_remote=self._is_remote)
        return (found for found in self._pieces(walk) if found.num_rows)

    def _pieces(self, walk: ScanWalk[Piece]) -> Iterator[Piece]:
        while (call := walk.next_call()) is not None:
            yield self._run(call)

    def span(self, table: str, after: int = 0, **bounds: Unpack[SpanBounds]) -> SpanInfo:
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
        command = span_calls.span_of(table, after, **bounds)
        return follow(self._run, span_calls.spanned(command))

    def staging(self, table: str) -> Staging:
        """Returns what stages rows of a table, and commits them exactly once."""
        return Staging(self._run, StagingCalls(table))

    def blocks(self, table: str) -> list[BlockInfo]:
        """Returns the cold blocks that the history of a table is in, in order.

        Raises:
            NotFoundError: if there is no such table.
        """
        return follow(self._run, stream_calls.blocks(table))

    def seal(self, table: str = "") -> None:
        """Writes what is durable to cold blocks now: of one table, or of all that have history."""
        self._run(stream_calls.seal_call(table))

    def replace_blocks(self, table: str, names: Sequence[str], new: BlockInfo) -> None:
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
        self._run(stream_calls.replace_call(table, names, new))

    def run(self, call: Call[Result]) -> Result:
        """Runs a call that was built elsewhere, for what the tables here do not offer.

        Raises:
            RefusedError: if it is refused; nothing was changed then.
        """
        return self._run(call)

    def close(self) -> None:
        self._executor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, call: Call[Result]) -> Result:
        return call.result(self._executor.execute(call.command))
