from __future__ import annotations

from fjord.clock import LeaseClock
from fjord.testing import SimClock


def test_time_passes_only_when_told() -> None:
    clock = SimClock(wall_us=1_000)
    clock.advance(2)
    clock.pause(1)
    assert clock.wall_us() == 3_001_000
    assert clock.monotonic_us() == 3_000_000


def test_a_jump_moves_the_wall_and_nothing_else() -> None:
    clock = SimClock()
    lease = LeaseClock(clock, 500)
    clock.jump(-3600)
    assert clock.monotonic_us() == 0
    assert lease.lease_us() == 500
