"""`ingest` with real Spark: every row once, whatever is lost or run again."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import compute as pc
from pyarrow import dataset
from pyspark.sql import SparkSession

import fjord
from fjord.blocks.files import target_at
from fjord.errors import FjordError
from fjord.spark import warehouse
from fjord.spark.options import Location
from fjord.spark.pipelines import ingest as job
from fjord.spark.pipelines import latest
from fjord.spark.pipelines.report import Figure
from fjord.spark.warehouse import DataFile, ParquetWarehouse, QueryBatch

pytestmark = pytest.mark.spark


def append(directory: Path, count: int, *, first: int = 0, commits: int = 1) -> None:
    """Appends messages `first`, `first` + 1..., as so many commits."""
    with fjord.open(directory) as database:
        events = database.stream("events")
        for start in range(first, first + count, count // commits):
            numbers = range(start, start + count // commits)
            events.append_many(
                [b"%d" % one for one in numbers], keys=[f"k{one}" for one in numbers]
            )


def run(spark: SparkSession, directory: Path, target: Path, **more: Any) -> dict[str, Figure]:
    given = {"max_rows": 100, **more}
    found = job.ingest(spark, Location.of_path(str(directory)), "events", str(target), **given)
    assert found.ok
    return dict(found.figures)


def stored(target: Path) -> pa.Table:
    """Returns the rows of a table in order, read without Spark."""
    paths = [one.path for one in warehouse.files(str(target))]
    return dataset.dataset(paths).to_table().sort_by("seq")


def numbers(target: Path) -> list[int]:
    return [int(value) for value in stored(target).column("value").to_pylist()]


@pytest.mark.parametrize("ops", [10_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_all_ops_are_there_once_and_their_values_are_the_latest(
    spark: SparkSession, tmp_path: Path, ops: int
) -> None:
    rows_max, different = ops * 6 // 10, ops // 20
    keys = [f"key-{number * 7 % different}" for number in range(ops)]
    values = [b"value %d" % number for number in range(ops)]
    with fjord.open(tmp_path / "data") as database:
        events = database.stream("events", block_rows=rows_max)
        for start in range(0, ops, ops // 100):
            if start == ops // 2:
                database.seal("events")  # half of it comes from blocks
            piece = slice(start, start + ops // 100)
            events.append_many(values[piece], keys=keys[piece])
    target = tmp_path / "warehouse"
    found = run(spark, tmp_path / "data", target, max_rows=rows_max)
    assert (found["rows"], found["batches"], found["lag_seqs"]) == (ops, 2, 0)
    rows = stored(target)
    assert rows.column("value").to_pylist() == values
    assert rows.column("key").to_pylist() == [key.encode() for key in keys]
    files = warehouse.files(str(target))
    assert sum(one.rows for one in files) == ops
    assert sum(one.value_crc or 0 for one in files) == sum(map(zlib.crc32, values))
    for one in files:
        part = dataset.dataset(one.path).to_table(columns=["seq", "value"])
        seqs = pc.min_max(part["seq"]).as_py()
        assert (one.min_seq, one.max_seq) == (seqs["min"], seqs["max"])
        assert one.value_crc == sum(map(zlib.crc32, part["value"].to_pylist()))
    values_of = dict(zip(keys, values, strict=True))
    report = latest.latest(
        spark, None, "events", str(tmp_path / "latest"), from_warehouse=str(target)
    )
    assert (report.figures["keys"], report.figures["end_seq"]) == (different, found["last_seq"])
    current = latest.read(spark, str(tmp_path / "latest")).select("key", "value").toArrow()
    pairs = zip(*(column.to_pylist() for column in current.columns), strict=True)
    assert {key.decode(): value for key, value in pairs} == values_of


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_what_is_added_is_what_is_new(spark: SparkSession, tmp_path: Path, form: str) -> None:
    data, target = tmp_path / "data", tmp_path / "target"
    append(data, 250, commits=5)
    first = run(spark, data, target, format=form, max_rows=150)
    assert (first["rows"], first["batches"], first["files"]) == (250, 2, 2)
    again = run(spark, data, target, format=form)
    assert (again["rows"], again["batches"]) == (0, 0)
    append(data, 10, first=250)
    more = run(spark, data, target, format=form)
    assert (more["rows"], more["batches"]) == (10, 1)
    # Without its checkpoint a query begins behind the end of the table.
    shutil.rmtree(target / "_checkpoint")
    append(data, 5, first=260)
    anew = run(spark, data, target, format=form)
    assert (anew["rows"], anew["first_seq"]) == (5, warehouse.files(str(target))[-1].min_seq)
    assert numbers(target) == list(range(265))
    rows = warehouse.read(spark, str(target))
    assert rows.where("ts IS NOT NULL AND op = 'APPEND'").count() == 265
    assert warehouse.read(spark, str(target), after=int(str(first["last_seq"]))).count() == 15
    if form == "delta":
        assert DeltaTable(target).to_pyarrow_table().num_rows == 265


class Dying(ParquetWarehouse):
    """A table whose writer dies when it commits a batch, before or after it is in."""

    def __init__(self, found: ParquetWarehouse, *, batch: int, after: bool) -> None:
        super().__init__(found.target)
        self._batch, self._after = batch, after

    def add(self, batch: QueryBatch, files: Sequence[DataFile]) -> bool:
        if batch.number != self._batch:
            return super().add(batch, files)
        if self._after:
            super().add(batch, files)
        raise FjordError("the power is gone")


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
def test_a_batch_that_is_run_again_is_there_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    data, target = tmp_path / "data", tmp_path / "target"
    append(data, 200, commits=4)
    with monkeypatch.context() as patch:
        dying = Dying(ParquetWarehouse(target_at(str(target))), batch=1, after=after)
        patch.setattr(warehouse, "warehouse_at", lambda *_: dying)
        with pytest.raises(FjordError, match=r"^the power is gone$"):
            run(spark, data, target)
    assert numbers(target) == list(range(200 if after else 100))
    found = run(spark, data, target)
    assert (found["rows"], found["batches_passed_over"]) == ((0, 1) if after else (100, 0))
    assert numbers(target) == list(range(200))
    left = warehouse.orphans(str(target), grace=warehouse.GRACE * 0)
    assert len(left) == (0 if after else 1)


def test_a_checkpoint_that_is_not_that_of_the_target_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    data, target, other = tmp_path / "data", tmp_path / "target", tmp_path / "other"
    append(data, 50)
    run(spark, data, other)
    assert run(spark, data, target)["batches"] == 1
    append(data, 10, first=50)
    assert run(spark, data, target)["rows"] == 10
    with pytest.raises(FjordError, match="another query writes to it too"):
        run(spark, data, target, checkpoint=str(other / "_checkpoint"))
    # So is an old one, as of a backup: Spark would give numbers that are there to new rows.
    append(data, 10, first=60)
    for kind in ("offsets", "commits"):
        for path in (target / "_checkpoint" / kind).glob("*1*"):
            path.unlink()
    with pytest.raises(FjordError, match="is older than the target"):
        run(spark, data, target)
    shutil.rmtree(target / "_checkpoint")
    assert run(spark, data, target)["rows"] == 10
    assert numbers(target) == list(range(70))


def test_what_cannot_be_meant_is_told(spark: SparkSession, tmp_path: Path) -> None:
    data, target = tmp_path / "data", tmp_path / "target"
    append(data, 10)
    with pytest.raises(FjordError, match="the format is parquet or delta, not 'csv'"):
        run(spark, data, target, format="csv")
    with pytest.raises(FjordError, match="max_rows is 1 or more"):
        run(spark, data, target, max_rows=0)
    with pytest.raises(FjordError, match="there is no table 'other'"):
        job.ingest(spark, Location.of_path(str(data)), "other", str(tmp_path / "none"))
    run(spark, data, target)
    with fjord.open(data) as database:
        database.stream("other").append(b"x")
    shutil.rmtree(target / "_checkpoint")
    with pytest.raises(FjordError, match="holds the table 'events', not 'other'"):
        job.ingest(spark, Location.of_path(str(data)), "other", str(target))
    # A directory with the same table and another history.
    append(tmp_path / "twin", 5)
    with pytest.raises(FjordError, match="of another history"):
        run(spark, tmp_path / "twin", target)
    assert numbers(target) == list(range(10))
