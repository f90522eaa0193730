"""Streaming with Spark: ingest in large batches, an idle query, and latency of a message."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import fjord
from benchmarks import report
from benchmarks.spark_reads import TABLE
from fjord.spark.options import Location
from fjord.spark.pipelines.ingest import ingest

INGEST_AIM = 500_000
BATCHES = 5
IDLE_SECONDS = 5.0
POLLS_AIM = 3.0
_WAIT_SECONDS_MAX = 60.0


def ingesting(spark: SparkSession, url: str, rows: int, where: str) -> None:
    """Writes a table to Parquet in batches; the first one, which starts workers, is separate."""
    with tempfile.TemporaryDirectory(prefix=".fjord-bench-", dir=Path.cwd()) as folder:
        found = ingest(
            spark,
            Location(server=url),
            TABLE,
            f"{folder}/warehouse",
            max_rows=max(1, rows // BATCHES),
        ).figures
    if found["rows"] != rows:
        raise RuntimeError(f"{found['rows']} rows where there should be {rows}")
    rate, whole = (
        float(found[name] or 0) for name in ("steady_rows_per_second", "rows_per_second")
    )
    report.figure(
        f"ingest of {rows:,} rows to Parquet, {where}, {found['batches']} batches",
        f"{rate:,.0f} rows/s steady, {whole:,.0f} with the start",
        aim=f"target: {INGEST_AIM:,}",
        is_met=rate >= INGEST_AIM,
    )


def idling(spark: SparkSession, url: str) -> None:
    """Counts the requests of a query that finds nothing new."""
    with (
        tempfile.TemporaryDirectory(prefix=".fjord-bench-", dir=Path.cwd()) as folder,
        fjord.connect(url) as db,
    ):
        db.create_stream("idle").append(b"a message")
        query = _copy(spark, url, "idle", folder, "noop", {})
        try:
            _until_idle(query)
            before = db.stats()["requests"]
            begun = time.perf_counter()
            time.sleep(IDLE_SECONDS)
            polls = db.stats()["requests"] - before - 1
            rate = polls / (time.perf_counter() - begun)
        finally:
            query.stop()
    report.figure(
        "requests of an idle query",
        f"{rate:.1f} a second",
        aim=f"target: at most {POLLS_AIM:.0f}",
        is_met=rate <= POLLS_AIM,
    )


def latency(spark: SparkSession, url: str, count: int) -> None:
    """Measures from an append until the message has passed through Spark to another table."""
    with (
        tempfile.TemporaryDirectory(prefix=".fjord-bench-", dir=Path.cwd()) as folder,
        fjord.connect(url) as db,
    ):
        first = db.create_stream("first")
        second = db.create_stream("second")
        options = {"server": url, "table": "second"}
        query = _copy(spark, url, "first", folder, "fjord", options)
        try:
            follower = second.subscriber("follower")
            seconds = []
            for number in range(count + 5):
                begun = time.perf_counter()
                first.append(b"%d" % number)
                batch = follower.read(1, wait=_WAIT_SECONDS_MAX)
                if [message.value for message in batch] != [b"%d" % number]:
                    raise RuntimeError(f"message {number} did not come through")
                follower.ack(batch)
                if number >= 5:  # the first ones start workers
                    seconds.append(time.perf_counter() - begun)
        finally:
            query.stop()
    ordered = sorted(seconds)
    report.figure(
        "append to visible behind the sink",
        f"p50 {statistics.median(ordered) * 1000:,.0f} ms, "
        f"p90 {ordered[len(ordered) * 9 // 10] * 1000:,.0f} ms",
    )


def _copy(
    spark: SparkSession, url: str, table: str, folder: str, format_: str, options: dict[str, str]
) -> StreamingQuery:
    rows = spark.readStream.format("fjord").options(server=url, table=table).load()
    return (
        rows.select("key", "type", "value")
        .writeStream.format(format_)
        .options(**options)
        .option("checkpointLocation", folder)
        .start()
    )


def _until_idle(query: StreamingQuery) -> None:
    """Waits until a query finds nothing new."""
    deadline = time.monotonic() + _WAIT_SECONDS_MAX
    while time.monotonic() < deadline:
        progress = query.lastProgress
        if progress is not None and progress.numInputRows == 0:
            return
        time.sleep(0.1)
    raise RuntimeError("the query does not become idle")
