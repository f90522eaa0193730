"""Settings of a stream, as users give them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypedDict

from fjord import limits, streams
from fjord import settings as settings_module
from fjord.client.calls import check_names
from fjord.client.entries import Seconds, delay_us
from fjord.declared.schema import Columns


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
    "block_age": (1, limits.BLOCK_AGE_US_MAX),
    "retention": (0, limits.RETENTION_US_MAX),
}


def encode_settings(settings: StreamSettings) -> bytes:
    """Returns the bytes that a table is declared with.

    Raises:
        ValueError: if a setting cannot be meant.
        TypeError: if there is no such setting, or a duration is none.
    """
    check_names("a stream", settings, StreamSettings.__optional_keys__)
    found: dict[str, Any] = {name: one for name, one in settings.items() if one is not None}
    for name in _BOUNDS_US:
        if name in found:
            found[f"{name}_us"] = _duration_us(name, found.pop(name))
    if "mode" in found:
        found["mode"] = str(found["mode"])
    encoded = settings_module.with_columns(streams.Settings(**found)).encode()
    streams.decode_settings(encoded)  # what a server would refuse is refused here
    return encoded


def _duration_us(name: str, seconds: Seconds) -> int:
    found = delay_us(seconds, name)
    low, high = (bound / streams.SECOND_US for bound in _BOUNDS_US[name])
    if not low <= found / streams.SECOND_US <= high:
        raise ValueError(f"{name} is {low:,g} to {high:,.0f} seconds, not {seconds}")
    return found
