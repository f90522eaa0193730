"""What a replay takes, in which batches, and as what it writes it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from fjord.spark.pipelines import replay
from fjord.spark.pipelines.replay import Cut, ReplayBatch, Selection

DDL = (
    "seq bigint, ts timestamp, txn bigint, op string, row bigint, key binary, type tinyint, "
    "value binary, process_at timestamp, expires_at timestamp"
)
T = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
US = int(T.timestamp()) * 1_000_000
ROWS: list[tuple[Any, ...]] = [
    (11, T, 12, "ADD", 11, b"a", 2, b"one", T + MINUTE, None),
    (12, T, 12, "ADD", 12, b"b", 2, b"two", T, T + HOUR),
    (15, T + MINUTE, 15, "REPLACE", 11, b"a", 2, b"three", T + HOUR, None),
    (16, T + HOUR, 17, "TAKE", 11, b"a", None, None, T + HOUR, None),
    (17, T + HOUR, 17, "ADD", 17, b"", 2, b"four", T + HOUR, None),
]


def frame(spark: SparkSession, rows: Any = ROWS) -> DataFrame:
    return spark.createDataFrame(list(rows), DDL)


@pytest.mark.spark
def test_rows_are_selected_by_op_date_and_key(spark: SparkSession) -> None:
    def seqs(**options: Any) -> list[int]:
        found = replay.selected(frame(spark), Selection(**options))
        return sorted(row["seq"] for row in found.select("seq").collect())

    assert seqs() == [11, 12, 15, 17]
    assert seqs(ops=("REPLACE",), key_prefix=b"a") == [15]
    assert seqs(since=T + MINUTE, until=T + HOUR) == [15]
    assert seqs(key_prefix=b"b") == [12]


@pytest.mark.spark
def test_a_listed_job_is_what_it_was_last(spark: SparkSession) -> None:
    listed = spark.createDataFrame([(11,), (17,), (11,), (99,)], "row bigint")
    found = replay.described_last(frame(spark), listed)
    assertDataFrameEqual(
        found, spark.createDataFrame([(11, 15), (17, 17)], "row bigint, seq bigint")
    )


@pytest.mark.spark
def test_pieces_end_where_commits_end(spark: SparkSession) -> None:
    ddl = "last bigint, rows bigint, at_us bigint"
    minute_us, hour_us = US + 60_000_000, US + 3_600_000_000
    rows = frame(spark)
    assertDataFrameEqual(
        replay.pieces(rows, Cut(16, 0, is_paced=False)),
        spark.createDataFrame([(15, 3, US), (17, 2, hour_us)], ddl),
    )
    assertDataFrameEqual(
        replay.pieces(rows, Cut(16, 10, is_paced=True)),
        spark.createDataFrame([(12, 2, US), (15, 1, minute_us), (17, 2, hour_us)], ddl),
    )


@pytest.mark.spark
def test_dates_move_with_the_replay_and_keys_get_its_name(spark: SparkSession) -> None:
    now = T + 5 * HOUR
    columns = ("key", "value", "process_at", "expires_at")
    found = replay.rewritten(frame(spark), columns, suffix=b"#again", moved_to=now)
    expected = [
        (b"a#again", b"one", now + MINUTE, None),
        (b"b#again", b"two", now, now + HOUR),
        (b"a#again", b"three", now + HOUR - MINUTE, None),
        (b"a#again", None, now, None),
        (b"", b"four", now, None),
    ]
    ddl = "key binary, value binary, process_at timestamp, expires_at timestamp"
    assertDataFrameEqual(found, spark.createDataFrame(expected, ddl), checkRowOrder=True)
    as_they_are = replay.rewritten(frame(spark), ("key", "process_at"))
    assertDataFrameEqual(as_they_are, frame(spark).select("key", "process_at"), checkRowOrder=True)


@given(
    sizes=st.lists(st.integers(1, 60), max_size=40), rows=st.integers(1, 100), place=st.integers(0)
)
def test_who_begins_behind_a_batch_gets_the_same_ones(
    sizes: list[int], rows: int, place: int
) -> None:
    pieces = [((number + 1) * 10, size, number) for number, size in enumerate(sizes)]
    cut = Cut(rows, 0, is_paced=False)
    whole = replay.batches(pieces, 0, cut)
    begun = whole[: place % (len(whole) + 1)]
    after = begun[-1].last if begun else 0
    left = [piece for piece in pieces if piece[0] > after]
    assert begun + replay.batches(left, after, cut) == whole
    assert sum(one.rows for one in whole) == sum(sizes)


def test_pieces_whose_time_matters_stay_apart() -> None:
    found = replay.batches([(20, 1, 2), (10, 1, 1)], 0, Cut(100, 5, is_paced=True))
    assert found == [ReplayBatch(0, 10, 1, 1), ReplayBatch(10, 20, 1, 2)]
    assert replay.batches([], 0, Cut(100, 5, is_paced=True)) == []


@pytest.mark.parametrize(
    ("pace", "expected"),
    [
        ("fast", [0.0, 0.0, 0.0]),
        ("original", [0.0, 2.5, 0.0]),  # a clock that went back does not wait
        (50.0, [0.0, 2.0, 2.2]),
    ],
)
def test_batches_are_due_by_their_pace(pace: str | float, expected: list[float]) -> None:
    batches = [
        ReplayBatch(0, 10, 100, US),
        ReplayBatch(10, 20, 10, US + 2_500_000),
        ReplayBatch(20, 30, 5, US - 1),
    ]
    assert replay.due_seconds(batches, pace) == expected
    assert replay.due_seconds([], pace) == []


def test_small_pieces_are_joined_up_to_a_bound() -> None:
    pieces = [(30, 40, 3), (10, 50, 1), (20, 50, 2), (50, 200, 5), (60, 1, 6)]
    cut = Cut(100, 0, is_paced=False)
    found = replay.batches(pieces, 7, cut)
    assert found == [
        ReplayBatch(7, 20, 100, 1),
        ReplayBatch(20, 30, 40, 3),
        ReplayBatch(30, 50, 200, 5),
        ReplayBatch(50, 60, 1, 6),
    ]
