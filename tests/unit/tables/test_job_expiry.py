"""Expiry: past its date a job counts as deleted, whoever looks, and then it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fjord.jobs import Fairness
from fjord.ops import Opcode
from fjord.tables.jobs.keep import ExpireJobs
from fjord.tables.state import Tree
from tests.unit.tables.job_world import HOUR, SECOND, JobWorld, New
from tests.unit.tables.world import NOW_US

YEAR = 365 * 24 * 3600


@pytest.fixture
def world() -> Iterator[JobWorld]:
    world = JobWorld()
    yield world
    world.check()


def short(key: bytes, seconds: float = 1, *, priority: int = 100, process_at_us: int = 0) -> New:
    """Returns a job with a short life."""
    return New(
        key,
        priority=priority,
        process_at_us=process_at_us,
        expires_at_us=NOW_US + round(seconds * SECOND),
    )


# -- jobs that never expire -----------------------------------------------------------------------


@pytest.mark.req("FJ-08", "SJ-06")
def test_a_job_never_expires_unless_that_was_asked_for(world: JobWorld) -> None:
    world.push(b"a")
    world.wait(100 * YEAR)
    assert world.keys() == [b"a"]


# -- nobody sees one ------------------------------------------------------------------------------


@pytest.mark.req("SJ-06", "SJ-25")
def test_no_read_shows_an_expired_job_also_before_upkeep(world: JobWorld) -> None:
    world.push(short(b"a"), New(b"b"))
    world.jump(1)
    assert [one.key for one in world.peek()] == [b"b"]
    assert world.find(b"a") == []
    assert world.cancel(b"a") == [0]
    assert world.reschedule(b"a", priority=1) == [0]
    assert world.bury(b"a") == [0]
    assert world.keys(10) == [b"b"]


@pytest.mark.req("SJ-06")
def test_a_job_lives_until_its_expiry(world: JobWorld) -> None:
    world.push(short(b"a"))
    world.now_us = NOW_US + SECOND - 1
    assert world.find(b"a") != []
    world.now_us = NOW_US + SECOND
    assert world.find(b"a") == []
    assert world.next() == []


@pytest.mark.req("SJ-25")
def test_next_passes_over_any_number_of_expired_jobs(world: JobWorld) -> None:
    world.push(*[short(b"%d" % at, priority=1) for at in range(500)])
    world.push(b"alive")
    world.jump(1)
    found = [key for _ in range(10) for key in world.keys(1)]
    assert found == [b"alive"]


@pytest.mark.req("SJ-25", "FJ-12")
@pytest.mark.parametrize("priority", [1, 100, 250])
def test_an_expired_job_does_not_hide_when_the_next_one_is_due(
    world: JobWorld, priority: int
) -> None:
    """Whoever is told that nothing waits would sleep through it."""
    world.push(short(b"expired"))
    world.push_one(b"later", priority=priority, process_at_us=NOW_US + HOUR)
    world.jump(1)
    assert world.take().next_at_us == NOW_US + HOUR


@pytest.mark.req("SJ-25")
def test_with_fairness_the_expired_jobs_of_one_domain_hold_up_no_other() -> None:
    world = JobWorld(fairness=Fairness.DOMAIN)
    for domain in (b"x", b"y", b"z"):
        world.push(*[short(b"%s%d" % (domain, at))._replace(domain=domain) for at in range(5)])
    world.push(New(b"alive", domain=b"y"))
    world.jump(1)
    found = [key for _ in range(20) for key in world.keys(1)]
    assert found == [b"alive"]
    world.check()


# -- they are removed -----------------------------------------------------------------------------


@pytest.mark.req("SJ-25")
def test_there_is_an_index_of_expiries_only_where_there_are_any(world: JobWorld) -> None:
    world.push(b"a")
    assert world.tree(Tree.JOBS_EXPIRY) == {}
    world.push(short(b"b"))
    assert len(world.tree(Tree.JOBS_EXPIRY)) == 1
    world.done(*world.next(2))
    assert world.tree(Tree.JOBS_EXPIRY) == {}


@pytest.mark.req("SJ-25")
def test_a_step_of_upkeep_removes_no_more_than_it_may(world: JobWorld) -> None:
    world.push(*[short(b"%d" % at) for at in range(10)])
    world.jump(1)
    world.run(ExpireJobs(limit=4))
    assert world.totals() == (6, 0, 0)


# -- taken and dead ones --------------------------------------------------------------------------


def test_a_taken_job_can_be_finished_after_its_expiry(world: JobWorld) -> None:
    world.push(short(b"a"))
    (job,) = world.next()
    world.wait(10)
    assert world.totals() == (0, 1, 0)
    assert world.extend(job) == []
    assert world.done(job) == []


@pytest.mark.req("SJ-06")
@pytest.mark.parametrize("how", ["timeout", "fail", "given back"])
def test_a_taken_job_that_has_expired_does_not_wait_again(world: JobWorld, how: str) -> None:
    world.push(short(b"a"))
    (job,) = world.next()
    world.wait(10)
    if how == "timeout":
        world.wait(3600)
    else:
        assert world.fail(job, counts=how == "fail") == []
    assert world.totals() == (0, 0, 0)
    assert world.ops()[-1].opcode is Opcode.JOB_REMOVE


def test_a_taken_job_comes_back_although_the_newer_one_of_its_key_has_expired(
    world: JobWorld,
) -> None:
    """A waiting job that has expired counts as not there."""
    world.push(New(b"a", b"old"))
    (old,) = world.next()
    world.push(short(b"a"))
    world.jump(1)
    assert world.fail(old) == []
    assert [(one.value, one.timeouts) for one in world.next()] == [(b"old", 1)]


def test_a_dead_job_comes_back_although_the_newer_one_of_its_key_has_expired(
    world: JobWorld,
) -> None:
    world.push(New(b"a", b"old"))
    row = world.waiting(b"a").row
    world.bury(b"a")
    world.push(short(b"a"))
    world.jump(1)
    assert world.revive(row) == []
    assert [one.value for one in world.next()] == [b"old"]


# -- clock jumps ----------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [-3600, -YEAR])
def test_a_clock_that_is_set_back_kills_nothing(world: JobWorld, jump: int) -> None:
    world.push(short(b"a", 10))
    world.jump(jump)
    world.upkeep()
    assert world.totals() == (1, 0, 0)
    world.jump(-jump)
    assert world.keys() == [b"a"]
