"""What a replay is: options that were checked, and what is kept of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

import fjord
from fjord.errors import FjordError
from fjord.spark.options import Location
from fjord.spark.pipelines import replay
from fjord.spark.pipelines.replay import Cut, Plan, ReplayOptions


@pytest.fixture
def where(tmp_path: Path) -> Location:
    with fjord.open(tmp_path) as database:
        database.stream("events").append(b"one")
    return Location.of_path(str(tmp_path))


def plan(where: Location, options: ReplayOptions) -> Plan:
    return replay.plan_of(where, "events", "again", {"to": "fjord://127.0.0.1:1", **options})


def test_what_is_not_said_is_as_usual(where: Location) -> None:
    found = plan(where, {})
    assert (found.kind, found.start, found.end, found.pace) == ("stream", 1, 0, "fast")
    assert (found.keys, found.dates) == ("same", "moved")
    assert found.selection.ops == replay.OPS
    assert found.replay_id != plan(where, {}).replay_id
    assert plan(where, {"redrive": "list"}).selection.ops == (
        *("ADD", "APPEND", "MOVE", "MOVE_DEAD", "REPLACE", "SET"),
    )


@pytest.mark.parametrize(
    ("options", "cut"),
    [
        ({}, Cut(200_000, 0, is_paced=False)),
        ({"batch_rows": 50}, Cut(50, 0, is_paced=False)),
        ({"pace": "original"}, Cut(200_000, 5, is_paced=True)),
        ({"pace": "1000"}, Cut(1000, 0, is_paced=True)),
        ({"pace": 1000.0, "batch_rows": 50}, Cut(50, 0, is_paced=True)),
        ({"pace": 0.01}, Cut(1, 0, is_paced=True)),
    ],
)
def test_batches_are_cut_by_rows_or_by_time(
    where: Location, options: ReplayOptions, cut: Cut
) -> None:
    assert plan(where, options).cut == cut


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"pace": "slow"}, "a pace is fast, original, or a number of rows a second"),
        ({"pace": -1.0}, "a pace is"),
        ({"pace": float("nan")}, "a pace is"),
        ({"keys": "new"}, "keys is same or fresh, not 'new'"),
        ({"dates": "new"}, "dates is moved or same"),
        ({"replay_id": "no spaces"}, "the id of a replay is 1 to 100 of"),
        ({"replay_id": "x" * 101}, "the id of a replay is"),
        ({"batch_rows": 0}, "a batch has 1 to"),
        ({"since": datetime(2026, 1, 1)}, "since has no time zone"),  # noqa: DTZ001
        ({"ops": ["TAKE"]}, "rows of TAKE do not have"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    where: Location, options: ReplayOptions, text: str
) -> None:
    with pytest.raises(FjordError, match=text):
        plan(where, options)


def test_an_id_stands_for_one_replay_only(where: Location) -> None:
    first = plan(where, {"replay_id": "a"}).meant(10)
    later = plan(where, {"replay_id": "a", "pace": "original", "batch_rows": 7}).meant(20)
    replay.check_same("a", first, later)  # there is more by now, and it may be slower
    other = plan(where, {"until": datetime(2026, 1, 1, tzinfo=UTC), "keys": "fresh"}).meant(10)
    with pytest.raises(FjordError, match=r"until '', not '2026-.*; keys 'same', not 'fresh'"):
        replay.check_same("a", first, other)
