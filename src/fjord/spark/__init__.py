"""Spark on Fjord: the history of every table as rows, in batches and as a stream, and back.

spark = fjord.spark.session()
spark.read.format("fjord").load("data").show()
fjord.spark.history(spark, "fjord://127.0.0.1:17994", "events").count()
"""

from __future__ import annotations

from fjord.spark.frames import history, typed
from fjord.spark.options import Location
from fjord.spark.progress import publish_progress
from fjord.spark.session import session

__all__ = ["Location", "history", "publish_progress", "session", "typed"]
