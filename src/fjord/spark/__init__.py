"""Spark on Fjord: the history of every table as rows, in batches and as a stream, and back.

spark = fjord.spark.session()
spark.read.format("fjord").load("data").show()
fjord.spark.history(spark, "fjord://127.0.0.1:17994", "events").count()
"""

from __future__ import annotations

import os
import sys
from typing import Final

from pyspark.sql import SparkSession

from fjord.spark.declared import typed
from fjord.spark.options import Location
from fjord.spark.progress import publish_progress
from fjord.spark.source import history

__all__ = ["Location", "SparkSession", "history", "publish_progress", "session", "typed"]

_SETTINGS: Final[dict[str, str]] = {
    "spark.app.name": "fjord",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Fjord's times are UTC, in microseconds; without these a copy in Parquet has neither.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    # With fewer rows per batch the source and the sink are slower.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # State of streaming queries on disk; in memory, a large one would exhaust the driver.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
_LOCAL: Final[dict[str, str]] = {
    # A local session serves no other machines, and no host name has to resolve.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # The default of 200 is for clusters.
    "spark.sql.shuffle.partitions": "8",
}
_MASTER: Final = "local[*]"


def session(**conf: str) -> SparkSession:
    """Returns the running Spark session, or makes one; local unless a master is given.

    Marks of subscribers follow its streaming queries, see `publish_progress`.

    Args:
        conf: settings in addition to Fjord's, or in place of them, as in
            `session(**{"spark.master": "local[2]"})`.
    """
    # Spark would start its workers with whatever `python3` is, not with this Python.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: SparkSession.Builder = SparkSession.builder
    for name, setting in _settings(conf).items():
        builder = builder.config(name, setting)
    if _is_local(conf):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    made = builder.getOrCreate()
    publish_progress(made)
    return made


def _settings(conf: dict[str, str]) -> dict[str, str]:
    """Returns the settings of a session: Fjord's, those of its master, and the caller's."""
    local = {"spark.master": _master(conf) or _MASTER, **_LOCAL} if _is_local(conf) else {}
    return {**_SETTINGS, **local, **conf}


def _is_local(conf: dict[str, str]) -> bool:
    """Says whether a session runs on this machine only."""
    named = _master(conf)
    return not named or named.startswith("local")


def _master(conf: dict[str, str]) -> str:
    """Returns the master that was given here, or with `spark-submit --master`."""
    submitted = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    named = conf.get("spark.master") or os.environ.get("MASTER", "")
    if not named and "--master" in submitted:
        named = submitted.partition("--master")[2].split()[0]
    return named
