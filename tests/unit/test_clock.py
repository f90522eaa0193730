"""Clocks: the machine's, lease time over restarts, and stamps that only grow."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from fjord import limits
from fjord.clock import LeaseClock, Stamps, SystemClock
from fjord.testing import SimClock


def test_the_system_clock_tells_wall_time_in_microseconds() -> None:
    before = time.time_ns() // 1000
    now = SystemClock().wall_us()
    assert before <= now <= time.time_ns() // 1000


def test_a_pause_lasts_as_long_as_was_asked() -> None:
    clock = SystemClock()
    before = clock.monotonic_us()
    clock.pause(0.002)
    assert clock.monotonic_us() - before >= 2000


def test_lease_time_goes_on_where_the_journal_stopped() -> None:
    clock = SimClock()
    clock.advance(1000)
    leases = LeaseClock(clock, last_lease_us=77)
    assert leases.lease_us() == 77
    clock.advance(2.5)
    assert leases.lease_us() == 77 + 2_500_000


def test_lease_time_does_not_see_wall_clock_jumps() -> None:
    clock = SimClock()
    leases = LeaseClock(clock, last_lease_us=0)
    for seconds in (3600, -3600, 365 * 86400, -2 * 365 * 86400):
        clock.jump(seconds)
        assert leases.lease_us() == 0


def test_stamps_grow_while_the_clock_stands_still() -> None:
    stamps = Stamps(SimClock(wall_us=1000))
    assert [stamps.next_us() for _ in range(3)] == [1000, 1001, 1002]


@given(st.lists(st.integers(-(10**8), 10**8)))
def test_stamps_grow_unless_the_clock_was_far_ahead(jumps: list[int]) -> None:
    clock = SimClock()
    stamps = Stamps(clock)
    last = stamps.next_us()
    for jump in jumps:
        clock.jump(jump)
        stamp = stamps.next_us()
        assert clock.wall_us() <= stamp <= clock.wall_us() + limits.TIMESTAMP_AHEAD_US_MAX
        assert stamp > last or last >= clock.wall_us() + limits.TIMESTAMP_AHEAD_US_MAX
        last = stamp
