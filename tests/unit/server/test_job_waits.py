"""Waiting for jobs, on a real engine in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fjord import kinds
from fjord.commands import CreateTable, DropTable, Finish, Next, Nop, Taken
from tests.unit.engine.job_records import TABLE
from tests.unit.server.job_world import SECOND_US, YEAR, World, job_world, xids


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with job_world(tmp_path, monkeypatch) as world:
        yield world


@pytest.mark.req("SJ-28", "FJ-28")
def test_a_job_that_arrives_wakes_one_worker_and_is_taken_in_that_step(world: World) -> None:
    a, b = world.workers(2)
    world.push(b"key")
    world.settle(a)
    assert a.jobs == [b"key"]
    assert b.replies == []
    assert world.engine.job_counts()[TABLE] == (0, 1, 0)
    (reply,) = a.replies
    assert world.do(Finish(table=TABLE, xids=xids(reply)))[0].missing == []  # type: ignore[attr-defined]


@pytest.mark.req("FJ-12")
def test_a_worker_sleeps_until_the_very_moment_and_nothing_polls(world: World) -> None:
    world.push(b"key", delay=25)
    (client,) = world.workers(1)
    ran, syncs, rings = world.ran.total(), world.syncs, world.loop.rings
    world.loop.pass_time(24.999)
    assert (world.ran.total(), world.syncs) == (ran, syncs)
    assert world.loop.rings - rings <= 1  # an alert that was planned by the push
    assert client.replies == []
    world.loop.pass_time(0.001)
    world.settle(client)
    assert client.jobs == [b"key"]


def test_one_job_does_not_wake_a_hundred_workers(world: World) -> None:
    clients = world.workers(100)
    before = world.ran[Next]
    world.push(b"key")
    world.settle(clients[0])
    world.loop.run()
    assert world.ran[Next] - before <= 2  # the one, and one that looks whether there are more
    assert world.counters.parked_waits == 99


@pytest.mark.parametrize("jump", [0, 3600, YEAR])
def test_a_lease_that_is_over_wakes_a_worker_whatever_the_wall_clock_does(
    world: World, jump: float
) -> None:
    first, second = world.client(), world.client()
    world.push(b"key")
    world.next(first, wait=0, lease=10)
    assert first.jobs == [b"key"]
    world.next(second)
    world.clock.jump(jump)
    world.do(Nop())
    world.loop.pass_time(9.9)
    assert second.jobs == []
    world.loop.pass_time(0.2)
    world.settle(second)
    (reply,) = second.replies
    assert isinstance(reply, Taken)
    assert list(reply.timeouts) == [1]


@pytest.mark.parametrize("jump", [-3600, -YEAR])
def test_a_lease_ends_in_time_when_the_clock_is_set_back(world: World, jump: float) -> None:
    """Its job waits then for its old date, which is ahead again."""
    world.push(b"key")
    world.next(world.client(), wait=0, lease=10)
    world.clock.jump(jump)
    world.do(Nop())
    world.loop.pass_time(9.9)
    assert world.engine.job_counts()[TABLE] == (0, 1, 0)
    world.loop.pass_time(0.2)
    world.loop.until(lambda: world.engine.job_counts()[TABLE] == (1, 0, 0))
    (client,) = world.workers(1)
    assert client.replies == []
    world.clock.jump(-jump)
    world.loop.pass_time(30)
    world.settle(client)
    assert client.jobs == [b"key"]


def test_what_upkeep_gives_back_is_handed_out_with_the_same_sync(world: World) -> None:
    world.push(b"key")
    world.next(world.client(), wait=0, lease=10)
    (client,) = world.workers(1)
    world.loop.pass_time(9.9)
    before = world.syncs
    world.loop.pass_time(0.2)
    world.settle(client)
    assert client.jobs == [b"key"]
    assert world.syncs - before == 1


def test_jobs_of_a_connection_that_closed_are_given_back_at_once(world: World) -> None:
    """The NEXT ran, and its connection was closed while the sync was under way."""
    gone, heir = world.client(), world.client()
    world.push(b"a", b"b")
    command = Next(table=TABLE, count=2, lease_us=3600 * SECOND_US)
    world.committer.waits.begin(gone, None, command)
    world.committer.submit(heir, None, Nop())  # a group of two is synced by a thread
    world.loop.until(lambda: world.engine.job_counts()[TABLE] == (0, 2, 0))
    world.hang_up(gone)
    world.loop.until(lambda: len(gone.forgotten) == 1)
    world.loop.until(lambda: world.engine.job_counts()[TABLE] == (2, 0, 0))
    assert gone.replies == []
    world.next(heir, count=2)
    assert sorted(heir.jobs) == [b"a", b"b"]
    reply = heir.replies[-1]
    assert isinstance(reply, Taken)
    assert list(reply.timeouts) == [0, 0]  # it was nobody's fault


def test_jobs_that_cannot_be_given_back_are_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    gone, other = world.client(), world.client()
    world.push(b"a")
    world.committer.waits.begin(gone, None, Next(table=TABLE, lease_us=3600 * SECOND_US))
    world.committer.submit(other, None, Nop())  # a group of two is synced by a thread
    world.loop.until(lambda: world.engine.job_counts()[TABLE] == (0, 1, 0))
    world.hang_up(gone)
    world.committer.submit(other, None, DropTable(name=TABLE))
    world.committer.submit(other, None, CreateTable(name=TABLE, kind=kinds.Kind.KV.number))
    with caplog.at_level("WARNING"):
        world.loop.until(lambda: bool(caplog.messages))
    assert caplog.messages == ["jobs could not be given back"]
