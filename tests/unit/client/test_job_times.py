"""Delays, leases, waits and dates: what can be meant, and what is refused before it is sent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fjord.client.entries import delay_us, lease_us, moment_us, wait_us


@pytest.mark.parametrize(
    ("seconds", "found_us"),
    [
        *((None, 0), (0, 0), (1.5, 1_500_000), (timedelta(microseconds=1), 1)),
        (timedelta(days=36_500, microseconds=1), 36_500 * 86_400_000_000 + 1),
    ],
)
def test_a_delay_is_exact(seconds: Any, found_us: int) -> None:
    assert delay_us(seconds) == found_us


@pytest.mark.parametrize(
    "seconds", [-1, -0.001, float("inf"), float("nan"), timedelta(-1), 1e30, 2**63]
)
def test_a_delay_is_no_less_than_nothing_and_ends(seconds: Any) -> None:
    for refused in (delay_us, lease_us, wait_us):
        with pytest.raises(ValueError, match=r"seconds"):
            refused(seconds)


def test_a_lease_that_is_given_is_more_than_nothing() -> None:
    assert lease_us(None) == 0
    assert lease_us(0.001) == 1000
    for nothing in (0, 0.0, 1e-9, timedelta(0)):
        with pytest.raises(ValueError, match="more than 0"):
            lease_us(nothing)


def test_a_moment_has_a_time_zone_and_is_after_1970() -> None:
    naive = datetime(2030, 1, 1, tzinfo=UTC).replace(tzinfo=None)
    with pytest.raises(ValueError, match="expires_at needs a time zone"):
        moment_us(naive, "expires_at")
    wrong: Any = 123
    with pytest.raises(TypeError, match="process_at is a datetime with a time zone, not int"):
        moment_us(wrong, "process_at")
    with pytest.raises(ValueError, match="after 1970"):
        moment_us(datetime(1970, 1, 1, tzinfo=UTC), "process_at")
