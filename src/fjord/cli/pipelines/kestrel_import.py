"""`fjord pipeline kestrel-import`: queues of a Kestrel become tables."""

from __future__ import annotations

from dataclasses import asdict

from fjord.cli.arguments import Json
from fjord.cli.kestrel import Importing, check_address
from fjord.cli.pipelines import running
from fjord.cli.pipelines.running import Conf, Master
from fjord.kestrel.importer import ImportOptions


def kestrel_import(
    options: Importing, master: Master = "", conf: Conf = None, as_json: Json = False
) -> None:
    """Writes what is in the queues of a Kestrel to jobs tables or streams, one for each queue.

    Does what `fjord kestrel import` does, many queues at a time: each item is written once, however
    often this is run, and all is checked before anything is written; `--anew` passes over queues
    whose files have not changed since. The files stay as they are.

    Example: fjord pipeline kestrel-import /var/spool/kestrel --dry-run

    Example: fjord pipeline kestrel-import /var/spool/kestrel --queue cars --as stream
    """
    check_address(options.url)
    with running.spark_of(master, conf) as spark, running.progress() as progress:
        from fjord.spark.pipelines.kestrel_import import imported

        report = imported(spark, ImportOptions(**asdict(options)), progress)
    running.show(report, as_json=as_json)
