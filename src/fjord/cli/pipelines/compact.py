"""`fjord pipeline compact`: small cold blocks become few large ones."""

from __future__ import annotations

from typing import Annotated

import typer

from fjord.cli.arguments import DAEMON, Data, Json, To
from fjord.cli.pipelines import running
from fjord.cli.pipelines.running import Conf, DryRun, Master, explained
from fjord.limits import MIB

Table = Annotated[str, typer.Argument(metavar="TABLE", help="Whose blocks.", show_default=False)]
TargetMib = Annotated[
    int, typer.Option("--target-mib", min=1, help="So many MiB a new block has at most, about.")
]
MinBlocks = Annotated[int, typer.Option(min=2, help="Fewer blocks than these stay as they are.")]


def compact(
    table: Table,
    target_mib: TargetMib = 128,
    min_blocks: MinBlocks = 2,
    dry_run: DryRun = False,
    to: To = DAEMON,
    data: Data = "",
    master: Master = "",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Puts neighbouring small blocks of a table's history together.

    Rows, their order and all that readers see stay the same. The old files go an hour later, for
    those who have begun to read them. With --data the directory must not be in use.

    Example: fjord pipeline compact events --dry-run

    Example: fjord pipeline compact events --target-mib 256 --master local[4]
    """
    with explained():
        place = running.location(to, data)
    with (
        explained(),
        running.spark_of(master, conf) as spark,
        running.progress() as progress,
    ):
        from fjord.spark.pipelines.compact import compact as run

        report = run(
            spark,
            place,
            table,
            target_bytes=target_mib * MIB,
            min_blocks=min_blocks,
            dry_run=dry_run,
            progress=progress,
        )
    running.show(report, as_json=as_json)
