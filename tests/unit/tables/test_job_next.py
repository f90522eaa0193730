"""NEXT: which jobs are handed out, in which order, and what is said when there are none."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from fjord import commands, limits
from fjord.jobs import State
from fjord.ops import Opcode
from tests.unit.tables.job_world import HOUR, MINUTE, SECOND, Got, JobWorld, New, seen
from tests.unit.tables.world import NOW_US


@pytest.fixture
def world() -> Iterator[JobWorld]:
    world = JobWorld()
    yield world
    world.check()


# -- the order ------------------------------------------------------------------------------------


@pytest.mark.req("FJ-03", "SJ-07")
def test_the_smallest_priority_is_first_whatever_the_order_of_pushes(world: JobWorld) -> None:
    priorities = list(range(256))
    random.Random(1).shuffle(priorities)
    for priority in priorities:
        world.push_one(b"%d" % priority, priority=priority)
    assert [one.priority for _ in range(256) for one in world.next()] == list(range(256))


@pytest.mark.req("FJ-06", "SJ-07")
def test_inside_a_priority_the_earliest_date_is_first(world: JobWorld) -> None:
    for key, delay in ((b"c", 3), (b"a", 1), (b"d", 4), (b"b", 2)):
        world.push_one(key, process_at_us=NOW_US + delay * SECOND)
    world.wait(10)
    assert world.keys(10) == [b"a", b"b", b"c", b"d"]


@pytest.mark.req("FJ-06", "FJ-02", "SJ-22")
@pytest.mark.parametrize("merge", [True, False])
def test_at_one_date_the_first_that_was_pushed_is_first(merge: bool) -> None:
    """Neither keys nor values nor insertion dates have a say in it."""
    world = JobWorld(merge=merge)
    keys = [b"m", b"z", b"a", b"y", b"b"]
    for at, key in enumerate(keys):
        world.push_one(key, value=key * at, stamp_us=NOW_US - at)
    assert world.keys(10) == keys
    world.check()


@pytest.mark.req("FJ-02")
def test_a_plain_queue_keeps_every_job_of_one_key() -> None:
    world = JobWorld(merge=False)
    world.push(New(b"k", b"1"), New(b"k", b"2"), New(b"", b"3"))
    world.push(New(b"k", b"4"))
    assert [one.value for one in world.next(10)] == [b"1", b"2", b"3", b"4"]
    world.check()


def test_the_order_of_one_answer_is_that_of_many() -> None:
    rows = [
        New(b"%d" % at, priority=at % 7 * 20, process_at_us=NOW_US - at % 5) for at in range(200)
    ]
    one, many = JobWorld(), JobWorld()
    for world in (one, many):
        world.push(*[row._replace(stamp_us=NOW_US - HOUR) for row in rows])
    together = one.keys(200)
    assert together == [key for _ in range(200) for key in many.keys(1)]
    assert together == [
        row.key
        for row in sorted(rows, key=lambda row: (row.priority, row.process_at_us, int(row.key)))
    ]


# -- dates ----------------------------------------------------------------------------------------


@pytest.mark.req("FJ-10")
def test_a_job_that_is_not_due_is_passed_over(world: JobWorld) -> None:
    """The example of the seed: 1 in ten minutes, 2 three minutes ago."""
    later, now = NOW_US + 10 * MINUTE, NOW_US - 3 * MINUTE
    world.push_one(b"1", priority=1, process_at_us=later)
    world.push_one(b"2", priority=2, process_at_us=now, stamp_us=NOW_US - HOUR)
    assert world.keys(2) == [b"2"]


@pytest.mark.req("FJ-28", "FJ-12")
def test_an_empty_answer_says_when_to_ask_again(world: JobWorld) -> None:
    nothing = world.take()
    assert (nothing.first_xid, list(nothing.rows), nothing.next_at_us) == (0, [], 0)
    world.push_one(b"b", process_at_us=NOW_US + 20 * SECOND, priority=1)
    world.push_one(b"a", process_at_us=NOW_US + 10 * SECOND, priority=250)
    assert world.take().next_at_us == NOW_US + 10 * SECOND
    assert world.count()["next_at_us"] == NOW_US + 10 * SECOND
    world.wait(10)
    assert world.keys(5) == [b"a"]
    assert world.take().next_at_us == NOW_US + 20 * SECOND


@pytest.mark.req("FJ-13")
def test_the_next_moment_counts_with_jobs_that_are_taken(world: JobWorld) -> None:
    world.push(b"a")
    world.next(lease_us=60 * SECOND)
    assert world.take().next_at_us == NOW_US + 60 * SECOND
    assert world.count() == {
        "waiting": 0,
        "taken": 1,
        "dead": 0,
        "next_at_us": NOW_US + 60 * SECOND,
    }
    world.push_one(b"b", process_at_us=NOW_US + 50 * SECOND)
    assert world.take().next_at_us == NOW_US + 50 * SECOND


@pytest.mark.req("FJ-13")
@pytest.mark.parametrize("table", ["jobs", "others"])
def test_many_leases_of_others_make_the_next_moment_early_but_never_late(
    world: JobWorld, table: str
) -> None:
    world.push(b"a")
    world.next(lease_us=3600 * SECOND)
    for number in range(150):
        world.push(b"%d-1" % number, b"%d-2" % number, table=table)
        found = world.next(2, table=table, lease_us=60 * SECOND)
        xids = [job.xid for job in found]
        world.run(commands.Finish(table=table, xids=xids))
    moment_us = world.take().next_at_us
    assert NOW_US < moment_us <= NOW_US + 3600 * SECOND


# -- slow jobs ------------------------------------------------------------------------------------


@pytest.mark.req("SJ-09")
def test_slow_jobs_wait_while_any_other_is_due(world: JobWorld) -> None:
    world.push_one(b"slow", priority=255)
    for number in range(5):
        world.push_one(b"%d" % number, priority=199)
        assert world.keys(10) == [b"%d" % number]
    assert world.keys(10) == [b"slow"]


# -- taking ---------------------------------------------------------------------------------------


@pytest.mark.req("SJ-28")
def test_taking_and_marking_are_one_op(world: JobWorld) -> None:
    world.push(b"a", b"b", b"c")
    before = len(world.ops())
    reply = world.take(2)
    (op,) = world.ops()[before:]
    assert (op.opcode, op.rows) == (Opcode.JOB_TAKE, 2)
    assert reply.first_xid == world.next_seq - 2
    assert world.totals() == (1, 2, 0)


@pytest.mark.req("FJ-28")
def test_jobs_may_be_done_as_they_are_taken(world: JobWorld) -> None:
    world.push(New(b"a", b"1"), New(b"b", b"2"))
    reply = world.take(10, done=True)
    assert (reply.first_xid, reply.until_us) == (0, 0)
    assert reply.values.rows() == [b"1", b"2"]
    assert world.totals() == (0, 0, 0)
    world.wait(1_000_000)
    assert world.next() == []


def test_a_table_that_is_not_there_has_nothing(world: JobWorld) -> None:
    reply = world.take(table="nowhere")
    assert (list(reply.rows), reply.next_at_us) == ([], 0)
    assert "nowhere" not in world.tables


def test_count_zero_is_the_servers_maximum(world: JobWorld) -> None:
    world.push(*[b"%d" % at for at in range(limits.NEXT_COUNT_MAX + 5)])
    assert len(world.next(0)) == limits.NEXT_COUNT_MAX
    assert len(world.next(limits.NEXT_COUNT_MAX)) == 5


def test_an_answer_is_bounded_in_bytes(world: JobWorld) -> None:
    size = limits.VALUE_BYTES_MAX
    for number in range(10):
        world.push_one(b"%d" % number, value=bytes(size))
    first = world.next(10)
    assert 1 <= len(first) <= limits.NEXT_BYTES_MAX // size
    assert [one.key for one in first] == [b"%d" % number for number in range(len(first))]
    assert world.keys(1) == [b"%d" % len(first)]


def test_a_job_larger_than_an_answer_still_comes(
    world: JobWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "NEXT_BYTES_MAX", 100)
    world.push(New(b"a", bytes(500)), New(b"b", bytes(500)))
    assert world.keys(10) == [b"a"]
    assert world.keys(10) == [b"b"]


# -- looking --------------------------------------------------------------------------------------


def test_pages_go_on_where_the_last_one_ended(world: JobWorld) -> None:
    world.push(*[b"%d" % at for at in range(7)])
    for state in (State.WAITING, State.TAKEN, State.DEAD):
        if state is State.TAKEN:
            world.next(7)
        if state is State.DEAD:
            world.fail(*world.peek(State.TAKEN), buries=True)
        assert [one.key for one in pages(world, state, 3)] == [b"%d" % at for at in range(7)]


def pages(world: JobWorld, state: State, count: int) -> Iterator[Got]:
    """Yields all jobs of a state, so many a page."""
    start = b""
    while True:
        reply = world.run(commands.Peek(table="jobs", state=state, start=start, count=count))
        assert isinstance(reply, commands.JobPage)
        found = seen(reply)
        assert len(found) <= count
        yield from found
        start = reply.next_start
        if not start:
            return


@pytest.mark.req("FJ-11")
def test_jobs_that_become_due_join_the_others_by_their_dates(world: JobWorld) -> None:
    world.push_one(b"third", process_at_us=NOW_US + 30 * SECOND)
    world.push_one(b"second", process_at_us=NOW_US + 20 * SECOND)
    world.push_one(b"first", process_at_us=NOW_US)
    world.push_one(b"important", process_at_us=NOW_US + 30 * SECOND, priority=1)
    world.wait(25)
    assert world.keys(1) == [b"first"]
    world.wait(10)
    assert world.keys(10) == [b"important", b"second", b"third"]
