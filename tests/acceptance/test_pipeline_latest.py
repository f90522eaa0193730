"""`latest` with real Spark: the current value of every key, from five rows up."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.testing import assertDataFrameEqual

import fjord
from fjord.blocks import schema
from fjord.blocks.files import target_at
from fjord.errors import CorruptionError, FjordError
from fjord.spark.options import Location
from fjord.spark.pipelines import ingest, latest
from fjord.spark.pipelines.latest import latest_of, merge_latest
from fjord.spark.pipelines.report import Figure
from fjord.testing import SimClock

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def ops(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    """Returns rows of a history; each has a seq, an op and a key."""
    nothing = dict.fromkeys(schema.COLUMNS)
    return spark.createDataFrame(
        [Row(**{**nothing, "ts": NOON, **row}) for row in rows], schema.DDL
    )


def put(seq: int, key: bytes, value: bytes, op: str = "SET", **more: Any) -> dict[str, Any]:
    return {"seq": seq, "op": op, "key": key, "type": 1, "value": value, **more}


def gone(seq: int, key: bytes, op: str) -> dict[str, Any]:
    return {"seq": seq, "op": op, "key": key}


def values(spark: SparkSession, *rows: tuple[bytes, int, bytes]) -> DataFrame:
    found = [(key, seq, NOON, None, 1, value) for key, seq, value in rows]
    return spark.createDataFrame(found, latest.DDL)


def test_what_has_expired_by_a_moment_has_no_row(spark: SparkSession) -> None:
    frame = ops(
        spark,
        put(1, b"before", b"x", expires_at=NOON - MINUTE),
        put(2, b"just", b"x", expires_at=NOON),
        put(3, b"later", b"x", expires_at=NOON + MINUTE),
        put(4, b"never", b"x"),
        put(5, b"renewed", b"x", expires_at=NOON - MINUTE),
        put(6, b"renewed", b"x"),
    )

    def keys(at: datetime | None) -> set[str]:
        return {bytes(row.key).decode() for row in latest_of(frame, at).collect()}

    assert keys(NOON) == {"later", "never", "renewed"}
    assert keys(None) == {"before", "just", "later", "never", "renewed"}


def test_merging_is_as_if_all_were_read(spark: SparkSession) -> None:
    first = [put(1, b"a", b"1"), put(2, b"b", b"2"), put(3, b"c", b"3"), put(4, b"d", b"4")]
    then = [
        put(5, b"a", b"5"),
        gone(6, b"b", "DELETE"),
        put(7, b"e", b"7"),
        gone(8, b"e", "EXPIRE"),
        put(9, b"f", b"9"),
    ]
    previous = latest_of(ops(spark, *first))
    merged = merge_latest(previous, ops(spark, *then))
    expected = values(spark, (b"a", 5, b"5"), (b"c", 3, b"3"), (b"d", 4, b"4"), (b"f", 9, b"9"))
    assertDataFrameEqual(merged, expected)
    assertDataFrameEqual(merged, latest_of(ops(spark, *first, *then)))
    # Rows that were read before change nothing.
    assertDataFrameEqual(merge_latest(merged, ops(spark, *first, *then)), merged)
    assertDataFrameEqual(
        merge_latest(merged, ops(spark, *first[1:2])),
        values(
            spark,
            (b"a", 5, b"5"),
            (b"b", 2, b"2"),
            (b"c", 3, b"3"),
            (b"d", 4, b"4"),
            (b"f", 9, b"9"),
        ),
    )


def run(spark: SparkSession, directory: Path, table: str, target: Path, **more: Any) -> Any:
    location = Location.of_path(str(directory))
    found: dict[str, Figure] = dict(
        latest.latest(spark, location, table, str(target), **more).figures
    )
    return found


def current(spark: SparkSession, target: Path, **more: Any) -> dict[bytes, bytes]:
    rows = latest.read(spark, str(target), **more).collect()
    assert len({bytes(row.key) for row in rows}) == len(rows)
    return {bytes(row.key): bytes(row.value) for row in rows}


def test_values_are_kept_up_to_date(spark: SparkSession, tmp_path: Path) -> None:
    data, target, clock = tmp_path / "data", tmp_path / "target", SimClock()
    clock.jump(datetime.now(tz=UTC).timestamp() - clock.wall_us() / 1e6)
    soon = datetime.now(tz=UTC) + timedelta(hours=1)
    with fjord.open(data) as database:
        database.kv("settings").set_many({"a": b"1", "b": b"2", "c": b"3"})
        database.kv("settings").set("d", b"4", expires_at=soon)
    first = run(spark, data, "settings", target, clock=clock)
    assert (first["keys"], first["incremental"], first["changed"]) == (4, False, True)
    assert current(spark, target) == {b"a": b"1", b"b": b"2", b"c": b"3", b"d": b"4"}
    assert current(spark, target, at=soon) == {b"a": b"1", b"b": b"2", b"c": b"3"}
    idle = run(spark, data, "settings", target, clock=clock)
    assert (idle["changed"], idle["snapshot"]) == (False, first["snapshot"])
    with fjord.open(data) as database:
        database.kv("settings").delete("a")
        database.kv("settings").set_many({"b": b"5", "e": b"6"})
    clock.advance(2 * 3600)
    second = run(spark, data, "settings", target, clock=clock)
    assert (second["rows_read"], second["incremental"]) == (3, True)
    assert current(spark, target) == {b"b": b"5", b"c": b"3", b"e": b"6"}
    # What a crash left is no snapshot, and old ones go when the grace is over.
    place = target_at(str(target))
    place.make("snapshot-7-" + "0" * 32 + "/part-0.parquet", b"half of it")
    assert str(first["snapshot"]) in place.names()
    clock.advance(25 * 3600)
    rebuilt = run(spark, data, "settings", target, clock=clock, rebuild=True)
    assert (rebuilt["incremental"], rebuilt["keys"]) == (False, 3)
    assert current(spark, target) == {b"b": b"5", b"c": b"3", b"e": b"6"}
    assert place.names() == sorted(
        ["_latest.json", str(second["snapshot"]), str(rebuilt["snapshot"])]
    )


def test_a_stream_directly_and_through_a_warehouse(spark: SparkSession, tmp_path: Path) -> None:
    data, middle = tmp_path / "data", str(tmp_path / "warehouse")
    location = Location.of_path(str(data))
    expected: dict[bytes, bytes] = {}
    for turn in range(2):
        with fjord.open(data) as database:
            pages = database.stream("pages", mode="latest")
            for number in range(4):
                keys = [f"page-{one * 3 % 70}" for one in range(number * 50, number * 50 + 50)]
                texts = [b"%d-%d-%d" % (turn, number, one) for one in range(50)]
                pages.append_many(texts, keys=keys)
                expected |= dict(zip([key.encode() for key in keys], texts, strict=True))
                lost = [f"page-{turn * 10 + number}", "page-69"]
                pages.delete_many(lost)
                for key in lost:
                    expected.pop(key.encode(), None)
            if not turn:
                database.seal("pages")
        ingest.ingest(spark, location, "pages", middle)
        run(spark, data, "pages", tmp_path / "direct")
        through = latest.latest(
            spark, None, "pages", str(tmp_path / "through"), from_warehouse=middle
        )
        assert through.figures["incremental"] is bool(turn)
        assert current(spark, tmp_path / "direct") == expected
        assert current(spark, tmp_path / "through") == expected
    with fjord.open(data, read_only=True) as database:
        assert {key.encode(): value for key, value in database.stream("pages").items()} == expected


def test_what_cannot_be_meant_is_told(spark: SparkSession, tmp_path: Path) -> None:
    data, target = tmp_path / "data", tmp_path / "target"
    with fjord.open(data) as database:
        database.jobs("work").push("a")
        database.kv("one").set("a", b"1")
        database.kv("two").set("a", b"1")
    with pytest.raises(FjordError, match="work is a jobs table"):
        run(spark, data, "work", target)
    with pytest.raises(FjordError, match="there is no table 'none'"):
        run(spark, data, "none", target)
    with pytest.raises(FjordError, match="there are no values in"):
        latest.read(spark, str(target))
    with pytest.raises(FjordError, match="give either the location of the table, or a warehouse"):
        run(spark, data, "one", target, from_warehouse="somewhere")
    run(spark, data, "one", target)
    with pytest.raises(FjordError, match="has the values of 'one', not of 'two'"):
        run(spark, data, "two", target)
    with fjord.open(tmp_path / "twin") as database:
        database.kv("one").set("a", b"1")
    with pytest.raises(FjordError, match="of another history"):
        run(spark, tmp_path / "twin", "one", target)
    assert run(spark, tmp_path / "twin", "one", target, rebuild=True)["keys"] == 1
    (target / "_latest.json").write_text("{}")
    with pytest.raises(CorruptionError, match="does not name a snapshot"):
        latest.snapshot(str(target))


def test_the_page_runs_as_it_stands(spark: SparkSession, tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "warehouse.md").read_text()
    code = "".join(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
    for folder in ("data", "warehouse/events", "warehouse/current"):
        code = code.replace(f'"{folder}"', repr(str(tmp_path / folder)))
    found: dict[str, Any] = {}
    exec(compile(code.replace(".show()", ".collect()"), "warehouse.md", "exec"), found)  # noqa: S102 - our own page
    assert found["report"].figures["rows"] == 2
    assert current(spark, tmp_path / "warehouse" / "current") == {b"user:7": b"signed in"}
