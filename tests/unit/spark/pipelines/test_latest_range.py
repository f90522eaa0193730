"""Which part of a table's history makes the current values, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fjord
from fjord.spark.options import Location
from fjord.spark.pipelines import latest as job
from fjord.spark.pipelines.latest import Fresh, Snapshot
from tests.unit.spark.packing import pack


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The ranges of history that were asked for."""
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(job, "history", lambda *_, start, end: found.append((start, end)))
    return found


def fresh(path: Path, before: Snapshot | None) -> Fresh:
    spark: Any = None
    return job._from_history(spark, Location(path=str(path)), "settings", before)


def test_all_values_are_read_from_just_where_they_began_when_it_was_planned(
    tmp_path: Path, asked: list[tuple[int, int]]
) -> None:
    """A range from seq 1 would be what is left at the time of reading: keys would be missing."""
    with fjord.open(tmp_path) as db:
        for number in range(20):
            db.kv("settings").set(f"k{number % 3}", b"x")
    first = fresh(tmp_path, None)
    assert (first.rows, first.is_whole) == (20, True)
    known = Snapshot(folder="", table="settings", end=first.end, epoch=first.epoch, keys=3, at_us=0)
    assert not fresh(tmp_path, known).is_whole
    first_seq = pack(tmp_path)
    for before in (None, known):  # a journal that was packed has all values that there are
        again = fresh(tmp_path, before)
        assert (again.rows, again.is_whole) == (3, True)
    starts = [start for start, _ in asked]
    assert starts == [2, first.end + 1, first_seq, first_seq]
