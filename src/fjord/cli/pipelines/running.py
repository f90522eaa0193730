"""Shared by the verbs of `fjord pipeline`: the location, the Spark session and the report."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fjord.cli import output
from fjord.cli.arguments import DAEMON, Data, Json, To, option
from fjord.cli.output import Bar, needs, usage
from fjord.client.address import parse_url
from fjord.errors import UsageError

if TYPE_CHECKING:
    from fjord.spark import SparkSession
    from fjord.spark.options import Location
    from fjord.spark.pipelines.report import Progress, Report

SPARK: Final = "{} is missing: pip install 'fjord-journal[spark]' (Spark needs Java 17)"

Master = Annotated[
    str, option("Where Spark runs: local[*], spark://host:7077, k8s://..., yarn.", shown="local[*]")
]
Conf = Annotated[
    list[str] | None, option("A Spark setting, as NAME=VALUE; may be repeated.", "--conf")
]
DryRun = Annotated[bool, option("Only print what would be done.", "--dry-run")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkJob:
    """What a Spark job reads, where it runs, and how its report is printed: options of verbs."""

    to: To = DAEMON
    data: Data = ""
    master: Master = ""
    conf: Conf = None
    as_json: Json = False

    @contextlib.contextmanager
    def started(self) -> Iterator[tuple[SparkSession, Location, Progress]]:
        """Runs a Spark session; yields it, the location of the data, and the progress."""
        place = location(self.to, self.data)
        with spark_of(self.master, self.conf) as spark, progress() as shown:
            yield spark, place, shown

    def show(self, report: Report) -> None:
        show(report, as_json=self.as_json)


def location(to: str, data: str) -> Location:
    """Returns the location of a job's data.

    Raises:
        UsageError: if `to` is not a valid address.
    """
    with needs(SPARK):
        from fjord.spark.options import Location

    if data:
        return Location.of_path(data)
    with usage():
        parse_url(to)
    return Location(server=to)


@contextlib.contextmanager
def spark_of(master: str, conf: list[str] | None) -> Iterator[SparkSession]:
    """Runs a Spark session.

    Raises:
        FjordError: if PySpark is not installed, or if Spark fails.
        UsageError: if a setting is invalid.
    """
    with needs(SPARK):
        from fjord.spark import session
        from fjord.spark.pipelines import report as failing

    settings = dict(_setting(text) for text in conf or ())
    if master:
        settings["spark.master"] = master
    with failing.explained():
        spark = session(**settings)
        try:
            yield spark
        finally:
            spark.stop()


def _setting(text: str) -> tuple[str, str]:
    name, is_there, value = text.partition("=")
    if not is_there or not name:
        raise UsageError(f"--conf {text} is not a setting; give one like spark.executor.memory=4g")
    return name, value


@contextlib.contextmanager
def progress() -> Iterator[Progress]:
    """Shows the progress of a job on standard error."""
    with Bar("working") as bar:

        def tell(what: str, done: int, total: int | None) -> None:
            bar.describe(what)
            bar.update(done, total)

        yield tell


def show(report: Report, *, as_json: bool) -> None:
    """Prints the report of a job; exit code 1 if it is not ok.

    In JSON the table of a job is in `lines`, since some have a figure `rows`.
    """
    if as_json:
        output.print_json(
            {
                "job": report.job,
                "ok": report.ok,
                **report.figures,
                "lines": [dict(row) for row in report.rows],
            }
        )
    else:
        figures: list[tuple[Any, ...]] = [
            (name.replace("_", " "), _shown(found)) for name, found in report.figures.items()
        ]
        output.print_rows((report.job, ""), figures)
        if report.rows:
            names = tuple(report.rows[0])
            rows = (tuple(_shown(row[name]) for name in names) for row in report.rows)
            if not sys.stdout.isatty():
                output.print_line(*names)  # print_rows prints them on a terminal only
            output.print_rows(names, rows)
    if not report.ok:
        sys.stdout.flush()
        raise typer.Exit(1)


def _shown(found: object) -> str:
    if isinstance(found, bool):
        return "yes" if found else "no"
    if isinstance(found, float):
        return f"{found:,.3f}"
    if isinstance(found, int):
        return f"{found:,}"
    return "" if found is None else str(found)
