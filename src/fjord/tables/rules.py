"""Checks of names, keys, values and dates that all kinds of tables share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fjord import commands, limits, values
from fjord.columns import Strings
from fjord.declared import rows as declared_rows
from fjord.declared.schema import Schema
from fjord.errors import Code, RefusedError

_ROW: Final = bytes([values.ROW])
BUFFER: Final = bytes([values.Type.BUFFER])


def check_name(name: str) -> None:
    """Refuses an invalid name of a table or a subscriber."""
    problem = commands.name_problem(name)
    if problem is not None:
        raise problem.error()


def check_rows(rows: int) -> None:
    if not 0 < rows <= limits.BATCH_ROWS_MAX:
        raise RefusedError(Code.BAD_BATCH, f"a batch has 1 to {limits.BATCH_ROWS_MAX} rows")


def check_keys(keys: Strings, bytes_max: int = limits.KV_KEY_BYTES_MAX) -> None:
    """Refuses empty keys, and keys that are too long."""
    lengths = keys.lengths()
    check_rows(len(lengths))
    if len(keys.data) > limits.BATCH_BYTES_MAX:
        text = f"the keys of a batch have at most {limits.BATCH_BYTES_MAX} bytes"
        raise RefusedError(Code.TOO_LARGE, text)
    if not min(lengths):
        raise RefusedError(Code.EMPTY_KEY, "a key has at least one byte")
    if max(lengths) > bytes_max:
        raise RefusedError(Code.KEY_TOO_LONG, f"a key has at most {bytes_max} bytes")


def check_sizes(keys: Strings, values_: Strings, other_bytes: int = 0) -> None:
    """Refuses a batch that is empty, has too many rows, or is too large, or has a value that is."""
    check_rows(len(values_.offsets) - 1)
    size = len(values_.data)
    if size + len(keys.data) + other_bytes > limits.BATCH_BYTES_MAX:
        text = f"the keys and values of a batch have at most {limits.BATCH_BYTES_MAX} bytes"
        raise RefusedError(Code.TOO_LARGE, text)
    # If all values together are no larger than one may be, none has to be measured.
    if size > limits.VALUE_BYTES_MAX < max(values_.lengths()):
        text = f"a value has at most {limits.VALUE_BYTES_MAX} bytes"
        raise RefusedError(Code.VALUE_TOO_LARGE, text)


def check_timestamps(stamps: Sequence[int], now_us: int) -> None:
    """Refuses dates that are implausible, or too far ahead."""
    dates = stamps if isinstance(stamps, tuple) else list(stamps)  # iterating over a list is faster
    newest_us = now_us + limits.TIMESTAMP_AHEAD_US_MAX
    if min(dates) < limits.TIMESTAMP_US_MIN or max(dates) > newest_us:
        text = (
            "a timestamp is in microseconds since 1970, after 2001, and at most 60 s ahead; "
            f"the server's time is {now_us}"
        )
        raise RefusedError(Code.BAD_TIMESTAMP, text)


def check_values(types: bytes, column: Strings, schema: Schema) -> None:
    """Refuses invalid values of a table with this schema."""
    if not schema.columns:
        check_plain_values(types, column)
        return
    if types.strip(_ROW):
        names = ", ".join(schema.names[:10]) + (", ..." if len(schema.names) > 10 else "")
        text = f"this table takes rows of its columns: {names}"
        raise RefusedError(Code.BAD_TYPE, text)
    found = declared_rows.of(schema).problem(column)
    if found is not None:
        is_stale = any(declared_rows.number_of(row) != schema.number for row in column.rows())
        raise RefusedError(Code.STALE_SCHEMA if is_stale else Code.BAD_VALUE, found)


def check_plain_values(types: bytes, column: Strings) -> None:
    """Refuses invalid values of a table without a schema."""
    if types.strip(BUFFER):
        for type_, value in zip(types, column.rows(), strict=True):
            found = values.problem(type_, value)
            if found is not None:
                raise RefusedError(*found)
