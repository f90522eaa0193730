"""`fjord pipeline ingest`: the history of a table into a warehouse, exactly once.

    fjord (stream)  ->  micro-batch  ->  files, in a new folder  ->  one commit in the target
                                                                      (query id, batch id, end)

Spark runs a batch again if it does not know that it succeeded.  The target knows: the id of the
query and the number of the batch are in the commit that adds the files.  Such a batch is skipped
without being read.

The commit also has the end of the target.  A query without a checkpoint, new or lost, begins after
that.  A query with an old checkpoint is refused, and so is a second query.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from fjord.blocks import schema
from fjord.blocks.files import target_at
from fjord.clock import Clock, SystemClock
from fjord.errors import Code, FjordError, RefusedError, UsageError
from fjord.spark import options as source_options
from fjord.spark import warehouse
from fjord.spark.extent import extent_of
from fjord.spark.options import Location
from fjord.spark.pipelines import report
from fjord.spark.pipelines.report import Progress, Report, silent
from fjord.spark.progress import Offset, decode
from fjord.spark.warehouse import DataFile, QueryBatch, Warehouse

MAX_ROWS: Final = 1_000_000
CHECKPOINT: Final = "_checkpoint"


def ingest(  # noqa: PLR0913 - options of a user
    spark: SparkSession,
    location: Location,
    table: str,
    target: str,
    *,
    format: str = "parquet",  # noqa: A002 - as Spark calls it
    checkpoint: str | None = None,
    max_rows: int = MAX_ROWS,
    subscriber: str | None = None,
    available_now: bool = True,
    every: str = "1 minute",
    columns: Sequence[str] = (),
    ops: Sequence[str] = (),
    progress: Progress = silent,
) -> Report:
    """Adds the rows of a table's history to the target that it lacks.

    Args:
        format: "parquet" or "delta".
        checkpoint: where Spark remembers how far it is; `_checkpoint` in the target.
        max_rows: of a micro-batch; a commit is never split.
        subscriber: its mark shows the progress of the target; for streams only.
        available_now: ends when everything that exists now is in the target; otherwise runs until
            it is interrupted, and looks for more in intervals of `every`.
        columns: only these; `seq` is always there.
        ops: only rows with one of these in the column `op`.

    Raises:
        FjordError: if it fails; earlier commits stay.
    """
    if format not in ("parquet", "delta"):
        raise UsageError(f"the format is parquet or delta, not {format!r}")
    if max_rows < 1:
        raise UsageError(f"max_rows is 1 or more, not {max_rows}")
    report.kind_of(location, table)  # before Spark starts a query that fails at length
    stored = warehouse.warehouse_at(target, format)
    source_options.check_columns(columns)  # declared ones are made of values when they are read
    taken = Taken.of(columns, ops)
    taken.check(stored)
    remembered = Checkpoint(checkpoint or stored.target.shown(CHECKPOINT))
    origin = _origin(location, table, stored, remembered)
    options = {
        **location.options,
        "table": table,
        "startingOffsets": str(origin) if origin > 1 else "earliest",
        "maxRowsPerTrigger": str(max_rows),
        **({"subscriber": subscriber} if subscriber else {}),
        "columns": taken.columns or "plain",
        **({"ops": taken.ops} if ops else {}),
    }
    with report.explained():
        stream = spark.readStream.format("fjord").options(**options).load()
    sink = Sink(
        stored=stored,
        remembered=remembered,
        table=table,
        origin=origin,
        taken=taken,
        files_max=warehouse.file_count(max_rows, spark.sparkContext.defaultParallelism),
        progress=progress,
    )
    trigger: dict[str, Any] = {"availableNow": True} if available_now else {"processingTime": every}
    return run(stream, sink, trigger)


def run(stream: DataFrame, sink: Sink, trigger: dict[str, Any]) -> Report:
    """Runs a query into a sink until it ends; returns the report.

    Raises:
        FjordError: if it fails.
    """
    clock = SystemClock()
    begun_us = clock.monotonic_us()
    writer = stream.writeStream.option("checkpointLocation", sink.remembered.location)
    with report.explained():
        query = writer.trigger(**trigger).foreachBatch(sink).start()
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        pass  # that is how one that goes on for ever ends; a batch under way comes again
    except StreamingQueryException as error:
        raise sink.failure or FjordError(report.cause(str(error))) from error
    finally:
        query.stop()
    return _report(sink, query, (clock.monotonic_us() - begun_us) / 1e6)


class Taken(NamedTuple):
    """The columns and ops that a target has, according to its commits; empty: all."""

    columns: str = ""
    ops: str = ""

    @classmethod
    def of(cls, columns: Sequence[str], ops: Sequence[str]) -> Taken:
        """Returns the same text for the same choice, in whatever order it is given."""
        meant = {"seq", *columns} if columns else set()
        known = [name for name in schema.COLUMNS if name in meant]
        return cls(",".join(known), ",".join(sorted({one.upper() for one in ops})))

    def check(self, stored: Warehouse) -> None:
        """Ensures that a target has the same columns and ops of earlier rows.

        Raises:
            FjordError: if it has not: readers could not know what is missing where.
        """
        state = stored.state()
        if not state.number or (state.columns, state.ops) == self:
            return
        raise FjordError(
            f"{stored.target.location} has {state.columns or 'all columns'} of rows with "
            f"{state.ops or 'all ops'}, not {self.columns or 'all columns'} of rows with "
            f"{self.ops or 'all ops'}; ask for the same again, or give another folder"
        )


class Checkpoint:
    """Spark's checkpoint of a query: its id, and where its batches end."""

    def __init__(self, location: str) -> None:
        self._target = target_at(location)
        self.location = self._target.location

    def query(self) -> str:
        """Returns the id of the query, nothing if it has none yet."""
        try:
            return str(json.loads(self._target.read("metadata"))["id"])
        except FileNotFoundError:
            return ""

    def end(self, batch: int) -> Offset | None:
        """Returns where a batch ends; None if Spark has written that in an unknown form."""
        try:
            lines = self._target.read(f"offsets/{batch}").decode().splitlines()
        except FileNotFoundError:
            return None
        return decode(lines[2]) if lines[0] == "v1" and len(lines) == 3 else None


@dataclass(slots=True, kw_only=True)
class Sink:
    """Writes the micro-batches of a query to a warehouse, and keeps count."""

    stored: Warehouse
    remembered: Checkpoint
    table: str
    origin: int  # the first seq that the query reads
    files_max: int
    taken: Taken = field(default_factory=Taken)
    progress: Progress = silent
    clock: Clock = field(default_factory=SystemClock)
    failure: FjordError | None = None
    batches: int = 0
    passed_over: int = 0  # batches that the target had already
    rows: int = 0
    bytes: int = 0
    files: int = 0
    first_seq: int | None = None
    last_seq: int | None = None
    commits: list[tuple[int, int]] = field(default_factory=list)  # first and last: when, and rows

    def __call__(self, frame: DataFrame, number: int) -> None:
        try:
            self._write(frame, number)
        except FjordError as error:
            self.failure = error  # Spark makes a long text of it
            raise

    def steady_rate(self) -> int | None:
        """Returns the rows per second after the first batch; None if there was no other."""
        if len(self.commits) < 2:
            return None
        (begun_us, before), (ended_us, rows) = self.commits
        return round((rows - before) * 1e6 / max(1, ended_us - begun_us))

    def _write(self, frame: DataFrame, number: int) -> None:
        query = self.remembered.query()
        if self.stored.has(query, number):
            self._check_replayed(number)
            self.passed_over += 1
            return
        files = warehouse.write(frame, self.stored.target, number, files_max=self.files_max)
        if not self.stored.add(self._batch(query, number, files), files):
            self.passed_over += 1
            return
        self._count(files)
        self.progress(f"ingesting {self.table}", self.rows, None)

    def _check_replayed(self, number: int) -> None:
        """Ensures that all of a batch whose number is in the target is there.

        Spark runs a batch again with the very same rows, as long as it has its own log.  With an
        older copy of the log it continues from there, and gives the same numbers to other rows.
        """
        end, there = self.remembered.end(number), self.stored.state().end
        if end is not None and end.seq > there:
            raise FjordError(
                f"batch {number} is in {self.stored.target.location}, which ends at seq {there}, "
                f"and now goes up to {end.seq}: the checkpoint {self.remembered.location} is older "
                "than the target. Remove it: the query then goes on where the target ends"
            )

    def _batch(self, query: str, number: int, files: Sequence[DataFile]) -> QueryBatch:
        """Returns the range of a batch: as Spark has planned it, or else from its rows."""
        min_seq = min((one.min_seq for one in files), default=None)
        max_seq = max((one.max_seq for one in files), default=None)
        before, end = self.remembered.end(number - 1), self.remembered.end(number)
        start = before.seq + 1 if before else self.origin if number == 0 else min_seq
        start = self.stored.state().end + 1 if start is None else start
        last = end.seq if end else start - 1 if max_seq is None else max_seq
        if (min_seq or start) < start or (max_seq or last) > last:
            raise FjordError(
                f"batch {number} has rows from {min_seq} to {max_seq}, and should have those from "
                f"{start} to {last}; nothing was committed"
            )
        return QueryBatch(
            query=query,
            number=number,
            table=self.table,
            start=start,
            end=last,
            epoch=end.epoch if end else "",
            **self.taken._asdict(),
        )

    def _count(self, files: Sequence[DataFile]) -> None:
        self.batches += 1
        self.files += len(files)
        self.rows += sum(one.rows for one in files)
        self.commits[1:] = [(self.clock.monotonic_us(), self.rows)]
        self.bytes += sum(one.bytes for one in files)
        if files:
            if self.first_seq is None:
                self.first_seq = min(one.min_seq for one in files)
            self.last_seq = max(one.max_seq for one in files)


def _origin(location: Location, table: str, stored: Warehouse, remembered: Checkpoint) -> int:
    """Returns the first seq to read for a query that has not read anything yet.

    It is the same for all runs of a query: Spark asks again until the first batch is in its log.

    Raises:
        FjordError: if the target is of another table, or of another history.
    """
    query = remembered.query()
    known = stored.query(query) if query else None
    if known is not None:
        return known.start
    state = stored.state()
    warehouse.check_table(stored.target.location, state.table, table)
    if state.end:
        _check_same_history(location, table, state.end, state.epoch)
    return state.end + 1


def _check_same_history(location: Location, table: str, end: int, epoch: str) -> None:
    with extent_of(location, table) as extent:
        try:
            durable = extent.database.stats()["applied_seq"]
            extent.epoch_of(end, known=epoch)
            reason = f"it ends at seq {durable}" if durable < end else ""
        except RefusedError as error:
            if error.code != Code.FORKED:
                raise
            reason = error.text
    if reason:
        raise FjordError(
            f"the target is filled up to seq {end} of another history than that of {location}: "
            f"{reason}. Give another folder for this one"
        )


def _report(sink: Sink, query: StreamingQuery, seconds: float) -> Report:
    return Report(
        job="ingest",
        figures={
            "table": sink.table,
            "target": sink.stored.target.location,
            "rows": sink.rows,
            "batches": sink.batches,
            "batches_passed_over": sink.passed_over,
            "files": sink.files,
            "bytes": sink.bytes,
            "first_seq": sink.first_seq,
            "last_seq": sink.last_seq,
            "lag_seqs": _lag(query),
            "seconds": round(seconds, 3),
            "rows_per_second": round(sink.rows / seconds) if seconds else 0,
            "steady_rows_per_second": sink.steady_rate(),
        },
    )


def _lag(query: StreamingQuery) -> int | None:
    """Returns how many seqs the source had after the last batch; None if unknown."""
    progress = query.lastProgress
    if progress is None or len(progress.sources) != 1:
        return None
    source = progress.sources[0]
    try:
        end, latest = decode(source.endOffset), decode(source.latestOffset)
    except FjordError:
        return None
    return max(0, latest.seq - end.seq)
