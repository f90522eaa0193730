"""Rows of the journal that speak of jobs, with what they hold packed written out."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final

from fjord.cli import output
from fjord.jobs import How, State
from fjord.tables import job_row
from fjord.values import ROW, RowType, Type, Value

PREFIX: Final = "JOB_"
# Of an image, what says something to people; the rest is how the index finds it.
_IMAGE: Final = (
    "row",
    "priority",
    "process_at_us",
    "inserted_us",
    "updated_us",
    "expires_at_us",
    "timeouts",
)


def readable(fields: Mapping[str, Value]) -> dict[str, Value]:
    """Returns the columns of a row, those that are packed taken apart.

    What cannot be taken apart stays as it is: this is for looking at what is there.
    """
    found: dict[str, Value] = {}
    for name, value in fields.items():
        take_apart = _PACKED.get(name)
        try:
            parts = take_apart(name, value) if take_apart else {name: value}
        except (ValueError, struct.error):
            parts = {name: value}
        found.update({part: one for part, one in parts.items() if part not in found})
    return found


def type_name(number: int) -> str:
    """Returns the name of a type of values.

    Raises:
        ValueError: if there is no such type.
    """
    return (RowType if number == ROW else Type)(number).name.lower()


def _image(_: str, value: Value) -> dict[str, Value]:
    row = job_row.decode(_bytes(value))
    return {
        "key": output.key_text(row.key),
        "domain": output.key_text(row.domain),
        **{name: getattr(row, name) for name in _IMAGE},
        "type": type_name(row.type),
    }


def _place(name: str, value: Value) -> dict[str, Value]:
    if not value:
        return {}  # it had none
    _, priority, process_at_us, row = job_row.PLACE.unpack(_bytes(value))
    prefix = "was_" if name == "was" else ""
    return {f"{prefix}priority": priority, f"{prefix}process_at_us": process_at_us, "row": row}


def _state(name: str, value: Value) -> dict[str, Value]:
    return {name: State(_number(value)).name.lower()}


def _how(name: str, value: Value) -> dict[str, Value]:
    return {name: How(_number(value)).name.lower()}


def _text(name: str, value: Value) -> dict[str, Value]:
    return {name: output.key_text(_bytes(value))}


def _hex(name: str, value: Value) -> dict[str, Value]:
    return {name: _bytes(value).hex()}


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError(value)
    return value


def _number(value: Value) -> int:
    if not isinstance(value, int):
        raise ValueError(value)
    return value


_PACKED: Final[dict[str, Callable[[str, Value], dict[str, Value]]]] = {
    "image": _image,
    "was": _place,
    "place": _place,
    "state": _state,
    "how": _how,
    "domain": _text,
    "reason": _text,
    "slot": _hex,
    "head": _hex,
}
