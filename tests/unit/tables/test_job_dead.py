"""Dead letters: where jobs go that failed too often, and how they come back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fjord import commands
from fjord.jobs import State
from tests.unit.tables.job_world import HOUR, SECOND, JobWorld, New, missing
from tests.unit.tables.world import NOW_US


@pytest.fixture
def world() -> Iterator[JobWorld]:
    world = JobWorld()
    yield world
    world.check()


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


@pytest.mark.req("SJ-15")
def test_a_dead_job_is_never_handed_out_and_never_lost(world: JobWorld) -> None:
    kill(world, b"a")
    world.wait(400 * 24 * 3600)
    assert world.next() == []
    assert world.find(b"a") == []
    assert [one.value for one in world.peek(State.DEAD)] == [b"value of a"]


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


def test_of_two_dead_jobs_of_one_key_the_newer_one_comes_back(world: JobWorld) -> None:
    (old,) = kill(world, b"a")
    world.push(New(b"a", b"new"))
    new = world.waiting(b"a").row
    world.bury(b"a")
    assert world.revive(old, new) == []
    assert [one.value for one in world.peek()] == [b"new"]
    assert world.totals() == (1, 0, 0)


def test_without_merging_all_of_them_come_back() -> None:
    world = JobWorld(merge=False, timeouts_max=0)
    world.push(New(b"a", b"1"), New(b"a", b"2"))
    rows = [one.row for one in world.next(2)]
    world.wait(3600)
    assert world.totals() == (0, 0, 2)
    assert world.revive(*rows) == []
    assert [one.value for one in world.next(2)] == [b"1", b"2"]
    world.check()


def test_rows_that_are_not_dead_are_missing(world: JobWorld) -> None:
    dead, other = kill(world, b"a", b"b")
    world.push(b"waits")
    row = world.waiting(b"waits").row
    assert world.revive(row, dead, 999, dead, other) == [0, 2, 3]
    assert world.totals() == (3, 0, 0)


def test_dead_jobs_are_thrown_away(world: JobWorld) -> None:
    one, other = kill(world, b"a", b"b")
    assert world.discard(one, 999, one) == [1, 2]
    assert [dead.row for dead in world.peek(State.DEAD)] == [other]
    assert world.revive(one) == [0]
    world.discard(other)
    assert world.totals() == (0, 0, 0)
    assert sum(world.live.values()) == 0


@pytest.mark.parametrize("kind", [commands.Revive, commands.Discard])
def test_rows_of_a_table_that_is_not_there_are_missing(world: JobWorld, kind: type) -> None:
    assert missing(world.run(kind(table="nowhere", rows=[1, 2]))) == [0, 1]
    assert world.next_seq == 1
