"""Reading a stream with Spark: from blocks and from the daemon, beside Spark's own Parquet reader.

All in one run, alternately, all columns, into a sink of Spark that drops rows.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import cycle

from pyspark.sql import DataFrame, SparkSession

import fjord
from benchmarks import loads, report
from fjord import limits
from fjord.spark import history

TABLE = "events"
BATCH = 10_000
ROUNDS = 3
COLD_AIM, TAIL_AIM = 0.9, 0.6
_SEAL_SECONDS_MAX = 600.0


def fill(url: str, rows: int) -> None:
    """Appends messages with keys; nothing is sealed before it is requested."""
    values = cycle([loads.messages(number * BATCH, BATCH) for number in range(20)])
    keys = [b"user:%d" % (number % 5000) for number in range(BATCH)]
    with fjord.connect(url) as db:
        stream = db.create_stream(TABLE, block_rows=limits.BLOCK_ROWS_MAX)
        for _ in range(rows // BATCH):
            stream.append_many(next(values), keys=keys)


def reading(spark: SparkSession, url: str, rows: int) -> None:
    tail = _rates(rows, {"tail": lambda: through_fjord(spark, url)})["tail"]
    with fjord.connect(url, timeout=_SEAL_SECONDS_MAX) as db:
        db.seal(TABLE)
        paths = [f"{block.location}/{block.name}.parquet" for block in db.blocks(TABLE)]
    schema = through_fjord(spark, url).schema
    found = _rates(
        rows,
        {
            "native": lambda: spark.read.schema(schema).parquet(*paths),
            "cold": lambda: through_fjord(spark, url),
            "history": lambda: history(spark, url, TABLE),
        },
    )
    native = found["native"]
    report.figure(f"{rows:,} rows, Spark's own Parquet reader", f"{native:,.0f} rows/s")
    _show("  cold, through format fjord", found["cold"], native, COLD_AIM)
    _show("  tail, through format fjord from the daemon", tail, native, TAIL_AIM)
    _show("  history(): native for cold rows", found["history"], native)


def through_fjord(spark: SparkSession, url: str) -> DataFrame:
    return spark.read.format("fjord").options(server=url, table=TABLE).load()


def _rates(rows: int, frames: dict[str, Callable[[], DataFrame]]) -> dict[str, float]:
    """Returns the rows per second of each, the median of some alternating rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in frames}
    for _ in range(ROUNDS):
        for name, frame in frames.items():
            start = time.perf_counter()
            frame().write.format("noop").mode("overwrite").save()
            seconds[name].append(time.perf_counter() - start)
    return {name: rows / statistics.median(found) for name, found in seconds.items()}


def _show(name: str, rate: float, native: float, aim: float | None = None) -> None:
    ratio = rate / native
    report.figure(
        name,
        f"{rate:,.0f} rows/s, {ratio:.2f} of it",
        aim="no target" if aim is None else f"target: {aim}",
        is_met=aim is None or ratio >= aim,
    )
