"""When steps of upkeep are asked for: on a loop whose timers fire when the test says so."""

from __future__ import annotations

from typing import cast

import pytest

from fjord.engine import Engine
from fjord.server.committer import Upkeep
from fjord.server.counters import Histogram
from fjord.testing import SimClock
from tests.unit.server.sim_loop import SimLoop

YEAR_SECONDS = 365.0 * 24 * 3600


class World:
    """An engine that does what the test says, on a loop that waits for the test."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.loop = SimLoop(self.clock)
        self.due_us = self.clock.wall_us() + int(YEAR_SECONDS * 1e6)
        self.more = False
        self.took_seconds = 0.0
        self.steps = 0
        self.woken = 0
        self.histogram = Histogram()
        self.upkeep_of = Upkeep(
            cast(Engine, self), self.loop.as_loop, self.clock, self.histogram, self._wake
        )

    def upkeep(self) -> bool:
        self.steps += 1
        self.clock.advance(self.took_seconds)
        return self.more

    def upkeep_due_us(self) -> int:
        return self.due_us

    def _wake(self) -> None:
        self.woken += 1

    def due_in(self, seconds: float) -> None:
        self.due_us = self.clock.wall_us() + int(seconds * 1e6)


@pytest.fixture
def world() -> World:
    return World()


def test_a_timer_waits_for_what_is_due(world: World) -> None:
    world.due_in(5)
    world.upkeep_of.plan()
    assert world.loop.waits() == [5]
    assert world.woken == 0
    world.loop.pass_time(5)
    assert world.upkeep_of.is_due
    assert world.woken == 1


def test_a_group_that_makes_something_due_earlier_sets_the_timer_again(world: World) -> None:
    world.due_in(5)
    world.upkeep_of.plan()
    world.due_in(9)
    world.upkeep_of.note_writes()
    assert world.loop.waits() == [5]
    world.due_in(2)
    world.upkeep_of.note_writes()
    assert world.loop.waits() == [2]


@pytest.mark.parametrize("jump", [-3600, 3600, 365 * 24 * 3600])
def test_a_wall_clock_that_is_set_does_not_hide_what_is_due_earlier(
    world: World, jump: float
) -> None:
    world.due_in(3600)
    world.upkeep_of.plan()
    world.clock.jump(jump)
    world.due_in(5)
    world.upkeep_of.note_writes()
    assert world.loop.waits() == [5]
    world.due_in(9)
    world.upkeep_of.note_writes()
    assert world.loop.waits() == [5]


def test_steps_follow_each_other_while_nobody_else_wants_the_loop(world: World) -> None:
    world.more = True
    world.took_seconds = 0.5
    for count in range(1, 5):
        world.upkeep_of.step()
        world.loop.run()
        assert world.steps == world.woken == count
    assert world.histogram.count == 4


def test_what_cannot_be_done_now_is_not_tried_without_a_pause(world: World) -> None:
    """As on a full disk: it is due, and a step does nothing."""
    world.due_in(-1)
    world.upkeep_of.step()
    world.loop.run()
    assert world.woken == 1  # it may have become due this very moment
    world.upkeep_of.step()
    world.upkeep_of.note_writes()
    world.loop.run()
    (seconds,) = world.loop.waits()
    assert (world.woken, seconds >= 1) == (1, True)
    world.more = True
    world.upkeep_of.step()
    world.loop.run()
    assert (world.woken, world.loop.waits()) == (2, [])
