"""Rows in a few figures: five-row frames in, whole frames out."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from fjord.blocks import schema
from fjord.client.history import BlockInfo
from fjord.spark.pipelines import sides
from tests.unit.spark.parts import block

pytestmark = pytest.mark.spark

DDL = "seq bigint, ts timestamp, op string, key binary, value binary"
NINE, TEN = (datetime(2026, 11, 16, hour, 30, tzinfo=UTC) for hour in (9, 10))
ROWS: list[tuple[int, datetime, str, bytes | None, bytes | None]] = [
    (3, NINE, "APPEND", b"a", b"one"),
    (4, NINE, "APPEND", b"", b"two"),
    (40_000, NINE, "SET", b"a:b", b""),
    (40_001, TEN, "DELETE", b"a", None),
    (40_007, TEN, "DONE", None, None),
]


def edge(name: str, first: int, last: int) -> BlockInfo:
    return block(first, last, 1)._replace(name=name)


def frame(spark: SparkSession, rows: Any) -> DataFrame:
    return spark.createDataFrame(list(rows), DDL)


def lines(spark: SparkSession, *rows: tuple[Any, ...], more: str = "") -> DataFrame:
    ddl = sides.DDL.replace("bucket string", f"bucket string{more}")
    return spark.createDataFrame(list(rows), ddl)


def value_crc(*rows: int) -> int:
    return sum(zlib.crc32(ROWS[row][4] or b"") for row in rows if ROWS[row][4] is not None)


def row_crc(*rows: int) -> int:
    total = 0
    for row in rows:
        seq, at, op, key, value = ROWS[row]
        crc = "" if value is None else str(zlib.crc32(value))
        micros = int(at.timestamp()) * 1_000_000
        total += zlib.crc32(f"{seq}:{micros}:{op}:{crc}:".encode() + (key or b""))
    return total


def test_figures_are_those_that_anyone_can_compute(spark: SparkSession) -> None:
    found = sides.summarise(frame(spark, ROWS), sides.hour())
    expected = lines(
        spark,
        ("2026-11-16 09:00:00", 3, 3, 40_000, 0, value_crc(0, 1, 2), row_crc(0, 1, 2)),
        ("2026-11-16 10:00:00", 2, 40_001, 40_007, 0, 0, row_crc(3, 4)),
    )
    assertDataFrameEqual(found, expected)


def test_every_column_of_a_row_counts(spark: SparkSession) -> None:
    full: dict[str, Any] = {
        "seq": 3,
        "ts": NINE,
        "txn": 4,
        "op": "ADD",
        "row": 3,
        "xid": 9,
        "key": b"k",
        "domain": "d",
        "priority": 1,
        "process_at": NINE,
        "expires_at": TEN,
        "timeouts": 2,
        "producer": "p",
        "type": 1,
        "value": b"v",
    }
    assert list(full) == list(schema.COLUMNS)
    changed = [{**full, name: None} for name in full if name != "seq"]
    # The same numbers, in other columns.
    changed += [{**full, "process_at": TEN, "expires_at": NINE}, {**full, "row": 9, "xid": 3}]
    rows = [full, *changed]
    frame = spark.createDataFrame([tuple(one.values()) for one in rows], schema.DDL)
    found = {one[0] for one in frame.select(sides.row_crc()).collect()}
    assert len(found) == len(rows)
    text = f"3:{int(NINE.timestamp())}000000:4:ADD:3:9:d:1:{int(NINE.timestamp())}000000:"
    text += f"{int(TEN.timestamp())}000000:2:p:1:{zlib.crc32(b'v')}:k"
    assert zlib.crc32(text.encode()) in found


def test_what_packing_says_again_is_no_history(spark: SparkSession) -> None:
    moves = [(50, TEN, "MOVE", b"a", b"one"), (51, TEN, "MOVE_DEAD", b"a", b"one")]
    found = sides.historic(frame(spark, [*ROWS[:3], *moves]))
    assertDataFrameEqual(found, frame(spark, ROWS[:3]))


@pytest.mark.parametrize("blocks", [1, 3, 400])
def test_rows_are_placed_in_the_block_that_covers_them(spark: SparkSession, blocks: int) -> None:
    # The last block reaches up to 40,000, so the two rows behind it are in none.
    length = 40_000 // blocks
    edges = [
        edge(f"b{number}", number * length + 1, (number + 1) * length)
        for number in range(blocks - 1)
    ]
    edges.append(edge(f"b{blocks - 1}", (blocks - 1) * length + 1, 40_000))
    found = sides.by_block(frame(spark, ROWS), edges).select("seq", "block")
    last = f"b{blocks - 1}"
    expected = [(3, "b0"), (4, "b0"), (40_000, last), (40_001, "tail"), (40_007, "tail")]
    assertDataFrameEqual(found, spark.createDataFrame(expected, "seq bigint, block string"))


def test_only_buckets_that_differ_are_shown(spark: SparkSession) -> None:
    same = ("same", 5, 1, 9, 0, 77, 88)
    left = lines(spark, same, ("fewer", 5, 1, 9, 0, 77, 88), ("left only", 1, 4, 4, 0, 7, 8))
    right = lines(spark, same, ("fewer", 4, 1, 9, 0, 70, 80))
    expected = lines(
        spark,
        ("fewer", "left", 5, 1, 9, 0, 77, 88),
        ("fewer", "right", 4, 1, 9, 0, 70, 80),
        ("left only", "left", 1, 4, 4, 0, 7, 8),
        ("left only", "right", 0, None, None, 0, 0, 0),
        more=", side string",
    )
    assertDataFrameEqual(sides.compare({"left": left, "right": right}), expected)


def test_differences_name_what_is_missing_and_what_has_changed(spark: SparkSession) -> None:
    changed = (*ROWS[1][:4], b"other")
    left = frame(spark, [ROWS[0], ROWS[1], ROWS[3], ROWS[3]])
    right = frame(spark, [changed, ROWS[2], ROWS[3], ROWS[4]])
    found = sides.differences(left, right, sides.hour())
    expected = spark.createDataFrame(
        [
            ("2026-11-16 09:00:00", 1, 40_000, 1, 3, 1),
            ("2026-11-16 10:00:00", 1, 40_007, 0, None, 0),
        ],
        "bucket string, left_missing bigint, left_missing_from bigint, right_missing bigint, "
        "right_missing_from bigint, changed bigint",
    )
    assertDataFrameEqual(found, expected)


def test_duplicates_differ_even_if_all_sides_have_them(spark: SparkSession) -> None:
    both = lines(spark, ("a", 5, 1, 9, 2, 77, 88))
    found = sides.compare({"left": both, "right": both})
    assert sorted(row["side"] for row in found.collect()) == ["left", "right"]
    assert sides.compare({"server": both}).count() == 1
