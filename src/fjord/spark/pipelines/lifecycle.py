"""The report on jobs: how long they wait and run, which were late, and which keep failing.

    history of jobs tables -> attempts, jobs -> figures -> Parquet tables and one page of HTML

The history is read once and kept by Spark until the end, so all figures are of one moment, and
later changes are in none of them.  What is measured, and how, is below: "the life of jobs".

Below the target:

    percentiles/   wait, run and total by table, domain and priority
    breaches/      every wait and total that was longer than allowed
    failures/      the keys of jobs that failed at least twice
    hourly/        pushes, ends and failures of each hour
    tables/        one row for each table
    report.html    all of it at a glance
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from fjord.errors import FjordError, UsageError
from fjord.kinds import Kind
from fjord.spark import source
from fjord.spark.options import MOVES, Location
from fjord.spark.pipelines import page, report
from fjord.spark.pipelines.report import Figure, Progress, Report, silent

PAGE_NAME: Final = "report.html"
HOUR_SECONDS: Final = 3600
# Entries of long lists on the page; the tables have all of them.
LISTED: Final = 20
DOMAINS_LISTED: Final = 15
ROWS_MAX: Final = 1000
# A plot has at most so many periods, of the first of these lengths that is long enough.
PERIODS_MAX: Final = 100
_PERIODS_SECONDS: Final = (1, 5, 15, 60, 300, 900, HOUR_SECONDS, 6 * HOUR_SECONDS, 86_400)


def lifecycle(  # noqa: PLR0913 - options of a user
    spark: SparkSession,
    location: Location,
    tables: Sequence[str] = (),
    target: str | None = None,
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    breach_seconds: Limits | None = None,
    progress: Progress = silent,
) -> Report:
    """Reports on the jobs of some tables, or of all.

    Args:
        spark: the session to run in.
        location: where the data is.
        tables: names of jobs tables; none means all there are.
        target: the folder for tables and page; None writes nothing.
        start: attempts that ended before are left out; open ones never are.
        end: only changes before this, as if it were that moment; None: now.
        breach_seconds: the maximum length of a wait or a total.
        progress: receives the current step.

    Raises:
        FjordError: if there is no such table, or no jobs table at all.
    """
    names = jobs_tables(location, tables)
    _check(names, target, breach_seconds)
    report.check_zones(start, end)
    if target is not None:
        report.make_folder(target)
    reporting = _Reporting(start, end, end or report.now(), breach_seconds, progress)
    with contextlib.ExitStack() as kept:
        histories = (
            source.history(spark, location, name).select(F.lit(name).alias("table"), *COLUMNS)
            for name in names
        )
        found = reporting.run(reduce(DataFrame.unionByName, histories), target, kept)
    if target is not None:
        Path(target, PAGE_NAME).write_text(page.render(found), encoding="utf-8")
    return _report(found, target)


# -- reading --------------------------------------------------------------------------------------


def jobs_tables(location: Location, names: Sequence[str]) -> list[str]:
    """Returns the names of jobs tables: the given ones, or all.

    Raises:
        FjordError: if one is not a jobs table, or if there is none.
    """
    with location.open() as db:
        kinds = {one.name: one.kind for one in db.tables()}
    for name in names:
        if kinds.get(name) != Kind.JOBS:
            what = f"a table of kind {kinds[name]}" if name in kinds else "no table"
            raise FjordError(f"{name} is {what} in {location}; name jobs tables")
    found = list(dict.fromkeys(names)) or [one for one, kind in kinds.items() if kind == Kind.JOBS]
    if not found:
        raise FjordError(f"there is no jobs table in {location}, so there is nothing to report on")
    return found


def _check(names: list[str], target: str | None, limits: Limits | None) -> None:
    if target is not None and "://" in target:
        raise UsageError(f"{target} is not a folder on this machine, which the page needs")
    if isinstance(limits, Mapping) and limits.keys() - set(names):
        others = ", ".join(sorted(limits.keys() - set(names)))
        raise UsageError(f"a limit is given for {others}, which this report does not include")


# -- figures --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Reporting:
    """The scope of a report, beside the history."""

    start: datetime | None
    end: datetime | None
    until: datetime  # the end, or now
    limits: Limits | None
    progress: Progress

    def run(
        self, history: DataFrame, target: str | None, kept: contextlib.ExitStack
    ) -> page.JobFigures:
        """Computes all figures, and writes the tables; frames that Spark keeps go to `kept`."""

        def keep(frame: DataFrame) -> DataFrame:
            return kept.enter_context(report.kept(frame))

        self.progress("reading", 0, _STEPS)
        every = keep(report.before(history, self.end))
        seen = every if self.start is None else every.where(F.col("ts") >= self.start)
        span = seen.agg(
            F.count("*").alias("count"),
            F.unix_micros(F.min("ts")).alias("first_us"),
            F.unix_micros(F.max("ts")).alias("last_us"),
        ).collect()[0]
        self.progress("pairing", 1, _STEPS)
        pairs = keep(not_ended_before(attempts(every), self.start))
        every_job = jobs(every)
        if self.start is not None:
            is_open = F.col("state").isin(*OPEN)
            every_job = every_job.where(is_open | (F.col("last_at") >= self.start))
        every_job = keep(every_job)
        durations = keep(frequencies(pairs, every_job))
        limits = {} if self.limits is None else self.limits
        slow = breaches(pairs, every_job, limits, self.until)
        order = ("level", "table", "domain", "priority", "measure")
        frames = {  # by the names of their folders
            "percentiles": keep(percentiles(durations).orderBy(*order)),
            "breaches": keep(slow.orderBy(F.desc("seconds"), "table", "row")),
            "failures": keep(failures(every_job).orderBy(F.desc("failures"), "table", "key")),
            "hourly": keep(throughput(seen, pairs, HOUR_SECONDS).orderBy("table", "at")),
            "tables": keep(totals(every_job, pairs, self.until).orderBy("table")),
        }
        for done, (name, frame) in enumerate(frames.items(), start=2):
            self.progress(f"writing {name}", done, _STEPS)
            if target is not None:
                report.write_table(frame, target, name)
        self.progress("drawing", _STEPS - 1, _STEPS)
        periods, seconds = _periods(seen, pairs, span)
        tables = report.rows(frames["tables"])
        return page.JobFigures(
            tables=tables,
            percentiles=_listed_percentiles(frames["percentiles"]),
            breaches=report.rows(frames["breaches"].limit(LISTED)),
            breach_count=frames["breaches"].count(),
            failures=report.rows(frames["failures"].limit(LISTED)),
            failure_count=frames["failures"].count(),
            periods=periods,
            period_seconds=seconds,
            histogram=report.rows(histogram(durations)),
            op_count=span["count"],
            first_at=report.date(span["first_us"]) if span["count"] else None,
            last_at=report.date(span["last_us"]) if span["count"] else None,
            until=self.until,
            limit_seconds=shared_limit(self.limits, [table["table"] for table in tables]),
            is_limited=self.limits is not None,
        )


_STEPS: Final = 8


def not_ended_before(attempts: DataFrame, start: datetime | None) -> DataFrame:
    """Returns attempts without those that ended before a moment, whenever they began."""
    if start is None:
        return attempts
    return attempts.where(F.col("ended_at").isNull() | (F.col("ended_at") >= start))


def shared_limit(limits: Limits | None, tables: Sequence[str]) -> float | None:
    """Returns the limit that is the same for all tables of a report; None if there is none."""
    if not isinstance(limits, Mapping):
        return limits
    found = {limits.get(table) for table in tables}
    return found.pop() if len(found) == 1 else None


def _listed_percentiles(found: DataFrame) -> list[dict[str, Any]]:
    """Returns all but those of single domains, and those of the largest domains."""
    few = report.rows(found.where(F.col("level").isin("all", "table", "priority")).limit(ROWS_MAX))
    domains = found.where("level = 'domain'")
    largest = (
        domains.groupBy("table", "domain")
        .agg(F.max("count").alias("most"))
        .orderBy(F.desc("most"), "table", "domain")
        .limit(DOMAINS_LISTED)
    )
    # A job without a domain is of one too, which is null.
    is_same = domains["domain"].eqNullSafe(largest["domain"])
    shown = domains.join(largest, (domains["table"] == largest["table"]) & is_same, "left_semi")
    return [*few, *report.rows(shown.orderBy("table", "domain", "measure"))]


def _periods(seen: DataFrame, attempts: DataFrame, span: Row) -> tuple[list[dict[str, Any]], int]:
    """Returns what happened in each period over all tables, and how long a period is."""
    if not span["count"]:
        return [], HOUR_SECONDS
    seconds = period_seconds((span["last_us"] - span["first_us"]) // 1_000_000)
    every = throughput(
        seen.withColumn("table", F.lit("")), attempts.withColumn("table", F.lit("")), seconds
    )
    found = {int(row["at"].timestamp()): row for row in report.rows(every)}
    for row in found.values():
        # A job that fails for the last time is dead, and has no row FAIL.
        row["failed"] += row["timed_out"] + row["dead"]
    first, last = min(found), max(found)
    empty = {"pushed": 0, "done": 0, "failed": 0, "wait_p50": None, "wait_p99": None}
    return [
        found.get(at, {"at": report.date(at * 1_000_000), **empty})
        for at in range(first, last + 1, seconds)
    ], seconds


def period_seconds(span_seconds: int) -> int:
    """Returns a length of periods that gives a plot neither too many nor too few."""
    for seconds in _PERIODS_SECONDS:
        if span_seconds < seconds * PERIODS_MAX:
            return seconds
    longest = _PERIODS_SECONDS[-1]
    return longest * math.ceil((span_seconds + 1) / (longest * PERIODS_MAX))


# -- the report -----------------------------------------------------------------------------------


def _report(found: page.JobFigures, target: str | None) -> Report:
    measured = {
        f"{measure}_{name}_seconds": found.overall(measure)[name]
        for measure in ("wait", "run", "total")
        for name in ("p50", "p99")
    }
    figures: dict[str, Figure] = {
        "tables": found.names,
        "ops": found.op_count,
        **{name: found.total(name) for name in (*page.COUNTS, "failed_twice")},
        "pushes_saved": found.total("merged"),
        "breaches": found.breach_count,
        **measured,
        "until": found.until.isoformat(),
        "page": None if target is None else os.path.abspath(os.path.join(target, PAGE_NAME)),
    }
    shown = ("table", "measure", "count", *PERCENTILES, "max")
    rows = [
        {name: row[name] for name in shown} for row in found.percentiles if row["level"] == "table"
    ]
    return Report(job="lifecycle", figures=figures, rows=rows)


# -- the life of jobs as frames: waits, work and failures, from a history of jobs ------------------
#
# A row of history is one step of one job (docs/spark.md, "Jobs"): `row` is the job, `xid` the
# lease.  Two frames are made from these rows, and all figures from the two:
#
#     attempts   one row for each time that a job was handed out
#     jobs       one row for each job, with the state that its last row leaves it in
#
# What the figures mean:
#
#     wait    from when the job could have been taken until it was: from its process date, or from
#             when it began to wait if that was later.  It begins to wait when it is pushed, and
#             again with each failure, timeout, return and revival; a merged push has no effect.
#     run     from TAKE until its lease ended, whatever the end; a job taken for good has none
#     total   from when the job could have been taken for the first time until DONE, so with all
#             retries and the pauses between them
#
# Invariants: nothing is dropped because its end or beginning is missing.  A current attempt has no
# run; a job whose ADD no longer exists, since its segment is gone, has no total, and its first wait
# counts from its process date.  A wait is never negative.
#
# All functions are pure: frames in, a frame out, and no action of Spark runs.


#: The columns that the functions here need, beside `table`, which distinguishes tables.
COLUMNS: Final = ("seq", "ts", "op", "row", "xid", "key", "domain", "priority", "process_at")
PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
#: Percentiles are for everything, for each table, and within it for each of these.
LEVELS: Final = {
    "all": (),
    "table": ("table",),
    "domain": ("table", "domain"),
    "priority": ("table", "priority"),
    "domain and priority": ("table", "domain", "priority"),
}

# With these a job begins to wait.
_BEGINS: Final = ("ADD", "TIMEOUT", "FAIL", "GIVEN_BACK", "REVIVE")
_FAILURES: Final = ("FAIL", "TIMEOUT", "DEAD")
_STATES: Final = {
    "DONE": "done",
    "EXPIRE": "expired",
    "CANCEL": "cancelled",
    "SUPERSEDED": "superseded",
    "DISCARD": "discarded",
    "PURGE": "purged",
    "DEAD": "dead",
    "MOVE_DEAD": "dead",
    "TAKE": "taken",
}
#: Of a job that is not gone, in the words of `db.jobs(...).count()`.
OPEN: Final = ("waiting", "taken")
# Exact up to here; what is longer is rounded to as many digits, so that the number of different
# values, and with it the memory of a percentile, is bounded however many jobs there are.
_EXACT_US: Final = 10_000


# -- from history to attempts and jobs ------------------------------------------------------------


def attempts(history: DataFrame) -> DataFrame:
    """Returns one row for each time that a job was handed out, with how long it waited and ran.

    `outcome` is the op that ended it, null for a current one.  It is late if its lease expired and
    the job was handed out again: the work was done twice, or the worker had died.
    """
    by_job = Window.partitionBy("table", "row").orderBy("seq")
    before = by_job.rowsBetween(Window.unboundedPreceding, -1)
    so_far = by_job.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # Of a taken job only the lease changes, so the next row is its end.
    steps = (
        history.where(~F.col("op").isin(*MOVES))
        .withColumn("began_at", F.last(_where_began("ts"), ignorenulls=True).over(before))
        .withColumn("known_key", F.last("key", ignorenulls=True).over(so_far))
        .withColumn("known_domain", F.last(_described("domain"), ignorenulls=True).over(so_far))
        .withColumn("next", F.lead(F.struct("op", "ts", "xid")).over(by_job))
    )
    is_ended = F.col("next.xid") == F.col("xid")
    is_done_at_once = F.col("op") == "DONE"
    outcome = F.when(is_done_at_once, F.lit("DONE")).when(is_ended, F.col("next.op"))
    ended_at = F.when(is_done_at_once, F.col("ts")).when(is_ended, F.col("next.ts"))
    return steps.where(_is_handed_out()).select(
        "table",
        "row",
        F.col("known_key").alias("key"),
        F.col("known_domain.value").alias("domain"),
        "priority",
        F.row_number().over(by_job).cast("int").alias("number"),
        F.col("ts").alias("taken_at"),
        ended_at.alias("ended_at"),
        outcome.alias("outcome"),
        _elapsed_us(F.greatest("process_at", "began_at"), F.col("ts")).alias("wait_us"),
        F.when(~is_done_at_once, _elapsed_us(F.col("ts"), ended_at)).alias("run_us"),
        F.coalesce(
            (outcome == "TIMEOUT") & F.lead("row").over(by_job).isNotNull(), F.lit(False)
        ).alias("is_late"),
    )


def jobs(history: DataFrame) -> DataFrame:
    """Returns one row for each job: its description, its state, and counts of its changes."""
    seq, op = F.col("seq"), F.col("op")
    first_process_at = F.min_by("process_at", F.when(_is_handed_out(), seq))
    found = history.groupBy("table", "row").agg(
        F.max_by(F.struct("key", "domain"), F.when(F.col("key").isNotNull(), seq)).alias("what"),
        F.max_by("priority", F.when(F.col("priority").isNotNull(), seq)).alias("priority"),
        F.max_by("process_at", F.when(F.col("process_at").isNotNull(), seq)).alias("process_at"),
        F.max_by(F.struct("op", "xid", "ts"), seq).alias("last"),
        F.min(F.when(op == "ADD", F.col("ts"))).alias("pushed_at"),
        F.max(_where_began("ts")).alias("began_at"),
        first_process_at.alias("first_process_at"),
        F.count_if(op == "REPLACE").alias("merged"),
        F.count_if(_is_handed_out()).alias("taken"),
        F.count_if(op.isin(*_FAILURES) & F.col("xid").isNotNull()).alias("failures"),
        F.count_if(op == "TIMEOUT").alias("timeouts"),
        F.count_if(op == "DEAD").alias("deaths"),
    )
    first_due_at = F.greatest("first_process_at", "pushed_at")
    is_timed = (F.col("last.op") == "DONE") & F.col("pushed_at").isNotNull()
    return found.select(
        "table",
        "row",
        F.col("what.key").alias("key"),
        F.col("what.domain").alias("domain"),
        "priority",
        _state(F.col("last")).alias("state"),
        "pushed_at",
        F.when(_state(F.col("last")) == "waiting", F.greatest("process_at", "began_at")).alias(
            "due_at"
        ),
        F.col("last.ts").alias("last_at"),
        "merged",
        "taken",
        "failures",
        "timeouts",
        "deaths",
        F.when(is_timed, _elapsed_us(first_due_at, F.col("last.ts"))).alias("total_us"),
    )


def _is_handed_out() -> Column:
    is_done_at_once = (F.col("op") == "DONE") & F.col("xid").isNull()
    return (F.col("op") == "TAKE") | is_done_at_once


def _where_began(column: str) -> Column:
    return F.when(F.col("op").isin(*_BEGINS), F.col(column))


def _described(column: str) -> Column:
    """Returns a column, with nulls in rows that do not describe the job."""
    return F.when(F.col("key").isNotNull(), F.struct(F.col(column).alias("value")))


def _state(last: Column) -> Column:
    names = _map(_STATES)
    is_taken = (last["op"] == "MOVE") & last["xid"].isNotNull()
    return F.when(is_taken, F.lit("taken")).otherwise(
        F.coalesce(names[last["op"]], F.lit("waiting"))
    )


def _elapsed_us(start: Column, end: Column) -> Column:
    elapsed = F.unix_micros(end) - F.unix_micros(start)
    return F.when(elapsed < 0, F.lit(0).cast("bigint")).otherwise(elapsed)


# -- figures --------------------------------------------------------------------------------------


def frequencies(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Returns how often each wait, run and total there was, to four digits; `max_us` is exact."""
    where = ("table", "domain", "priority")
    measured = attempts.select(
        *where, F.expr("stack(2, 'wait', wait_us, 'run', run_us) AS (measure, us)")
    ).unionByName(
        jobs.select(*where, F.lit("total").alias("measure"), F.col("total_us").alias("us"))
    )
    return (
        measured.where("us IS NOT NULL")
        .groupBy(*where, "measure", _rounded(F.col("us")).alias("rounded_us"))
        .agg(F.count("*").alias("count"), F.max("us").alias("max_us"))
    )


def _rounded(us: Column) -> Column:
    step = F.pow(F.lit(10.0), F.floor(F.log10(us)) - 3)
    return F.when(us < _EXACT_US, us).otherwise((F.round(us / step) * step).cast("bigint"))


def percentiles(frequencies: DataFrame) -> DataFrame:
    """Returns count, percentiles and maximum of each measure, in seconds, on every level.

    `level` names the columns by which rows are grouped; the others are null.
    """
    columns = ("table", "domain", "priority")
    sets = [("measure", *names) for names in LEVELS.values()]
    probabilities = F.array(*(F.lit(one) for one in PERCENTILES.values()))
    found = frequencies.groupingSets(sets, "measure", *columns).agg(
        F.grouping_id().alias("set"),
        F.sum("count").alias("count"),
        F.percentile("rounded_us", probabilities, F.col("count")).alias("found"),
        F.max("max_us").alias("max_us"),
    )
    numbers = {_grouping_id(names): level for level, names in LEVELS.items()}
    return found.select(
        _map(numbers)[F.col("set").cast("int")].alias("level"),
        *columns,
        "measure",
        "count",
        *(_seconds(F.col("found")[place]).alias(name) for place, name in enumerate(PERCENTILES)),
        _seconds(F.col("max_us")).alias("max"),
    )


def _grouping_id(names: tuple[str, ...]) -> int:
    """Returns the number of a grouping set in Spark: a bit for each column that it lacks."""
    return sum(
        bit for bit, name in ((4, "table"), (2, "domain"), (1, "priority")) if name not in names
    )


def histogram(frequencies: DataFrame) -> DataFrame:
    """Returns how many times fall into each bucket; bucket n begins at 10 ** (n / 5) us."""
    us = F.greatest("rounded_us", F.lit(1))
    bucket = F.floor(F.log10(us) * page.BUCKETS_PER_DECADE + 1e-9).cast("int")
    return frequencies.groupBy("measure", bucket.alias("bucket")).agg(F.sum("count").alias("count"))


Limits = Mapping[str, float] | float


def breaches(attempts: DataFrame, jobs: DataFrame, limits: Limits, until: datetime) -> DataFrame:
    """Returns everything that took longer than its limit, in seconds for each table or for all.

    `kind` is wait or total, or waiting for a job that has not been taken by `until`.
    """

    def taken(frame: DataFrame, kind: str, at: Column, us: Column) -> DataFrame:
        names = ("table", "row", "key", "domain", "priority")
        limit, seconds = _allowed(limits).alias("limit_seconds"), _seconds(us).alias("seconds")
        return frame.select(*names, F.lit(kind).alias("kind"), at.alias("at"), limit, seconds)

    waiting = jobs.where("state = 'waiting'")
    waiting_us = _elapsed_us(F.col("due_at"), F.lit(until))
    return (
        taken(attempts, "wait", F.col("taken_at"), F.col("wait_us"))
        .unionByName(taken(jobs, "total", F.col("last_at"), F.col("total_us")))
        .unionByName(taken(waiting, "waiting", F.lit(until), waiting_us))
        .where("seconds > limit_seconds")
    )


def _allowed(limits: Limits) -> Column:
    if not isinstance(limits, Mapping):
        return F.lit(float(limits))
    # The empty name is that of no table, and Spark makes no map out of nothing.
    return _map({"": 0.0, **{name: float(one) for name, one in limits.items()}})[F.col("table")]


def _map(pairs: Mapping[Any, Any]) -> Column:
    return F.create_map(*(F.lit(one) for one in chain.from_iterable(pairs.items())))


def failures(jobs: DataFrame, *, times: int = 2) -> DataFrame:
    """Returns the keys of jobs that failed or timed out at least this often."""
    return (
        jobs.where(F.col("failures") >= times)
        .groupBy("table", "key")
        .agg(
            F.max_by("domain", "last_at").alias("domain"),
            F.count("*").alias("jobs"),
            F.sum("failures").alias("failures"),
            F.sum("timeouts").alias("timeouts"),
            F.count_if(F.col("state") == "dead").alias("dead"),
            F.count_if(F.col("state") == "done").alias("done"),
            F.max("last_at").alias("last_at"),
        )
    )


def throughput(history: DataFrame, attempts: DataFrame, seconds: int) -> DataFrame:
    """Returns what happened in each period of so many seconds, and how long jobs had waited."""
    op = F.col("op")
    counted = {
        "pushed": op.isin("ADD", "REPLACE"),
        "merged": op == "REPLACE",
        "taken": _is_handed_out(),
        "done": op == "DONE",
        "failed": op == "FAIL",
        "timed_out": op == "TIMEOUT",
        "dead": op == "DEAD",
        "expired": op == "EXPIRE",
    }
    ops = history.groupBy("table", _period("ts", seconds)).agg(
        *(F.count_if(condition).alias(name) for name, condition in counted.items())
    )
    rounded = _rounded(F.col("wait_us"))
    waits = attempts.groupBy("table", _period("taken_at", seconds)).agg(
        _seconds(F.percentile(rounded, F.lit(0.5))).alias("wait_p50"),
        _seconds(F.percentile(rounded, F.lit(0.99))).alias("wait_p99"),
    )
    return ops.join(waits, ["table", "at"], "left")


def _period(column: str, seconds: int) -> Column:
    start = F.floor(F.unix_seconds(F.col(column)) / seconds) * seconds
    return F.timestamp_seconds(start).alias("at")


def totals(jobs: DataFrame, attempts: DataFrame, until: datetime) -> DataFrame:
    """Returns one row for each table: how many jobs are in which state, and what went wrong."""
    state = F.col("state")
    overdue_us = F.when(state == "waiting", _elapsed_us(F.col("due_at"), F.lit(until)))
    counted = jobs.groupBy("table").agg(
        F.count("*").alias("jobs"),
        F.sum("merged").alias("merged"),
        *(
            F.count_if(state == one).alias(one)
            for one in ("done", "waiting", "taken", "dead", "expired")
        ),
        F.count_if(F.col("due_at") <= F.lit(until)).alias("due"),
        F.count_if(state.isin("cancelled", "superseded", "discarded", "purged")).alias("dropped"),
        F.count_if((state == "expired") & (F.col("taken") == 0)).alias("expired_unread"),
        F.count_if(F.col("failures") >= 2).alias("failed_twice"),
        F.count_if((state == "done") & (F.col("taken") == 1)).alias("done_at_first"),
        _seconds(F.max(overdue_us)).alias("oldest_due"),
    )
    handed_out = attempts.groupBy("table").agg(
        F.count("*").alias("attempts"),
        F.count_if(F.col("outcome") == "TIMEOUT").alias("timed_out"),
        F.count_if("is_late").alias("late"),
    )
    return counted.join(handed_out, "table", "left").fillna(0, ["attempts", "timed_out", "late"])


def _seconds(us: Column) -> Column:
    return us / F.lit(1e6)
