"""Failing: jobs that are given back, how often, and when they wait no more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fjord import commands, limits
from fjord.jobs import State
from tests.unit.tables.job_world import HOUR, SECOND, JobWorld, New, missing
from tests.unit.tables.world import NOW_US


@pytest.fixture
def world() -> Iterator[JobWorld]:
    world = JobWorld()
    yield world
    world.check()


# -- counting -------------------------------------------------------------------------------------


@pytest.mark.req("SJ-14")
def test_each_timeout_adds_one(world: JobWorld) -> None:
    world.push(b"a")
    counted = []
    for _ in range(5):
        (job,) = world.next(lease_us=SECOND)
        counted.append(job.timeouts)
        world.wait(1)
    assert counted == [0, 1, 2, 3, 4]
    assert world.waiting(b"a").timeouts == 5


@pytest.mark.req("SJ-14")
def test_a_job_that_is_given_back_is_not_counted(world: JobWorld) -> None:
    world.push(b"a")
    for _ in range(20):
        assert world.fail(*world.next(), counts=False, reason=b"going home") == []
    assert world.waiting(b"a").timeouts == 0


@pytest.mark.req("SJ-15")
def test_past_the_maximum_a_job_is_dead(world: JobWorld) -> None:
    """Five timeouts are allowed, unless the table says otherwise; the sixth is too many."""
    world.push(b"a")
    for _ in range(5):
        world.next(lease_us=SECOND)
        world.wait(1)
        assert world.totals() == (1, 0, 0)
    world.next(lease_us=SECOND)
    world.wait(1)
    assert world.totals() == (0, 0, 1)
    assert world.next() == []
    (dead,) = world.peek(State.DEAD)
    assert (dead.key, dead.reason, dead.timeouts) == (b"a", b"timed out 6 times", 6)
    assert dead.moment_us == world.now_us


@pytest.mark.req("SJ-15")
@pytest.mark.parametrize("most", [0, 1, 254])
def test_a_table_says_how_many_are_too_many(most: int) -> None:
    world = JobWorld(timeouts_max=most)
    world.push(b"a")
    for _ in range(most + 1):
        assert world.totals() == (1, 0, 0)
        world.fail(*world.next())
    (dead,) = world.peek(State.DEAD)
    assert dead.reason == b"failed %d times" % (most + 1)
    assert dead.timeouts == most + 1
    world.check()


def test_the_longest_reason_stays_utf8_behind_its_count() -> None:
    world = JobWorld(timeouts_max=0)
    world.push(b"a")
    reason = "x" + "\u00e9" * (limits.REASON_BYTES_MAX // 2 - 1)
    world.fail(*world.next(), reason=reason.encode())
    (dead,) = world.peek(State.DEAD)
    assert dead.reason.decode().startswith("failed 1 times: x\u00e9\u00e9")
    assert len(dead.reason) <= limits.REASON_BYTES_MAX + len("failed 255 times: ")
    world.check()


# -- when it waits again --------------------------------------------------------------------------


def test_a_failed_job_is_due_at_once_unless_a_delay_is_asked_for(world: JobWorld) -> None:
    world.push(b"a")
    world.fail(*world.next())
    assert world.waiting(b"a").process_at_us == NOW_US
    world.fail(*world.next(), delay_us=30 * SECOND)
    assert world.waiting(b"a").process_at_us == NOW_US + 30 * SECOND
    assert world.next() == []
    assert world.take().next_at_us == NOW_US + 30 * SECOND
    world.wait(30)
    assert world.keys() == [b"a"]


# -- at once --------------------------------------------------------------------------------------


@pytest.mark.req("SJ-15")
def test_a_worker_can_bury_a_job_at_once(world: JobWorld) -> None:
    world.push(New(b"a", b"poison"))
    assert world.fail(*world.next(), buries=True, reason=b"cannot be read") == []
    (dead,) = world.peek(State.DEAD)
    assert (dead.value, dead.reason) == (b"poison", b"cannot be read")
    assert world.totals() == (0, 0, 1)


# -- by hand --------------------------------------------------------------------------------------


def test_priority_and_date_are_changed_by_key(world: JobWorld) -> None:
    world.push(New(b"a", b"v"), New(b"b", b"v"))
    before = world.waiting(b"a")
    assert world.reschedule(b"a", b"nobody", b"a", priority=3) == [1, 2]
    assert world.waiting(b"a") == before._replace(priority=3)
    world.reschedule(b"a", process_at_us=NOW_US + HOUR)
    assert world.waiting(b"a") == before._replace(priority=3, process_at_us=NOW_US + HOUR)
    world.reschedule(b"a", process_at_us=SECOND, relative=True)
    assert world.waiting(b"a").process_at_us == NOW_US + SECOND
    assert world.waiting(b"b").priority == 100


@pytest.mark.parametrize("verb", ["cancel", "bury", "reschedule"])
def test_keys_of_a_table_that_is_not_there_are_missing(world: JobWorld, verb: str) -> None:
    assert getattr(world, verb)(b"a", b"b") == [0, 1]
    assert world.next_seq == 1


# -- dead letters ---------------------------------------------------------------------------------


def kill(world: JobWorld, *keys: bytes, **fields: object) -> list[int]:
    """Pushes jobs and sends them to the dead letters; returns their rows."""
    world.push(*[New(key, b"value of " + key) for key in keys])
    rows = [one.row for one in world.find(*keys)]
    assert world.bury(*keys, **fields) == []  # type: ignore[arg-type]
    return rows


@pytest.mark.req("SJ-15")
def test_a_dead_job_is_kept_with_all_that_it_had(world: JobWorld) -> None:
    world.push(New(b"a", b"value", priority=7, domain=b"x.example", expires_at_us=NOW_US + HOUR))
    before = world.waiting(b"a")
    world.wait(5)
    assert world.bury(b"a", reason=b"by hand") == []
    (dead,) = world.peek(State.DEAD)
    assert dead == before._replace(reason=b"by hand", moment_us=NOW_US + 5 * SECOND)
    assert world.totals() == (0, 0, 1)


# -- back from the dead ---------------------------------------------------------------------------


def test_a_job_comes_back_as_if_it_had_never_failed(world: JobWorld) -> None:
    world.push(New(b"a", b"value", priority=7))
    before = world.waiting(b"a")
    for _ in range(6):
        world.fail(*world.next())
    world.wait(100)
    assert world.revive(before.row) == []
    assert world.waiting(b"a") == before._replace(process_at_us=world.now_us)
    assert world.totals() == (1, 0, 0)
    assert world.keys() == [b"a"]


def test_a_job_whose_key_waits_does_not_come_back(world: JobWorld) -> None:
    (row,) = kill(world, b"a")
    world.push(New(b"a", b"new"))
    assert world.revive(row) == []
    assert world.totals() == (1, 0, 0)
    assert world.waiting(b"a").value == b"new"


def test_rows_that_are_not_dead_are_missing(world: JobWorld) -> None:
    dead, other = kill(world, b"a", b"b")
    world.push(b"waits")
    row = world.waiting(b"waits").row
    assert world.revive(row, dead, 999, dead, other) == [0, 2, 3]
    assert world.totals() == (3, 0, 0)


@pytest.mark.parametrize("kind", [commands.Revive, commands.Discard])
def test_rows_of_a_table_that_is_not_there_are_missing(world: JobWorld, kind: type) -> None:
    assert missing(world.run(kind(table="nowhere", rows=[1, 2]))) == [0, 1]
    assert world.next_seq == 1
