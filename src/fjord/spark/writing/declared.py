"""Rows of Spark as rows of a declared table: Arrow columns in, rows as bytes out.

It is the same form as that of `fjord.declared.rows`, made by Arrow: each column becomes the bytes
that it has in each row, and one call joins those of all columns.  No Python runs for a row but for
whole numbers of 128 bits and more.

What columns there may be, and of what types, is known before the first row comes.  What only rows
can tell, a number that is too large or a null where a value is required, is told with its row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType, DecimalType

from fjord.declared import rows as declared_rows
from fjord.declared.schema import Column, Schema
from fjord.errors import FjordError, LocalProtocolError
from fjord.spark.declared import TIME_UNITS_US

_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_SMALL: Final[dict[str, Any]] = {
    **{f"int{bits}": getattr(pa, f"int{bits}")() for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": getattr(pa, f"uint{bits}")() for bits in (8, 16, 32, 64)},
    "oid": pa.uint64(),
}
_FLOATS: Final[dict[str, Any]] = {"float32": pa.float32(), "float64": pa.float64()}
_ESCAPED: Final = ((b"%", b"%25"), (b"|", b"%7C"))
_NOTHING: Final = pa.scalar(b"", pa.binary())
_SHOWN_MAX: Final = 200  # characters of a row in an error


def allowed(type_: str) -> tuple[str, ...]:
    """Returns the types of Spark that a column of a declared type may have."""
    if type_ in _SMALL:
        return (*_WHOLE, "decimal(_,0)")
    if type_ in _FLOATS:
        return ("float", "double", *_WHOLE)
    if type_ in TIME_UNITS_US:
        return ("timestamp",)
    return (
        (type_,)
        if type_ in ("boolean", "string", "binary")
        else (*_WHOLE, "decimal(_,0)", "string")
    )


def problem(schema: Schema, fields: Mapping[str, DataType]) -> str | None:
    """Says why columns of these types are no rows of a schema, or None."""
    for column in schema.columns:
        found = fields.get(column.name)
        if found is None:
            if column.required:
                return f"the column {column.name} is missing, and it is required"
            continue
        whole = isinstance(found, DecimalType) and found.scale == 0
        word = "decimal(_,0)" if whole else found.simpleString().partition(" ")[0]
        if word not in allowed(column.type):
            return (
                f"the column {column.name} is a {found.simpleString()}, and may be "
                f"{', '.join(allowed(column.type))}, since it is declared as {column.type}; "
                "cast it before writing"
            )
    return None


class _CannotError(Exception):
    """A value is none of its column."""


def encode(schema: Schema, given: Mapping[str, pa.Array], count: int) -> tuple[pa.Array, Any]:
    """Returns rows as bytes, and their keys if the schema has key columns, else None.

    Assumes that `problem` had nothing to say of the columns.

    Raises:
        FjordError: if a row cannot be one of the schema.
    """
    columns = {
        one.name: given[one.name] if one.name in given else pa.nulls(count)
        for one in schema.columns
    }
    try:
        stored = {one.name: _stored(one, columns[one.name]) for one in schema.columns}
    except (pa.ArrowInvalid, _CannotError) as error:
        raise _explained(schema, columns, count, error) from error
    fixed = [_as_bytes(stored[one.name]) for one in schema.columns if one.kind.is_fixed]
    loose = [stored[one.name] for one in schema.columns if not one.kind.is_fixed]
    head = [pa.scalar(schema.number.to_bytes(2, "little"), pa.binary()), *_nulls(schema, columns)]
    rows = pc.binary_join_element_wise(*head, *fixed, *_ends(loose), *loose, _NOTHING)
    return rows, _keys(schema, stored) if schema.key else None


def _stored(column: Column, values: pa.Array) -> pa.Array:
    """Returns what is stored of a column: numbers, or bytes; something where there is no value.

    Raises:
        ArrowInvalid, _CannotError: if a value is none of its column.
    """
    if values.null_count and column.required:
        raise _CannotError
    if column.type in _SMALL:
        return _filled(values.cast(_SMALL[column.type]), 0)
    if column.type in _FLOATS:
        found = values.cast(_FLOATS[column.type], safe=False)
        if values.type == pa.float64() and pc.any(_overflown(found, values)).as_py():
            raise _CannotError
        return _filled(found, 0.0)
    if column.type in TIME_UNITS_US:
        return _moments(column, values)
    if column.type == "boolean":
        return _filled(values.cast(pa.bool_()), False)
    if not column.kind.is_fixed:
        return _filled(values.cast(pa.binary()), b"")
    return _large(column, values)


def _overflown(found: pa.Array, values: pa.Array) -> pa.Array:
    return pc.and_(pc.is_inf(found), pc.is_finite(values))


def _moments(column: Column, values: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us", values.type.tz))
    given, unit = values.cast(pa.int64()), TIME_UNITS_US[column.type]
    found = pc.divide(given, unit)
    is_above = pc.greater(pc.multiply(found, unit), given)  # division goes to zero, not down
    found = _filled(pc.subtract(found, is_above.cast(pa.int64())), 0)
    assert column.kind.bounds is not None
    low, high = column.kind.bounds
    if not pc.all(pc.and_(pc.greater_equal(found, low), pc.less_equal(found, high))).as_py():
        raise _CannotError
    return found


def _large(column: Column, values: pa.Array) -> pa.Array:
    try:
        numbers = [0 if one is None else whole(one) for one in values.to_pylist()]
        return pa.array(column.kind.store(numbers), pa.binary())
    except (ValueError, OverflowError) as error:
        raise _CannotError from error


def whole(given: Any) -> int:
    """Returns a number of Spark, or its digits, as one of Python.

    Raises:
        ValueError: if it is none.
    """
    if isinstance(given, str) and not (given.isascii() and given.removeprefix("-").isdigit()):
        raise ValueError(f"{given!r} has not only digits")
    return int(given)


def _as_bytes(stored: pa.Array) -> pa.Array:
    if pa.types.is_binary(stored.type):
        return stored
    if pa.types.is_boolean(stored.type):
        stored = stored.cast(pa.uint8())
    return stored.view(pa.binary(stored.type.bit_width // 8)).cast(pa.binary())


def _nulls(schema: Schema, columns: Mapping[str, pa.Array]) -> list[Any]:
    """Returns the bytes that say which columns have no value."""
    found = []
    for start in range(0, len(schema.columns), 8):
        byte: Any = pa.scalar(0, pa.uint8())
        for place, column in enumerate(schema.columns[start : start + 8]):
            if columns[column.name].null_count:
                is_null = columns[column.name].is_null().cast(pa.uint8())
                byte = pc.bit_wise_or(byte, pc.multiply(is_null, pa.scalar(1 << place, pa.uint8())))
        found.append(
            _as_bytes(byte) if isinstance(byte, pa.Array) else pa.scalar(b"\0", pa.binary())
        )
    return found


def _ends(loose: list[pa.Array]) -> list[pa.Array]:
    found: list[pa.Array] = []
    before: Any = pa.scalar(0, pa.int64())
    for column in loose:
        before = pc.add(before, pc.binary_length(column).cast(pa.int64()))
        found.append(_as_bytes(before.cast(pa.uint32())))
    return found


def _keys(schema: Schema, stored: Mapping[str, pa.Array]) -> pa.Array:
    kinds = {one.name: one.kind for one in schema.columns}
    parts = []
    for name in schema.key:
        part = stored[name]
        if kinds[name].is_fixed and pa.types.is_binary(part.type):  # a large number
            part = pa.array([str(one) for one in kinds[name].load(part.to_pylist())], pa.string())
        parts.append(part.cast(pa.string()) if not pa.types.is_binary(part.type) else part)
    parts = [part.cast(pa.binary()) for part in parts]
    if len(parts) == 1:
        return parts[0]
    for plain, escape in _ESCAPED:
        parts = [pc.replace_substring(one, pattern=plain, replacement=escape) for one in parts]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"|", pa.binary()))


def _filled(column: pa.Array, filling: Any) -> pa.Array:
    return pc.fill_null(column, filling) if column.null_count else column


# -- errors ---------------------------------------------------------------------------------------


def _explained(
    schema: Schema, columns: Mapping[str, pa.Array], count: int, error: Exception
) -> FjordError:
    """Returns what is wrong with the first row that cannot be one."""
    reader = declared_rows.of(schema)
    for at in range(count):
        row = {}
        for column in schema.columns:
            value = columns[column.name][at]
            row[column.name] = _python(column, value)
        try:
            reader.encode([row])
        except LocalProtocolError as found:
            shown = repr(row)
            shown = shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}..."
            return FjordError(f"{found.text}; in the row {shown}. Nothing of the batch is written")
    return FjordError(f"rows cannot be made of these columns: {error}")


def _python(column: Column, value: Any) -> Any:
    """Returns a value as `fjord.declared` wants it, or something else if it is none."""
    try:
        found = value.as_py()
    except (ValueError, OverflowError):  # Python has no year 10000
        return f"{value.value} microseconds since 1970"
    is_number = "int" in column.type or column.type == "oid"
    try:
        return whole(found) if found is not None and is_number else found
    except ValueError:
        return found
