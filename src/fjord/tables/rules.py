"""What can be wrong with the values of a table that has declared columns, or has none."""

from __future__ import annotations

from typing import Final

from fjord import values
from fjord.columns import Strings
from fjord.commands import Refusal
from fjord.declared import rows as declared_rows
from fjord.declared.schema import Schema
from fjord.errors import Code

_ROW: Final = bytes([values.ROW])
BUFFER: Final = bytes([values.Type.BUFFER])


def problem(types: bytes, column: Strings, schema: Schema) -> Refusal | None:
    """Says why these are no values of a table with this schema, or None."""
    if not schema.columns:
        return plain_problem(types, column)
    if types.strip(_ROW):
        names = ", ".join(schema.names[:10]) + (", ..." if len(schema.names) > 10 else "")
        text = f"this table takes rows of its columns, which are {names}"
        return Refusal(code=Code.BAD_TYPE, text=text)
    found = declared_rows.of(schema).problem(column)
    if found is None:
        return None
    is_stale = any(declared_rows.number_of(row) != schema.number for row in column.rows())
    return Refusal(code=Code.STALE_SCHEMA if is_stale else Code.BAD_VALUE, text=found)


def plain_problem(types: bytes, column: Strings) -> Refusal | None:
    """Says the same for a table whose values may be anything."""
    if not types.strip(BUFFER):
        return None
    for type_, value in zip(types, column.rows(), strict=True):
        found = values.problem(type_, value)
        if found is not None:
            return Refusal(code=found[0], text=found[1])
    return None
