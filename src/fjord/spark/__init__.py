"""Spark on Fjord: the history of every table as rows, in batches and as a stream, and back.

spark = fjord.spark.session()
spark.read.format("fjord").load("data").show()
fjord.spark.history(spark, "fjord://127.0.0.1:17994", "events").count()
"""

from __future__ import annotations

from fjord.spark.history import history
from fjord.spark.options import Location
from fjord.spark.reading.listener import publish_progress
from fjord.spark.session import session
from fjord.spark.typed import typed

__all__ = ["Location", "history", "publish_progress", "session", "typed"]
