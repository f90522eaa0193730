"""The views of the project that `init` writes, without a pipeline around them."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any

import pytest
from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

pytestmark = pytest.mark.spark

AT = datetime(2026, 11, 1, 12, tzinfo=UTC)
HISTORY = (
    "seq long, ts timestamp, op string, key binary, expires_at timestamp, type int, value binary"
)


def view(name: str, monkeypatch: pytest.MonkeyPatch) -> DataFrame:
    """Returns what a file of the template defines."""

    def plain(**_: Any) -> Callable[[Any], Any]:
        return lambda function: function

    monkeypatch.setattr(pipelines, "materialized_view", plain)
    path = resources.files("fjord.spark") / "template" / "transformations" / f"{name}.py"
    found: DataFrame = runpy.run_path(str(path))[name]()
    return found


def test_latest_has_no_key_that_is_gone(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(tz=UTC).replace(microsecond=0)
    before, after = now - timedelta(hours=1), now + timedelta(hours=1)
    rows = [
        (1, AT, "SET", b"a", None, 2, b"old"),
        (2, AT, "SET", b"a", after, 2, b"new"),
        (3, AT, "SET", b"expired", before, 2, b"x"),
        (4, AT, "SET", b"deleted", None, 2, b"x"),
        (5, AT, "DELETE", b"deleted", None, None, None),
        (6, AT, "APPEND", b"erased", None, None, None),
        (7, AT, "APPEND", b"", None, 2, b"no key"),
    ]
    spark.createDataFrame(rows, HISTORY).createOrReplaceTempView("orders")
    spark.conf.set("spark.fjord.dataset", "orders")
    expected = spark.createDataFrame(
        [("a", 2, AT, after, 2, b"new")],
        "key string, seq long, ts timestamp, expires_at timestamp, type int, value binary",
    )
    assertDataFrameEqual(view("latest", monkeypatch), expected)
    (line,) = view("report", monkeypatch).where("op = 'DELETE'").collect()
    assert (line["rows"], line["keys"], line["first_seq"], line["last_seq"]) == (1, 1, 5, 5)
    spark.conf.unset("spark.fjord.dataset")
    spark.catalog.dropTempView("orders")
