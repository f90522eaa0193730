"""Settings of jobs tables and streams, as users give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

from fjord import jobs, limits, streams
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


class StreamSettings(TypedDict, total=False):
    """How a stream works; fixed when the table is made."""

    mode: str  # "log" keeps every message, "latest" the newest of each key; "log" unless given
    history: bool  # what leaves the journal goes to cold blocks; a log always has them
    block_rows: int  # a block is written when there is so much, and has no more
    block_age: Seconds  # or when the oldest message has waited so long; a day
    retention: Seconds | None  # blocks whose messages are all older go; None: they stay
    retention_bytes: int | None  # the oldest blocks go when all have more bytes; None: they stay
    columns: Columns  # what messages are made of; anything unless given
    key: str | Sequence[str]  # those columns that are the key


_BOUNDS_US: Final = {
    "lease": (limits.LEASE_US_MIN, limits.LEASE_US_MAX),
    "debounce": (0, limits.PROCESS_AHEAD_US_MAX),
    "block_age": (1, limits.BLOCK_AGE_US_MAX),
    "retention": (0, limits.RETENTION_US_MAX),
}
_WORDS: Final = ("fairness", "period", "drained", "mode")


def encode_job_settings(settings: JobSettings) -> bytes:
    """Returns the bytes that a jobs table is declared with.

    Raises:
        ValueError: if a setting cannot be meant.
        TypeError: if there is no such setting, or a duration is none.
    """
    check_names("a jobs table", settings, JobSettings.__optional_keys__)
    encoded = _encoded(jobs.Settings, settings)
    jobs.decode_settings(encoded)  # what a server would refuse is refused here
    return encoded


def encode_stream_settings(settings: StreamSettings) -> bytes:
    """Returns the bytes that a stream is declared with; raises the same."""
    check_names("a stream", settings, StreamSettings.__optional_keys__)
    given = {name: one for name, one in settings.items() if one is not None}
    encoded = _encoded(streams.Settings, given)
    streams.decode_settings(encoded)
    return encoded


def _encoded(kind: type[jobs.Settings | streams.Settings], given: Mapping[str, Any]) -> bytes:
    found = dict(given)
    for name in found.keys() & _BOUNDS_US.keys():
        found[f"{name}_us"] = _duration_us(name, found.pop(name))
    for name in found.keys() & _WORDS:
        found[name] = str(found[name])
    return settings_module.with_columns(kind(**found)).encode()


def _duration_us(name: str, seconds: Seconds) -> int:
    found = delay_us(seconds, name)
    low, high = (bound / jobs.SECOND_US for bound in _BOUNDS_US[name])
    if not low <= found / jobs.SECOND_US <= high:
        raise ValueError(f"{name} is {low:,g} to {high:,.0f} seconds, not {seconds}")
    return found
