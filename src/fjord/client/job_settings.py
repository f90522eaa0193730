"""Settings of a jobs table, as users give them."""

from __future__ import annotations

from typing import Any, TypedDict

from fjord import jobs
from fjord.client.calls import check_names
from fjord.client.entries import Seconds
from fjord.client.job_times import delay_us


class JobSettings(TypedDict, total=False):
    """How a jobs table works; fixed when the table is made."""

    merge: bool  # a job whose key waits already is merged with it; True unless given
    fairness: str  # "none", or "domain": one after the other from each domain
    lease: Seconds  # how long a worker may take, unless it says otherwise; an hour
    timeouts_max: int  # a job that fails or times out more often is dead; 5
    debounce: Seconds  # pushing again moves no date beyond insertion date + this; an hour


def encode_settings(settings: JobSettings) -> bytes:
    """Returns the bytes that a table is declared with.

    Raises:
        ValueError: if a setting cannot be meant.
        TypeError: if there is no such setting.
    """
    check_names("a jobs table", settings, JobSettings.__optional_keys__)
    found: dict[str, Any] = {**settings}
    for name in ("lease", "debounce"):
        if name in found:
            found[f"{name}_us"] = delay_us(found.pop(name), name)
    if "fairness" in found:
        found["fairness"] = str(found["fairness"])
    encoded = jobs.Settings(**found).encode()
    jobs.decode_settings(encoded)  # what a server would refuse is refused here
    return encoded
