"""`fjord pipeline dead-letters`: why jobs died, and a list to send them back."""

from __future__ import annotations

from typing import Annotated

import typer

from fjord.cli import arguments
from fjord.cli.arguments import DAEMON, Data, Json, TableName, To
from fjord.cli.pipelines import running
from fjord.cli.pipelines.running import Conf, Master, explained

Out = Annotated[
    str,
    typer.Option(help="The folder for the tables groups and redrive.", show_default="none"),
]
Redrive = Annotated[
    str,
    typer.Option(help="Write the dead jobs to this file, for `xargs fjord jobs redrive`."),
]
Reason = Annotated[str, typer.Option(help="Only those with this in their reason.")]
Domain = Annotated[str, typer.Option(help="Only those of this domain.")]
Until = Annotated[str, typer.Option(help="Who was dead at this date.", show_default="now")]


def dead_letters(
    table: TableName,
    out: Out = "",
    redrive: Redrive = "",
    reason: Reason = "",
    domain: Domain = "",
    until: Until = "",
    to: To = DAEMON,
    data: Data = "",
    master: Master = "",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Groups dead jobs by reason and domain, with ages, dates and samples of keys and payloads.

    Only jobs that are dead now are in groups and in the list; who was revived or discarded since
    is counted.

    Example: fjord pipeline dead-letters pages

    Example: fjord pipeline dead-letters pages --reason "exit code 7" --redrive rows.txt
    && xargs -a rows.txt fjord jobs redrive pages
    """
    with explained():
        end = arguments.moment(until)
        place = running.location(to, data)
        with running.spark_of(master, conf) as spark, running.progress() as progress:
            from fjord.spark.pipelines.dead_letters import dead_letters as run

            report = run(
                spark,
                place,
                table,
                out or None,
                end=end,
                reason=reason,
                domain=domain,
                redrive=redrive,
                progress=progress,
            )
        running.show(report, as_json=as_json)
