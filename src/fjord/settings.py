"""Settings of tables as bytes: a JSON object of what is not as usual, in one form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def encode(settings: DataclassInstance) -> bytes:
    """Returns the bytes that a table is declared with; none where all is as usual."""
    usual = asdict(type(settings)())
    found = {name: value for name, value in asdict(settings).items() if value != usual[name]}
    return json.dumps(found, sort_keys=True, separators=(",", ":")).encode() if found else b""


def read(data: bytes, kind: type[DataclassInstance]) -> Mapping[str, Any]:
    """Returns which settings were given, by name.

    Raises:
        ValueError: if they are none of this kind; the text says why.
    """
    try:
        found: Any = json.loads(data) if data else {}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"settings are a JSON object: {error}") from error
    if not isinstance(found, dict):
        raise ValueError("settings are a JSON object")
    names = [field.name for field in fields(kind)]
    for name in found:
        if name not in names:
            raise ValueError(f"there is no setting {name[:40]!r}; there are {', '.join(names)}")
    return found


def check_switch(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{name} is true or false")


def check_number(name: str, value: object, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} is a whole number from {low} to {high}")
