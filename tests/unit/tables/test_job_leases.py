"""Leases: how long a worker may take, what it may say meanwhile, and what happens afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fjord import limits
from fjord.commands import Extend, Fail, Finish
from fjord.jobs import How, State
from fjord.ops import Opcode
from fjord.tables.jobs.keep import ExpireJobs
from fjord.tables.state import Tree
from tests.unit.tables.job_world import HOUR, MINUTE, SECOND, JobWorld, New, missing
from tests.unit.tables.world import NOW_US

YEAR = 365 * 24 * 3600


@pytest.fixture
def world() -> Iterator[JobWorld]:
    world = JobWorld()
    yield world
    world.check()


# -- how long -------------------------------------------------------------------------------------


@pytest.mark.req("SJ-12", "FJ-13")
def test_a_taken_job_is_hidden_until_its_lease_is_over(world: JobWorld) -> None:
    """An hour is what a table allows, unless it says otherwise."""
    world.push(b"a")
    world.next()
    world.wait(3599.999999)
    assert world.next() == []
    world.wait(0.000001)
    (again,) = world.next()
    assert (again.key, again.timeouts) == (b"a", 1)


@pytest.mark.parametrize("lease_us", [limits.LEASE_US_MIN, limits.LEASE_US_MAX])
def test_the_shortest_and_the_longest_lease(world: JobWorld, lease_us: int) -> None:
    world.push(b"a")
    world.next(lease_us=lease_us)
    world.wait((lease_us - 1) / SECOND)
    assert world.totals() == (0, 1, 0)
    world.wait(0.000001)
    assert world.totals() == (1, 0, 0)


def test_many_leases_that_end_together_all_end(world: JobWorld) -> None:
    keys = [b"%d" % number for number in range(350)]
    world.push(*keys)
    world.next(350)
    world.wait(3600)
    assert world.totals() == (350, 0, 0)
    assert world.keys(350) == keys


# -- clock jumps ----------------------------------------------------------------------------------


@pytest.mark.req("SJ-12")
@pytest.mark.parametrize("jump", [3600, -3600, YEAR, -YEAR])
def test_no_jump_of_the_wall_clock_touches_a_lease(world: JobWorld, jump: int) -> None:
    world.push(b"a")
    (job,) = world.next(lease_us=MINUTE)
    world.jump(jump)
    world.upkeep()
    world.wait(59)
    assert world.totals() == (0, 1, 0)
    assert world.extend(job) == []
    world.wait(59)
    assert world.totals() == (0, 1, 0)
    world.wait(1)
    assert world.totals() == (1, 0, 0)


# -- touching -------------------------------------------------------------------------------------


@pytest.mark.req("SJ-13")
def test_a_worker_can_extend_its_time(world: JobWorld) -> None:
    world.push(b"a")
    (job,) = world.next(lease_us=MINUTE)
    for _ in range(10):
        world.wait(50)
        assert world.extend(job) == []
    assert world.totals() == (0, 1, 0)
    assert world.done(job) == []


# -- fences ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["done", "extend", "fail"])
def test_an_old_xid_changes_nothing(world: JobWorld, verb: str) -> None:
    """Decision 6: a lease is not a lock."""
    world.push(b"a")
    (old,) = world.next()
    world.wait(3600)
    assert getattr(world, verb)(old) == [0]
    (new,) = world.next()
    before = world.peek(State.TAKEN)
    assert new.xid != old.xid
    assert getattr(world, verb)(old) == [0]
    assert world.peek(State.TAKEN) == before
    assert world.done(new) == []


@pytest.mark.parametrize("verb", ["done", "extend", "fail"])
def test_the_missing_ones_are_told_by_position_and_the_others_are_done(
    world: JobWorld, verb: str
) -> None:
    world.push(b"a", b"b", b"c")
    one, other, third = world.next(3)
    world.done(other)
    assert getattr(world, verb)(999, one, other, third, one) == [0, 2, 4]
    expected = {"done": (0, 0, 0), "extend": (0, 2, 0), "fail": (2, 0, 0)}
    assert world.totals() == expected[verb]


@pytest.mark.parametrize("kind", [Finish, Extend, Fail])
def test_in_a_table_that_is_not_there_all_are_missing(world: JobWorld, kind: type) -> None:
    assert missing(world.run(kind(table="nowhere", xids=[1, 2]))) == [0, 1]
    assert world.next_seq == 1


# -- a key that is pushed meanwhile ---------------------------------------------------------------


@pytest.mark.req("FJ-32")
@pytest.mark.parametrize("how", ["fail", "give back", "time out"])
@pytest.mark.parametrize("newer", ["taken", "done", "done at once", "dead", "failed and cancelled"])
def test_a_job_whose_key_was_taken_anew_is_dropped(world: JobWorld, newer: str, how: str) -> None:
    world.push(New(b"a", b"old"), b"other")
    old, other = world.next(2)
    world.push(New(b"a", b"new"))
    (new,) = world.next(done=newer == "done at once", lease_us=2 * HOUR)
    if newer == "done":
        world.done(new)
    elif newer == "dead":
        world.fail(new, buries=True)
    elif newer == "failed and cancelled":
        world.fail(new)
        world.cancel(b"a")
    before = world.totals()
    world = world.replayed()  # all of it stands in the journal
    if how == "time out":
        world.extend(other)
        world.now_us += HOUR + SECOND
        world.lease_us += HOUR + SECOND
        world.extend(other)
        world.upkeep()
    else:
        assert world.fail(old, counts=how == "fail") == []
    assert world.totals() == (before[0], before[1] - 1, before[2])
    assert world.ops()[-1].opcode is Opcode.JOB_REMOVE
    assert world.ops()[-1].column("how") == (How.SUPERSEDED,)
    assert world.done(old, other) == [0]
    world.check()


@pytest.mark.req("FJ-32", "SJ-05")
@pytest.mark.parametrize("is_done", [True, False])
def test_a_late_push_overtakes_nothing(world: JobWorld, is_done: bool) -> None:
    """By their clients' dates the job that was taken first is the newer one."""
    world.push(New(b"a", b"written last"), b"other")
    newer, other = world.next(2)
    world.push(New(b"a", b"written first", stamp_us=NOW_US - SECOND))
    (older,) = world.next()
    if is_done:
        world.done(newer)
        world.fail(older)
        assert world.totals() == (0, 1, 0)
        return
    world.fail(older)
    assert world.totals() == (0, 2, 0)
    world.push(New(b"a", b"pushed last"))
    world.done(*world.next())
    world.fail(newer, other)
    assert [one.key for one in world.peek()] == [b"other"]


def test_a_late_push_leaves_the_leases_of_those_that_were_taken_with_it(world: JobWorld) -> None:
    world.push(New(b"a", b"written last"))
    world.next()
    world.push(New(b"a", b"written first", stamp_us=NOW_US - SECOND), b"b", b"c")
    world.next(3)
    world.wait(3601)
    assert [one.key for one in world.peek()] == [b"a", b"b", b"c"]
    assert world.waiting(b"a").value == b"written last"


# -- expiry ---------------------------------------------------------------------------------------


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
