"""Leases: how long a worker may take, what it may say meanwhile, and what happens afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fjord import limits
from fjord.commands import Extend, Fail, Finish
from fjord.jobs import How, State
from fjord.ops import Opcode
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


@pytest.mark.req("SJ-12")
def test_a_table_says_how_long_its_jobs_may_take() -> None:
    world = JobWorld(lease_us=2 * MINUTE)
    world.push(b"a")
    reply = world.take()
    assert reply.until_us == NOW_US + 2 * MINUTE
    world.wait(119)
    assert world.next() == []
    world.wait(1)
    assert world.keys() == [b"a"]


@pytest.mark.parametrize("lease_us", [limits.LEASE_US_MIN, limits.LEASE_US_MAX])
def test_the_shortest_and_the_longest_lease(world: JobWorld, lease_us: int) -> None:
    world.push(b"a")
    world.next(lease_us=lease_us)
    world.wait((lease_us - 1) / SECOND)
    assert world.totals() == (0, 1, 0)
    world.wait(0.000001)
    assert world.totals() == (1, 0, 0)


def test_a_job_that_comes_back_has_its_old_date_and_place(world: JobWorld) -> None:
    world.push(b"a", b"b")
    before = world.waiting(b"a")
    world.next()
    world.wait(3600)
    assert world.waiting(b"a") == before._replace(timeouts=1)
    assert world.keys(2) == [b"a", b"b"]


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


def test_a_touch_may_ask_for_another_time(world: JobWorld) -> None:
    world.push(b"a", b"b")
    one, other = world.next(2, lease_us=MINUTE)
    world.extend(one, lease_us=HOUR)
    world.extend(other, lease_us=SECOND)
    world.wait(1)
    assert [seen.key for seen in world.peek(State.TAKEN)] == [b"a"]
    world.wait(3598)
    assert world.totals() == (1, 1, 0)
    world.wait(1)
    assert world.totals() == (2, 0, 0)


def test_some_of_a_batch_are_touched(world: JobWorld) -> None:
    world.push(*[b"%d" % number for number in range(5)])
    taken = world.next(5, lease_us=MINUTE)
    world.wait(30)
    world.extend(taken[1], taken[3])
    world.wait(30)
    assert [one.key for one in world.peek(State.TAKEN)] == [b"1", b"3"]
    assert world.keys(5) == [b"0", b"2", b"4"]
    world.wait(30)
    assert [one.key for one in world.peek()] == [b"1", b"3"]


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


def test_an_xid_is_good_in_its_own_table_only(world: JobWorld) -> None:
    world.push(b"a")
    world.push(b"a", table="other")
    (job,) = world.next()
    assert world.done(job, table="other") == [0]
    assert world.done(job) == []


def test_a_row_or_an_xid_of_zero_is_nobodys(world: JobWorld) -> None:
    world.push(b"a")
    (job,) = world.next()
    assert world.done(0, job.row, 2**64 - 1) == [0, 1, 2]
    assert world.totals() == (0, 1, 0)


# -- a key that is pushed meanwhile ---------------------------------------------------------------


@pytest.mark.req("FJ-32")
@pytest.mark.parametrize("counts", [True, False])
def test_the_older_job_is_dropped_when_it_fails(world: JobWorld, counts: bool) -> None:
    world.push(New(b"a", b"old"))
    (old,) = world.next()
    world.push(New(b"a", b"new"))
    assert world.fail(old, counts=counts) == []
    assert [(one.value, one.timeouts) for one in world.peek()] == [(b"new", 0)]
    assert world.totals() == (1, 0, 0)


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


@pytest.mark.req("FJ-32")
def test_a_job_whose_key_was_taken_anew_can_still_be_touched_and_done(world: JobWorld) -> None:
    world.push(New(b"a", b"old"))
    (old,) = world.next()
    world.push(New(b"a", b"new"))
    world.done(*world.next())
    world.wait(1800)
    assert world.extend(old) == []
    world.wait(1801)
    (shown,) = world.peek(State.TAKEN)
    assert (shown.value, shown.expires_at_us) == (b"old", 0)
    assert world.done(old) == []
    assert world.ops()[-1].opcode is Opcode.JOB_DONE


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


def test_a_worker_may_still_bury_a_job_whose_key_was_taken_anew(world: JobWorld) -> None:
    world.push(New(b"a", b"old"))
    (old,) = world.next()
    world.push(New(b"a", b"new"))
    world.done(*world.next())
    world.fail(old, buries=True)
    (dead,) = world.peek(State.DEAD)
    assert (dead.value, dead.expires_at_us) == (b"old", 0)
    world.revive(dead.row)
    assert world.totals() == (0, 0, 0)


def test_without_merging_both_come_back() -> None:
    world = JobWorld(merge=False)
    world.push(New(b"a", b"old"))
    world.next()
    world.push(New(b"a", b"new"))
    world.wait(3600)
    assert [(one.value, one.timeouts) for one in world.peek()] == [(b"old", 1), (b"new", 0)]
    (old,) = world.next()
    world.done(*world.next())
    world.fail(old)
    assert [one.value for one in world.peek()] == [b"old"]
    world.check()
