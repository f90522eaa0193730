"""Where Spark looks for the format `fjord`: it imports every top-level module named `pyspark_*`."""

from __future__ import annotations

from fjord.spark.source import FjordSource as DefaultSource

__all__ = ["DefaultSource"]
