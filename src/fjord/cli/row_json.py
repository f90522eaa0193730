"""Rows of declared tables as JSON: objects of their columns, in the same form in and out.

    string                     a string
    boolean                    true or false
    int8 ... uint512, oid      a number, however large
    float32, float64           a number, or "nan", "inf" and "-inf"
    binary                     {"base64": "..."}
    time_seconds and the like  a date of RFC 3339 with its zone, as 2026-01-31T12:00:00+00:00

What is null, or not there, has no value.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from fjord import kinds
from fjord.cli import lines
from fjord.declared.schema import Schema
from fjord.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from fjord.client.database import Database

_FLOATS: Final = ("nan", "inf", "-inf")


def schema_of(db: Database, table: str) -> Schema:
    """Returns the declared columns of a table; none if it has none, or is not there."""
    try:
        found = db.table(table)
    except NotFoundError:
        return Schema()
    settings = kinds.settings_of(found.kind, found.settings)
    return settings.declared if settings else Schema()


def fields(schema: Schema, others: Mapping[str, lines.Field]) -> dict[str, lines.Field]:
    """Returns what the members of a line are read by, if its table has declared columns.

    The row is `value`, or its columns stand beside the others; there is no key where columns are.
    """
    types = _types(schema)
    found = {name: lambda name, one: _value(name, one, types[name]) for name in types}
    found |= {**others, "value": lambda name, one: _row(name, one, types)}
    if schema.key:
        found.pop("key", None)
    return found


def gathered(members: Mapping[str, Any], others: Mapping[str, lines.Field]) -> dict[str, Any]:
    """Returns the members of a line with the columns among them put together as `value`.

    Raises:
        UsageError: if there is a value besides.
    """
    row = {name: one for name, one in members.items() if name not in others}
    found = {name: one for name, one in members.items() if name in others}
    if row and "value" in found:
        raise UsageError("value is the row; give no columns beside it")
    return found if "value" in found else {**found, "value": row}


def row_of(text: str, schema: Schema) -> dict[str, Any]:
    """Returns the row that a text of JSON stands for.

    Raises:
        UsageError: if it is none; the text says why.
    """
    return _row("a row", lines.from_json(text, "the row"), _types(schema))


def _types(schema: Schema) -> dict[str, str]:
    return {column.name: column.type for column in schema.columns}


def _row(name: str, given: object, types: Mapping[str, str]) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise UsageError(f"{name} is a JSON object of columns")
    # What is no column, or of a wrong type, is left to those who know what to say.
    return {column: _value(column, one, types.get(column, "")) for column, one in given.items()}


def _value(name: str, value: object, type_: str) -> Any:
    if value is None:
        return None
    if type_.startswith("time_"):
        return _moment(name, value)
    if type_ == "binary":
        found = lines.from_base64(value)
        if found is None:
            raise UsageError(f'column {name} is {{"base64": "..."}}')
        return found
    if type_.startswith("float") and value in _FLOATS:
        return float(str(value))
    return value


def _moment(name: str, value: object) -> datetime:
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise UsageError(f"column {name} is a date with its zone, such as 2026-01-31T12:00:00Z")
    return found
