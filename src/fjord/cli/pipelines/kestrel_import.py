"""`fjord pipeline kestrel-import`: queues of a Kestrel become tables."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from fjord.cli.failing import usage
from fjord.cli.pipelines import running
from fjord.cli.pipelines.running import Conf, DryRun, Master, explained
from fjord.cli.where import DAEMON, Json, To
from fjord.client.address import parse_url
from fjord.errors import DirectoryError, UsageError

Directory = Annotated[
    str, typer.Argument(metavar="DIR", help="A directory of queues.", show_default=False)
]
Queues = Annotated[
    list[str] | None,
    typer.Option("--queue", metavar="NAME", help="This queue only; may be given often."),
]
Table = Annotated[
    str, typer.Option(help="The table of a single queue.", show_default="named as the queue")
]
Kind = Annotated[str, typer.Option("--as", help="What items become: `jobs`, or a `stream`.")]
Damaged = Annotated[
    bool, typer.Option("--damaged", help="Import what can be read of damaged files.")
]
SkipTooLarge = Annotated[
    bool, typer.Option("--skip-too-large", help="Leave out items that no value can hold.")
]
Anew = Annotated[
    bool, typer.Option("--anew", help="Also queues that have changed since they were imported.")
]


def kestrel_import(
    directory: Directory,
    queue: Queues = None,
    table: Table = "",
    kind: Kind = "jobs",
    damaged: Damaged = False,
    skip_too_large: SkipTooLarge = False,
    anew: Anew = False,
    dry_run: DryRun = False,
    to: To = DAEMON,
    master: Master = "",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Writes what is in the queues of a Kestrel to jobs tables or streams, one for each queue.

    Open items come first; what has expired is left out. All is checked before anything is written,
    and a queue is written once, however often this is run. The files stay as they are.

    Example: fjord pipeline kestrel-import /var/spool/kestrel --dry-run

    Example: fjord pipeline kestrel-import /var/spool/kestrel --queue cars --as stream
    """
    with explained():
        if kind not in ("jobs", "stream"):
            raise UsageError(f"--as is jobs or stream, not {kind}")
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
                table=table,
                kind=kind,
                damaged=damaged,
                skip_too_large=skip_too_large,
                anew=anew,
                dry_run=dry_run,
                progress=progress,
            )
        running.show(report, as_json=as_json)
