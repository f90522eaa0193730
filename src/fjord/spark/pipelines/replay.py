"""`replay`: rows of history are written again, to another table or the same, exactly once.

    history --selected, cut into batches--> sink `fjord`, with the batch's number --> target

A replay has an id, which is the name of a writer of the target.  Each batch is committed together
with its number, and a committed batch changes nothing.  So an interrupted replay continues when it
is started again, and a complete one does nothing.

Pace: with "original" a batch is a few seconds of history, and follows the first one after the same
time as it did then.  Waiting ends when `stop` is set, and rows written by then stay.
"""

from __future__ import annotations

import json
import os
import re
import threading
import uuid
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, TypedDict, Unpack

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import fjord
from fjord.clock import SystemClock
from fjord.errors import ExistsError, FjordError, NotFoundError, UsageError
from fjord.kinds import Kind
from fjord.spark import source
from fjord.spark.extent import extent_of
from fjord.spark.options import MOVES, Location
from fjord.spark.pipelines import report
from fjord.spark.pipelines.report import Figure, Progress, Report, silent

# Batches of one replay, all of which are in the driver's memory; at one a second, 11 days.
PIECES_MAX: Final = 1_000_000


def replay(
    spark: SparkSession,
    location: Location,
    table: str,
    target: str,
    *,
    progress: Progress = silent,
    **options: Unpack[ReplayOptions],
) -> Report:
    """Writes rows of a table's history again, to a table of the same or another daemon.

    Args:
        spark: the session.
        location: where the history is.
        table: the source of the history.
        target: the table that is written to; if missing, it is created with the same kind.
        progress: receives the progress.
        options: see `ReplayOptions`.

    Raises:
        FjordError: if there is no such table or range, or if the id belongs to another replay.
    """
    plan = plan_of(location, table, target, options)
    with report.explained():
        if options.get("dry_run", False):
            return _dry_run(spark, plan)
        return _Run(spark, plan, begin(plan, _list_name(spark, plan.redrive)), progress).report()


# -- rows -----------------------------------------------------------------------------------------


def _rows(spark: SparkSession, plan: Plan, start: int, end: int) -> DataFrame:
    """Returns the selected rows of a range of seqs."""
    found = source.history(spark, plan.location, plan.table, start=start, end=end)
    return selected(found, plan.selection)


def _listed(spark: SparkSession, plan: Plan, end: int) -> DataFrame | None:
    """Returns the seqs of the rows that a list names; None: there is no list."""
    if not plan.redrive:
        return None
    whole = source.history(spark, plan.location, plan.table, end=end)
    return described_last(whole, read_list(spark, plan.redrive)).select("seq")


def read_list(spark: SparkSession, path: str) -> DataFrame:
    """Returns a list of jobs, by their column `row`.

    It may be the output of `dead-letters`, the folder `redrive` or the file for `fjord jobs
    redrive`; or any Parquet, or JSON with an object per line, that has the column.

    Raises:
        FjordError: if it is not such a list.
    """
    if path.endswith((".json", ".jsonl")):
        found = spark.read.json(path)
    elif os.path.isfile(path) and not path.endswith(".parquet"):
        row = F.regexp_extract("value", r"^--row=([0-9]{1,18})$", 1)
        found = spark.read.text(path).select(F.nullif(row, F.lit("")).alias("row"))
        if not found.where("row IS NULL").isEmpty():
            raise FjordError(f"{path} is not a list of jobs: a line of it is not like --row=123")
    else:
        found = spark.read.parquet(path)
    if "row" not in found.columns:
        raise FjordError(f"{path} is not a list of jobs: it has no column row")
    return found.select(F.col("row").cast("bigint"))


def _list_name(spark: SparkSession, path: str) -> str:
    """Returns a text that identifies a list."""
    if not path:
        return ""
    crc = F.sum(F.crc32(F.col("row").cast("string")))
    count, total = read_list(spark, path).distinct().agg(F.count("*"), crc).collect()[0]
    return f"{count} jobs, checksum {total or 0:x}"


def _dry_run(spark: SparkSession, plan: Plan) -> Report:
    rows, listed = _rows(spark, plan, plan.start, plan.end), _listed(spark, plan, plan.end)
    counts = counted(_chosen(rows, listed)).orderBy("hour", "op").collect()
    figures: dict[str, Figure] = {
        "dry_run": True,
        "table": plan.table,
        "target": plan.target,
        "selected_rows": sum(row["rows"] for row in counts),
    }
    return Report(job="replay", figures=figures, rows=[row.asDict() for row in counts])


def _chosen(rows: DataFrame, listed: DataFrame | None) -> DataFrame:
    return rows if listed is None else rows.join(listed, "seq", "left_semi")


# -- writing --------------------------------------------------------------------------------------


class _Run:
    """Writes the rest of a replay."""

    def __init__(self, spark: SparkSession, plan: Plan, begun: Begun, progress: Progress) -> None:
        self._spark = spark
        self._plan = plan
        self._kind = _target_kind(plan)
        self._begun = begun
        self._progress = progress
        self._clock = SystemClock()

    def report(self) -> Report:
        self._progress(f"replay {self._plan.replay_id}: looking at history", 0, None)
        listed = _listed(self._spark, self._plan, self._begun.end)
        with nullcontext() if listed is None else report.kept(listed):
            found = self._batches(listed)
            written, rows = self._write_all(found, listed)
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

    def _batches(self, listed: DataFrame | None) -> list[ReplayBatch]:
        begun, after = self._begun, max(self._plan.start - 1, self._begun.last)
        if after + 1 >= begun.end:
            return []
        rows = _chosen(_rows(self._spark, self._plan, after + 1, begun.end), listed)
        counts = pieces(rows, begun.cut).limit(PIECES_MAX + 1).collect()
        if len(counts) > PIECES_MAX:
            raise FjordError(
                f"this would be more than {PIECES_MAX} batches: give a smaller range, larger "
                "batches or a faster pace, and another id"
            )
        found = [(row["last"], row["rows"], row["at_us"]) for row in counts]
        return batches(found, after, begun.cut)

    def _write_all(
        self, batches: Sequence[ReplayBatch], listed: DataFrame | None
    ) -> tuple[int, int]:
        """Writes each batch when it is due, until `stop` is set; returns how many, and rows."""
        total = sum(one.rows for one in batches)
        begun_us = self._clock.monotonic_us()
        written = rows = 0
        for batch, due in zip(batches, due_seconds(batches, self._plan.pace), strict=True):
            left = due - (self._clock.monotonic_us() - begun_us) / 1_000_000
            if self._plan.stop.wait(max(0.0, left)):
                break
            self._progress("replaying", rows, total)
            self._write(batch, listed)
            written, rows = written + 1, rows + batch.rows
        return written, rows

    def _write(self, batch: ReplayBatch, listed: DataFrame | None) -> None:
        plan = self._plan
        # Few, but whole rows are needed: the source finds them, wherever they are now.
        start, end = batch.after + 1, min(batch.last + 1, self._begun.end)
        found = source.between(self._spark, plan.location, plan.table, start, end)
        rows = selected(found, plan.selection)
        now = report.date(self._clock.wall_us())
        written = rewritten(
            _chosen(rows, listed),
            columns_for(plan.kind, self._kind),
            suffix=f"#{plan.replay_id}".encode() if plan.keys == "fresh" else b"",
            moved_to=now if plan.dates == "moved" else None,
        )
        written.write.format("fjord").mode("append").options(
            server=plan.server,
            table=plan.target,
            kind=self._kind,
            txnId=writer_name(plan.replay_id),
            txnVersion=batch.last,
        ).save()


def _target_kind(plan: Plan) -> str:
    """Returns the kind of the target; a missing target gets that of the table."""
    with fjord.connect(plan.server) as database, suppress(NotFoundError):
        return database.table(plan.target).kind
    return plan.kind


# -- the description of a replay: checked options, and their record beside the target --------------
#
# The key/value table `replays` beside the target describes each replay under its id: its source,
# range and end, how rows are written, and how they are divided into batches.  So a replay means the
# same when it is resumed, although there is more history by then; an id is never used for two
# things; and every run of it, even two at the same time, has the same batches.


#: The key/value table beside the target that describes each replay.
REPLAYS: Final = "replays"
#: The maximum time that a batch spans with the original pace.
BATCH_SECONDS: Final = 5
BATCH_ROWS: Final = 200_000
# A batch is staged, sorted and committed as one.
BATCH_ROWS_MAX: Final = 10_000_000
_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\Z")


class ReplayOptions(TypedDict, total=False):
    """Which rows are written again, where, and how fast."""

    to: str  # the daemon that has the target; the one that has the table, unless given
    start: int  # the first seq that counts; 1
    end: int  # the first one that no longer counts; everything that is durable
    since: datetime  # only what was committed from here on
    until: datetime  # and up to before here
    ops: Sequence[str]  # only rows of these; ADD, APPEND, REPLACE and SET, of a list all
    key_prefix: str | bytes  # only rows whose keys begin so
    redrive: str  # a list of jobs, as `dead-letters` writes it: only these, each once
    pace: str | float  # "fast", "original", or rows a second; "fast"
    keys: str  # "same", or "fresh": with the id of the replay at their end; "same"
    dates: str  # "moved" with the replay, or the "same" as they were; "moved"
    replay_id: str  # goes on with a replay; a new id unless given
    batch_rows: int  # 200,000
    dry_run: bool
    stop: threading.Event  # ends it after the batch that is being written


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Options that were checked."""

    location: Location
    table: str
    kind: str  # of the table
    target: str
    server: str  # that has the target; empty for a dry run without one
    start: int
    end: int  # exclusive; 0 = everything that is durable
    selection: Selection
    redrive: str
    pace: str | float
    keys: str
    dates: str
    replay_id: str
    batch_rows: int
    stop: threading.Event

    @property
    def cut(self) -> Cut:
        """How a new replay is cut into batches."""
        if self.pace == "original":
            return Cut(rows=self.batch_rows, seconds=BATCH_SECONDS, is_paced=True)
        if isinstance(self.pace, str):
            return Cut(rows=self.batch_rows, seconds=0, is_paced=False)
        # About a batch a second, so that the pace is even.
        rows = max(1, min(self.batch_rows, round(self.pace)))
        return Cut(rows=rows, seconds=0, is_paced=True)

    def meant(self, end: int) -> dict[str, Any]:
        """Returns the description that identifies this replay; `end` is exclusive."""
        chosen = self.selection
        return {
            "source": str(self.location),
            "table": self.table,
            "target": self.target,
            "start": self.start,
            "wanted_end": self.end,
            "end": end,
            "since": chosen.since.isoformat() if chosen.since else "",
            "until": chosen.until.isoformat() if chosen.until else "",
            "ops": list(chosen.ops),
            "key_prefix": chosen.key_prefix.hex(),
            "keys": self.keys,
            "dates": self.dates,
        }


def plan_of(location: Location, table: str, target: str, options: ReplayOptions) -> Plan:
    """Returns the checked options.

    Raises:
        FjordError: if one is invalid, or if there is no such table.
    """
    server = options.get("to", "") or location.server
    is_dry = options.get("dry_run", False)
    if not server and not is_dry:
        raise UsageError("rows are written through a daemon: give its address with `to`")
    prefix, redrive = options.get("key_prefix", b""), options.get("redrive", "")
    # A list says which row of a job is the last one that describes it.
    ops = options.get("ops") or ((*OPS, *MOVES) if redrive else OPS)
    return Plan(
        location=location,
        table=table,
        kind=report.kind_of(location, table),
        target=target,
        server=server,
        start=options.get("start", 1),
        end=options.get("end", 0),
        selection=Selection(
            ops=tuple(sorted(ops)),
            since=options.get("since"),
            until=options.get("until"),
            key_prefix=prefix.encode() if isinstance(prefix, str) else prefix,
        ),
        redrive=redrive,
        stop=options.get("stop") or threading.Event(),
        **check(options),
    )


def new_id() -> str:
    """Returns an id that no replay has."""
    return f"replay-{uuid.uuid4().hex[:12]}"


def check(options: ReplayOptions) -> dict[str, Any]:
    """Checks options as far as possible without a connection.

    Returns:
        those that a plan has unchanged.

    Raises:
        UsageError: if one is invalid.
    """
    for name, moment in (("since", options.get("since")), ("until", options.get("until"))):
        if moment is not None and moment.tzinfo is None:
            raise UsageError(f"{name} has no time zone; give one, as in datetime(..., tzinfo=UTC)")
    replay_id = options.get("replay_id") or new_id()
    if not _ID.match(replay_id):
        raise UsageError(
            f"the id of a replay is 1 to 100 of A-Z a-z 0-9 _ - and ., not {replay_id!r}"
        )
    batch_rows = options.get("batch_rows", BATCH_ROWS)
    if not 1 <= batch_rows <= BATCH_ROWS_MAX:
        raise UsageError(f"a batch has 1 to {BATCH_ROWS_MAX} rows, not {batch_rows}")
    return {
        "pace": _pace(options.get("pace", "fast")),
        "keys": _word("keys", options.get("keys", "same"), ("same", "fresh")),
        "dates": _word("dates", options.get("dates", "moved"), ("moved", "same")),
        "replay_id": replay_id,
        "batch_rows": batch_rows,
    }


def _word(name: str, given: str, words: Sequence[str]) -> str:
    if given not in words:
        raise UsageError(f"{name} is {' or '.join(words)}, not {given!r}")
    return given


def _pace(given: str | float) -> str | float:
    if given in ("fast", "original"):
        return given
    try:
        rows = float(given)
    except ValueError:
        rows = 0.0
    if not 0 < rows < float("inf"):
        raise UsageError(f"a pace is fast, original, or a number of rows a second, not {given!r}")
    return rows


# -- what a replay is -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begun:
    """A replay that is known by its target."""

    end: int  # exclusive
    last: int  # everything up to here is written, 0 = nothing
    cut: Cut  # into batches


def begin(plan: Plan, listed: str) -> Begun:
    """Records a replay, or finds the one that has its id.

    Args:
        listed: identifies its list of jobs, empty if there is none.

    Raises:
        FjordError: if that is another one.
    """
    end = _end(plan)
    meant = {**plan.meant(end), "redrive": listed}
    made = {**meant, "cut": plan.cut}
    with fjord.connect(plan.server) as database:
        known = database.kv(REPLAYS)
        try:
            known.set(plan.replay_id, json.dumps(made, sort_keys=True), overwrite=False)
        except ExistsError:
            found = json.loads(str(known.get(plan.replay_id)))
            check_same(plan.replay_id, found, meant)
            return Begun(int(found["end"]), _finished(database, plan), Cut(*found["cut"]))
    return Begun(end, 0, plan.cut)


def _end(plan: Plan) -> int:
    """Returns the exclusive end of a replay: the wanted one, if it is durable."""
    with extent_of(plan.location, plan.table) as extent:
        durable_end = extent.tail(0).durable_seq + 1
    return min(plan.end, durable_end) if plan.end else durable_end


def check_same(replay_id: str, found: dict[str, Any], meant: dict[str, Any]) -> None:
    """Makes sure that the recorded replay is the requested one.

    Raises:
        FjordError: if it is not; the text says what differs.
    """
    differing = [
        f"{name} {found.get(name)!r}, not {wanted!r}"
        for name, wanted in meant.items()
        if name != "end" and found.get(name) != wanted
    ]
    if differing:
        raise FjordError(
            f"replay {replay_id} was begun with {'; '.join(differing)}. Give the same options to "
            "continue it, or give another id"
        )


def _finished(database: fjord.Database, plan: Plan) -> int:
    """Finishes a batch that was begun; returns the seq up to which rows are written."""
    try:
        database.table(plan.target)
    except NotFoundError:
        return 0
    staging, writer = database.staging(plan.target), writer_name(plan.replay_id)
    last = staging.last_batch(writer)
    if last is not None:
        staging.commit(writer, last, [])
    return last or 0


def writer_name(replay_id: str) -> str:
    """Returns the name under which a replay writes to its target."""
    return f"replay-{replay_id}"


# -- selecting rows of a history, dividing them into batches, and rewriting them: pure ------------
#
#     history --selected--> rows --pieces--> numbers of rows by range --batches--> ranges of seqs
#                             |
#                             +--rewritten--> the columns that a table takes
#
# A batch is a range of seqs that ends where a commit ends, and its number is the seq at its end.
# So the batches of a replay need not be stored: the rule for dividing them, and the number of the
# last one that was written, determine the rest.


#: Ops whose rows have everything that is needed to write them again.  Moves do too, but are history
#: only if the ops that they restate are gone, as in tables without history.
OPS: Final = ("ADD", "APPEND", "REPLACE", "SET")
#: The columns of a table's history that are written, by what the table and its target are.
_COLUMNS: Final = ("key", "type", "value")
_JOB_COLUMNS: Final = (*_COLUMNS, "domain", "priority", "process_at", "expires_at")
_DATES: Final = ("process_at", "expires_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which rows of a history are selected."""

    ops: tuple[str, ...] = OPS
    since: datetime | None = None  # committed from here on
    until: datetime | None = None  # up to before here
    key_prefix: bytes = b""

    def __post_init__(self) -> None:
        if unknown := [op for op in self.ops if op not in (*OPS, *MOVES)]:
            raise FjordError(
                f"rows of {', '.join(unknown)} do not have what is needed to write them again; "
                f"a replay takes {', '.join((*OPS, *MOVES))}"
            )


class Cut(NamedTuple):
    """How rows are cut into batches."""

    rows: int  # at most so many, and a commit
    seconds: int  # a batch spans at most so much of history; 0 = any time
    is_paced: bool  # the time between batches matters, so small ones are not joined


class ReplayBatch(NamedTuple):
    """A range of seqs: rows behind `after`, up to `last`, where a commit ends."""

    after: int
    last: int
    rows: int  # about, if the clock of the server went back meanwhile
    at_us: int  # when its first row was committed, Unix microseconds


def selected(history: DataFrame, selection: Selection) -> DataFrame:
    """Returns the selected rows; rows without a type are tombstones, and left out."""
    found = history.where(F.col("op").isin(*selection.ops) & F.col("type").isNotNull())
    if selection.since is not None:
        found = found.where(F.col("ts") >= F.lit(selection.since))
    if selection.until is not None:
        found = found.where(F.col("ts") < F.lit(selection.until))
    if selection.key_prefix:
        found = found.where(F.startswith("key", F.lit(selection.key_prefix)))
    return found


def described_last(history: DataFrame, listed: DataFrame) -> DataFrame:
    """Returns for each listed job, by its `row`, the seq of the row that last described it."""
    described = history.where(F.col("op").isin("ADD", "REPLACE", *MOVES))
    rows = listed.select("row").distinct()
    return described.join(rows, "row", "left_semi").groupBy("row").agg(F.max("seq").alias("seq"))


def counted(rows: DataFrame) -> DataFrame:
    """Returns how many rows there are, by hour and op."""
    hour = F.date_trunc("hour", "ts").cast("string")
    return rows.groupBy(hour.alias("hour"), "op").agg(F.count("*").alias("rows"))


def pieces(rows: DataFrame, cut: Cut) -> DataFrame:
    """Returns in pieces how many rows there are, each up to the end of a commit.

    A piece has at most as many rows as a batch, and spans at most as much time.
    """
    # All rows of a commit have the same txn and ts, so no commit is in two pieces.
    places = [F.floor(F.col("txn") / cut.rows).alias("place")]
    if cut.seconds:
        places.append(F.floor(F.unix_seconds("ts") / cut.seconds).alias("time"))
    figures = (
        F.max("txn").alias("last"),
        F.count("*").alias("rows"),
        F.min(F.unix_micros("ts")).alias("at_us"),
    )
    return rows.groupBy(*places).agg(*figures).select("last", "rows", "at_us")


def batches(pieces: Iterable[tuple[int, int, int]], after: int, cut: Cut) -> list[ReplayBatch]:
    """Returns batches that together have all pieces, in order.

    Adjoining pieces are joined while they do not have too many rows, unless the time between them
    matters.  Beginning after any of the batches gives the same remaining ones.
    """
    found: list[ReplayBatch] = []
    for last, rows, at_us in sorted(pieces):
        before = found[-1] if found else None
        if before is not None and not cut.is_paced and before.rows + rows <= cut.rows:
            found[-1] = ReplayBatch(before.after, last, before.rows + rows, before.at_us)
        else:
            found.append(ReplayBatch(before.last if before else after, last, rows, at_us))
    return found


def due_seconds(batches: Sequence[ReplayBatch], pace: str | float) -> list[float]:
    """Returns when each batch is written, in seconds from the beginning."""
    if pace == "original":
        return [max(0, one.at_us - batches[0].at_us) / 1_000_000 for one in batches]
    if isinstance(pace, str):
        return [0.0] * len(batches)
    due, rows = [], 0
    for one in batches:
        due.append(rows / pace)
        rows += one.rows
    return due


def columns_for(source: str, target: str) -> tuple[str, ...]:
    """Returns the columns that are written, by the kinds of both tables."""
    return _JOB_COLUMNS if source == target == Kind.JOBS else _COLUMNS


def rewritten(
    rows: DataFrame,
    columns: Sequence[str],
    *,
    suffix: bytes = b"",
    moved_to: datetime | None = None,
) -> DataFrame:
    """Returns rows as a table takes them, in their order.

    Args:
        columns: those that the table takes.
        suffix: what keys get at their end; a row without a key stays without one.
        moved_to: dates are as far from it as they were from the moment at which the row was
            committed, so that what was delayed by an hour is delayed by an hour again.
    """
    key = F.when(F.length("key") > 0, F.concat("key", F.lit(suffix))).otherwise(F.col("key"))
    changed: dict[str, Column] = {"key": key} if suffix else {}
    if moved_to is not None:
        moved_us = F.unix_micros(F.lit(moved_to)) - F.unix_micros("ts")
        changed |= {
            name: F.timestamp_micros(F.unix_micros(name) + moved_us)
            for name in _DATES
            if name in columns
        }
    return rows.orderBy("seq").select(
        *(changed[name].alias(name) if name in changed else F.col(name) for name in columns)
    )
