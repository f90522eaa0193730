"""`fjord pipeline init`: writes a project for Spark's declarative pipelines."""

from __future__ import annotations

from typing import Annotated

import typer

from fjord.cli.arguments import DAEMON, Data, Json, To
from fjord.cli.output import explained
from fjord.cli.pipelines import running
from fjord.errors import FjordError


def init(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="Where to write it.", show_default=False)
    ],
    table: Annotated[str, typer.Option(help="The table that the pipeline reads.")] = "events",
    force: Annotated[
        bool, typer.Option("--force", help="Write it again, over the files of an older one.")
    ] = False,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Writes a project for Spark's declarative pipelines: ingest, latest and a report.

    Nothing is run. A table of jobs is refused, if the daemon can be asked. `./run` in the
    directory runs it, again and again: a streaming table with the name of the table takes what is
    new, and views are made from it. Running it needs the extra `pipelines` of the package.

    Example: fjord pipeline init warehouse

    Example: fjord pipeline init warehouse --to fjord://127.0.0.1:17994 --table orders
    """
    with explained():
        try:
            from fjord.spark.pipelines.init import init as write
        except ModuleNotFoundError as error:
            text = f"{error.name} is missing: pip install 'fjord-journal[pipelines]'"
            raise FjordError(text) from error
        report = write(directory, running.location(to, data), table=table, force=force)
        running.show(report, as_json=as_json)
