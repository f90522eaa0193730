"""Settings of tables as bytes: a canonical JSON object of those that are not default."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

from fjord.declared import schema
from fjord.declared.schema import Schema

Triples = tuple[tuple[str, str, bool], ...]  # columns: name, type, whether it is required


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """Settings common to all kinds: the columns of values."""

    columns: Triples = ()  # of values; none: any value
    key: tuple[str, ...] = ()  # the columns that are the key
    schema: int = 1  # the number of this schema in rows

    @property
    def declared(self) -> Schema:
        return schema.of(self.columns, self.key, self.schema)

    def encode(self) -> bytes:
        """Returns the bytes that a table is declared with; empty if all are default."""
        usual = asdict(type(self)())
        found = {name: value for name, value in asdict(self).items() if value != usual[name]}
        return json.dumps(found, sort_keys=True, separators=(",", ":")).encode() if found else b""


Declared = TypeVar("Declared", bound=TableSettings)


def read(data: bytes, kind: type[TableSettings]) -> Mapping[str, Any]:
    """Returns the given settings, by name.

    Raises:
        ValueError: if they are not settings of this kind; the text says why.
    """
    try:
        found: Any = json.loads(data) if data else {}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"settings must be a JSON object: {error}") from error
    if not isinstance(found, dict):
        raise ValueError("settings must be a JSON object")
    names = [field.name for field in fields(kind)]
    for name in found:
        if name not in names:
            raise ValueError(f"there is no setting {name[:40]!r}; there are {', '.join(names)}")
    return found


def with_columns(found: Declared) -> Declared:
    """Returns settings with checked columns in canonical form.

    Raises:
        ValueError: if they are none; the text says why.
    """
    declared = schema.read(found.columns, found.key, found.schema)
    columns = tuple((one.name, one.type, one.required) for one in declared.columns)
    return replace(found, columns=columns, key=declared.key)


def words(given: Mapping[str, Any], **kinds: type[enum.StrEnum]) -> dict[str, enum.StrEnum]:
    """Returns the given settings among these, as members of their enums.

    Raises:
        ValueError: if one is another word.
    """
    for name, kind in kinds.items():
        if name in given and given[name] not in list(kind):
            raise ValueError(f"{name} is {' or '.join(one for one in kind if one)}")
    return {name: kind(given[name]) for name, kind in kinds.items() if name in given}


def earlier_schemas(given: Any) -> tuple[tuple[int, Triples], ...]:
    """Returns the earlier schemas of a table, checked and in canonical form.

    Raises:
        ValueError: if they are none.
    """
    if not isinstance(given, list | tuple):
        raise ValueError("earlier schemas must be a list")
    found = []
    for one in given:
        if not isinstance(one, list | tuple) or len(one) != 2:
            raise ValueError("an earlier schema must be a number and its columns")
        declared = schema.read(one[1], (), one[0])
        columns = tuple((column.name, column.type, column.required) for column in declared.columns)
        found.append((declared.number, columns))
    return tuple(found)


def check_switch(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{name} is true or false")


def check_number(name: str, value: object, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} is a whole number from {low} to {high}")
