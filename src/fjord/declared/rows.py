"""Rows as bytes: compact, checked, and made of whole columns at a time.

    row = schema u16, nulls, the columns that have a size, ends u32 each, bytes
    nulls = a bit for each column, the first one is the lowest of the first byte; 1: no value

Integers are little-endian.  Columns with a size stand in their order, zero where there is no value.
The others, strings and binary, are one behind the other in `bytes`; `ends` says where each of them
ends.  Nothing tells types or names: the schema that the number means does.

Little Python runs for each row and column: columns are converted by C loops, `struct` packs a row
at once, and the loop that makes dicts is written for its schema, see `_decoder`.  `layout` takes
whole columns out of rows, and `row_check` says whether bytes are rows.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import accumulate, repeat
from operator import add
from typing import Any, Final

from fjord.columns import Strings
from fjord.declared.layout import NUMBER, Heads, Layout
from fjord.declared.row_check import RowCheck
from fjord.declared.schema import Column, Schema
from fjord.declared.types import words_of
from fjord.errors import Code, LocalProtocolError, RemoteProtocolError

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
        self.layout = Layout(schema)
        self._check = RowCheck(self.layout)
        self._names = self.layout.names
        self._columns = schema.columns
        self._kinds = self.layout.kinds
        self._fixed, self._loose = self.layout.fixed, self.layout.loose
        self._converted = [at for at, kind in enumerate(self._kinds) if kind.converts]
        self._key = [self._names.index(name) for name in schema.key]
        self._prefix = self.layout.prefix
        self._head = self.layout.head
        self._decode = _decoder(self._columns, self._head.size)
        self._combinations: set[tuple[type, ...]] = set()  # types of values that were fine

    @property
    def bytes_min(self) -> int:
        """What every row has at least, whatever is in it."""
        return self._head.size

    def problem(self, column: Strings) -> str | None:
        """Says why these are no rows of this schema, or None."""
        return self._check.problem(column)

    # -- making -----------------------------------------------------------------------------------

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> Encoded:
        """Returns rows as bytes, and their keys if the schema has key columns, else none.

        Raises:
            LocalProtocolError: if a row is not what the schema says; the text says which and why.
        """
        if len(rows) == 1:
            self._check_names(rows[0].keys())
            return self._encode_one([rows[0].get(name) for name in self._names])
        return self._encode_named(as_columns(rows), len(rows))

    def encode_columns(self, columns: Mapping[str, Sequence[Any]]) -> Encoded:
        """Returns the same for columns of one length; one that is not there has no values."""
        counts = {len(column) for column in columns.values()}
        if len(counts) > 1:
            raise _refused(f"columns have {' and '.join(map(str, sorted(counts)))} values")
        return self._encode_named(columns, max(counts, default=0))

    def _encode_named(self, columns: Mapping[str, Sequence[Any]], count: int) -> Encoded:
        self._check_names(columns.keys())
        none = [None] * count
        return self._encode([columns.get(name, none) for name in self._names], count)

    def _check_names(self, given: Set[str]) -> None:
        unknown = given - set(self._names)
        if unknown:
            raise self._unknown(min(unknown, key=str))

    def _unknown(self, name: str) -> LocalProtocolError:
        return _refused(f"there is no column {name!r}; there are {', '.join(self._names)}")

    def _encode(self, given: Sequence[Sequence[Any]], count: int) -> Encoded:
        types = [_types(values) for values in given]
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
            prefix = self.layout.prefix_of(sum(1 << at for at in lacking))
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
        known = {have: self.layout.prefix_of(have) for have in set(nulls)}
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
        found = self.decode_own(rows)
        if found is None:
            raise self._no_rows(Strings.of(rows), "a row of another schema")
        return found

    def decode_own(self, rows: Sequence[bytes]) -> list[dict[str, Any]] | None:
        """Returns the same, None if there are rows of another schema; raises the same."""
        size = len(self._prefix)
        begun = {row[:size] for row in rows}
        if any(not prefix.startswith(self._prefix[: NUMBER.size]) for prefix in begun):
            return None
        try:
            found = self._decode(rows, self._head.unpack_from)
            for at in self._converted:
                if self._kinds[at].is_fixed:  # texts are decoded already
                    name = self._names[at]
                    loaded = self._kinds[at].load([row[name] for row in found])
                    for row, value in zip(found, loaded, strict=True):
                        row[name] = value
        except (struct.error, ValueError, OverflowError) as error:
            raise self._no_rows(Strings.of(rows), str(error)) from error
        for at, lacking in self._lacking(begun).items():
            name = self._names[at]
            for row, data in zip(found, rows, strict=True):
                if data[:size] in lacking:
                    row[name] = None
        return found

    def _lacking(self, prefixes: Set[bytes]) -> dict[int, set[bytes]]:
        """Returns the columns that some rows lack, and how those rows begin."""
        found: dict[int, set[bytes]] = {}
        for prefix in prefixes - {self._prefix}:
            nulls = int.from_bytes(prefix[NUMBER.size :], "little")
            for at in range(len(self._columns)):
                if nulls & 1 << at:
                    found.setdefault(at, set()).add(prefix)
        return found

    def place_of(self, name: str) -> int:
        """Returns the place of a column in the schema.

        Raises:
            LocalProtocolError: if there is none of that name.
        """
        if name not in self._names:
            raise self._unknown(name)
        return self._names.index(name)

    def heads(self, column: Strings) -> Heads:
        """Returns rows that are to be read a column at a time.

        Raises:
            RemoteProtocolError: if they are no rows of this schema.
        """
        found = Heads(self.layout, column)
        if not found.are_whole or not found.are_of_schema:
            raise self._no_rows(column, "rows of another schema")
        return found

    def decode_column(self, heads: Heads, at: int) -> Sequence[Any]:
        """Returns the values of the column at a place of the schema; raises the same."""
        kind = self._kinds[at]
        try:
            loaded = kind.load(heads.stored(at) if kind.is_fixed else heads.parts(at))
        except (ValueError, OverflowError) as error:
            raise RemoteProtocolError(
                Code.BAD_VALUE, f"column {self._names[at]} of a row: {error}"
            ) from error
        nulls = heads.null_plane(at)
        if nulls.count(0) == len(nulls):
            return loaded
        bit, pairs = 1 << at % 8, zip(nulls, loaded, strict=True)
        return [None if byte & bit else value for byte, value in pairs]

    def _no_rows(self, column: Strings, text: str) -> RemoteProtocolError:
        return RemoteProtocolError(Code.BAD_VALUE, self.problem(column) or text)


@functools.lru_cache(maxsize=1024)
def of(schema: Schema) -> Rows:
    return Rows(schema)


def number_of(row: bytes) -> int:
    """Returns which schema a row has, 0 if it is none."""
    number: int = NUMBER.unpack_from(row)[0] if len(row) >= NUMBER.size else 0
    return number


def _ends(loose: Sequence[Sequence[bytes]]) -> list[Sequence[int]]:
    """Returns where each of the columns without a size ends, row by row."""
    found: list[Sequence[int]] = []
    for column in loose:
        sizes = list(map(len, column))
        found.append(list(map(add, found[-1], sizes)) if found else sizes)
    return found


def _types(values: Sequence[Any]) -> set[type]:
    """Returns the types of some values; mostly it is one, and counting is faster than a set."""
    found = list(map(type, values))
    return {found[0]} if found and found.count(found[0]) == len(found) else set(found)


def as_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Returns rows as columns; None where a row has no such column.

    Rows that are dicts, have as many columns as the first one and all of its columns have no
    others: then nobody has to look at all the names.
    """
    if rows and _types(rows) == {dict}:
        names = rows[0].keys()
        if list(map(len, rows)).count(len(names)) == len(rows):
            try:
                return {name: [row[name] for row in rows] for name in names}
            except KeyError:
                pass
    every: dict[str, None] = {}
    for row in rows:
        every.update(dict.fromkeys(row))
    return {name: [row.get(name) for row in rows] for name in every}


# -- a loop that is written for a schema ----------------------------------------------------------

Decoder = Callable[[Sequence[bytes], Callable[[bytes], tuple[Any, ...]]], list[dict[str, Any]]]


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
    source = (
        f"lambda rows, unpack: [{{{', '.join(items)}}} "
        f"for row, ({names},) in zip(rows, map(unpack, rows))]"
    )
    # Only numbers and the names of columns are in it, which are letters, digits and _, in quotes.
    written: Decoder = eval(source, {"__builtins__": {"map": map, "zip": zip}})  # noqa: S307
    return written


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
    kind = column.kind
    shown = str(value).lower() if isinstance(value, bool) else repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
    came = "" if kind.takes(type(value)) else f", {words_of(value)}"
    return f"column {column.name} is {kind.name} ({kind.what}), not {shown}{came}"


def _refused(text: str, at: int | None = None, count: int = 1) -> LocalProtocolError:
    where = "" if at is None or count == 1 else f"row {at + 1} of {count}: "
    return LocalProtocolError(Code.BAD_VALUE, where + text)
