"""How far batches go: over blocks, from blocks to the journal, and where something is gone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import fjord
from fjord.errors import Code, FjordError, RefusedError
from fjord.spark.extent import Bounds, Extent, Nature
from fjord.spark.options import EARLIEST, LATEST, Location, Position, SourceOptions


@pytest.fixture
def extent(mixed: Path) -> Iterator[Extent]:
    with fjord.open(mixed, read_only=True) as database:
        yield extent_of(database, "events")


def extent_of(database: Any, table: str, **more: Any) -> Extent:
    given = {"location": Location(path="/data"), "table": table, **more}
    return Extent(database, SourceOptions(**given))


@pytest.fixture
def commits(extent: Extent) -> list[int]:
    """The ends of the commits of `events`, of which each has 10 rows."""
    pieces = extent.database.scan_arrow("events")
    found = [seq for table in pieces for seq in table["txn"].to_pylist()]
    assert len(found) == 350
    return sorted(set(found))


def walked(extent: Extent, bounds: Bounds) -> list[tuple[int, int]]:
    """Returns the ends and rows of all batches."""
    after, found = extent.earliest(), []
    while (batch := extent.advance(after, bounds)).rows:
        found.append((batch.seq, batch.rows))
        after = batch.seq
    assert not batch.is_cut
    return found


@pytest.mark.parametrize("rows_max", [1, 9, 10, 25, 70, 100, 130, 299, 310, 1000])
def test_batches_end_with_commits_and_miss_nothing(
    extent: Extent, commits: list[int], rows_max: int
) -> None:
    found = walked(extent, Bounds(rows_max=rows_max))
    assert sum(rows for _, rows in found) == 350
    assert all(rows <= max(rows_max, 10) for _, rows in found)
    # A block may end behind its last commit; no row is in between.
    edges = {*commits, *(block.last for block in extent.blocks)}
    assert {seq for seq, _ in found} <= edges
    least = max(rows_max // 10 * 10, 10)
    assert all(rows == least for _, rows in found[:-1])


def test_where_there_are_no_rows_the_place_does_not_move(
    extent: Extent, commits: list[int]
) -> None:
    batch = extent.advance(commits[-1], epoch="")
    assert (batch.seq, batch.rows) == (commits[-1], 0)
    assert batch.end > batch.seq  # others have written there
    at_edge = extent.advance(commits[29], Bounds(until=commits[30] - 1))
    assert (at_edge.seq, at_edge.rows) == (commits[29], 0)


def test_places(extent: Extent, commits: list[int]) -> None:
    assert extent.locate(EARLIEST) == 0
    assert extent.locate(LATEST) == commits[-1]
    assert extent.locate(Position(seq=17)) == 16
    now = datetime.now(tz=UTC)
    assert extent.locate(Position(at=now)) == commits[-1]
    assert extent.locate(Position(at=now - timedelta(days=1))) == 0
    second = extent.blocks[1]
    assert extent.locate(Position(at=second.min_at)) == second.first - 1
    assert second.first < extent.locate(Position(at=second.max_at)) < second.last
    with pytest.raises(FjordError, match="has no subscriber 'nobody'; check the option"):
        extent.locate(Position(subscriber="nobody"))


def test_a_forked_history_is_refused(extent: Extent, commits: list[int]) -> None:
    with pytest.raises(RefusedError) as caught:
        extent.advance(commits[-2], epoch="f" * 32)
    assert caught.value.code is Code.FORKED
    with pytest.raises(RefusedError) as caught:
        extent.advance(10**9)
    assert caught.value.code is Code.BAD_RANGE


def test_a_history_is_common_up_to_where_an_epoch_ends(tmp_path: Path) -> None:
    ends = []
    for _ in range(4):  # each time it is another writer
        with fjord.open(tmp_path) as db:
            db.stream("events").append_many([b"x"] * 10)
            ends.append(db.span("events").durable_seq)
    with fjord.open(tmp_path, read_only=True) as database:
        extent = extent_of(database, "events")
        epochs = [extent.epoch_of(end) for end in ends]
        assert len(set(epochs)) == 4
        for end, epoch in zip(ends, epochs, strict=True):
            assert extent.common(end, epoch) == end
            assert extent.common(10**9, epoch) == extent.common(ends[-1], epoch) == end
        assert extent.common(ends[0] + 3, epochs[2]) == 0  # a later one than it should be
        assert extent.common(ends[2], "f" * 32) == extent.common(10**9, "") == 0


# -- loss -----------------------------------------------------------------------------------------


@pytest.fixture
def forgetful(extent: Extent, monkeypatch: pytest.MonkeyPatch) -> Extent:
    """Two blocks are gone by retention, and the journal begins behind them."""
    blocks = extent.blocks[2:]
    first_seq = blocks[0].last - 5
    database, span = extent.database, extent.database.span

    def packed(table: str, after: int, **more: Any) -> Any:
        if after + 1 < first_seq:
            raise RefusedError(Code.BAD_RANGE, "it is in cold blocks, or gone")
        return span(table, after, **more)._replace(first_seq=first_seq)

    monkeypatch.setattr(database, "blocks", lambda _: blocks)
    monkeypatch.setattr(database, "stats", lambda: {"first_seq": first_seq})
    monkeypatch.setattr(database, "span", packed)
    nature = Nature(kind="stream", has_history=True, forgets=True, is_latest=False)
    extent.nature = nature
    extent.refresh()
    return extent


def rows_of(extent: Extent) -> int:
    return sum(block.rows for block in extent.blocks) + 50


def test_loss_is_said_with_the_missing_range(
    forgetful: Extent, commits: list[int], caplog: Any
) -> None:
    start = forgetful.blocks[0].first - 1
    missing = f"the rows of events from seq {commits[3] + 1} to {start} are gone and were not read"
    with pytest.raises(FjordError, match=f"{missing}.*failOnDataLoss"):
        forgetful.advance(commits[3])
    forgetful._options = SourceOptions(
        location=Location(path="/"), table="events", fails_on_loss=False
    )
    assert forgetful.advance(commits[3]).rows == rows_of(forgetful)
    assert missing in caplog.text


def test_what_was_seen_to_be_empty_is_not_lost(forgetful: Extent, commits: list[int]) -> None:
    start = forgetful.blocks[0].first - 1
    assert forgetful.advance(commits[10], seen=start + 3).rows == rows_of(forgetful)
    with pytest.raises(FjordError, match=f"from seq {start - 1} to {start} are gone"):
        forgetful.advance(commits[10], seen=start - 2)


def test_who_stands_at_the_beginning_misses_what_is_gone(forgetful: Extent) -> None:
    """An offset 0 that a query has is no wish to begin with what is left."""
    start = forgetful.blocks[0].first - 1
    assert forgetful.lost(0) == (1, start)
    with pytest.raises(FjordError, match=f"the rows of events from seq 1 to {start} are gone"):
        forgetful.advance(0)
    assert forgetful.advance(0, seen=start).rows == rows_of(forgetful)


def test_bytes_bound_batches_too(extent: Extent) -> None:
    found = walked(extent, Bounds(bytes_max=1500))
    assert sum(rows for _, rows in found) == 350
    assert 5 < len(found) < 35
    assert len(walked(extent, Bounds(bytes_max=1))) == 35
