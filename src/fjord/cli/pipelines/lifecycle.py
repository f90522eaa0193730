"""`fjord pipeline lifecycle`: how long jobs wait and run, and what goes wrong with them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from fjord.cli import arguments
from fjord.cli.arguments import DAEMON, Data, Json, To
from fjord.cli.pipelines import running
from fjord.cli.pipelines.running import Conf, Master, explained
from fjord.errors import UsageError

if TYPE_CHECKING:
    from fjord.spark.pipelines.job_frames import Limits

Tables = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TABLE]...", help="Tables of jobs.", show_default="all"),
]
Out = Annotated[
    str, typer.Option(help="The folder for the tables and report.html.", show_default="none")
]
Since = Annotated[
    str, typer.Option(help="Leave out what ended before this date, as 2026-01-31T12:00:00Z.")
]
Until = Annotated[
    str, typer.Option(help="Only what happened before this date.", show_default="now")
]
Breach = Annotated[
    list[str] | None,
    typer.Option(
        help="How many seconds a wait or a job may take: N, or TABLE=N; may be given often.",
        show_default=False,
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="End with 1 if anything took too long.")]


def lifecycle(
    tables: Tables = None,
    out: Out = "",
    since: Since = "",
    until: Until = "",
    breach: Breach = None,
    strict: Strict = False,
    to: To = DAEMON,
    data: Data = "",
    master: Master = "",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Reports on jobs: waits, runs and totals, what was too slow, late, expired or fails again.

    Writes Parquet tables (percentiles, breaches, failures, hourly, tables) and one page of HTML
    with plots to --out; those of an earlier report there are replaced.

    Example: fjord pipeline lifecycle --out report

    Example: fjord pipeline lifecycle pages mails --breach 60 --breach mails=5 --out report --strict

    Example: fjord pipeline lifecycle pages --since 2026-01-31T00:00:00Z --json
    """
    with explained():
        limits = limits_of(breach or [], tables or [])
        if strict and limits is None:
            raise UsageError("--strict needs --breach, which says how long is too long")
        start, end = arguments.moment(since), arguments.moment(until)
        place = running.location(to, data)
        with running.spark_of(master, conf) as spark, running.progress() as progress:
            from fjord.spark.pipelines.lifecycle import lifecycle as run

            report = run(
                spark,
                place,
                tables or (),
                out or None,
                start=start,
                end=end,
                breach_seconds=limits,
                progress=progress,
            )
        if strict and report.figures["breaches"]:
            report = dataclasses.replace(report, ok=False)
        running.show(report, as_json=as_json)


def limits_of(texts: list[str], tables: list[str]) -> Limits | None:
    """Returns how long things may take: for all, or for each table by name."""
    found: dict[str, float] = {}
    for text in texts:
        table, _, number = text.rpartition("=")
        try:
            seconds = float(number)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < float("inf"):
            raise UsageError(f"--breach {text} is no limit; one looks like 60 or pages=60")
        found[table] = seconds
    if not found:
        return None
    for_all = found.pop("", None)
    if not found:
        return for_all
    if for_all is not None and not tables:
        raise UsageError("with --breach N and --breach TABLE=N, name the tables that N is for")
    if for_all is None:
        return found
    return {**dict.fromkeys(tables, for_all), **found}
