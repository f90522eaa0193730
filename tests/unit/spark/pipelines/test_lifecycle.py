"""What a report on jobs is about: five-row frames in, whole frames out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from fjord.spark.pipelines import lifecycle

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.mark.spark
def test_what_ended_before_is_left_out_and_nothing_else(spark: SparkSession) -> None:
    ddl = "row bigint, taken_at timestamp, ended_at timestamp"
    rows = [
        (1, NOON - 5 * MINUTE, NOON - MINUTE),  # the only one that was over
        (2, NOON - 5 * MINUTE, NOON),
        (3, NOON - 5 * MINUTE, NOON + MINUTE),
        (4, NOON - 5 * MINUTE, None),
        (5, NOON + MINUTE, NOON + 2 * MINUTE),
    ]
    attempts = spark.createDataFrame(rows, ddl)
    expected = spark.createDataFrame(rows[1:], ddl)
    assertDataFrameEqual(lifecycle.not_ended_before(attempts, NOON), expected)
    assert lifecycle.not_ended_before(attempts, None) is attempts
