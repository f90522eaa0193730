"""Rows as bytes: compact, checked, and made of whole columns at a time.

    row = schema u16, nulls, the columns that have a size, ends u32 each, bytes
    nulls = a bit for each column, the first one is the lowest of the first byte; 1: no value

Integers are little-endian.  Columns with a size stand in their order, zero where there is no value.
The others, strings and binary, are one behind the other in `bytes`; `ends` says where each of them
ends.  Nothing tells types or names: the schema that the number means does.

Little Python runs for each row and column: columns are converted by C loops, `struct` packs a row
at once, and the two loops that go over rows are written for their schema, see `_decoder` and
`_ends_check`.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import accumulate, chain, repeat
from typing import Any, Final

from fjord.declared.schema import Column, Schema
from fjord.errors import Code, LocalProtocolError, RemoteProtocolError

_NUMBER: Final = struct.Struct("<H")
_NONE: Final = type(None)
_SEPARATOR: Final = b"|"
_ESCAPED: Final = ((b"%", b"%25"), (_SEPARATOR, b"%7C"))
# Rows of so many combinations of types are made without a second look.
_COMBINATIONS_MAX: Final = 64

Encoded = tuple[list[bytes], list[bytes]]  # rows and their keys; no keys if none are declared


class Rows:
    """Makes rows of one schema, and takes them apart."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._names = schema.names
        self._columns = schema.columns
        self._kinds = [column.kind for column in schema.columns]
        # Where columns with a size stand, where the others do, and those that are the key.
        self._fixed = [at for at, kind in enumerate(self._kinds) if kind.is_fixed]
        self._loose = [at for at, kind in enumerate(self._kinds) if not kind.is_fixed]
        self._converted = [at for at, kind in enumerate(self._kinds) if kind.converts]
        self._key = [self._names.index(name) for name in schema.key]
        self._null_bytes = -(-len(schema.columns) // 8)
        self._prefix = self._prefix_of(0)  # of a row that has all
        codes = "".join(self._kinds[at].code for at in self._fixed)
        fixed = f"<{len(self._prefix)}s{codes}"
        self._head = struct.Struct(fixed + "I" * len(self._loose))
        self._ends = struct.Struct(f"<{struct.calcsize(fixed)}x{'I' * len(self._loose)}")
        self._required = sum(1 << at for at, one in enumerate(schema.columns) if one.required)
        self._has_text = any(column.type == "string" for column in schema.columns)
        self._decode = _decoder(self._columns, self._head.size)
        self._ends_fit = _ends_check(len(self._loose), self._head.size)
        self._combinations: set[tuple[type, ...]] = set()  # types of values that were fine

    @property
    def bytes_min(self) -> int:
        """What every row has at least, whatever is in it."""
        return self._head.size

    def _prefix_of(self, nulls: int) -> bytes:
        return _NUMBER.pack(self.schema.number) + nulls.to_bytes(self._null_bytes, "little")

    # -- making -----------------------------------------------------------------------------------

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> Encoded:
        """Returns rows as bytes, and their keys if the schema has key columns, else none.

        Raises:
            LocalProtocolError: if a row is not what the schema says; the text says which and why.
        """
        names = self._names
        self._check_names(set().union(*rows))
        if len(rows) == 1:
            return self._encode_one([rows[0].get(name) for name in names])
        return self._encode([_picked(rows, name) for name in names], len(rows))

    def encode_columns(self, columns: Mapping[str, Sequence[Any]]) -> Encoded:
        """Returns the same for columns of one length; one that is not there has no values."""
        counts = {len(column) for column in columns.values()}
        if len(counts) > 1:
            raise _refused(f"columns have {' and '.join(map(str, sorted(counts)))} values")
        self._check_names(columns.keys())
        count = max(counts, default=0)
        none = [None] * count
        return self._encode([columns.get(name, none) for name in self._names], count)

    def _check_names(self, given: Set[str]) -> None:
        unknown = given - set(self._names)
        if unknown:
            there = ", ".join(self._names)
            raise _refused(f"there is no column {min(unknown, key=str)!r}; there are {there}")

    def _encode(self, given: Sequence[Sequence[Any]], count: int) -> Encoded:
        types = [set(map(type, values)) for values in given]
        prefixes = self._prefixes(given, types, count)
        stored = list(map(self._store, self._columns, given, types))
        loose = [stored[at] for at in self._loose]
        heads = self._pack(stored, prefixes, _ends(loose), count)
        return list(map(b"".join, zip(heads, *loose, strict=True))), self._keys(stored, given)

    def _encode_one(self, given: Sequence[Any]) -> Encoded:
        """Does the same for the values of a single row.

        Types that were fine once are not checked again; whatever is odd is left to `_encode`,
        which knows what to say.
        """
        types = tuple(map(type, given))
        if types not in self._combinations:
            found = self._encode([[value] for value in given], 1)
            if len(self._combinations) < _COMBINATIONS_MAX:
                self._combinations.add(types)
            return found
        prefix, stored = self._prefix, list(given)
        if _NONE in types:
            lacking = [at for at, value in enumerate(given) if value is None]
            prefix = self._prefix_of(sum(1 << at for at in lacking))
            for at in lacking:
                stored[at] = self._kinds[at].zero
        try:
            for at in self._converted:
                (stored[at],) = self._kinds[at].store((stored[at],))
            loose = [stored[at] for at in self._loose]
            fixed = [stored[at] for at in self._fixed]
            head = self._head.pack(prefix, *fixed, *accumulate(map(len, loose)))
        except (ValueError, TypeError, OverflowError, struct.error):
            return self._encode([[value] for value in given], 1)
        keys = self._keys([(one,) for one in stored], [(one,) for one in given])
        return [b"".join((head, *loose))], keys

    def _prefixes(
        self, given: Sequence[Sequence[Any]], types: Sequence[set[type]], count: int
    ) -> Iterable[bytes]:
        """Returns how each row begins, and refuses rows that lack what is required."""
        lacking = [at for at, found in enumerate(types) if _NONE in found]
        if not lacking:
            return repeat(self._prefix, count)
        for at in lacking:
            if self._columns[at].required:
                place = [value is None for value in given[at]].index(True)
                raise _refused(f"column {self._columns[at].name} is required", place, count)
        nulls = [0] * count
        for at in lacking:
            bit = 1 << at
            nulls = [
                have if value is not None else have | bit
                for have, value in zip(nulls, given[at], strict=True)
            ]
        known = {have: self._prefix_of(have) for have in set(nulls)}
        return map(known.__getitem__, nulls)

    def _store(self, column: Column, values: Sequence[Any], types: set[type]) -> Sequence[Any]:
        kind = column.kind
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
        stored: Sequence[Sequence[Any]],
        prefixes: Iterable[bytes],
        ends: Sequence[Sequence[int]],
        count: int,
    ) -> list[bytes]:
        fixed = [stored[at] for at in self._fixed]
        try:
            return list(map(self._head.pack, prefixes, *fixed, *ends))
        except (struct.error, OverflowError) as error:
            for at in self._fixed:
                for place, value in enumerate(stored[at]):
                    try:
                        struct.pack("<" + self._kinds[at].code, value)
                    except (struct.error, OverflowError):
                        raise _refused(_not(self._columns[at], value), place, count) from error
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

    def _keys(self, stored: Sequence[Sequence[Any]], given: Sequence[Sequence[Any]]) -> list[bytes]:
        if not self._key:
            return []
        parts = [_texts(self._columns[at], stored[at], given[at]) for at in self._key]
        if len(parts) == 1:
            return parts[0]
        return list(map(_SEPARATOR.join, zip(*map(_escaped, parts), strict=True)))

    # -- taking apart -----------------------------------------------------------------------------

    def decode(self, rows: Sequence[bytes]) -> list[dict[str, Any]]:
        """Returns the rows as dicts of all columns.

        Rows were checked when they were written, so most is not looked at again.

        Raises:
            RemoteProtocolError: if they are no rows of this schema.
        """
        prefixes = self._begun(rows)
        try:
            found = self._decode(rows, self._head.unpack_from)
            for at in self._converted:
                if self._kinds[at].is_fixed:  # texts are decoded already
                    name = self._names[at]
                    loaded = self._kinds[at].load([row[name] for row in found])
                    for row, value in zip(found, loaded, strict=True):
                        row[name] = value
        except (struct.error, ValueError, OverflowError) as error:
            raise self._no_rows(rows, error) from error
        for at, lacking in self._lacking(prefixes).items():
            name = self._names[at]
            for row, prefix in zip(found, prefixes, strict=True):
                if prefix in lacking:
                    row[name] = None
        return found

    def decode_columns(self, rows: Sequence[bytes]) -> list[list[Any]]:
        """Returns the values of each column, in the order of the schema; raises the same."""
        prefixes = self._begun(rows)
        try:
            loaded = self._loaded(rows)
        except (struct.error, ValueError, OverflowError) as error:
            raise self._no_rows(rows, error) from error
        for at, lacking in self._lacking(prefixes).items():
            pairs = zip(prefixes, loaded[at], strict=True)
            loaded[at] = [None if prefix in lacking else value for prefix, value in pairs]
        return list(map(list, loaded))

    def _begun(self, rows: Sequence[bytes]) -> list[bytes]:
        """Returns how each row begins: with the number of this schema, and its nulls."""
        size = len(self._prefix)
        prefixes = [row[:size] for row in rows]
        number = self._prefix[: _NUMBER.size]
        if any(not prefix.startswith(number) for prefix in set(prefixes)):
            raise self._no_rows(rows, ValueError("a row of another schema"))
        return prefixes

    def _lacking(self, prefixes: Iterable[bytes]) -> dict[int, set[bytes]]:
        """Returns the columns that some rows lack, and how those rows begin."""
        found: dict[int, set[bytes]] = {}
        for prefix in set(prefixes) - {self._prefix}:
            nulls = int.from_bytes(prefix[_NUMBER.size :], "little")
            for at in range(len(self._columns)):
                if nulls & 1 << at:
                    found.setdefault(at, set()).add(prefix)
        return found

    def _loaded(self, rows: Sequence[bytes]) -> list[Sequence[Any]]:
        size = self._head.size
        unpacked = map(self._head.unpack_from, rows)
        _, *columns = list(zip(*unpacked, strict=True)) or [()] * (1 + len(self._columns))
        stored: list[Sequence[Any]] = [()] * len(self._columns)
        for at, values in zip(self._fixed, columns, strict=False):
            stored[at] = values
        starts: Iterable[int] = repeat(0, len(rows))
        for at, stops in zip(self._loose, columns[len(self._fixed) :], strict=True):
            stored[at] = [
                row[size + start : size + stop]
                for row, start, stop in zip(rows, starts, stops, strict=True)
            ]
            starts = stops
        return [kind.load(values) for kind, values in zip(self._kinds, stored, strict=True)]

    def _no_rows(self, rows: Sequence[bytes], error: Exception) -> RemoteProtocolError:
        return RemoteProtocolError(Code.BAD_VALUE, self.problem(rows) or str(error))

    # -- checking ---------------------------------------------------------------------------------

    def problem(self, rows: Sequence[bytes]) -> str | None:
        """Says why these are no rows of this schema, or None."""
        if not rows:
            return None
        lengths = list(map(len, rows))
        if min(lengths) < self._head.size:
            return "a row is too short"
        size = len(self._prefix)
        prefixes = {row[:size] for row in rows}
        return (
            self._prefix_problem(prefixes - {self._prefix})
            or self._time_problem(rows)
            or self._loose_problem(rows, lengths)
        )

    def _prefix_problem(self, prefixes: Iterable[bytes]) -> str | None:
        for prefix in prefixes:
            number, nulls = number_of(prefix), int.from_bytes(prefix[_NUMBER.size :], "little")
            if number != self.schema.number:
                return f"a row has schema {number}, and the table has {self.schema.number} now"
            if nulls >> len(self._columns):
                return "a row has more columns than the table"
            if nulls & self._required:
                return "a row lacks what is required"
        return None

    def _time_problem(self, rows: Sequence[bytes]) -> str | None:
        before = f"<{len(self._prefix)}x"
        for at in self._fixed:
            code, bounds = self._kinds[at].code, self._kinds[at].bounds
            if bounds is not None:
                one = struct.Struct(before + code)
                values = list(chain.from_iterable(map(one.unpack_from, rows)))
                if min(values) < bounds[0] or max(values) > bounds[1]:
                    return f"column {self._names[at]} has a time beyond the years 1 to 9999"
            before += f"{struct.calcsize('<' + code)}x"
        return None

    def _loose_problem(self, rows: Sequence[bytes], lengths: Sequence[int]) -> str | None:
        size = self._head.size
        if not self._ends_fit(map(self._ends.unpack_from, rows), lengths):
            lasts = [self._ends.unpack_from(row)[-1:] or (0,) for row in rows]
            if any(size + last != length for (last,), length in zip(lasts, lengths, strict=True)):
                return "a row has another length than it says"
            return "a column of a row ends before it begins"
        # Where all is ASCII, it does not matter where one text ends and the next begins.
        if not self._has_text or b"".join([row[size:] for row in rows]).isascii():
            return None
        for place, at in enumerate(self._loose):
            if self._columns[at].type == "string" and not _is_text(self._parts(rows, place)):
                return f"column {self._names[at]} is no UTF-8"
        return None

    def _parts(self, rows: Sequence[bytes], place: int) -> list[bytes]:
        """Returns what the rows have of one of the columns without a size."""
        size = self._head.size
        ends = ((0, *self._ends.unpack_from(row)) for row in rows)
        return [
            row[size + bounds[place] : size + bounds[place + 1]]
            for row, bounds in zip(rows, ends, strict=True)
        ]


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


def _picked(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """Returns the values of a column, None where a row has none."""
    try:
        return [row[name] for row in rows]
    except KeyError:
        return [row.get(name) for row in rows]


def _is_text(parts: Sequence[bytes]) -> bool:
    """Says whether each of these is UTF-8; a character cannot go on behind the zero."""
    try:
        b"\0".join(parts).decode()
    except UnicodeDecodeError:
        return False
    return True


# -- loops that are written for a schema ----------------------------------------------------------

Decoder = Callable[[Sequence[bytes], Callable[[bytes], tuple[Any, ...]]], list[dict[str, Any]]]
EndsCheck = Callable[[Iterable[tuple[int, ...]], Sequence[int]], bool]


def _decoder(columns: Sequence[Column], size: int) -> Decoder:
    """Returns what makes dicts of rows; for uri (string), depth (uint8) and tag (string):

    lambda rows, unpack: [
        {"uri": row[12:12+e0].decode(), "depth": c1, "tag": row[12+e0:].decode()}
        for row, (_, c1, e0, e1) in zip(rows, map(unpack, rows))
    ]
    """
    items: list[str] = []
    fixed: list[str] = []
    ends: list[str] = []
    start, loose = f"{size}", [column for column in columns if not column.kind.is_fixed]
    for at, column in enumerate(columns):
        if column.kind.is_fixed:
            fixed.append(f"c{at}")
            items.append(f"{column.name!r}: c{at}")
            continue
        ends.append(f"e{len(ends)}")
        stop = f"{size}+{ends[-1]}" if column is not loose[-1] else ""
        decode = ".decode()" if column.type == "string" else ""
        items.append(f"{column.name!r}: row[{start}:{stop}]{decode}")
        start = stop
    names = ", ".join(["_", *fixed, *ends])
    written: Decoder = _written(
        f"lambda rows, unpack: [{{{', '.join(items)}}} "
        f"for row, ({names},) in zip(rows, map(unpack, rows))]"
    )
    return written


def _ends_check(count: int, size: int) -> EndsCheck:
    """Returns what says whether columns end in order, and the last one with its row; for two:

    lambda ends, lengths: all([e0 <= e1 == length - 12 for (e0, e1,), length in zip(ends, lengths)])
    """
    names = [f"e{at}" for at in range(count)] or ["0"]
    unpacked = f"({', '.join(names)},)" if count else "_"
    written: EndsCheck = _written(
        f"lambda ends, lengths: all([{' <= '.join(names)} == length - {size} "
        f"for {unpacked}, length in zip(ends, lengths)])"
    )
    return written


def _written(source: str) -> Any:
    # Only numbers and the names of columns are in it, which are letters, digits and _, in quotes.
    return eval(source, {"__builtins__": {"all": all, "map": map, "zip": zip}})  # noqa: S307


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
