"""A local Spark session with the settings that Fjord's data wants."""

from __future__ import annotations

import os
import sys
from typing import Final

from pyspark.sql import SparkSession

__all__ = ["SparkSession", "session"]

_SETTINGS: Final[dict[str, str]] = {
    "spark.app.name": "fjord",
    "spark.master": "local[*]",
    # Nothing of a local session is for other machines, and no host name has to resolve.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # The default of 200 is for clusters.
    "spark.sql.shuffle.partitions": "8",
    # Fjord's times are UTC, in microseconds; without these a copy in Parquet has neither.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}


def session(**conf: str) -> SparkSession:
    """Returns the running Spark session, or makes a local one.

    Args:
        conf: settings beside or instead of Fjord's, as in
            `session(**{"spark.master": "local[2]"})`.
    """
    # Spark would start its workers with whatever `python3` is, not with this Python.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder: SparkSession.Builder = SparkSession.builder
    for name, setting in {**_SETTINGS, **conf}.items():
        builder = builder.config(name, setting)
    return builder.getOrCreate()
