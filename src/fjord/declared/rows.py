"""Rows as bytes: compact, checked, and made of whole columns at a time.

    row = schema u16, nulls, the columns that have a size, ends u32 each, bytes
    nulls = a bit for each column, the first one is the lowest of the first byte; 1: no value

Integers are little-endian.  Columns with a size stand in their order, zero where there is no value.
The others, strings and binary, are one behind the other in `bytes`; `ends` says where each of them
ends.  Nothing tells types or names: the schema that the number means does.

No Python runs for each row and column but for times and large numbers: columns are converted by C
loops, and `struct` packs a row at once.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

from fjord.declared.schema import Column, Schema
from fjord.errors import Code, LocalProtocolError, RemoteProtocolError

_NUMBER: Final = struct.Struct("<H")
_NONE: Final = type(None)
_SEPARATOR: Final = b"|"
_ESCAPED: Final = ((b"%", b"%25"), (_SEPARATOR, b"%7C"))


class Rows:
    """Makes rows of one schema, and takes them apart."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._columns = schema.columns
        self._fixed = [column for column in schema.columns if column.kind.is_fixed]
        self._loose = [column for column in schema.columns if not column.kind.is_fixed]
        self._null_bytes = -(-len(schema.columns) // 8)
        codes = "".join(column.kind.code for column in self._fixed)
        self._head = struct.Struct(f"<H{self._null_bytes}s{codes}{'I' * len(self._loose)}")
        self._bits = {column.name: 1 << at for at, column in enumerate(schema.columns)}
        required = sum(self._bits[column.name] for column in schema.columns if column.required)
        self._required = required
        self._whole = bytes(self._null_bytes)  # nulls of a row that has all

    # -- making -----------------------------------------------------------------------------------

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> tuple[list[bytes], list[bytes]]:
        """Returns rows as bytes, and their keys if the schema has key columns, else none.

        Raises:
            LocalProtocolError: if a row is not what the schema says; the text says which and why.
        """
        names = self.schema.names
        unknown = set().union(*rows).difference(names)
        if unknown:
            raise _refused(
                f"there is no column {min(unknown, key=str)!r}; there are {', '.join(names)}"
            )
        return self.encode_columns({name: [row.get(name) for row in rows] for name in names})

    def encode_columns(
        self, columns: Mapping[str, Sequence[Any]]
    ) -> tuple[list[bytes], list[bytes]]:
        """Returns the same for columns of one length; one that is not there has no values."""
        counts = {len(column) for column in columns.values()}
        if len(counts) > 1:
            raise _refused(f"columns have {' and '.join(map(str, sorted(counts)))} values")
        count = max(counts, default=0)
        given = {name: columns.get(name) or [None] * count for name in self.schema.names}
        nulls = self._nulls(given, count)
        stored = {column.name: self._store(column, given[column.name]) for column in self._columns}
        loose = [stored[column.name] for column in self._loose]
        heads = self._pack(stored, nulls, _ends(loose), count)
        keys = self._keys(stored, given) if self.schema.key else []
        return list(map(b"".join, zip(heads, *loose, strict=True))), keys

    def _nulls(self, given: Mapping[str, Sequence[Any]], count: int) -> Iterable[bytes]:
        """Returns the bits of each row, and refuses rows that lack what is required."""
        lacking = [name for name, column in given.items() if None in column]
        if not lacking:
            return repeat(self._whole, count)
        for column in self._columns:
            if column.required and column.name in lacking:
                at = given[column.name].index(None)
                raise _refused(f"column {column.name} is required", at, count)
        bits = [0] * count
        for name in lacking:
            bit = self._bits[name]
            bits = [
                have if value is not None else have | bit
                for have, value in zip(bits, given[name], strict=True)
            ]
        return [have.to_bytes(self._null_bytes, "little") for have in bits]

    def _store(self, column: Column, values: Sequence[Any]) -> Sequence[Any]:
        kind = column.kind
        types = set(map(type, values))
        if _NONE in types:
            types.discard(_NONE)
            values = [kind.zero if value is None else value for value in values]
        if not types <= kind.python and not all(map(kind.takes, types)):
            raise self._explained(column, values)
        try:
            return kind.store(values)
        except (ValueError, TypeError, OverflowError) as error:
            raise self._explained(column, values) from error

    def _pack(
        self,
        stored: Mapping[str, Sequence[Any]],
        nulls: Iterable[bytes],
        ends: Sequence[Sequence[int]],
        count: int,
    ) -> list[bytes]:
        fixed = [stored[column.name] for column in self._fixed]
        try:
            numbers = repeat(self.schema.number, count)
            return list(map(self._head.pack, numbers, nulls, *fixed, *ends))
        except (struct.error, OverflowError) as error:
            for column in self._fixed:
                for at, value in enumerate(stored[column.name]):
                    try:
                        struct.pack("<" + column.kind.code, value)
                    except (struct.error, OverflowError):
                        raise _refused(_not(column, value), at, count) from error
            raise _refused("a row has at most 4 GiB") from error

    def _explained(self, column: Column, values: Sequence[Any]) -> LocalProtocolError:
        """Returns what is wrong with the first value that cannot be stored."""
        for at, value in enumerate(values):
            try:
                if column.kind.takes(type(value)):
                    column.kind.store([value])
                    continue
            except (ValueError, TypeError, OverflowError):
                pass
            return _refused(_not(column, value), at, len(values))
        raise AssertionError("one of them was refused")

    def _keys(
        self, stored: Mapping[str, Sequence[Any]], given: Mapping[str, Sequence[Any]]
    ) -> list[bytes]:
        by_name = {column.name: column for column in self._columns}
        parts = [_texts(by_name[name], stored[name], given[name]) for name in self.schema.key]
        if len(parts) == 1:
            return parts[0]
        escaped = [_escaped(part) for part in parts]
        return list(map(_SEPARATOR.join, zip(*escaped, strict=True)))

    # -- taking apart -----------------------------------------------------------------------------

    def decode(self, rows: Sequence[bytes]) -> list[dict[str, Any]]:
        """Returns the rows as dicts of all columns.

        Raises:
            RemoteProtocolError: if they are no rows of this schema.
        """
        names = self.schema.names
        columns = self.decode_columns(rows)
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def decode_columns(self, rows: Sequence[bytes]) -> list[list[Any]]:
        """Returns the values of each column, in the order of the schema; raises the same.

        Rows were checked when they were written, so most is not looked at again.
        """
        try:
            return [list(column) for column in self._loaded(rows)]
        except (struct.error, ValueError, OverflowError) as error:
            problem = self.problem(rows) or str(error)
            raise RemoteProtocolError(Code.BAD_VALUE, problem) from error

    def problem(self, rows: Sequence[bytes]) -> str | None:
        """Says why these are no rows of this schema, or None."""
        head, size = self._head, self._head.size
        if any(len(row) < size for row in rows):
            return "a row is too short"
        numbers, nulls, *columns = _transposed(map(head.unpack_from, rows), 2 + self._head_columns)
        if set(numbers) - {self.schema.number}:
            found = next(number for number in numbers if number != self.schema.number)
            return f"a row has schema {found}, and the table has {self.schema.number} now"
        if set(nulls) - {self._whole}:
            have = functools.reduce(int.__or__, (int.from_bytes(one, "little") for one in nulls))
            if have >> len(self._columns):
                return "a row has more columns than the table"
            if have & self._required:
                return "a row lacks what is required"
        for column, values in zip(self._fixed, columns, strict=False):
            bounds = column.kind.bounds
            if values and bounds and not (bounds[0] <= min(values) and max(values) <= bounds[1]):
                return f"column {column.name} has a time beyond the years 1 to 9999"
        return self._loose_problem(rows, columns[len(self._fixed) :])

    def _loose_problem(self, rows: Sequence[bytes], ends: Sequence[Sequence[int]]) -> str | None:
        size = self._head.size
        lasts = ends[-1] if ends else repeat(0, len(rows))
        if any(size + last != len(row) for row, last in zip(rows, lasts, strict=True)):
            return "a row has another length than it says"
        starts: Sequence[int] = [0] * len(rows)
        for column, stops in zip(self._loose, ends, strict=True):
            if any(map(int.__gt__, starts, stops)):
                return f"column {column.name} ends before it begins"
            if column.type == "string":
                try:
                    for row, start, stop in zip(rows, starts, stops, strict=True):
                        row[size + start : size + stop].decode()
                except UnicodeDecodeError:
                    return f"column {column.name} is no UTF-8"
            starts = stops
        return None

    @property
    def _head_columns(self) -> int:
        return len(self._fixed) + len(self._loose)

    def _loaded(self, rows: Sequence[bytes]) -> list[Sequence[Any]]:
        size = self._head.size
        unpacked = map(self._head.unpack_from, rows)
        numbers, nulls, *columns = _transposed(unpacked, 2 + self._head_columns)
        if set(numbers) - {self.schema.number}:
            raise ValueError("rows of several schemas")
        stored: dict[str, Sequence[Any]] = {
            column.name: values for column, values in zip(self._fixed, columns, strict=False)
        }
        starts: Iterable[int] = repeat(0, len(rows))
        for column, stops in zip(self._loose, columns[len(self._fixed) :], strict=True):
            stored[column.name] = [
                row[size + start : size + stop]
                for row, start, stop in zip(rows, starts, stops, strict=True)
            ]
            starts = stops
        loaded = {column.name: column.kind.load(stored[column.name]) for column in self._columns}
        if set(nulls) - {self._whole}:
            bits = [int.from_bytes(one, "little") for one in nulls]
            for name, values in loaded.items():
                bit = self._bits[name]
                loaded[name] = [
                    None if have & bit else value for have, value in zip(bits, values, strict=True)
                ]
        return list(loaded.values())


@functools.lru_cache(maxsize=1024)
def of(schema: Schema) -> Rows:
    return Rows(schema)


def number_of(row: bytes) -> int:
    """Returns which schema a row has, 0 if it is none."""
    number: int = _NUMBER.unpack_from(row)[0] if len(row) >= _NUMBER.size else 0
    return number


def _ends(loose: Sequence[Sequence[bytes]]) -> list[Sequence[int]]:
    """Returns where each of the columns without a size ends, row by row."""
    found: list[Sequence[int]] = []
    for column in loose:
        sizes = list(map(len, column))
        found.append(list(map(int.__add__, found[-1], sizes)) if found else sizes)
    return found


def _transposed(rows: Iterable[tuple[Any, ...]], width: int) -> list[Sequence[Any]]:
    return list(zip(*rows, strict=True)) or [()] * width


def _texts(column: Column, stored: Sequence[Any], given: Sequence[Any]) -> list[bytes]:
    """Returns values of a key column as text; equal values have equal texts."""
    if not column.kind.is_fixed:
        return list(stored)
    if column.type == "boolean":
        return [b"true" if one else b"false" for one in given]
    numbers = stored if column.type.startswith("time") else given
    return [b"%d" % one for one in numbers]


def _escaped(part: Sequence[bytes]) -> Sequence[bytes]:
    for plain, escape in _ESCAPED:
        if any(plain in one for one in part):
            part = [one.replace(plain, escape) for one in part]
    return part


def _not(column: Column, value: object) -> str:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
    return f"column {column.name} is {column.kind.what}, not {shown}"


def _refused(text: str, at: int | None = None, count: int = 1) -> LocalProtocolError:
    where = "" if at is None or count == 1 else f"row {at + 1} of {count}: "
    return LocalProtocolError(Code.BAD_VALUE, where + text)
