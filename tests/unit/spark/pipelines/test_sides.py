"""Which rows are compared, without Spark."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import fjord
from fjord.client.history import BlockInfo
from fjord.spark.options import Location
from fjord.spark.pipelines import sides


def filled(path: Path, **settings: Any) -> list[BlockInfo]:
    """Makes a stream with three blocks."""
    with fjord.open(path) as database:
        stream = database.create_stream("events", **settings)
        for _ in range(3):
            stream.append_many([b"a", b"b"])
            database.seal("events")
        return database.blocks("events")


def without_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets nodes forget the first block of each table."""
    listed = fjord.Database.blocks
    monkeypatch.setattr(fjord.Database, "blocks", lambda *given: listed(*given)[1:])


def test_what_nothing_forgets_counts_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = filled(tmp_path)
    where = Location.of_path(str(tmp_path))
    whole = sides.scope(where, "events", 1, 0)
    assert (whole.start, whole.is_kept, len(whole.blocks)) == (1, True, 3)
    assert sides.described(whole)[1] == {}
    without_first(monkeypatch)
    lacking = sides.scope(where, "events", 1, 0)
    assert (lacking.start, len(lacking.blocks)) == (1, 2)
    problems = sides.described(lacking)[1]
    assert problems.keys() == {blocks[1].name}
    assert f"the block before it, {blocks[0].name}, is missing" in problems[blocks[1].name]
    # Who asks for a later start does not care for what was before.
    later = sides.scope(where, "events", blocks[1].first, 0)
    assert (later.start, sides.described(later)[1]) == (blocks[1].first, {})


def test_what_retention_has_removed_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = filled(tmp_path, retention=timedelta(days=9))
    without_first(monkeypatch)
    found = sides.scope(Location.of_path(str(tmp_path)), "events", 1, 0)
    assert (found.start, found.is_kept) == (blocks[1].first, False)
    assert sides.described(found)[1] == {}
