"""The report on jobs: how long they wait and run, what was too late, what fails again and again.

    history of jobs tables -> attempts, jobs -> figures -> Parquet tables and one page of HTML

`job_frames` says what is measured and how; here are reading, writing and the order of steps.  The
history is read once and kept by Spark until the end, so all figures are of one moment, and what
happens meanwhile is in none of them.

Below the target:

    percentiles/   wait, run and total by table, domain and priority
    breaches/      every wait and total that was longer than allowed
    failures/      the keys of jobs that failed at least twice
    hourly/        what happened in each hour
    tables/        one row for each table
    report.html    all of it at a glance
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any, Final, TypedDict, Unpack

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from fjord.errors import FjordError, UsageError
from fjord.kinds import Kind
from fjord.spark.options import Location
from fjord.spark.pipelines import job_frames, page, report
from fjord.spark.pipelines.report import Figure, Progress, Report, silent

PAGE_NAME: Final = "report.html"
HOUR_SECONDS: Final = 3600
# Of long lists the page has so many; the tables have all of them.
LISTED: Final = 20
DOMAINS_LISTED: Final = 15
ROWS_MAX: Final = 1000
# A plot has at most so many periods, of the first of these lengths that is long enough.
PERIODS_MAX: Final = 100
_PERIODS_SECONDS: Final = (1, 5, 15, 60, 300, 900, HOUR_SECONDS, 6 * HOUR_SECONDS, 86_400)


class LifecycleOptions(TypedDict, total=False):
    """What else may be said about a report."""

    start: datetime | None  # what ended before is left out; what is open never is
    end: datetime | None  # only what happened before, as if it were that moment; None: now
    breach_seconds: job_frames.Limits | None  # how long a wait or a total may be
    progress: Progress  # is told what is done right now


def lifecycle(
    spark: SparkSession,
    location: Location,
    tables: Sequence[str] = (),
    target: str | None = None,
    **options: Unpack[LifecycleOptions],
) -> Report:
    """Reports on the jobs of some tables, or of all.

    Args:
        spark: the session to run in.
        location: where the data is.
        tables: names of jobs tables; none means all there are.
        target: the folder for tables and page; None writes nothing.
        options: see `LifecycleOptions`.

    Raises:
        FjordError: if there is no such table, or no jobs table at all.
    """
    names = jobs_tables(location, tables)
    _check(names, target, options)
    if target is not None:
        report.make_folder(target)
    reporting = _Reporting(
        start=options.get("start"),
        end=options.get("end"),
        until=options.get("end") or report.now(),
        limits=options.get("breach_seconds"),
        progress=options.get("progress", silent),
    )
    with contextlib.ExitStack() as kept:
        found = reporting.run(_history(spark, location, names), target, kept)
    if target is not None:
        Path(target, PAGE_NAME).write_text(page.render(found), encoding="utf-8")
    return _report(found, target)


# -- reading --------------------------------------------------------------------------------------


def jobs_tables(location: Location, names: Sequence[str]) -> list[str]:
    """Returns the names of tables of jobs: those that are given, or all.

    Raises:
        FjordError: if one is none, or if there is none.
    """
    with location.open() as db:
        kinds = {one.name: one.kind for one in db.tables()}
    for name in names:
        if kinds.get(name) != Kind.JOBS:
            what = f"a table of kind {kinds[name]}" if name in kinds else "no table"
            raise FjordError(f"{name} is {what} in {location}; name tables of jobs")
    found = list(dict.fromkeys(names)) or [one for one, kind in kinds.items() if kind == Kind.JOBS]
    if not found:
        raise FjordError(f"there is no table of jobs in {location}, so nothing to report on")
    return found


def _check(names: list[str], target: str | None, options: LifecycleOptions) -> None:
    limits = options.get("breach_seconds")
    if target is not None and "://" in target:
        raise UsageError(f"{target} is no folder on this machine, which the page needs")
    if isinstance(limits, Mapping) and limits.keys() - set(names):
        others = ", ".join(sorted(limits.keys() - set(names)))
        raise UsageError(f"a limit is given for {others}, which this report is not about")
    for moment in (options.get("start"), options.get("end")):
        if moment is not None and moment.tzinfo is None:
            raise UsageError(f"{moment} has no time zone; give one, such as datetime.UTC")


def _history(spark: SparkSession, location: Location, names: list[str]) -> DataFrame:
    return reduce(DataFrame.unionByName, (read(spark, location, name) for name in names))


def read(spark: SparkSession, location: Location, table: str) -> DataFrame:
    """Returns the history of a jobs table as `job_frames` wants it."""
    found = report.read(spark, location, table, job_frames.COLUMNS)
    return found.select(F.lit(table).alias("table"), "*")


# -- figures --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reporting:
    """What a report is about, beside the history."""

    start: datetime | None
    end: datetime | None
    until: datetime  # the end, or now
    limits: job_frames.Limits | None
    progress: Progress

    def run(
        self, history: DataFrame, target: str | None, kept: contextlib.ExitStack
    ) -> page.JobFigures:
        """Finds out everything, and writes the tables; what Spark keeps goes to `kept`."""

        def keep(frame: DataFrame) -> DataFrame:
            return kept.enter_context(report.kept(frame))

        self._tell("reading", 0)
        every = keep(report.before(history, self.end))
        seen = every if self.start is None else every.where(F.col("ts") >= self.start)
        span = seen.agg(
            F.count("*").alias("count"),
            F.unix_micros(F.min("ts")).alias("first_us"),
            F.unix_micros(F.max("ts")).alias("last_us"),
        ).collect()[0]
        self._tell("pairing", 1)
        attempts, jobs = keep(self._attempts(every)), keep(self._jobs(every))
        durations = keep(job_frames.frequencies(attempts, jobs))
        frames = {
            name: keep(frame)
            for name, frame in self._frames(seen, attempts, jobs, durations).items()
        }
        for done, (name, frame) in enumerate(frames.items(), start=2):
            self._tell(f"writing {name}", done)
            if target is not None:
                frame.coalesce(1).write.mode("overwrite").parquet(os.path.join(target, name))
        self._tell("drawing", _STEPS - 1)
        periods, seconds = _periods(seen, attempts, span)
        return self._found(frames, durations, span, periods, seconds)

    def _tell(self, what: str, done: int) -> None:
        self.progress(what, done, _STEPS)

    def _attempts(self, history: DataFrame) -> DataFrame:
        return not_ended_before(job_frames.attempts(history), self.start)

    def _jobs(self, history: DataFrame) -> DataFrame:
        found = job_frames.jobs(history)
        if self.start is None:
            return found
        is_open = F.col("state").isin(*job_frames.OPEN)
        return found.where(is_open | (F.col("last_at") >= self.start))

    def _frames(
        self, seen: DataFrame, attempts: DataFrame, jobs: DataFrame, frequencies: DataFrame
    ) -> dict[str, DataFrame]:
        """Returns what is written, by the names of the folders."""
        limits = {} if self.limits is None else self.limits
        slow = job_frames.breaches(attempts, jobs, limits, self.until)
        return {
            "percentiles": job_frames.percentiles(frequencies).orderBy(
                "level", "table", "domain", "priority", "measure"
            ),
            "breaches": slow.orderBy(F.desc("seconds"), "table", "row"),
            "failures": job_frames.failures(jobs).orderBy(F.desc("failures"), "table", "key"),
            "hourly": job_frames.throughput(seen, attempts, HOUR_SECONDS).orderBy("table", "at"),
            "tables": job_frames.totals(jobs, attempts, self.until).orderBy("table"),
        }

    def _found(
        self,
        frames: Mapping[str, DataFrame],
        frequencies: DataFrame,
        span: Row,
        periods: list[dict[str, Any]],
        seconds: int,
    ) -> page.JobFigures:
        limits, tables = self.limits, report.rows(frames["tables"])
        return page.JobFigures(
            tables=tables,
            percentiles=_listed_percentiles(frames["percentiles"]),
            breaches=report.rows(frames["breaches"].limit(LISTED)),
            breach_count=frames["breaches"].count(),
            failures=report.rows(frames["failures"].limit(LISTED)),
            failure_count=frames["failures"].count(),
            periods=periods,
            period_seconds=seconds,
            histogram=report.rows(job_frames.histogram(frequencies)),
            buckets_per_decade=job_frames.BUCKETS_PER_DECADE,
            op_count=span["count"],
            first_at=report.date(span["first_us"]),
            last_at=report.date(span["last_us"]),
            until=self.until,
            limit_seconds=shared_limit(limits, [table["table"] for table in tables]),
            is_limited=limits is not None,
        )


_STEPS: Final = 8


def not_ended_before(attempts: DataFrame, start: datetime | None) -> DataFrame:
    """Returns attempts without those that ended before a moment, whenever they began."""
    if start is None:
        return attempts
    return attempts.where(F.col("ended_at").isNull() | (F.col("ended_at") >= start))


def shared_limit(limits: job_frames.Limits | None, tables: Sequence[str]) -> float | None:
    """Returns the limit that holds for all tables of a report; None if there is no such one."""
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
    every = job_frames.throughput(
        seen.withColumn("table", F.lit("")), attempts.withColumn("table", F.lit("")), seconds
    )
    found = {int(row["at"].timestamp()): row for row in report.rows(every)}
    for row in found.values():
        # A job that fails for the last time is dead, and has no row FAIL.
        row["failed"] += row["timed_out"] + row["dead"]
    first, last = min(found), max(found)
    empty = {"pushed": 0, "done": 0, "failed": 0, "wait_p50": None, "wait_p99": None}
    return [
        found.get(at, {"at": datetime.fromtimestamp(at, UTC), **empty})
        for at in range(first, last + 1, seconds)
    ], seconds


def period_seconds(span_seconds: int) -> int:
    """Returns the length of periods of which a plot has neither too many nor too few."""
    for seconds in _PERIODS_SECONDS:
        if span_seconds < seconds * PERIODS_MAX:
            return seconds
    longest = _PERIODS_SECONDS[-1]
    return longest * math.ceil((span_seconds + 1) / (longest * PERIODS_MAX))


# -- the report -----------------------------------------------------------------------------------


def _report(found: page.JobFigures, target: str | None) -> Report:
    wait, run, total = (found.overall(measure) for measure in ("wait", "run", "total"))
    names = (
        *("jobs", "done", "waiting", "due", "taken", "dead", "expired", "expired_unread"),
        *("dropped", "attempts", "timed_out", "late"),
    )
    figures: dict[str, Figure] = {
        "tables": ", ".join(table["table"] for table in found.tables),
        "ops": found.op_count,
        **{name: found.total(name) for name in names},
        "failed_twice": found.total("failed_twice"),
        "pushes_saved": found.total("merged"),
        "breaches": found.breach_count,
        "wait_p50_seconds": wait["p50"],
        "wait_p99_seconds": wait["p99"],
        "run_p50_seconds": run["p50"],
        "run_p99_seconds": run["p99"],
        "total_p50_seconds": total["p50"],
        "total_p99_seconds": total["p99"],
        "until": found.until.isoformat(),
        "page": None if target is None else os.path.abspath(os.path.join(target, PAGE_NAME)),
    }
    shown = ("table", "measure", "count", *job_frames.PERCENTILES, "max")
    rows = [
        {name: row[name] for name in shown} for row in found.percentiles if row["level"] == "table"
    ]
    return Report(job="lifecycle", figures=figures, rows=rows)
