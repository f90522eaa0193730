"""`fjord pipeline kestrel-import`: queues of a Kestrel become tables."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from fjord.cli import kestrel
from fjord.cli.arguments import DAEMON, Json, To
from fjord.cli.output import explained, usage
from fjord.cli.pipelines import running
from fjord.cli.pipelines.running import Conf, DryRun, Master
from fjord.client.address import parse_url
from fjord.errors import DirectoryError

Anew = Annotated[
    bool, typer.Option("--anew", help="Also queues that were imported before, and have changed.")
]


def kestrel_import(
    directory: kestrel.Directory,
    queue: kestrel.Queues = None,
    table: kestrel.Tables = None,
    kind: kestrel.As = kestrel.ItemsAs.JOBS,
    damaged: kestrel.Damaged = False,
    skip_too_large: kestrel.SkipTooLarge = False,
    anew: Anew = False,
    moved: kestrel.Moved = False,
    dry_run: DryRun = False,
    to: To = DAEMON,
    master: Master = "",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Writes what is in the queues of a Kestrel to jobs tables or streams, one for each queue.

    Does what `fjord kestrel import` does, many queues at a time: each item is written once, however
    often this is run, and all is checked before anything is written. The files stay as they are.

    Example: fjord pipeline kestrel-import /var/spool/kestrel --dry-run

    Example: fjord pipeline kestrel-import /var/spool/kestrel --queue cars --as stream
    """
    with explained():
        with usage():
            parse_url(to)
        if not os.path.isdir(directory):
            raise DirectoryError(f"{directory} is not a directory")
        with running.spark_of(master, conf) as spark, running.progress() as progress:
            from fjord.spark.pipelines.kestrel_import import kestrel_import as run

            report = run(
                spark,
                directory,
                to,
                queues=queue or (),
                tables=table or (),
                kind=kind,
                damaged=damaged,
                skip_too_large=skip_too_large,
                anew=anew,
                moved=moved,
                dry_run=dry_run,
                progress=progress,
            )
        running.show(report, as_json=as_json)
