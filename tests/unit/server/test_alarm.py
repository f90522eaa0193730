"""One timer for the first of many moments."""

from __future__ import annotations

import pytest

from fjord.server.alarm import Alarm
from fjord.testing import SimClock
from tests.unit.server.sim_loop import SimLoop

SECOND_US = 1_000_000


class World:
    """An alarm, and when it rang."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.loop = SimLoop(self.clock)
        self.rang_us: list[int] = []
        self.alarm = Alarm(self.loop.as_loop, self.clock, self._ring)

    def _ring(self) -> None:
        self.rang_us.append(self.clock.monotonic_us())


@pytest.fixture
def world() -> World:
    return World()


def test_it_rings_at_the_first_of_the_moments_it_was_set_for(world: World) -> None:
    for seconds in (9, 4, 7):
        world.alarm.set(seconds * SECOND_US)
    assert world.loop.waits() == [4]
    world.loop.pass_time(60)
    assert world.rang_us == [4 * SECOND_US]


@pytest.mark.parametrize("due_us", [1, 999, 1000, 1001, 1_000_001])
def test_it_rings_within_a_millisecond_and_never_early(world: World, due_us: int) -> None:
    """Timers of uvloop have whole milliseconds, and round to the nearest one."""
    world.alarm.set(due_us)
    (seconds,) = world.loop.waits()
    assert due_us <= round(seconds * 1e6) < due_us + 1000
    assert round(seconds * 1e6) % 1000 == 0


def test_what_is_over_rings_at_once_but_not_before_others_had_their_turn(world: World) -> None:
    world.clock.advance(5)
    world.alarm.set(3 * SECOND_US)
    assert world.loop.waits() == [0.001]


def test_it_does_not_ring_after_it_was_stopped(world: World) -> None:
    world.alarm.set(4 * SECOND_US)
    world.alarm.stop()
    world.alarm.set(5 * SECOND_US)
    world.loop.pass_time(60)
    assert world.rang_us == []
