"""`ingest` without Spark: what its checkpoint says, and what a batch covers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fjord
from fjord.blocks.files import target_at
from fjord.errors import FjordError
from fjord.spark import progress
from fjord.spark.options import Location
from fjord.spark.pipelines import sides
from fjord.spark.pipelines.ingest import Checkpoint, Sink, Taken, ingest
from fjord.spark.pipelines.latest import check_stock
from fjord.spark.warehouse import DataFile, ParquetWarehouse, QueryBatch, TableState
from fjord.testing import SimClock

EPOCH = "ab" * 16


def remembered(path: Path, *ends: int) -> Checkpoint:
    """Returns what Spark would have written for batches that end at these seqs."""
    place = target_at(str(path))
    place.replace("metadata", b'{"id":"the-query"}')
    for number, seq in enumerate(ends):
        end = json.dumps(progress.encode(progress.Offset(seq=seq, epoch=EPOCH)))
        place.replace(f"offsets/{number}", f'v1\n{{"batchWatermarkMs":0}}\n{end}'.encode())
    return Checkpoint(str(path))


def sink(tmp_path: Path, *ends: int) -> Sink:
    return Sink(
        stored=ParquetWarehouse(target_at(str(tmp_path / "target"))),
        remembered=remembered(tmp_path / "checkpoint", *ends),
        table="events",
        origin=4,
        files_max=1,
        clock=SimClock(),
    )


def file(min_seq: int, max_seq: int) -> DataFile:
    return DataFile(
        path="batch/1", rows=5, bytes=9, min_seq=min_seq, max_seq=max_seq, value_crc=None
    )


def batch(number: int, start: int, end: int, epoch: str = EPOCH) -> QueryBatch:
    return QueryBatch(query="q", number=number, table="events", start=start, end=end, epoch=epoch)


def test_a_checkpoint_tells_the_query_and_where_batches_end(tmp_path: Path) -> None:
    found = remembered(tmp_path / "checkpoint", 10, 20)
    assert found.query() == "the-query"
    assert [found.end(number) for number in (0, 1)] == [
        progress.Offset(seq=seq, epoch=EPOCH) for seq in (10, 20)
    ]
    assert found.end(-1) is found.end(2) is None
    assert Checkpoint(str(tmp_path / "none")).query() == ""


def test_a_batch_covers_what_spark_has_planned(tmp_path: Path) -> None:
    one = sink(tmp_path, 10, 20)
    assert one._batch("q", 0, [file(5, 9)]) == batch(0, 4, 10)
    assert one._batch("q", 1, []) == batch(1, 11, 20)


def test_without_a_plan_it_covers_its_rows(tmp_path: Path) -> None:
    one = sink(tmp_path)
    assert one._batch("q", 0, [file(5, 9)]) == batch(0, 4, 9, "")
    assert one._batch("q", 0, []) == batch(0, 4, 3, "")
    assert one._batch("q", 7, [file(5, 9)]) == batch(7, 5, 9, "")
    one.stored.add(batch(0, 4, 30), [])
    assert one._batch("q", 7, []) == batch(7, 31, 30, "")


@pytest.mark.parametrize(("low", "high"), [(10, 15), (11, 21)])
def test_rows_outside_of_the_plan_are_refused(tmp_path: Path, low: int, high: int) -> None:
    with pytest.raises(FjordError, match="should have those from 11 to 20"):
        sink(tmp_path, 10, 20)._batch("q", 1, [file(low, high)])


def test_a_target_has_the_same_columns_and_ops_of_all_rows(tmp_path: Path) -> None:
    stored = ParquetWarehouse(target_at(str(tmp_path)))
    given = Taken.of(["value", "key"], ["set", "DELETE"])
    assert given == Taken("seq,key,value", "DELETE,SET")
    given.check(stored)  # of a table that is not there yet everything may be taken
    one = replace(batch(0, 1, 9), columns=given.columns, ops=given.ops)
    assert stored.add(one, [file(1, 9)])
    assert (stored.state().columns, stored.state().ops) == given
    Taken.of(["key", "value", "seq"], ["DELETE", "SET"]).check(stored)
    with pytest.raises(FjordError, match="has seq,key,value of rows with DELETE,SET, not all col"):
        Taken.of([], []).check(stored)


def test_a_table_that_is_not_there_is_told_before_spark_starts(tmp_path: Path) -> None:
    with fjord.open(tmp_path / "data") as database:
        database.kv("settings").set("a", 1)
    spark: Any = None
    with pytest.raises(FjordError, match="there is no table 'nothere' in "):
        ingest(spark, Location.of_path(str(tmp_path / "data")), "nothere", str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("columns", "ops", "problem"),
    [
        ("seq,key,value", "", "lacks the column ts, op, expires_at, type, so the value"),
        ("", "APPEND,SET", "lacks rows of MOVE, DELETE, PURGE, EXPIRE"),
    ],
)
def test_current_values_need_all_that_gives_and_takes_them(
    columns: str, ops: str, problem: str
) -> None:
    with pytest.raises(FjordError, match=problem):
        check_stock("/lake", TableState(number=1, columns=columns, ops=ops))
    check_stock("/lake", TableState(number=1))


def test_a_checkpoint_in_another_form_tells_no_end(tmp_path: Path) -> None:
    found = remembered(tmp_path)
    target_at(str(tmp_path)).replace("offsets/0", b'v2\n{}\n{"0":{}}')
    assert found.end(0) is None


def test_rows_without_their_ops_are_not_compared(tmp_path: Path) -> None:
    stored = ParquetWarehouse(target_at(str(tmp_path)))
    assert stored.add(replace(batch(0, 1, 9), columns="seq,key,value"), [file(1, 9)])
    with pytest.raises(FjordError, match="lacks the column ts, op, so its rows cannot be comp"):
        sides.stock(str(tmp_path), "events")
