"""The stream reader, called as Spark calls it."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming import datasource

import fjord
from fjord.clock import SystemClock
from fjord.errors import FjordError
from fjord.spark import progress
from fjord.spark.progress import Offset
from fjord.spark.source import FjordSource
from fjord.spark.streaming import WAIT_SECONDS, FjordStreamReader
from tests.unit.spark import packing, structs

ALL = datasource.ReadAllAvailable()


class Naps(SystemClock):
    """A clock with which nobody waits, and which notes how long they would have."""

    def __init__(self) -> None:
        self.taken: list[float] = []
        self.now_us = 10**9

    def pause(self, seconds: float) -> None:
        self.taken.append(seconds)

    def monotonic_us(self) -> int:
        return self.now_us


@pytest.fixture(autouse=True)
def naps(monkeypatch: pytest.MonkeyPatch) -> Naps:
    found = Naps()
    monkeypatch.setattr(FjordStreamReader, "clock", found)
    return found


@pytest.fixture
def readers() -> Iterator[list[FjordStreamReader]]:
    made: list[FjordStreamReader] = []
    yield made
    for one in made:
        one.stop()


def stream(readers: list[FjordStreamReader], path: Path, **given: str) -> FjordStreamReader:
    # A process has a directory open once, so the one before goes.
    for one in readers:
        one.stop()
    wanted = {"path": str(path), "table": "events", **given}
    found = FjordSource(wanted).streamReader(structs.ALL)
    assert isinstance(found, FjordStreamReader)
    readers.append(found)
    return found


def batches(
    found: FjordStreamReader,
    start: dict[str, Any] | None = None,
    limit: datasource.ReadLimit | None = None,
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Returns the offsets of all batches up to where nothing is new."""
    wanted = limit or found.getDefaultReadLimit()
    begin, made = start or found.initialOffset(), []
    while (end := found.latestOffset(begin, wanted)) is not begin:
        assert progress.decode(end).seq > progress.decode(begin).seq
        made.append((begin, end))
        begin = end
    return made


def planned(found: FjordStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    made: list[Any] = pickle.loads(pickle.dumps(list(found.partitions(start, end))))
    return made


def rows(found: FjordStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    tasks = pickle.loads(pickle.dumps(found))  # which have nothing of what the driver has
    found_in = planned(found, start, end)
    found.stop()  # a process has a directory open only once
    return [row for one in found_in for batch in tasks.read(one) for row in batch.to_pylist()]


def test_all_of_it_is_one_batch_and_then_nothing_is_new(
    mixed: Path, readers: list[FjordStreamReader], naps: Naps
) -> None:
    found = stream(readers, mixed)
    assert found.getDefaultReadLimit() == ALL
    ((start, end),) = batches(found)
    assert found.reportLatestOffset() == end
    assert naps.taken == []
    assert found.latestOffset(end, ALL) is end
    assert naps.taken == [WAIT_SECONDS]  # who is idle waits, from the second look on
    assert len(rows(found, start, end)) == 350


@pytest.mark.parametrize("size", ["10", "75", "130", "340"])
def test_batches_of_a_size_have_every_row_once_and_whole_commits(
    mixed: Path, readers: list[FjordStreamReader], size: str
) -> None:
    found = stream(readers, mixed, maxRowsPerTrigger=size)
    assert found.getDefaultReadLimit() == datasource.ReadMaxRows(int(size))
    made = batches(found)
    every: list[Any] = []
    for start, end in made:
        part = rows(found, start, end)
        assert 0 < len(part) <= int(size)
        assert {row["txn"] for row in part}.isdisjoint(row["txn"] for row in every)
        every += part
    assert len(every) == len({row["seq"] for row in every}) == 350
    # The same again, from another process.
    again = stream(readers, mixed, maxRowsPerTrigger=size)
    assert [row for start, end in made for row in rows(again, start, end)] == every


def test_few_rows_wait_for_more_but_not_for_ever(
    mixed: Path, readers: list[FjordStreamReader], naps: Naps
) -> None:
    found = stream(readers, mixed, minRowsPerTrigger="1000", maxTriggerDelay="10s")
    start = found.initialOffset()
    assert found.latestOffset(start, ALL) is start
    naps.now_us += 9_000_000
    assert found.latestOffset(start, ALL) is start
    naps.now_us += 1_000_000
    end = found.latestOffset(start, ALL)
    assert len(rows(found, start, end)) == 350
    few = stream(readers, mixed, minRowsPerTrigger="350")
    assert few.latestOffset(start, ALL) == end
    assert few.latestOffset(start, datasource.ReadMinRows(351)) is start


def test_available_now_ends_at_what_there_was(
    mixed: Path, readers: list[FjordStreamReader], naps: Naps
) -> None:
    found = stream(readers, mixed, maxRowsPerTrigger="100", minRowsPerTrigger="100")
    found.prepareForTriggerAvailableNow()
    made = batches(found)
    assert len(made) >= 4
    assert naps.taken == []
    running = found._running
    assert running is not None
    running.target = progress.decode(made[1][1]).seq  # as if the rest came later
    assert len(batches(found)) == 2


def test_offsets_of_another_history_are_refused(
    mixed: Path, readers: list[FjordStreamReader], caplog: Any
) -> None:
    found = stream(readers, mixed)
    ((_, end),) = batches(found)
    seq = progress.decode(end).seq
    other = progress.encode(Offset(seq=seq - 20, epoch="f" * 32))
    with pytest.raises(
        FjordError, match=r"up to seq .* is no longer the history of .*new checkpoint"
    ):
        found.latestOffset(other, ALL)
    beyond = progress.encode(Offset(seq=10**9))
    with pytest.raises(FjordError, match="up to seq 1000000000 is no longer the history of"):
        found.latestOffset(beyond, ALL)
    again = stream(readers, mixed)  # a batch that runs again is planned first
    with pytest.raises(FjordError, match="is no longer the history of"):
        again.partitions(progress.encode(Offset(seq=5)), other)
    lossy = stream(readers, mixed, failOnDataLoss="false")
    assert len(lossy.partitions(progress.encode(Offset(seq=5)), other)) > 0
    assert lossy.latestOffset(other, ALL) == end
    assert "is no longer the history of" in caplog.text


def test_a_batch_from_the_beginning_that_runs_again_misses_nothing_in_silence(
    tmp_path: Path, readers: list[FjordStreamReader]
) -> None:
    with fjord.open(tmp_path) as db:
        events = db.create_stream("events", retention_bytes=1, block_rows=10)
        events.append_many([b"x"] * 20)
    ((start, end),) = batches(stream(readers, tmp_path))
    assert progress.decode(start).seq == 0
    readers[-1].stop()
    with fjord.open(tmp_path) as db:
        for _ in range(2):
            db.stream("events").append_many([b"y"] * 10)
            db.seal("events")
        first = db.blocks("events")[0].first
    gone = f"the rows of events from seq 1 to {first - 1} are gone and were not read"
    with pytest.raises(FjordError, match=gone):
        stream(readers, tmp_path).partitions(start, end)
    with pytest.raises(FjordError, match=gone):
        readers[-1].latestOffset(start, ALL)
    anew = stream(readers, tmp_path, startingOffsets="1")
    assert progress.decode(anew.initialOffset()).seq == first - 1


@pytest.mark.parametrize("table", ["settings", "pages"])
def test_what_was_packed_before_it_was_read_is_missed(
    tmp_path: Path, readers: list[FjordStreamReader], table: str
) -> None:
    """Also of jobs, which have a history, where nobody writes it to blocks."""
    with fjord.open(tmp_path) as db:
        for number in range(20):
            db.kv("settings").set(f"k{number % 3}", number)
        db.jobs("pages").push_many(keys=["a", "b", "c"])
        db.jobs("pages").done_many(db.jobs("pages").next(count=3))
    ((start, end),) = batches(stream(readers, tmp_path, table=table))
    assert rows(readers[-1], start, end)
    middle = progress.encode(Offset(seq=progress.decode(end).seq - 2))
    readers[-1].stop()
    first_seq = packing.pack(tmp_path)
    for begin in (start, middle):
        missing = f"from seq {progress.decode(begin).seq + 1} to {first_seq - 1} are gone"
        found = stream(readers, tmp_path, table=table)
        with pytest.raises(FjordError, match=missing):
            found.partitions(begin, end)
        with pytest.raises(FjordError, match=missing):
            found.latestOffset(begin, ALL)
        lossy = stream(readers, tmp_path, table=table, failOnDataLoss="false")
        assert lossy.partitions(begin, end) == []
    assert len(batches(stream(readers, tmp_path, table=table))) == (table == "settings")


def put_back(path: Path, backup: Path) -> None:
    shutil.rmtree(path)
    shutil.copytree(backup, path)


def appended(path: Path, value: bytes, count: int) -> None:
    with fjord.open(path) as db:
        db.stream("events").append_many([value] * count)


@pytest.mark.parametrize("is_known", [True, False])
def test_after_a_journal_was_put_back_all_that_is_there_is_read(
    tmp_path: Path, readers: list[FjordStreamReader], *, is_known: bool
) -> None:
    """From where the histories part, if the epoch shows it, or from the beginning."""
    path, backup = tmp_path / "data", tmp_path / "backup"
    appended(path, b"old", 5)
    with fjord.open(path) as db:
        db.stream("events").append_many([b"kept"] * 5)
        if is_known:
            shutil.copytree(path, backup)  # while the writer has it, as a disk image is made
            db.stream("events").append_many([b"lost"] * 50)
    if not is_known:
        shutil.copytree(path, backup)
        appended(path, b"lost", 50)
    ((_, end),) = batches(stream(readers, path))
    readers[-1].stop()
    put_back(path, backup)
    appended(path, b"new", 7)
    lossy = stream(readers, path, failOnDataLoss="false", maxRowsPerTrigger="10")
    limit = lossy.getDefaultReadLimit()
    for _ in range(2):  # offsets only grow, so there is no batch yet
        assert lossy.latestOffset(end, limit) is end
    lossy.stop()
    appended(path, b"late", 60)
    strict = stream(readers, path)
    with pytest.raises(FjordError, match="is no longer the history of"):
        strict.latestOffset(end, ALL)
    lossy = stream(readers, path, failOnDataLoss="false", maxRowsPerTrigger="100")
    made = batches(lossy, end)
    found = [row["value"] for begin, after in made for row in rows(lossy, begin, after)]
    before = [] if is_known else [b"old"] * 5 + [b"kept"] * 5
    assert found == before + [b"new"] * 7 + [b"late"] * 60
    again = stream(readers, path, failOnDataLoss="false")
    assert [row["value"] for begin, after in made for row in rows(again, begin, after)] == found
    strict = stream(readers, path)
    with pytest.raises(FjordError, match="is no longer the history of"):
        strict.partitions(*made[0])


def test_limits_that_spark_gives_go_first(mixed: Path, readers: list[FjordStreamReader]) -> None:
    found = stream(readers, mixed, maxBytesPerTrigger="2000")
    assert found.getDefaultReadLimit() == datasource.ReadMaxBytes(2000)
    assert len(batches(found)) > 3
    assert len(batches(found, limit=ALL)) == 1
    assert len(batches(found, limit=datasource.ReadMaxRows(100))) >= 4
