"""Writing with Spark: the sink of Fjord beside a Python sink that drops its rows."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import fjord
from benchmarks import report

if TYPE_CHECKING:
    import pyarrow as pa

ROUNDS = 3
PARTITIONS = 4
STREAM_AIM, JOBS_AIM = 0.5, 50_000
JOBS_SHARE = 10  # the divisor for jobs


@dataclass
class Dropped(WriterCommitMessage):
    rows: int


class Dropping(DataSource):
    """A sink that counts its rows and drops them."""

    @classmethod
    def name(cls) -> str:
        return "dropping"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001
        return DroppingWriter()


class DroppingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Dropped:
        return Dropped(sum(batch.num_rows for batch in iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Does nothing."""


def writing(spark: SparkSession, url: str, rows: int) -> None:
    spark.dataSource.register(Dropping)
    frame = messages(spark, rows)
    dropped, stored = [], []
    for number in range(ROUNDS):
        dropped.append(_seconds(frame, "dropping", {}))
        options = {"server": url, "table": f"sunk{number}", "kind": "stream"}
        stored.append(_seconds(frame, "fjord", options))
        _check(url, f"sunk{number}", rows)
    rate, most = rows / statistics.median(stored), rows / statistics.median(dropped)
    report.figure(f"{rows:,} rows into a sink that drops them", f"{most:,.0f} rows/s")
    report.figure(
        "  into a stream of Fjord, exactly once",
        f"{rate:,.0f} rows/s, {rate / most:.2f} of it",
        aim=f"target: {STREAM_AIM}",
        is_met=rate / most >= STREAM_AIM,
    )
    jobs = max(1, rows // JOBS_SHARE)
    options = {"server": url, "table": "sunk_jobs", "kind": "jobs"}
    rate = jobs / _seconds(messages(spark, jobs), "fjord", options)
    report.figure(
        f"  {jobs:,} rows into a jobs table, all keys new",
        f"{rate:,.0f} rows/s",
        aim=f"target: {JOBS_AIM:,}",
        is_met=rate >= JOBS_AIM,
    )


def messages(spark: SparkSession, rows: int) -> DataFrame:
    """Returns rows with a key and a value of 100 bytes."""
    number = f.col("id").cast("string")
    return spark.range(rows, numPartitions=PARTITIONS).select(
        f.concat(f.lit("user:"), number).cast("binary").alias("key"),
        f.rpad(number, 100, ".").cast("binary").alias("value"),
    )


def _seconds(frame: DataFrame, format_: str, options: dict[str, str]) -> float:
    start = time.perf_counter()
    frame.write.format(format_).mode("append").options(**options).save()
    return time.perf_counter() - start


def _check(url: str, table: str, rows: int) -> None:
    with fjord.connect(url) as db:
        found = db.stream(table).subscriber("check").lag
        db.drop(table)
    if found != rows:
        raise RuntimeError(f"{found} messages where there should be {rows}")
