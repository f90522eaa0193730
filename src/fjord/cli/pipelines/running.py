"""What the verbs of `fjord pipeline` share: where data is, a session of Spark, and the report."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fjord.cli import output
from fjord.cli.arguments import DAEMON, Data, Json, To, option
from fjord.cli.output import Bar, usage
from fjord.client.address import parse_url
from fjord.errors import FjordError, UsageError

if TYPE_CHECKING:
    from fjord.spark import SparkSession
    from fjord.spark.options import Location
    from fjord.spark.pipelines.report import Progress, Report

Master = Annotated[
    str, option("Where Spark runs: local[*], spark://host:7077, k8s://..., yarn.", shown="local[*]")
]
Conf = Annotated[
    list[str] | None, option("A setting of Spark, as NAME=VALUE; may be given often.", "--conf")
]
DryRun = Annotated[bool, option("Say what would be done, and do nothing.", "--dry-run")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkJob:
    """What a job of Spark reads, where it runs, and how its report is printed: options of verbs."""

    to: To = DAEMON
    data: Data = ""
    master: Master = ""
    conf: Conf = None
    as_json: Json = False

    @contextlib.contextmanager
    def started(self) -> Iterator[tuple[SparkSession, Location, Progress]]:
        """Runs a session of Spark; yields it, where the data is, and what shows how far it is."""
        place = location(self.to, self.data)
        with spark_of(self.master, self.conf) as spark, progress() as shown:
            yield spark, place, shown

    def show(self, report: Report) -> None:
        show(report, as_json=self.as_json)


def location(to: str, data: str) -> Location:
    """Returns where the data is that a job reads.

    Raises:
        UsageError: if `to` is no address.
    """
    with installed():
        from fjord.spark.options import Location

    if data:
        return Location.of_path(data)
    with usage():
        parse_url(to)
    return Location(server=to)


@contextlib.contextmanager
def spark_of(master: str, conf: list[str] | None) -> Iterator[SparkSession]:
    """Runs a session of Spark; what Spark itself complains about becomes one sentence.

    Raises:
        FjordError: if PySpark is not installed, or if Spark fails.
        UsageError: if a setting is none.
    """
    with installed():
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


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Says what to install where PySpark is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise FjordError(
            f"{error.name} is missing: pip install 'fjord-journal[spark]' (Spark needs Java 17)"
        ) from error


def _setting(text: str) -> tuple[str, str]:
    name, is_there, value = text.partition("=")
    if not is_there or not name:
        raise UsageError(f"--conf {text} is no setting; one looks like spark.executor.memory=4g")
    return name, value


@contextlib.contextmanager
def progress() -> Iterator[Progress]:
    """Shows how far a job is, on standard error."""
    with Bar("working") as bar:

        def tell(what: str, done: int, total: int | None) -> None:
            bar.describe(what)
            bar.update(done, total)

        yield tell


def show(report: Report, *, as_json: bool) -> None:
    """Prints what a job has done; ends with exit code 1 if it is not as it should be.

    In JSON the table of a job is always in `lines`; some have figures that are called `rows`.
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
                output.print_line(*names)  # a pipe would not know what the columns are
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
