"""Waiting for jobs, on a real engine in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from fjord import kinds
from fjord.columns import Strings
from fjord.commands import (
    CreateTable,
    DropTable,
    Finish,
    Next,
    Nop,
    Refusal,
    Reschedule,
    Taken,
)
from fjord.jobs import Fairness, Settings
from fjord.server.committer import Committer
from fjord.server.counters import Counters
from fjord.testing import SimClock
from tests.unit.engine.job_records import TABLE, push
from tests.unit.engine.world import open_at
from tests.unit.server.job_world import JOBS_KIND, SECOND_US, YEAR, Client, World, job_world, xids


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


def test_a_job_that_comes_behind_it_in_the_same_group_is_not_missed(world: World) -> None:
    client = world.client()
    command = Next(table=TABLE, wait_us=60 * SECOND_US)
    world.committer.waits.begin(client, None, command)
    world.committer.submit(world.client(), None, push(b"key", now_us=world.clock.wall_us()))
    world.settle(client)
    assert client.jobs == [b"key"]


@pytest.mark.req("FJ-28")
def test_next_answers_with_jobs_with_nothing_or_with_a_date(world: World) -> None:
    client = world.client()
    world.next(client, wait=0)
    world.push(b"now")
    world.push(b"later", delay=5)
    date_us = world.clock.wall_us() + 5 * SECOND_US
    world.next(client, wait=0)
    world.next(client, wait=0)
    nothing, something, date = client.replies
    assert isinstance(nothing, Taken)
    assert isinstance(date, Taken)
    assert (len(nothing.rows), nothing.next_at_us) == (0, 0)
    assert xids(something) != []
    assert (len(date.rows), date.next_at_us) == (0, date_us)


@pytest.mark.req("FJ-28")
def test_auto_done_jobs_may_be_waited_for_too(world: World) -> None:
    (client,) = world.workers(1, done=True)
    world.push(b"key")
    world.settle(client)
    assert client.jobs == [b"key"]
    assert world.engine.job_counts()[TABLE] == (0, 0, 0)


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


@pytest.mark.req("FJ-12")
def test_the_moment_of_each_domain_is_known(world: World) -> None:
    settings = Settings(fairness=Fairness.DOMAIN).encode()
    world.do(CreateTable(name=TABLE, kind=JOBS_KIND, settings=settings))
    world.push(b"a1", delay=5, domain=b"a")
    world.push(b"b1", delay=9, domain=b"b")
    (a,) = world.workers(1, domain=b"a")
    b = world.client()
    world.next(b, domain=b"b")
    world.loop.pass_time(4.999)
    assert a.replies == []
    world.loop.pass_time(0.001)
    world.settle(a)
    assert (a.jobs, b.jobs) == ([b"a1"], [])
    world.loop.pass_time(4)
    world.settle(b)
    assert b.jobs == [b"b1"]


def test_a_job_of_another_domain_leaves_a_worker_where_it_is(world: World) -> None:
    settings = Settings(fairness=Fairness.DOMAIN).encode()
    world.do(CreateTable(name=TABLE, kind=JOBS_KIND, settings=settings))
    (a,) = world.workers(1, domain=b"a")
    b = world.client()
    world.next(b, domain=b"b")
    world.push(b"b1", domain=b"b")
    world.settle(b)
    assert (a.jobs, b.jobs) == ([], [b"b1"])
    world.push(b"a1", domain=b"a")
    world.settle(a)
    assert a.jobs == [b"a1"]


def test_one_job_does_not_wake_a_hundred_workers(world: World) -> None:
    clients = world.workers(100)
    before = world.ran[Next]
    world.push(b"key")
    world.settle(clients[0])
    world.loop.run()
    assert world.ran[Next] - before <= 2  # the one, and one that looks whether there are more
    assert world.counters.parked_waits == 99


def test_as_many_jobs_as_workers_are_handed_out_with_few_syncs(world: World) -> None:
    clients = world.workers(50)
    world.loop.run()
    before = world.syncs
    world.push(*(b"key-%d" % number for number in range(50)))
    world.settle(*clients)
    assert sorted(key for client in clients for key in client.jobs) == sorted(
        b"key-%d" % number for number in range(50)
    )
    assert world.syncs - before <= 3


def test_jobs_of_one_date_are_handed_out_with_few_syncs(world: World) -> None:
    world.push(*(b"key-%d" % number for number in range(100)), delay=5)
    clients = world.workers(100)
    before = world.syncs
    world.loop.pass_time(5)
    world.settle(*clients)
    assert {len(client.jobs) for client in clients} == {1}
    assert world.syncs - before <= 10


def test_workers_are_served_in_the_order_in_which_they_came(world: World) -> None:
    clients = world.workers(3)
    for number, client in enumerate(clients):
        world.push(b"%d" % number)
        world.settle(client)
    assert [client.jobs for client in clients] == [[b"0"], [b"1"], [b"2"]]


def test_a_job_that_is_kicked_wakes_a_worker(world: World) -> None:
    world.push(b"key", delay=3600)
    (client,) = world.workers(1)
    world.do(Reschedule(table=TABLE, keys=Strings.of([b"key"]), process_at_us=0))
    world.settle(client)
    assert client.jobs == [b"key"]


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


def test_a_worker_that_takes_no_replies_leaves_jobs_to_others_until_it_does(world: World) -> None:
    slow, quick = world.workers(2)
    slow.is_stalled = True
    world.push(b"a")
    world.settle(quick)
    assert (slow.jobs, quick.jobs) == ([], [b"a"])
    world.push(b"b")
    slow.is_stalled = False
    world.committer.release()
    world.settle(slow)
    assert slow.jobs == [b"b"]


def test_a_lease_taken_after_the_clock_was_set_ahead_ends_in_time(world: World) -> None:
    world.clock.jump(YEAR)
    first, second = world.client(), world.client()
    world.push(b"key")
    world.next(first, wait=0, lease=10)
    world.next(second)
    world.loop.pass_time(10.1)
    world.settle(second)
    assert second.jobs == [b"key"]


def test_a_wait_that_is_over_is_answered_with_the_date_as_it_is_then(world: World) -> None:
    (client,) = world.workers(1, wait=10)
    world.push(b"key", delay=3600)
    date_us = world.clock.wall_us() + 3600 * SECOND_US
    world.loop.pass_time(10)
    world.settle(client)
    (reply,) = client.replies
    assert isinstance(reply, Taken)
    assert (len(reply.rows), reply.next_at_us) == (0, date_us)


def test_a_refused_next_does_not_wait(world: World) -> None:
    client = world.client()
    world.next(client, wait=2 * 3600)
    (reply,) = client.replies
    assert isinstance(reply, Refusal)
    assert world.counters.parked_waits == 0


def test_jobs_of_a_connection_that_closed_are_given_back_at_once(world: World) -> None:
    """The NEXT ran, and its connection was closed while the sync was under way."""
    gone, heir = world.client(), world.client()
    world.push(b"a", b"b")
    command = Next(table=TABLE, count=2, lease_us=3600 * SECOND_US)
    world.committer.waits.begin(gone, None, command)
    world.committer.submit(heir, None, Nop())  # a group of two is synced by a thread
    world.loop.until(lambda: world.engine.job_counts()[TABLE] == (0, 2, 0))
    world.hang_up(gone)
    world.loop.until(lambda: gone.forgotten == 1)
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


def test_jobs_that_were_given_back_are_for_the_next_who_waits(world: World) -> None:
    gone, heir = world.workers(2)
    other = world.client()
    world.committer.submit(other, None, push(b"key", now_us=world.clock.wall_us()))
    world.loop.until(lambda: other.sent == 1)
    later = push(b"later", now_us=world.clock.wall_us(), delay_us=3600 * SECOND_US)
    world.committer.submit(other, None, later)  # a group of two is synced by a thread
    world.loop.until(lambda: world.engine.job_counts()[TABLE] == (1, 1, 0))
    world.hang_up(gone)
    world.settle(heir)
    assert (gone.replies, gone.forgotten) == ([], 1)
    assert heir.jobs == [b"key"]


def test_a_stop_answers_who_waits(tmp_path: Path) -> None:
    clock = SimClock()
    engine = open_at(tmp_path, clock)
    client = Client(engine)
    failures: list[Exception] = []

    async def main() -> None:
        committer = Committer(
            engine,
            asyncio.get_running_loop(),
            clock,
            Counters(),
            on_failure=failures.append,
        )
        waiting = committer.waits
        waiting.begin(client, None, Next(table=TABLE, wait_us=3600 * SECOND_US))
        await asyncio.wait_for(committer.drain(), timeout=30)
        committer.close()

    asyncio.run(main())
    engine.abandon()
    (reply,) = client.replies
    assert isinstance(reply, Taken)
    assert len(reply.rows) == 0
    assert failures == []
