"""`replay`: rows of history are written again, to another table or the same, exactly once.

    history --selected, cut into batches--> sink `fjord`, with the batch's number --> target

A replay has an id, which is the name of a writer of the target.  Each batch is committed together
with its number, and a batch that was committed changes nothing, so a replay that was interrupted
goes on when it is started again, and one that is complete does nothing.  `replay_plan` has what is
kept of a replay for that, `replay_rows` how its rows are chosen and cut.

Pace: with "original" a batch is a few seconds of history and is written as long after the first
one as it was then.  Waiting ends when `stop` is set, and what is written by then stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, Unpack

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import fjord
from fjord.clock import Clock, SystemClock
from fjord.errors import FjordError, NotFoundError
from fjord.spark.history import history
from fjord.spark.options import Location
from fjord.spark.pipelines import replay_plan, report
from fjord.spark.pipelines.replay_plan import Batch, Begun, Options, Plan
from fjord.spark.pipelines.report import Figure, Progress, Report, silent

# Batches of one replay, all of which the driver knows at once; at one a second that is 11 days.
PIECES_MAX: Final = 1_000_000


def replay(
    spark: SparkSession,
    location: Location,
    table: str,
    target: str,
    *,
    progress: Progress = silent,
    **options: Unpack[Options],
) -> Report:
    """Writes rows of a table's history again, to a table of the same or another daemon.

    Args:
        spark: the session.
        location: where the history is.
        table: whose history it is.
        target: the table that is written to; it is made, of the same kind, if it is not there.
        progress: is told how far it is.
        options: see `replay_plan.Options`.

    Raises:
        FjordError: if there is no such table or range, or if the id is that of another replay.
    """
    plan = replay_plan.plan_of(location, table, target, options)
    with report.explained():
        if options.get("dry_run", False):
            return _dry_run(spark, plan)
        begun = replay_plan.begin(plan, _list_name(spark, plan.redrive))
        return _Run(spark, plan, begun, progress).report()


# -- rows -----------------------------------------------------------------------------------------


def _rows(spark: SparkSession, plan: Plan, start: int, end: int) -> DataFrame:
    """Returns the rows that are meant, of a range of seqs."""
    found = history(spark, plan.location, plan.table, start=start, end=end)
    return replay_plan.selected(found, plan.selection)


def _listed(spark: SparkSession, plan: Plan, end: int) -> DataFrame | None:
    """Returns the seqs of the rows that a list names; None: there is no list."""
    if not plan.redrive:
        return None
    whole = history(spark, plan.location, plan.table, end=end)
    return replay_plan.described_last(whole, read_list(spark, plan.redrive)).select("seq")


def read_list(spark: SparkSession, path: str) -> DataFrame:
    """Returns a list of jobs, by their column `row`.

    It is what `dead-letters` writes, the folder `redrive` or the file for `fjord jobs redrive`; or
    any Parquet, or JSON with an object a line, that has the column.

    Raises:
        FjordError: if it is none.
    """
    if path.endswith((".json", ".jsonl")):
        found = spark.read.json(path)
    elif os.path.isfile(path) and not path.endswith(".parquet"):
        row = F.regexp_extract("value", r"^--row=([0-9]{1,18})$", 1)
        found = spark.read.text(path).select(F.nullif(row, F.lit("")).alias("row"))
        if not found.where("row IS NULL").isEmpty():
            raise FjordError(f"{path} is no list of jobs: a line of it is not as --row=123")
    else:
        found = spark.read.parquet(path)
    if "row" not in found.columns:
        raise FjordError(f"{path} is no list of jobs: it has no column row")
    return found.select(F.col("row").cast("bigint"))


def _list_name(spark: SparkSession, path: str) -> str:
    """Returns a text that another list does not have."""
    if not path:
        return ""
    crc = F.sum(F.crc32(F.col("row").cast("string")))
    count, total = read_list(spark, path).distinct().agg(F.count("*"), crc).collect()[0]
    return f"{count} jobs, checksum {total or 0:x}"


def _dry_run(spark: SparkSession, plan: Plan) -> Report:
    rows, listed = _rows(spark, plan, plan.start, plan.end), _listed(spark, plan, plan.end)
    if listed is not None:
        rows = rows.join(listed, "seq", "left_semi")
    counts = replay_plan.counted(rows).orderBy("hour", "op").collect()
    figures: dict[str, Figure] = {
        "dry_run": True,
        "table": plan.table,
        "target": plan.target,
        "selected_rows": sum(row["rows"] for row in counts),
    }
    lines = [{"hour": row["hour"], "op": row["op"], "rows": row["rows"]} for row in counts]
    return Report(job="replay", figures=figures, rows=lines)


# -- writing --------------------------------------------------------------------------------------


class _Run:
    """Writes what is left of a replay."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        begun: Begun,
        progress: Progress,
        clock: Clock | None = None,
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._kind = _target_kind(plan)
        self._begun = begun
        self._progress = progress
        self._clock = clock or SystemClock()

    def report(self) -> Report:
        self._progress(f"replay {self._plan.replay_id}: looking at history", 0, None)
        listed = _listed(self._spark, self._plan, self._begun.end)
        if listed is not None:
            listed.persist()
        try:
            found = self._batches(listed)
            written, rows = self._write_all(found, listed)
        finally:
            if listed is not None:
                listed.unpersist()
        return Report(
            job="replay",
            figures={
                "replay_id": self._plan.replay_id,
                "table": self._plan.table,
                "target": self._plan.target,
                "from_seq": self._plan.start,
                "to_seq": self._begun.end - 1,
                "resumed_behind_seq": self._begun.last,
                "batches": written,
                "written_rows": rows,
                "complete": written == len(found),
            },
        )

    def _batches(self, listed: DataFrame | None) -> list[Batch]:
        begun, after = self._begun, max(self._plan.start - 1, self._begun.last)
        if after + 1 >= begun.end:
            return []
        rows = self._chosen(_rows(self._spark, self._plan, after + 1, begun.end), listed)
        pieces = replay_plan.pieces(rows, begun.cut).limit(PIECES_MAX + 1).collect()
        if len(pieces) > PIECES_MAX:
            raise FjordError(
                f"this would be more than {PIECES_MAX} batches: give a smaller range, larger "
                "batches or a faster pace, and another id"
            )
        found = [(row["last"], row["rows"], row["at_us"]) for row in pieces]
        return replay_plan.batches(found, after, begun.cut)

    def _write_all(self, batches: Sequence[Batch], listed: DataFrame | None) -> tuple[int, int]:
        """Returns how many batches and rows were written."""
        total = sum(one.rows for one in batches)
        written = rows = 0
        for batch in self._paced(batches):
            self._progress("replaying", rows, total)
            self._write(batch, listed)
            written, rows = written + 1, rows + batch.rows
        return written, rows

    def _chosen(self, rows: DataFrame, listed: DataFrame | None) -> DataFrame:
        return rows if listed is None else rows.join(listed, "seq", "left_semi")

    def _paced(self, batches: Sequence[Batch]) -> Iterator[Batch]:
        """Yields each batch when it is due; none any more once `stop` is set."""
        begun_us = self._clock.monotonic_us()
        due = replay_plan.due_seconds(batches, self._plan.pace)
        for batch, seconds in zip(batches, due, strict=True):
            left = seconds - (self._clock.monotonic_us() - begun_us) / 1_000_000
            if self._plan.stop.wait(max(0.0, left)):
                return
            yield batch

    def _write(self, batch: Batch, listed: DataFrame | None) -> None:
        plan = self._plan
        # Whole rows are wanted, and not many: the source finds them, wherever they are by now.
        source = self._spark.read.format("fjord").options(
            **plan.location.options,
            table=plan.table,
            columns="plain",
            startingSeq=batch.after + 1,
            endingSeq=min(batch.last + 1, self._begun.end),
        )
        rows = replay_plan.selected(source.load(), plan.selection)
        now = datetime.fromtimestamp(self._clock.wall_us() / 1_000_000, tz=UTC)
        written = replay_plan.rewritten(
            self._chosen(rows, listed),
            replay_plan.columns_for(plan.kind, self._kind),
            suffix=f"#{plan.replay_id}".encode() if plan.keys == "fresh" else b"",
            moved_to=now if plan.dates == "moved" else None,
        )
        written.write.format("fjord").mode("append").options(
            server=plan.server,
            table=plan.target,
            kind=self._kind,
            txnId=replay_plan.writer_name(plan.replay_id),
            txnVersion=batch.last,
        ).save()


def _target_kind(plan: Plan) -> str:
    """Returns what the target is, or will be: it is made like the table, if it is not there."""
    with fjord.connect(plan.server) as database:
        try:
            return database.table(plan.target).kind
        except NotFoundError:
            return plan.kind
