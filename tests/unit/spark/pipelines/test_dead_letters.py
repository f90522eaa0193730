"""Dead letters: five-row histories in, whole frames out; payloads as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.testing import assertDataFrameEqual

from fjord import values
from fjord.spark.pipelines import dead_letters

pytestmark = pytest.mark.spark

HISTORY = (
    "seq bigint, ts timestamp, op string, row bigint, key binary, domain string, "
    "priority smallint, timeouts smallint, type tinyint, value binary, size int"
)
DEAD = (
    "row bigint, key binary, domain string, priority smallint, timeouts smallint, "
    "died_at timestamp, reason string, kind string, "
    "payload struct<type: tinyint, value: binary, size: int>"
)
NOW = datetime(2026, 11, 16, 9, tzinfo=UTC)


def step(seq: int, op: str, row: int, value: bytes | None = None) -> tuple[Any, ...]:
    size = None if value is None else len(value)
    timeouts = 3 if op == "DEAD" else 0
    ts = NOW + timedelta(seconds=seq)
    return (seq, ts, op, row, b"k%d" % row, "here", 100, timeouts, 2, value, size)


def died(row: int, hours: float | None, kind: str | None, domain: str | None) -> tuple[Any, ...]:
    at = None if hours is None else NOW - timedelta(hours=hours)
    return (row, b"k%d" % row, domain, 1, 0, at, kind, kind, (2, b"v%d" % row, 2))


def test_only_those_that_are_dead_now(spark: SparkSession) -> None:
    history = spark.createDataFrame(
        [
            step(1, "ADD", 1, b"old"),
            step(2, "REPLACE", 1, b"new"),
            step(3, "DEAD", 1, b"failed 3 times: exit code 7\nTraceback"),
            step(4, "DEAD", 9, b"boom"),
            step(5, "REVIVE", 9),
            step(6, "DEAD", 8, b"boom"),
            step(7, "DISCARD", 8),
            step(8, "MOVE_DEAD", 7, b"packed"),
        ],
        HISTORY,
    )
    expected = [
        (
            1,
            b"k1",
            "here",
            100,
            3,
            NOW + timedelta(seconds=3),
            "failed 3 times: exit code 7\nTraceback",
            "failed: exit code 7",
            (2, b"new", 3),
        ),
        (7, b"k7", "here", 100, 0, None, None, None, (2, b"packed", 6)),
    ]
    assertDataFrameEqual(dead_letters.dead(history), spark.createDataFrame(expected, DEAD))
    (past,) = dead_letters.fates(history).collect()
    assert past.asDict() == {"died": 3, "revived": 1, "discarded": 1}


def test_reasons_of_one_cause_are_of_one_kind(spark: SparkSession) -> None:
    texts = {
        "exit code 7": "exit code 7",
        "timed out 5 times": "timed out",
        "no user 123456 in 0xdeadbeef": "no user \u2026 in \u2026",
        "job 6f1c0c1e-0000-4000-8000-0123456789ab is bad": "job \u2026 is bad",
        "x" * 300: "x" * 200,
    }
    frame = spark.createDataFrame([(text,) for text in texts], "reason string")
    found = frame.select("reason", dead_letters.kind(frame["reason"]).alias("kind")).collect()
    assert {row["reason"]: row["kind"] for row in found} == texts


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        ("text", "text"),
        (b"\xff<", "\\xff<"),
        (-5, "-5"),
        (2.5, "2.5"),
        (True, "true"),
        pytest.param("\u00e5" * 200, "\u00e5" * 128 + "\u2026", id="long"),
    ],
)
def test_a_payload_is_shown_by_its_type(value: values.Value, shown: str) -> None:
    type_, data = values.encode(value)
    cut = data[: dead_letters.PAYLOAD_BYTES]
    assert dead_letters.payload(Row(type=int(type_), value=cut, size=len(data))) == shown
    assert dead_letters.payload(None) is None
