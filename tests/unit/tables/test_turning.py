"""When generations begin and end, and what is left of them then."""

from __future__ import annotations

import pytest

from fjord import commands, jobs
from fjord.jobs import Drained, Period
from fjord.ops import Opcode
from fjord.tables import generations
from fjord.tables.generations import Turn
from tests.unit.tables.job_world import DAY, HOUR, TABLE, JobWorld
from tests.unit.tables.world import NOW_US

YEAR = 366 * DAY


@pytest.fixture
def world() -> JobWorld:
    return JobWorld(period=Period.HOUR)


def numbers(world: JobWorld) -> list[int]:
    return [one.number for one in world.generations[world.tables[TABLE].id]]


def turn(world: JobWorld) -> list[Opcode]:
    """Turns once; returns the ops."""
    before = len(world.ops())
    assert isinstance(world.run(Turn()), commands.Done)
    return [op.opcode for op in world.ops()[before:]]


def due_us(world: JobWorld) -> int | None:
    periods = generations.periods(world.tables)
    return generations.due_us(periods, world.generations, world.job_counts, world.now_us)


@pytest.mark.req("SJ-18")
def test_a_generation_begins_with_the_next_period_if_the_last_one_was_used(world: JobWorld) -> None:
    assert due_us(world) is None
    world.now_us += HOUR
    assert turn(world) == []
    world.now_us -= HOUR
    world.push(b"k")
    end_us = NOW_US - NOW_US % HOUR + HOUR
    assert due_us(world) == end_us
    world.now_us = end_us - 1
    assert turn(world) == []
    world.now_us = end_us
    assert due_us(world) == 0
    assert turn(world) == [Opcode.GENERATION]
    assert turn(world) == []
    assert due_us(world) is None
    assert numbers(world) == [1, 2]


def test_one_that_drains_in_the_next_period_goes_as_the_next_one_begins(world: JobWorld) -> None:
    world.push(b"a")
    world.now_us += HOUR
    turn(world)
    world.push(b"b")
    world.cancel(b"a")
    world.now_us += HOUR
    assert turn(world) == [Opcode.GENERATION_GONE, Opcode.GENERATION]
    (old, new) = world.generations[world.tables[TABLE].id]
    assert (old.number, new.number) == (2, 3)
    # The first row is the one behind the op.
    assert new.first_row == world.next_seq


def test_a_clock_that_was_set_back_a_little_is_waited_for(world: JobWorld) -> None:
    world.push(b"k")
    world.now_us -= HOUR
    assert turn(world) == []
    assert due_us(world) == NOW_US - NOW_US % HOUR + HOUR
    world.now_us = NOW_US
    assert turn(world) == []


def test_a_clock_that_was_a_year_ahead_is_not_waited_for(world: JobWorld) -> None:
    world.now_us += YEAR
    world.push(b"a")
    assert turn(world) == [Opcode.GENERATION]
    world.push(b"b")
    world.now_us = NOW_US
    assert due_us(world) == 0
    assert turn(world) == [Opcode.GENERATION]
    assert turn(world) == []
    world.push(b"c")
    assert due_us(world) == NOW_US - NOW_US % HOUR + HOUR


def test_each_table_turns_by_itself(world: JobWorld) -> None:
    world.create(jobs.Settings(period=Period.DAY).encode(), table="daily")
    world.create(b"", table="plain")
    for table in (TABLE, "daily", "plain"):
        world.push(b"k", table=table)
    world.now_us += HOUR
    assert turn(world) == [Opcode.GENERATION]
    assert numbers(world) == [1, 2]
    world.now_us += DAY
    assert turn(world) == [Opcode.GENERATION]
    assert len(world.generations) == 2
    assert len(world.generations[world.tables["daily"].id]) == 2


@pytest.mark.req("SJ-18", "SJ-19", "SJ-20")
@pytest.mark.parametrize(
    ("drained", "gives_back", "drops_history"),
    [(Drained.DELETE, True, True), (Drained.TRUNCATE, True, False), (Drained.RESET, False, False)],
)
def test_what_is_left_of_a_generation(
    drained: Drained, *, gives_back: bool, drops_history: bool
) -> None:
    world = JobWorld(period=Period.HOUR, drained=drained)
    table = world.tables[TABLE]
    world.push(b"k")
    world.now_us += HOUR
    turn(world)
    (_, new) = world.generations[table.id]
    assert generations.given_back_seq(world.tables, world.generations) == 0
    assert generations.history_begins(table, world.generations[table.id]) == 0
    world.cancel(b"k")
    turn(world)
    first_row = new.first_row
    assert generations.given_back_seq(world.tables, world.generations) == first_row * gives_back
    found = generations.history_begins(table, world.generations[table.id])
    assert found == first_row * drops_history
    assert generations.history_begins(table, ()) == 0
