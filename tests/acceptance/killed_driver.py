"""A driver of Spark that is killed where it is told to: python -m tests.acceptance.killed_driver

It runs two queries over one table until both have all that is there, one to a warehouse and then
one through the sink into another table.  (At the same time they would meet a race in Spark 4.3: a
task fails to be serialised, "Illegal size of collection".)  What to do comes as JSON on the command
line; what was done goes as JSON to standard output.

A kill is one of POINTS and the number of a batch.  It is SIGKILL for the driver and for its JVM,
which are one process group; workers end with the JVM.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from fjord.spark import session, sink, warehouse
from fjord.spark.delta import DeltaWarehouse
from fjord.spark.options import Location
from fjord.spark.pipelines.ingest import ingest
from fjord.spark.sink import FjordStreamWriter
from fjord.spark.source import FjordSource
from fjord.spark.warehouse import ParquetWarehouse

INGEST_POINTS: Final = ("read", "files written", "manifest committed")
SINK_POINTS: Final = ("rows staged", "before the sink's commit", "after the sink's commit")
POINTS: Final = INGEST_POINTS + SINK_POINTS
FORMAT: Final = "fjord-until-killed"


@dataclass(frozen=True)
class Kill:
    """Where to end, and whom."""

    point: str = ""
    batch: int = -1
    group: int = 0

    def at(self, point: str, batch: int) -> None:
        if (point, batch) == (self.point, self.batch):
            os.killpg(self.group, signal.SIGKILL)


class KilledSource(FjordSource):
    """The sink of Fjord, with a knife in it."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        options = dict(self.options)
        kill = Kill(**json.loads(options.pop("kill")))
        plain = sink.stream_writer(options, schema, overwrite=overwrite)
        return KilledWriter(plain, kill)


class KilledWriter(FjordStreamWriter):
    def __init__(self, plain: FjordStreamWriter, kill: Kill) -> None:
        super().__init__(plain._wanted, plain._columns)
        self._kill = kill

    def write(self, iterator: Iterator[Any]) -> Any:
        staged = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        batch = context.getLocalProperty("streaming.sql.batchId")
        self._kill.at("rows staged", int(batch or -1))
        return staged

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 - Spark's name
        self._kill.at("before the sink's commit", batchId)
        super().commit(messages, batchId)
        self._kill.at("after the sink's commit", batchId)


def wound_ingest(kill: Kill) -> None:
    """Makes ingest end at one of its points."""
    write: Callable[..., Any] = warehouse.write

    def wounded_write(frame: Any, target: Any, number: int, **options: Any) -> Any:
        kill.at("read", number)
        files = write(frame, target, number, **options)
        kill.at("files written", number)
        return files

    def wounded(add: Callable[..., Any]) -> Callable[..., Any]:
        def wounded_add(self: Any, batch: Any, files: Any) -> Any:
            added = add(self, batch, files)
            kill.at("manifest committed", batch.number)
            return added

        return wounded_add

    warehouse.write = wounded_write  # type: ignore[assignment]
    for kind in (ParquetWarehouse, DeltaWarehouse):
        kind.add = wounded(kind.add)  # type: ignore[method-assign]


def main() -> None:
    task = json.loads(sys.argv[1])
    os.setpgid(0, 0)
    kill = Kill(**task["kill"], group=os.getpid()) if task["kill"] else Kill()
    spark = session(**{"spark.master": "local[2]"})
    spark.dataSource.register(KilledSource)
    wound_ingest(kill)
    ingest(
        spark,
        Location(server=task["server"]),
        task["table"],
        task["target"],
        format=task["format"],
        max_rows=task["max_rows"],
        subscriber="warehouse",
    )
    copy(spark, task, kill).awaitTermination()
    print(json.dumps(summary(spark, task["target"])), flush=True)
    spark.stop()


def copy(spark: SparkSession, task: dict[str, Any], kill: Kill, format_: str = FORMAT) -> Any:
    """Begins to copy the table into another one, through the sink, with a knife in it or not."""
    told = {"kill": json.dumps(vars(kill))} if format_ == FORMAT else {}
    rows = (
        spark.readStream.format("fjord")
        .options(server=task["server"], table=task["table"], maxRowsPerTrigger=task["max_rows"])
        .load()
        .where("type IS NOT NULL")
        .select("key", "type", "value")
    )
    return (
        rows.writeStream.format(format_)
        .options(server=task["server"], table="copy", kind="stream", **told)
        .option("checkpointLocation", task["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )


def summary(spark: SparkSession, target: str) -> dict[str, int]:
    """Returns how many rows a warehouse has, and checksums of them."""
    found = warehouse.read(spark, target).agg(
        f.count("*").alias("rows"),
        f.countDistinct("seq").alias("seqs"),
        f.sum(f.crc32("value")).alias("crc"),
        f.max("seq").alias("last"),
    )
    (row,) = found.collect()
    return {name: int(number or 0) for name, number in row.asDict().items()}


if __name__ == "__main__":
    main()
