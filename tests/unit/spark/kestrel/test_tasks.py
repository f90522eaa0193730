"""Tasks of the source `kestrel`, without Spark: what is in a queue, its ops, damage and changes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fjord.errors import CorruptionError, DirectoryError
from fjord.kestrel import codec, reader
from fjord.spark.kestrel import tasks
from fjord.spark.kestrel.source import COLUMNS, KestrelOptions
from fjord.spark.kestrel.tasks import QueuePartition
from tests.unit.spark.kestrel.journals import ADD_MS, item, put, written


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


@pytest.mark.req("KJ-14", "KJ-15", "KJ-16")
def test_the_files_of_a_queue_are_one_journal(tmp_path: Path) -> None:
    put(tmp_path, "cars.904", item(b"dead"))
    put(tmp_path, "cars.950.pack", item(b"a"), item(b"b"))
    put(tmp_path, "cars.1000", item(b"c"), codec.remove())
    put(tmp_path, "cars", item(b"d"))
    put(tmp_path, "cars~~1001", item(b"temporary"))
    put(tmp_path, "trucks", item(b"of another queue"))
    assert data(tmp_path) == [b"b", b"c", b"d"]
    found = read(tmp_path, mode="ops")
    assert [(row["file"], row["op"], row["data"]) for row in found] == [
        ("cars.950.pack", "ADDX", b"a"),
        ("cars.950.pack", "ADDX", b"b"),
        ("cars.1000", "ADDX", b"c"),
        ("cars.1000", "REMOVE", None),
        ("cars", "ADDX", b"d"),
    ]
    assert [row["position"] for row in found] == list(range(5))
    assert [row["offset"] for row in found] == [0, 22, 0, 22, 0]
    assert [row["size"] for row in found] == [22, 22, 22, 1, 22]


@pytest.mark.req("KJ-06", "KJ-08")
def test_open_items_are_at_the_head_with_their_xids(tmp_path: Path) -> None:
    made = [item(b"%d" % number) for number in range(5)]
    put(
        tmp_path,
        "cars",
        *made,
        *(codec.remove_tentative(xid) for xid in (9, 3, 5)),
        codec.unremove(5),
    )
    assert [(row["position"], row["xid"], row["data"]) for row in read(tmp_path)] == [
        (0, 3, b"1"),
        (1, 9, b"0"),
        (2, None, b"2"),
        (3, None, b"3"),
        (4, None, b"4"),
    ]


def test_an_item_that_waits_has_no_xid(tmp_path: Path) -> None:
    put(tmp_path, "cars", codec.add_xid(7, b"A", add_ms=ADD_MS))
    assert [row["xid"] for row in read(tmp_path)] == [None]
    assert [row["xid"] for row in read(tmp_path, mode="ops")] == [7]


def test_what_starling_wrote_has_no_date(tmp_path: Path) -> None:
    put(tmp_path, "cars", codec.add(b"x", expiry_ms=5000))
    for mode in COLUMNS:
        (row,) = read(tmp_path, mode=mode)
        assert (row["added"], row["expires"].timestamp()) == (None, 5)


@pytest.mark.parametrize("mode", COLUMNS)
def test_batches_are_bounded_by_rows_and_bytes(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "cars", *[item(b"%d" % number) for number in range(10)])
    with monkeypatch.context() as patch:
        patch.setattr(tasks, "BATCH_ROWS", 4)
        found = list(tasks.read(partition(tmp_path, mode=mode)))
    assert [batch.num_rows for batch in found] == [4, 4, 2]
    monkeypatch.setattr(tasks, "BATCH_BYTES", 3)
    assert [batch.num_rows for batch in tasks.read(partition(tmp_path, mode=mode))] == [3, 3, 3, 1]
    assert data(tmp_path, mode=mode) == [b"%d" % number for number in range(10)]


def test_only_wanted_columns_are_made(tmp_path: Path) -> None:
    put(tmp_path, "cars", item(b"a"), codec.remove())
    (batch,) = tasks.read(partition(tmp_path, mode="ops", columns=("op", "size")))
    assert batch.to_pylist() == [{"op": "ADDX", "size": 22}, {"op": "REMOVE", "size": 1}]


# -- damage and changes ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", COLUMNS)
def test_damage_is_told_with_file_and_offset_or_skipped(tmp_path: Path, mode: str) -> None:
    path = put(tmp_path, "cars.904", item(b"a"))
    path.write_bytes(path.read_bytes() + b"\x63" + written(item(b"lost")))
    put(tmp_path, "cars", item(b"b"))
    with pytest.raises(CorruptionError) as caught:
        read(tmp_path, mode=mode)
    assert (caught.value.path, caught.value.offset) == (str(path), 22)
    assert data(tmp_path, mode=mode, fails_on_damage=False) == [b"a", b"b"]


@pytest.mark.parametrize("mode", COLUMNS)
def test_a_torn_tail_is_no_damage(tmp_path: Path, mode: str) -> None:
    path = put(tmp_path, "cars", item(b"a"))
    path.write_bytes(path.read_bytes() + written(item(b"b"))[:-1])
    assert data(tmp_path, mode=mode) == [b"a"]


@pytest.mark.parametrize("mode", COLUMNS)
def test_a_queue_that_is_gone_was_changed(tmp_path: Path, mode: str) -> None:
    with pytest.raises(DirectoryError, match=r"files of cars in .* have changed .*stop the writer"):
        read(tmp_path, mode=mode)


@pytest.mark.parametrize("mode", COLUMNS)
def test_a_file_that_is_renamed_while_it_is_read_is_told(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "cars.904", item(b"a"))
    second = put(tmp_path, "cars", item(b"b"))
    survey: Callable[..., Any] = reader.survey

    def renaming(*given: Any) -> Any:
        found = survey(*given)
        second.rename(tmp_path / "cars.1000")
        return found

    monkeypatch.setattr(reader, "survey", renaming)
    with pytest.raises(DirectoryError, match="was renamed or removed while it was read"):
        read(tmp_path, mode=mode)


def test_a_read_that_is_left_early_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "BATCH_ROWS", 1)
    put(tmp_path, "cars", *[item(b"%d" % number) for number in range(10)])
    found = tasks.read(partition(tmp_path))
    assert next(found).schema == tasks.SCHEMAS["state"]
    del found
    assert len(read(tmp_path)) == 10
