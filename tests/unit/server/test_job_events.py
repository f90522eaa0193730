"""Listening to jobs, and alerts, on a real engine in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fjord.columns import Strings
from fjord.commands import ARRIVED, DUE, Bury
from tests.unit.engine.job_records import TABLE, push
from tests.unit.server.job_world import SECOND_US, Client, World, job_world


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with job_world(tmp_path, monkeypatch) as world:
        yield world


# -- listening ------------------------------------------------------------------------------------


def said(client: Client) -> list[bytes]:
    return [value for value, _ in client.told]


@pytest.mark.req("SJ-29")
def test_listeners_are_told_once_a_group_that_jobs_arrived(world: World) -> None:
    ear = world.client()
    world.push(b"before")
    world.listen(ear)
    now_us = world.clock.wall_us()
    world.do(push(b"a", b"b", now_us=now_us), push(b"c", now_us=now_us), push(b"d", now_us=now_us))
    assert ear.told == [(ARRIVED, now_us)]
    world.push(b"e")
    assert said(ear) == [ARRIVED, ARRIVED]


@pytest.mark.req("SJ-29")
def test_listeners_are_told_at_the_very_moment_of_a_process_date(world: World) -> None:
    ear = world.client()
    world.push(b"early", delay=5)
    early_us = world.clock.wall_us() + 5 * SECOND_US
    world.listen(ear)
    world.push(b"late", delay=20)
    late_us = world.clock.wall_us() + 20 * SECOND_US
    ear.told.clear()
    ran = world.ran.total()
    world.loop.pass_time(4.999)
    assert ear.told == []
    world.loop.pass_time(0.001)
    assert ear.told == [(DUE, early_us)]
    world.loop.pass_time(15)
    assert ear.told == [(DUE, early_us), (DUE, late_us)]
    world.loop.pass_time(3600)
    assert len(ear.told) == 2
    assert world.ran.total() == ran  # nobody asked for it


# -- alerts ---------------------------------------------------------------------------------------


def test_dead_jobs_are_an_alert(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.push(b"a", b"b", b"c")
    world.do(Bury(table=TABLE, keys=Strings.of([b"a", b"b"]), reason=b"no"))
    with caplog.at_level("WARNING"):
        world.loop.pass_time(2)
    (record,) = caplog.records
    assert record.getMessage() == "jobs are dead"
    assert vars(record)["fields"] == {"table": TABLE, "dead": 2, "new": 2}
    assert world.counters.jobs_died_by_table == {TABLE: 2}


def test_many_writes_are_one_look_for_dead_jobs_and_none_is_none(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    deaths = world.engine.job_deaths

    def counted() -> dict[str, int]:
        looks.append(world.clock.monotonic_us())
        return deaths()

    monkeypatch.setattr(world.engine, "job_deaths", counted)
    world.loop.pass_time(60)
    assert looks == []
    for _ in range(50):
        world.push(b"key")
        world.loop.pass_time(0.001)
    world.loop.pass_time(60)
    assert len(looks) == 1
