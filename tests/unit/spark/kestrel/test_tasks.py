"""Tasks of the source `kestrel`, without Spark: what is in a queue, and its ops."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from fjord.kestrel import codec
from fjord.kestrel.codec import Item, Op, Opcode
from fjord.spark.kestrel import tasks
from fjord.spark.kestrel.source import COLUMNS, KestrelOptions
from fjord.spark.kestrel.tasks import QueuePartition
from tests.unit.kestrel import vectors
from tests.unit.spark.kestrel import journals
from tests.unit.spark.kestrel.journals import item, put


def partition(directory: Path, **given: Any) -> QueuePartition:
    columns = given.pop("columns", None)
    options = KestrelOptions(directory=str(directory), **given)
    return QueuePartition(
        options=options, queue="cars", columns=columns or tuple(COLUMNS[options.mode])
    )


def read(directory: Path, **given: Any) -> list[dict[str, Any]]:
    travelled = pickle.loads(pickle.dumps(partition(directory, **given)))
    return [row for batch in tasks.read(travelled) for row in batch.to_pylist()]


def data(directory: Path, **given: Any) -> list[bytes]:
    return [row["data"] for row in read(directory, **given)]


@pytest.mark.req("KJ-06", "KJ-08")
def test_open_items_are_at_the_head_with_their_xids(tmp_path: Path) -> None:
    opens = [codec.remove_tentative(xid) for xid in (9, 3, 5)]
    put(tmp_path, "cars", *(item(b"%d" % number) for number in range(4)), *opens, codec.unremove(5))
    put(tmp_path, "cars.5", vectors.add(b"x", expiry_ms=5000), codec.remove_tentative(1))
    found = [(row["position"], row["xid"], row["data"]) for row in read(tmp_path)]
    assert found == [(0, 1, b"x"), (1, 3, b"1"), (2, 9, b"0"), (3, None, b"2"), (4, None, b"3")]
    for mode in COLUMNS:  # what Starling wrote has no date
        first = read(tmp_path, mode=mode, columns=("added", "expires"))[0]
        assert (first["added"], first["expires"].timestamp()) == (None, 5)


# -- rows ------------------------------------------------------------------------------------------

INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize("mode", COLUMNS)
def test_schemas_are_what_spark_makes_of_the_columns(mode: str) -> None:
    assert to_arrow_schema(journals.ALL[mode], timezone="UTC") == tasks.SCHEMAS[mode]


def test_dates_that_spark_cannot_hold_become_the_nearest() -> None:
    found = tasks.moments([0, 1_500, -1, -(2**63), 2**63 - 1]).to_pylist()
    first, last = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
    assert found == [None, datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC), first, first, last]


def test_items_are_rows_with_the_wanted_columns() -> None:
    items = [Item(b"a", 5, 0, 7), Item(b"", 0, 6, 0)]
    whole = tasks.of_items("cars", 3, items, tuple(COLUMNS["state"]))
    assert whole.schema == tasks.SCHEMAS["state"]
    added, expires = (datetime(1970, 1, 1, 0, 0, 0, ms * 1000, UTC) for ms in (5, 6))
    assert [tuple(row.values()) for row in whole.to_pylist()] == [
        ("cars", 3, 7, added, None, b"a"),
        ("cars", 4, None, None, expires, b""),
    ]
    some = tasks.of_items("cars", 3, items, ("data", "queue"))
    assert some.to_pylist() == [{"data": b"a", "queue": "cars"}, {"data": b"", "queue": "cars"}]


def test_ops_have_an_xid_if_their_opcode_has_one() -> None:
    made = [(Op(opcode), at, 1) for at, opcode in enumerate(Opcode)]
    found = tasks.of_ops("cars", "cars.904", 10, made, tuple(COLUMNS["ops"]))
    assert found.schema == tasks.SCHEMAS["ops"]
    listed = found.to_pylist()
    assert [row["op"] for row in listed] == [opcode.name for opcode in Opcode]
    assert [row["position"] for row in listed] == list(range(10, 10 + len(Opcode)))
    unnamed = [row["op"] for row in listed if row["xid"] is None]
    assert sorted(unnamed) == ["ADD", "ADDX", "REMOVE", "REMOVE_TENTATIVE"]
    places = {(row["queue"], row["file"], row["data"]) for row in listed}
    assert places == {("cars", "cars.904", None)}


@given(st.lists(st.integers(0, 12)), st.integers(1, 5), st.integers(1, 20))
def test_pieces_are_bounded_and_whole(sizes: list[int], rows_max: int, bytes_max: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "BATCH_ROWS", rows_max)
        patch.setattr(tasks, "BATCH_BYTES", bytes_max)
        found = list(tasks.pieces(sizes, lambda size: size))
    assert [size for piece in found for size in piece] == sizes
    for piece in found:
        assert 1 <= len(piece) <= rows_max
        assert sum(piece[:-1]) < bytes_max
