"""Delays, leases, waits and dates of jobs: as users give them, in microseconds.

What cannot be meant is refused here, with a ValueError or a TypeError that names the option, before
anything is sent.
"""

from __future__ import annotations

import math
import reprlib
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fjord import limits
from fjord.client.calls import is_number, not_a
from fjord.client.entries import Seconds

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
# What fits a column of numbers is left to the server, which knows its bounds.
_NUMBER_MAX: Final = 2**63


def delay_us(seconds: Seconds | None, name: str = "delay") -> int:
    """Returns a duration that may be nothing; None is nothing.

    Raises:
        ValueError: if it is negative, or has no end.
        TypeError: if it is no duration.
    """
    given: Any = seconds  # since users give what they like
    if given is None:
        return 0
    if isinstance(given, timedelta):
        found = given // _MICROSECOND  # a float has too few digits for long ones
    elif type(given) not in (int, float) and not is_number(given):
        shown = reprlib.repr(given)
        raise TypeError(f"{name} is a number of seconds, such as 60 or 0.5, not {shown}")
    elif isinstance(given, int) or math.isfinite(given):
        found = round(given * 1_000_000)
    else:
        raise ValueError(f"{name} is a number of seconds, not {seconds}")
    if not 0 <= found < _NUMBER_MAX:
        raise ValueError(f"{name} is 0 seconds or more, not {seconds}")
    return found


def lease_us(seconds: Seconds | None) -> int:
    """Returns how long jobs are taken for; 0 for None: as their table says."""
    if seconds is None:
        return 0
    found = delay_us(seconds, "lease")
    if not found:
        raise ValueError("lease is more than 0 seconds; leave it out for that of the table")
    return found


def wait_us(seconds: Seconds | None) -> int:
    """Returns how long the server waits for the first job; 0 for None."""
    if seconds is None:
        return 0
    found = delay_us(seconds, "wait")
    if found > limits.WAIT_US_MAX:
        raise ValueError(
            f"wait is at most {limits.WAIT_US_MAX // 1_000_000} seconds, not {seconds}; ask again"
        )
    return found


def moment_us(moment: datetime | None, name: str) -> int:
    """Returns a date as the protocol has it; 0 for None.

    Raises:
        ValueError: if it has no time zone, or is before 1970.
        TypeError: if it is no date with a time.
    """
    if moment is None:
        return 0
    if not isinstance(moment, datetime):
        raise not_a(name, "a datetime with a time zone", moment)
    if moment.tzinfo is None:
        raise ValueError(f"{name} needs a time zone, as in datetime.now(UTC) or .astimezone()")
    found = (moment - _EPOCH) // _MICROSECOND
    if found <= 0:
        raise ValueError(f"{name} is after 1970, not {moment}")
    return found
