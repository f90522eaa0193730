"""`fjord pipeline latest`: the current value of every key, kept up to date."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from fjord.cli.arguments import DAEMON, Data, Json
from fjord.cli.pipelines import running
from fjord.errors import UsageError

Table = Annotated[str, typer.Argument(metavar="TABLE", help="The table.", show_default=False)]
Target = Annotated[
    str,
    typer.Argument(metavar="TARGET", help="The folder or URL for the values.", show_default=False),
]


def latest(
    table: Table,
    target: Target,
    to: Annotated[str, typer.Option(help="Address of the daemon.", show_default=DAEMON)] = "",
    data: Data = "",
    from_warehouse: Annotated[
        str, typer.Option(help="Read this target of ingest, instead of the table itself.")
    ] = "",
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Read the whole history, not only what is new.")
    ] = False,
    grace_hours: Annotated[
        float, typer.Option(help="How long snapshots stay that are not the last one.", min=0)
    ] = 24,
    master: running.Master = "",
    conf: running.Conf = None,
    as_json: Json = False,
) -> None:
    """Brings the current value of every key of a table up to date, as Parquet.

    Of a key/value table, or of a stream whose messages have keys. It reads what has come since the
    last run only. Readers see the values of the last run until all of the new ones are there.

    Example: fjord pipeline latest settings /warehouse/settings-latest

    Example: fjord pipeline latest events /warehouse/latest --from-warehouse /warehouse/events
    """
    with running.explained():
        if from_warehouse and (to or data):
            raise UsageError("--from-warehouse is read instead of --to or --data; give one of them")
        place = None if from_warehouse else running.location(to or DAEMON, data)
    with (
        running.explained(),
        running.spark_of(master, conf) as spark,
        running.progress() as progress,
    ):
        from fjord.spark.pipelines import latest as job

        found = job.latest(
            spark,
            place,
            table,
            target,
            from_warehouse=from_warehouse,
            rebuild=rebuild,
            grace=timedelta(hours=grace_hours),
            progress=progress,
        )
        running.show(found, as_json=as_json)
