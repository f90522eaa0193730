"""Spark on Fjord: the history of every table as rows.

spark = fjord.spark.session()
spark.read.format("fjord").load("data").show()
"""

from __future__ import annotations

from fjord.spark.session import session

__all__ = ["session"]
