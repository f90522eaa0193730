"""Which snapshot counts, without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fjord.blocks.files import Target, target_at
from fjord.errors import FjordError
from fjord.spark.pipelines import latest
from fjord.spark.pipelines.latest import Snapshot

OLD = Snapshot(folder="snapshot-10-a", table="t", end=10, epoch="", keys=1, at_us=5)
NEW = replace(OLD, folder="snapshot-20-b", end=20, replaced={OLD.folder: 6})


@pytest.fixture
def place(tmp_path: Path) -> Target:
    return target_at(str(tmp_path / "values"))


def test_values_do_not_go_back(place: Target) -> None:
    latest._point(place, OLD)
    latest._point(place, NEW)
    slow = replace(OLD, folder="snapshot-15-c", end=15)
    for instead_of in (None, OLD):  # also a rebuild does not undo what it has not seen
        with pytest.raises(FjordError, match=r"up to seq 20, and this run has read up to 15 only"):
            latest._point(place, slow, instead_of=instead_of)
        assert latest._pointed(place) == NEW
    again = replace(NEW, folder="snapshot-20-d")
    latest._point(place, again)  # the same end is as good
    latest._point(place, slow, instead_of=again)
    assert latest._pointed(place) == slow


def test_who_cleans_up_late_does_not_point_back(place: Target) -> None:
    for name in ("snapshot-10-a", "snapshot-20-b", "snapshot-30-c"):
        place.make(f"{name}/part-0.parquet", b"rows")
    further = replace(NEW, folder="snapshot-30-c", end=30, replaced={**NEW.replaced, NEW.folder: 8})
    latest._point(place, further)
    latest._sweep(place, NEW, before_us=7)
    assert latest._pointed(place) == further
    assert "snapshot-10-a" not in place.names()
    latest._sweep(place, further, before_us=7)
    further = replace(further, replaced={NEW.folder: 8})  # what is gone is forgotten
    assert latest._pointed(place) == further
    latest._sweep(place, further, before_us=9)
    assert latest._pointed(place) == replace(further, replaced={})
    assert place.names() == ["_latest.json", "snapshot-30-c"]
