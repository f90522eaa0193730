"""Kinds of tables: their names for people, their numbers in ops and on the wire."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, Self

from fjord import jobs, streams


class Kind(enum.StrEnum):
    """What a table is."""

    number: int  # in commands, CREATE_TABLE ops and blocks; never changes

    KV = "kv", 1
    JOBS = "jobs", 2
    STREAM = "stream", 3

    def __new__(cls, name: str, number: int) -> Self:
        kind = str.__new__(cls, name)
        kind._value_, kind.number = name, number
        return kind


BY_NUMBER: Final = {kind.number: kind for kind in Kind}


def settings_of(kind: str, data: bytes) -> jobs.Settings | streams.Settings | None:
    """Returns the settings that a table is declared with; None if its kind has none.

    Raises:
        ValueError: if they are no settings of this kind; the text says why.
    """
    decode = _DECODE.get(kind)
    return decode(data) if decode else None


_DECODE: Final[dict[str, Callable[[bytes], jobs.Settings | streams.Settings]]] = {
    Kind.JOBS: jobs.decode_settings,
    Kind.STREAM: streams.decode_settings,
}
