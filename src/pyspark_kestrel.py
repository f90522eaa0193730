"""Where Spark looks for the format `kestrel`, see `pyspark_fjord`."""

from __future__ import annotations

from fjord.spark.kestrel.source import KestrelSource as DefaultSource

__all__ = ["DefaultSource"]
