"""`fjord pipeline reconcile`: do server, cold blocks and warehouse have the same rows?"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from fjord.cli.arguments import DAEMON, Data, Json, To
from fjord.cli.pipelines import running
from fjord.cli.pipelines.running import Conf, Master, explained
from fjord.errors import UsageError

BUCKETS: Final = ("hour", "block")

Table = Annotated[str, typer.Argument(metavar="TABLE", help="The table.", show_default=False)]
WarehouseOption = Annotated[
    str, typer.Option(help="Also compare this folder or URL, which `ingest` writes to.")
]
Start = Annotated[int, typer.Option(min=1, help="The first seq to look at.")]
End = Annotated[
    int, typer.Option(min=0, help="The first seq not to look at.", show_default="the durable end")
]
Bucket = Annotated[str, typer.Option(help="Compare with the warehouse by `hour` or by `block`.")]
Ops = Annotated[
    list[str] | None,
    typer.Option("--op", help="Compare only rows of this op; may be given often."),
]
Deep = Annotated[bool, typer.Option("--deep", help="Read every block file, compare its checksum.")]
Blocks = Annotated[
    str,
    typer.Option(help="Where the blocks are, as Spark sees it.", show_default="as the node says"),
]


def reconcile(
    table: Table,
    warehouse: WarehouseOption = "",
    start: Start = 1,
    end: End = 0,
    bucket: Bucket = "hour",
    op: Ops = None,
    deep: Deep = False,
    blocks: Blocks = "",
    to: To = DAEMON,
    data: Data = "",
    master: Master = "",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Compares what the server, its cold blocks and a warehouse have of a table.

    Counts, seqs, duplicates and checksums must agree for each block and each hour. What the
    warehouse has not been given yet is its lag, and no difference. Exit code 1 if anything
    differs; the table then has a line for each side of each block, hour or file that does.

    Example: fjord pipeline reconcile events --warehouse /lake/events

    Example: fjord pipeline reconcile events --deep --json | jq .lines
    """
    with explained():
        if bucket not in BUCKETS:
            raise UsageError(f"--bucket is {' or '.join(BUCKETS)}, not {bucket}")
        if 0 < end < start:
            raise UsageError(f"--end {end} is before --start {start}; nothing is in between")
        place = running.location(to, data)
    with (
        explained(),
        running.spark_of(master, conf) as spark,
        running.progress() as progress,
    ):
        from fjord.spark.pipelines.reconcile import reconcile as run

        report = run(
            spark,
            place,
            table,
            warehouse or None,
            start=start,
            end=end,
            bucket=bucket,
            ops=op or (),
            deep=deep,
            blocks=blocks,
            progress=progress,
        )
    running.show(report, as_json=as_json)
