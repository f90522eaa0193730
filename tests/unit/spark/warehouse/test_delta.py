"""Tables of Delta, without Spark: the same promises as those of tables with a manifest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import parquet as pq

from fjord.blocks import rows
from fjord.blocks.files import stamp, target_at
from fjord.errors import FjordError
from fjord.spark import warehouse
from fjord.spark.delta import DeltaWarehouse
from fjord.spark.warehouse import DataFile, QueryBatch


def batch(number: int, query: str = "q", start: int = 0) -> QueryBatch:
    first = start or number * 10 + 1
    return QueryBatch(
        query=query, number=number, table="events", start=first, end=first + 9, epoch="ab" * 16
    )


def file(table: DeltaWarehouse, one: QueryBatch) -> DataFile:
    """Writes ten rows."""
    path = f"batch-{one.number}-{stamp()}/part-0.parquet"
    full = Path(table.target.shown(path))
    full.parent.mkdir(parents=True)
    seqs = list(range(one.start, one.end + 1))
    found = pa.Table.from_pylist([{"seq": seq} for seq in seqs], schema=rows.SCHEMA)
    pq.write_table(found, full)
    return DataFile(
        path=path,
        rows=10,
        bytes=full.stat().st_size,
        min_seq=one.start,
        max_seq=one.end,
        value_crc=one.number,
    )


def add(table: DeltaWarehouse, one: QueryBatch) -> bool:
    return table.add(one, [file(table, one)])


@pytest.fixture
def table(tmp_path: Path) -> DeltaWarehouse:
    return DeltaWarehouse(target_at(str(tmp_path / "target")))


def test_batches_become_files_that_readers_of_delta_read(table: DeltaWarehouse) -> None:
    assert (table.state().number, table.files(), table.has("q", 0)) == (0, [], False)
    assert [add(table, batch(number)) for number in range(3)] == [True] * 3
    found = warehouse.files(table.target.location)
    assert [(one.min_seq, one.max_seq, one.rows) for one in found] == [
        (1, 10, 10),
        (11, 20, 10),
        (21, 30, 10),
    ]
    assert [one.value_crc for one in found] == [0, 1, 2]
    state = table.state()
    assert (state.end, state.table, state.epoch) == (30, "events", "ab" * 16)
    read = DeltaTable(table.target.location).to_pyarrow_table()
    assert sorted(read.column("seq").to_pylist()) == list(range(1, 31))


def test_an_epoch_is_that_of_the_end_or_unknown(table: DeltaWarehouse) -> None:
    add(table, batch(0))
    nothing = QueryBatch(query="q", number=1, table="events", start=11, end=10)
    table.add(nothing, [])
    assert (table.state().end, table.state().epoch) == (10, "ab" * 16)
    add(table, replace(batch(2, start=11), epoch=""))
    assert (table.state().end, table.state().epoch) == (20, "")
    add(table, batch(3, start=21))
    assert (table.state().end, table.state().epoch) == (30, "ab" * 16)


def test_of_two_committers_of_one_batch_one_wins(
    table: DeltaWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(table, batch(0))
    slow = DeltaWarehouse(table.target)
    old = slow._table()
    assert old is not None
    add(table, batch(1))
    found = [old]
    look = DeltaWarehouse._table
    monkeypatch.setattr(slow, "_table", lambda: found.pop() if found else look(slow))
    assert not add(slow, batch(1))
    assert found == []
    assert sorted(one.min_seq for one in table.files()) == [1, 11]


def test_a_table_keeps_its_form_and_its_source(table: DeltaWarehouse) -> None:
    add(table, batch(0))
    location = table.target.location
    assert isinstance(warehouse.warehouse_at(location), DeltaWarehouse)
    with pytest.raises(FjordError, match="is a table of form delta, not parquet"):
        warehouse.warehouse_at(location, "parquet")
    other = QueryBatch(query="q", number=1, table="other", start=11, end=20)
    with pytest.raises(FjordError, match="holds the table 'events', not 'other'"):
        table.add(other, [])
