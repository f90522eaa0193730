"""Tables with a manifest, without Spark: who commits what, and what a crash leaves."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from fjord.blocks.files import LocalTarget, Target, stamp, target_at
from fjord.errors import CorruptionError, FjordError
from fjord.spark import warehouse
from fjord.spark.warehouse import (
    CHECKPOINT_EVERY,
    BackwardsError,
    Commit,
    DataFile,
    ParquetWarehouse,
    QueryBatch,
    encode_commit,
)
from fjord.testing import SimClock

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def batch(number: int, query: str = "q", start: int = 0) -> QueryBatch:
    """Returns a batch of ten seqs."""
    first = start or number * 10 + 1
    return QueryBatch(query=query, number=number, table="events", start=first, end=first + 9)


def file(one: QueryBatch, name: str = "") -> DataFile:
    path = f"{name or f'batch-{one.number}-{stamp()}'}/part-0.parquet"
    return DataFile(
        path=path, rows=10, bytes=100, min_seq=one.start, max_seq=one.end, value_crc=one.number
    )


def add(table: ParquetWarehouse, one: QueryBatch) -> bool:
    return table.add(one, [file(one)])


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return target_at(str(tmp_path / "target"))


def seqs(target: Target) -> list[tuple[int, int]]:
    return [(one.min_seq, one.max_seq) for one in warehouse.files(target.location)]


def test_a_batch_that_comes_again_changes_nothing(target: Target) -> None:
    add(ParquetWarehouse(target), batch(0))
    before = ParquetWarehouse(target).state()
    again = ParquetWarehouse(target)
    assert again.has("q", 0)
    assert not again.has("q", 1)
    assert not add(again, batch(0))
    assert ParquetWarehouse(target).state() == before


def test_of_two_committers_of_one_batch_one_wins(target: Target) -> None:
    one, two = ParquetWarehouse(target), ParquetWarehouse(target)
    assert not one.has("q", 0)
    assert not two.has("q", 0)
    assert [add(one, batch(0)), add(two, batch(0))] == [True, False]
    assert seqs(target) == [(1, 10)]
    # The one that was too late goes on where the other is.
    assert [add(two, batch(1)), add(one, batch(1))] == [True, False]
    assert seqs(target) == [(1, 10), (11, 20)]


def test_a_second_query_over_the_same_rows_is_refused(target: Target) -> None:
    one, two = ParquetWarehouse(target), ParquetWarehouse(target)
    assert not two.has("another", 0)
    add(one, batch(0))
    with pytest.raises(BackwardsError, match="everything up to seq 10"):
        add(two, batch(0, "another"))
    # One that begins behind them is not, and then the first one is.
    assert add(two, batch(0, "another", start=11))
    with pytest.raises(BackwardsError, match="everything up to seq 20"):
        add(one, batch(1))
    assert seqs(target) == [(1, 10), (11, 20)]


class CrashError(Exception):
    """A process ends here."""


class Cut(LocalTarget):
    """A folder in which a process dies before or after the next change."""

    def __init__(self, location: str, *, after: bool, at: str) -> None:
        super().__init__(location)
        self._after, self._at = after, at

    def make(self, path: str, data: bytes) -> None:
        self._do("make", lambda: super(Cut, self).make(path, data))

    def replace(self, path: str, data: bytes) -> None:
        self._do("replace", lambda: super(Cut, self).replace(path, data))

    def _do(self, name: str, change: Callable[[], None]) -> None:
        if name == self._at and not self._after:
            raise CrashError
        change()
        if name == self._at:
            raise CrashError


@pytest.mark.parametrize(
    ("after", "at", "is_in"),
    [(False, "make", False), (True, "make", True), (False, "replace", True)],
    ids=["before the commit", "after the commit", "before the checkpoint"],
)
def test_a_crash_leaves_a_batch_in_or_out(
    target: Target, monkeypatch: pytest.MonkeyPatch, after: bool, at: str, is_in: bool
) -> None:
    monkeypatch.setattr(warehouse, "CHECKPOINT_EVERY", 2)
    add(ParquetWarehouse(target), batch(0))
    dying = ParquetWarehouse(Cut(target.location, after=after, at=at))
    with pytest.raises(CrashError):
        add(dying, batch(1))
    again = ParquetWarehouse(target)
    assert again.has("q", 1) is is_in
    assert add(again, batch(1)) is not is_in
    assert add(again, batch(2))
    assert seqs(target) == [(1, 10), (11, 20), (21, 30)]
    assert any("checkpoint" in name for name in target.names("_fjord"))


def test_readers_read_few_files(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    table = ParquetWarehouse(target)
    for number in range(2 * CHECKPOINT_EVERY + 5):
        add(table, batch(number))
    names = [name for name in target.names("_fjord") if "checkpoint" in name]
    assert names == [f"{number:020}.checkpoint.json" for number in (100, 200)]
    whole = table.state()
    reads: list[str] = []
    read = LocalTarget.read

    def counted(self: LocalTarget, path: str) -> bytes:
        reads.append(path)
        return read(self, path)

    monkeypatch.setattr(LocalTarget, "read", counted)
    assert ParquetWarehouse(target).state() == whole
    assert len(reads) == 6
    assert len(whole.files) == 205


def test_what_crashed_attempts_left_is_named_and_goes_after_a_grace(target: Target) -> None:
    clock = SimClock()
    table = ParquetWarehouse(target, clock=clock)
    left, kept = f"batch-0-{stamp(clock)}", f"batch-0-{stamp(clock)}"
    for folder in (left, kept, "batch-mine", "_checkpoint"):
        target.make(f"{folder}/part-0.parquet", b"rows")
    table.add(batch(0), [file(batch(0), kept)])
    location = target.location
    assert warehouse.orphans(location, clock=clock) == []
    clock.advance(60)
    young = f"batch-1-{stamp(clock)}"
    target.make(f"{young}/part-0.parquet", b"rows")
    assert warehouse.orphans(location, grace=MINUTE / 2, clock=clock) == [left]
    assert warehouse.sweep(location, grace=MINUTE / 2, clock=clock) == [left]
    assert target.names() == sorted(["_checkpoint", "_fjord", "batch-mine", kept, young])


def test_files_that_were_replaced_stay_for_a_grace(target: Target) -> None:
    clock = SimClock()
    table = ParquetWarehouse(target, clock=clock)
    old = file(batch(0), f"batch-0-{stamp(clock)}")
    target.make(old.path, b"rows")
    table.add(batch(0), [old])
    clock.advance(86_400 * 2)
    new = file(batch(0), f"batch-0-{stamp(clock)}")
    commit = Commit(number=2, at_us=clock.wall_us(), batch=None, added=(new,), removed=(old.path,))
    target.make(f"_fjord/{2:020}.json", encode_commit(commit))
    assert seqs(target) == [(1, 10)]
    assert warehouse.orphans(target.location, clock=clock) == []
    clock.advance(86_400 * 2)
    assert warehouse.orphans(target.location, clock=clock) == [old.path.partition("/")[0]]


def test_old_commits_go_and_a_writer_that_slept_meanwhile_is_refused(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warehouse, "CHECKPOINT_EVERY", 3)
    clock = SimClock()
    table, sleeper = ParquetWarehouse(target, clock=clock), ParquetWarehouse(target, clock=clock)
    add(table, batch(0))
    assert not sleeper.has("zombie", 0)
    for number in range(1, 10):
        add(table, batch(number))
    clock.advance(86_400 * 2)
    whole = table.state()
    warehouse.sweep(target.location, clock=clock)
    assert target.names("_fjord") == [
        *(f"{number:020}{end}" for number, end in [(6, ".checkpoint.json"), (7, ".json")]),
        f"{8:020}.json",
        f"{9:020}.checkpoint.json",
        f"{9:020}.json",
        f"{10:020}.json",
    ]
    assert ParquetWarehouse(target).state() == whole
    with pytest.raises(FjordError, match="has advanced to commit 10 while this writer was at 2"):
        sleeper.add(batch(0, "zombie", start=11), [])
    assert ParquetWarehouse(target).state() == whole


def test_a_reader_that_meets_the_trimming_looks_again(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(ParquetWarehouse(target), batch(0))
    read, missed = LocalTarget.read, ["once"]

    def racing(self: LocalTarget, path: str) -> bytes:
        if missed:
            raise FileNotFoundError(missed.pop())
        return read(self, path)

    monkeypatch.setattr(LocalTarget, "read", racing)
    assert ParquetWarehouse(target).state().number == 1
    monkeypatch.setattr(LocalTarget, "read", lambda self, path: racing_for_ever(path))
    with pytest.raises(CorruptionError, match="files disappear"):
        ParquetWarehouse(target).state()


def racing_for_ever(path: str) -> bytes:
    raise FileNotFoundError(path)


def test_a_missing_commit_is_damage(target: Target) -> None:
    table = ParquetWarehouse(target)
    for number in range(3):
        add(table, batch(number))
    target.remove(f"_fjord/{2:020}.json")
    with pytest.raises(CorruptionError, match="commit 3 follows 1"):
        ParquetWarehouse(target).state()


def test_nothing_is_not_a_table(tmp_path: Path) -> None:
    for ask in (warehouse.files, warehouse.orphans, warehouse.sweep):
        with pytest.raises(FjordError, match="there is no table in"):
            ask(str(tmp_path / "nothing"))


def test_a_table_keeps_its_form(target: Target) -> None:
    add(ParquetWarehouse(target), batch(0))
    assert warehouse.warehouse_at(target.location, "parquet").has("q", 0)
    with pytest.raises(FjordError, match="is a table of form parquet, not delta"):
        warehouse.warehouse_at(target.location, "delta")


def test_a_store_without_folders_works_too() -> None:
    target = target_at("memory://warehouse-test/target")
    one, two = ParquetWarehouse(target), ParquetWarehouse(target)
    assert [add(one, batch(0)), add(two, batch(0)), add(two, batch(1))] == [True, False, True]
    assert seqs(target) == [(1, 10), (11, 20)]
