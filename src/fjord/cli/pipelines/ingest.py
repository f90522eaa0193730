"""`fjord pipeline ingest`: the history of a table into a warehouse."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fjord.cli.arguments import DAEMON, Data, Json, To
from fjord.cli.pipelines import running
from fjord.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMATS: Final = ("parquet", "delta")
# Spark's own words for a time.
_EVERY: Final = re.compile(
    r"[0-9]+ *(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?|d|days?)", re.ASCII | re.IGNORECASE
)

Table = Annotated[str, typer.Argument(metavar="TABLE", help="The table.", show_default=False)]
Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET", help="The folder or URL of the warehouse table.", show_default=False
    ),
]

Ops = Annotated[
    list[str] | None,
    typer.Option("--op", help="Only rows of this op; may be given often.", show_default="all"),
]


def ingest(
    table: Table,
    target: Target,
    to: To = DAEMON,
    data: Data = "",
    form: Annotated[
        str, typer.Option("--format", help="parquet, with a manifest, or delta.")
    ] = "parquet",
    checkpoint: Annotated[
        str,
        typer.Option(
            help="Where Spark remembers how far it is.", show_default="_checkpoint in TARGET"
        ),
    ] = "",
    max_rows: Annotated[int, typer.Option(help="Rows of a batch, about.", min=1)] = 1_000_000,
    subscriber: Annotated[
        str, typer.Option(help="A subscriber of a stream whose mark shows how far it is.")
    ] = "",
    columns: Annotated[
        str, typer.Option(help="Only these columns, with commas between.", show_default="all")
    ] = "",
    op: Ops = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on until Ctrl-C, instead of ending at the end.")
    ] = False,
    every: Annotated[str, typer.Option(help="How often --follow looks for more.")] = "1 minute",
    master: running.Master = "",
    conf: running.Conf = None,
    as_json: Json = False,
) -> None:
    """Adds the history of a table to a warehouse, each row exactly once.

    The warehouse is a folder of Parquet files with a manifest, or a table of Delta. Run it again to
    add what has come since; it may be stopped, or killed, at any moment. It says how many rows,
    batches and files were added, which seqs, how fast, and how far behind it is.

    Example: fjord pipeline ingest events /warehouse/events

    Example: fjord pipeline ingest pages s3a://bucket/pages --format delta --data data

    Example: fjord pipeline ingest events /warehouse/events --follow --subscriber warehouse
    """
    with running.explained():
        _check(form, every)
        place = running.location(to, data)
    with (
        running.explained(),
        running.spark_of(master, conf) as spark,
        running.progress() as progress,
    ):
        from fjord.spark.pipelines import ingest as job

        found = job.ingest(
            spark,
            place,
            table,
            target,
            format=form,
            checkpoint=checkpoint or None,
            max_rows=max_rows,
            subscriber=subscriber or None,
            available_now=not follow,
            every=every,
            columns=_listed(columns),
            ops=op or (),
            progress=progress,
        )
        running.show(found, as_json=as_json)


def _check(form: str, every: str) -> None:
    if form not in FORMATS:
        raise UsageError(f"--format is parquet or delta, not {form}")
    if not _EVERY.fullmatch(every):
        raise UsageError(f"--every {every} is no time; one looks like 30 seconds or 5 minutes")


def _listed(text: str) -> Sequence[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
