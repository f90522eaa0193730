"""The evening of the day: Spark copies it, sums it up and checks it, in one session.

    daemon  ->  ingest      ->  warehouse/events, warehouse/pages    each row of history, once
            ->  latest      ->  warehouse/latest                     the newest event of each page
            ->  lifecycle   ->  report/ and report/report.html       how long jobs waited and ran
            ->  reconcile   ->  server, cold blocks and warehouse agree, or the run fails

Each of them is also a verb: `fjord pipeline ingest events warehouse/events --to fjord://...`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from rich.console import Console

from examples.day.website import Fed
from fjord import spark as fjord_spark
from fjord.spark import warehouse
from fjord.spark.options import Location
from fjord.spark.pipelines.ingest import ingest
from fjord.spark.pipelines.latest import latest
from fjord.spark.pipelines.lifecycle import lifecycle
from fjord.spark.pipelines.reconcile import reconcile
from fjord.spark.pipelines.report import Report


class Evening:
    """Runs the pipelines one after another, and prints their results."""

    def __init__(
        self, spark: SparkSession, url: str, directory: Path, console: Console, *, is_kept: bool
    ) -> None:
        self._spark = spark
        self._is_kept = is_kept  # otherwise printing a path is useless
        self._location = Location(server=url)
        self._warehouse = directory / "warehouse"
        self._reports = directory / "report"
        self._console = console

    def copy(self, table: str) -> Report:
        target = self._target(table)
        done = ingest(self._spark, self._location, table, target)
        rate = float(str(done.figures["rows_per_second"]))
        self._tell(
            "ingest",
            f"{_number(done, 'rows')} rows of {table} to Parquet, {rate:,.0f} rows/s",
            target,
        )
        return done

    def newest(self) -> Report:
        target = self._target("latest")
        done = latest(self._spark, self._location, "events", target)
        self._tell("latest", f"the newest event of {_number(done, 'keys')} pages", target)
        return done

    def report(self, edits: int) -> Report:
        done = lifecycle(self._spark, self._location, ["pages"], str(self._reports))
        self._tell(
            "lifecycle",
            f"{edits:,} edits were {_number(done, 'jobs')} jobs, since a page waits only once;\n"
            f"             {_number(done, 'done')} done, {_number(done, 'dead')} dead, "
            f"{_number(done, 'dropped')} overtaken by a newer edit of the page;\n"
            f"             waited {_seconds(done, 'wait')}, worked on for {_seconds(done, 'run')}",
            str(done.figures["page"]),
        )
        return done

    def ended_leases(self, rows: set[int]) -> set[int]:
        """Returns the rows of jobs that no worker ended in time, from the warehouse.

        Those that timed out; and of `rows` also those that were dropped instead of handed out
        again, since the page was edited meanwhile and has a new job.
        """
        history = warehouse.read(self._spark, self._target("pages"))
        is_ended = F.expr("op = 'TIMEOUT'") | (
            F.expr("op = 'SUPERSEDED'") & F.col("row").isin(rows)
        )
        return {row["row"] for row in history.where(is_ended).select("row").collect()}

    def compare(self, table: str) -> None:
        done = reconcile(self._spark, self._location, table, self._target(table))
        if not done.ok:
            sys.exit(f"the copies of {table} differ: {done.figures} {done.rows}")
        self._tell("reconcile", f"server, cold blocks and warehouse have the same {table}")

    def _target(self, name: str) -> str:
        return str(self._warehouse / name)

    def _tell(self, job: str, text: str, place: str = "") -> None:
        self._console.print(f"  [bold]{job:9}[/bold]  {text}")
        if place and self._is_kept:
            self._console.print(f"             {place}")


def tell(url: str, directory: Path, fed: Fed, console: Console, *, is_kept: bool) -> None:
    """Runs the jobs of the evening; ends the story if they find anything wrong."""
    console.print("\n[bold]The evening[/bold]: Spark starts ...")
    begun = time.perf_counter()
    with session(directory / "spark.log") as spark:
        console.print(f"  It took {time.perf_counter() - begun:.1f} s.")
        evening = Evening(spark, url, directory, console, is_kept=is_kept)
        copied = evening.copy("events")
        evening.copy("pages")
        newest = evening.newest()
        reported = evening.report(fed.edits)
        evening.compare("events")
        evening.compare("pages")
        ended = evening.ended_leases(fed.dropped)
    console.print("\n[bold]What Spark found[/bold], and what the day knows by itself:")
    for text, found, known in figures(fed, ended, copied, newest, reported):
        console.print(f"  {text}: {found:,} and {known:,}")
        if found != known:
            sys.exit("these two must be equal")


def figures(
    fed: Fed, ended: set[int], copied: Report, newest: Report, reported: Report
) -> Iterator[tuple[str, int, int]]:
    """Yields figures that must agree: their name, Spark's result, and the expected value."""
    jobs, done, dead, dropped = (
        int(str(reported.figures[name])) for name in ("jobs", "done", "dead", "dropped")
    )
    yield (
        "events in the warehouse, and written to the spool",
        int(str(copied.figures["rows"])),
        fed.events,
    )
    yield "keys in `latest`, and pages with events", int(str(newest.figures["keys"])), len(fed.keys)
    # There may be others: jobs that a daemon was handing out when it was killed reach no worker.
    yield (
        "jobs of the worker that died, and those that came back",
        len(fed.dropped),
        len(fed.dropped & ended),
    )
    yield "dead jobs in the report, and in the daemon", dead, fed.dead
    yield (
        "jobs that are done, dead or overtaken by a newer edit, and all",
        done + dead + dropped,
        jobs,
    )


@contextlib.contextmanager
def session(log: Path) -> Iterator[SparkSession]:
    """Runs Spark; the JVM's standard error goes to a file, shown if something fails."""
    sys.stderr.flush()
    before = os.dup(2)
    with log.open("w+b") as file:
        os.dup2(file.fileno(), 2)
        try:
            spark = fjord_spark.session()
            yield spark
            spark.stop()
        except BaseException:
            os.write(before, log.read_bytes())
            raise
        finally:
            os.dup2(before, 2)
            os.close(before)


def _number(done: Report, name: str) -> str:
    return f"{int(str(done.figures[name] or 0)):,}"


def _seconds(done: Report, measure: str) -> str:
    half, most = (float(str(done.figures[f"{measure}_{part}_seconds"])) for part in ("p50", "p99"))
    return f"{half:.3f} s (half of them), {most:.3f} s (99 of 100)"
