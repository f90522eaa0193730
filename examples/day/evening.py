"""The evening of the day: Spark copies it, sums it up and checks it, in one session.

    daemon  ->  ingest      ->  warehouse/events, warehouse/pages    each row of history, once
            ->  latest      ->  warehouse/latest                     the newest event of each page
            ->  lifecycle   ->  report/ and report/report.html       how long jobs waited and ran
            ->  reconcile   ->  server, cold blocks and warehouse agree, or the story ends badly

Each of them is also a verb: `fjord pipeline ingest events warehouse/events --to fjord://...`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from examples.day.website import Fed
from fjord import spark as fjord_spark
from fjord.spark.options import Location
from fjord.spark.pipelines.ingest import ingest
from fjord.spark.pipelines.latest import latest
from fjord.spark.pipelines.lifecycle import lifecycle
from fjord.spark.pipelines.reconcile import reconcile
from fjord.spark.pipelines.report import Report
from fjord.spark.session import SparkSession


class Evening:
    """Runs the jobs one after the other, and tells of each."""

    def __init__(self, spark: SparkSession, url: str, directory: Path, console: Console) -> None:
        self._spark = spark
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

    def newest(self) -> None:
        target = self._target("latest")
        done = latest(self._spark, self._location, "events", target)
        self._tell("latest", f"the newest event of {_number(done, 'keys')} pages", target)

    def report(self, edits: int) -> None:
        done = lifecycle(self._spark, self._location, ["pages"], str(self._reports))
        self._tell(
            "lifecycle",
            f"{edits:,} edits were {_number(done, 'jobs')} jobs, since a page waits only once;\n"
            f"             {_number(done, 'done')} done, {_number(done, 'dead')} dead, "
            f"{_number(done, 'timed_out')} timed out with their workers;\n"
            f"             waited {_seconds(done, 'wait')}, worked on for {_seconds(done, 'run')}",
            str(done.figures["page"]),
        )

    def compare(self, table: str) -> None:
        done = reconcile(self._spark, self._location, table, self._target(table))
        if not done.ok:
            sys.exit(f"the copies of {table} differ: {done.figures} {done.rows}")
        self._tell("reconcile", f"server, cold blocks and warehouse have the same {table}")

    def _target(self, name: str) -> str:
        return str(self._warehouse / name)

    def _tell(self, job: str, text: str, place: str = "") -> None:
        self._console.print(f"  [bold]{job:9}[/bold]  {text}")
        if place:
            self._console.print(f"             {place}")


def tell(url: str, directory: Path, fed: Fed, console: Console) -> None:
    """Runs the jobs of the evening; ends the story if they find anything wrong."""
    console.print("\n[bold]The evening[/bold]: Spark starts ...")
    begun = time.perf_counter()
    with session(directory / "spark.log") as spark:
        console.print(f"  It took {time.perf_counter() - begun:.1f} s.")
        evening = Evening(spark, url, directory, console)
        copied = evening.copy("events")
        evening.copy("pages")
        evening.newest()
        evening.report(fed.edits)
        evening.compare("events")
        evening.compare("pages")
    if copied.figures["rows"] != fed.events:
        sys.exit(f"{fed.events} events were acknowledged, {copied.figures['rows']} came to Spark")


@contextlib.contextmanager
def session(log: Path) -> Iterator[SparkSession]:
    """Runs Spark; what a JVM says on standard error goes to a file, shown if something fails."""
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
