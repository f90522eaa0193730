"""Settings of a jobs table, as users give them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypedDict

from fjord import jobs, limits
from fjord import settings as settings_module
from fjord.client.calls import check_names
from fjord.client.entries import Seconds, delay_us
from fjord.declared.schema import Columns


class JobSettings(TypedDict, total=False):
    """How a jobs table works; fixed when the table is made."""

    merge: bool  # a job whose key waits already is merged with it; True unless given
    fairness: str  # "none", or "domain": one after the other from each domain
    lease: Seconds  # how long a worker may take, unless it says otherwise; an hour
    timeouts_max: int  # a job that fails or times out more often is dead; 5
    debounce: Seconds  # pushing again moves no date beyond insertion date + this; an hour
    history: bool  # what happened to jobs goes to cold blocks; True unless given
    columns: Columns  # what jobs are made of; anything unless given
    key: str | Sequence[str]  # those columns that are the key
    period: str  # "hour", "day" or "month": how long a generation takes; there is one unless given
    drained: str  # what becomes of one without jobs: "delete" unless given, "truncate" or "reset"
    secure: bool  # True: what is given back to the disk is overwritten before


_BOUNDS_US: Final = {
    "lease": (limits.LEASE_US_MIN, limits.LEASE_US_MAX),
    "debounce": (0, limits.PROCESS_AHEAD_US_MAX),
}


def encode_settings(settings: JobSettings) -> bytes:
    """Returns the bytes that a table is declared with.

    Raises:
        ValueError: if a setting cannot be meant.
        TypeError: if there is no such setting, or a duration is none.
    """
    check_names("a jobs table", settings, JobSettings.__optional_keys__)
    found: dict[str, Any] = {**settings}
    for name in _BOUNDS_US:
        if name in found:
            found[f"{name}_us"] = _duration_us(name, found.pop(name))
    for name in ("fairness", "period", "drained"):
        if name in found:
            found[name] = str(found[name])
    encoded = settings_module.with_columns(jobs.Settings(**found)).encode()
    jobs.decode_settings(encoded)  # what a server would refuse is refused here
    return encoded


def _duration_us(name: str, seconds: Seconds) -> int:
    found = delay_us(seconds, name)
    low, high = (bound / jobs.SECOND_US for bound in _BOUNDS_US[name])
    if not low <= found / jobs.SECOND_US <= high:
        raise ValueError(f"{name} is {low:,g} to {high:,.0f} seconds, not {seconds}")
    return found
