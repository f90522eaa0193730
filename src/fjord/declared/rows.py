"""Rows as bytes: compact, checked, and encoded by whole columns.

    row = schema u16, nulls, the columns that have a size, ends u32 each, bytes
    nulls = a bit for each column, the first one is the lowest of the first byte; 1: no value

Integers are little-endian.  Columns of a fixed size come in their order, zero where there is no
value.  The others, strings and binary, are concatenated in `bytes`; `ends` has the end of each.
Types and names are not stored in a row, but in the schema with that number.

Little Python runs per row and column: columns are converted by C loops, `struct` packs a row at
once, and the loop that makes dicts is generated for its schema, see `_decoder`.  `Heads` takes
whole columns out of rows, and `Layout.problem` checks whether bytes are rows.
"""

from __future__ import annotations

import functools
import struct
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import accumulate, chain, pairwise, repeat
from operator import add
from typing import Any, Final

from fjord.columns import Strings
from fjord.declared.schema import Column, Schema, words_of
from fjord.errors import Code, LocalProtocolError, RemoteProtocolError

_NONE: Final = type(None)
_SEPARATOR: Final = b"|"
_ESCAPED: Final = ((b"%", b"%25"), (_SEPARATOR, b"%7C"))
# Combinations of types that are remembered as valid.
_COMBINATIONS_MAX: Final = 64

Encoded = tuple[list[bytes], list[bytes]]  # rows and their keys; no keys if none are declared


# -- the layout of a row, and many rows as columns ------------------------------------------------
#
#     row = head, bytes
#     head = schema u16, nulls, the columns that have a size, ends u32 each
#
# The heads of all rows of a schema have the same size.  In concatenated heads, a byte of a column
# is every n-th byte: slices with a step extract the column, and no Python runs per row.


NUMBER: Final = struct.Struct("<H")
_END_BYTES: Final = 4
_ASCII: Final = bytes(range(128))
# For shorter rows bytes are counted, since that is faster than cutting the rows.
_SHORT_BYTES: Final = 256
# Up to this many rows are faster to check one by one.
_FEW: Final = 8
# Sums of two numbers below these bounds, and of the size of a head, fit into a lane.
_LANE: Final = b"\1\0\0\0"
_HIGH_BIT: Final = 31
_DATA_BYTES_MAX: Final = 2**30


class Layout:
    """The layout of a schema's rows, and their checks."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.names = schema.names
        self.columns = columns = schema.columns
        self.kinds = [column.kind for column in columns]
        # Columns with a fixed size, and those after them.
        self.fixed = [at for at, kind in enumerate(self.kinds) if kind.is_fixed]
        self.loose = [at for at, kind in enumerate(self.kinds) if not kind.is_fixed]
        self.null_bytes = -(-len(columns) // 8)
        self.prefix = self.prefix_of(0)  # of a row that has all
        fixed = f"<{len(self.prefix)}s"
        self.places: dict[int, int] = {}  # where columns with a size begin
        for at in self.fixed:
            self.places[at] = struct.calcsize(fixed)
            fixed += self.kinds[at].code
        self.ends_place = struct.calcsize(fixed)
        self.head = struct.Struct(fixed + "I" * len(self.loose))
        self.ends = struct.Struct(f"<{self.ends_place}x{'I' * len(self.loose)}")
        self.size = self.head.size  # the minimum size of a row
        self._bounded = [at for at in self.fixed if self.kinds[at].bounds is not None]
        self._texts = [at for at in self.loose if columns[at].type == "string"]
        self._required = sum(1 << at for at, one in enumerate(columns) if one.required)

    def prefix_of(self, nulls: int) -> bytes:
        """Returns the prefix of a row without some columns."""
        return NUMBER.pack(self.schema.number) + nulls.to_bytes(self.null_bytes, "little")

    # -- checks of rows, which a server runs before it stores them ---------------------------------
    #
    # Many rows are checked together, see `_are_sound`: a few operations on large integers, in which
    # each row has a lane of 32 bits, show that all are valid.  Only if that fails, or if there are
    # few, they are checked one by one, and the first problem is reported.

    def problem(self, column: Strings) -> str | None:
        """Returns why these are not rows of this schema, or None."""
        if len(column) <= _FEW:
            return self._first_problem(column.rows()) or self._text_problem(column)
        heads = Heads(self, column)
        if not self._are_sound(heads):
            problem = self._first_problem(column.rows())
            if problem is not None:
                return problem
        return self._text_problem(column, heads)

    # -- all together -----------------------------------------------------------------------------

    def _are_sound(self, heads: Heads) -> bool:
        """Returns whether everything except texts is certainly valid."""
        return (
            heads.are_whole
            and len(heads.data) < _DATA_BYTES_MAX
            and heads.are_of_schema
            and not any(map(self._null_problem, heads.nulls()))
            and not any(self._bounds_problem(at, heads.stored(at)) for at in self._bounded)
            and self._ends_fit(heads)
        )

    def _ends_fit(self, heads: Heads) -> bool:
        """Returns whether columns end in order, and the last one at the end of its row.

        No carry goes from lane to lane.  The highest bit of an end is clear.  If it is set in the
        next end, and the end is subtracted, the bit stays if, and only if, the end is not larger.
        Rows begin below 2**30, and their last end is below 2**31, so the sum fits.
        """
        ones = int.from_bytes(_LANE * heads.count, "little")
        high = ones << _HIGH_BIT
        before = 0
        for place in range(len(self.loose)):
            ends = int.from_bytes(heads.end_bytes(place), "little")
            if ends & high or ((ends | high) - before) & high != high:
                return False
            before = ends
        starts = int.from_bytes(heads.offsets[:-4], "little")
        stops = int.from_bytes(heads.offsets[4:], "little")
        return starts + before + ones * self.size == stops

    # -- one by one -------------------------------------------------------------------------------

    def _first_problem(self, rows: Sequence[bytes]) -> str | None:
        if not rows:
            return None
        if min(map(len, rows)) < self.size:
            return "a row is too short"
        size = len(self.prefix)
        return (
            self._prefix_problem({row[:size] for row in rows})
            or self._time_problem(rows)
            or self._ends_problem(rows)
        )

    def _prefix_problem(self, prefixes: Iterable[bytes]) -> str | None:
        wanted = self.schema.number
        for prefix in prefixes:
            (number,) = NUMBER.unpack_from(prefix)
            if number != wanted:
                return f"a row has schema {number}, and the table has {wanted} now"
            problem = self._null_problem(int.from_bytes(prefix[NUMBER.size :], "little"))
            if problem is not None:
                return problem
        return None

    def _null_problem(self, nulls: int) -> str | None:
        if nulls >> len(self.kinds):
            return "a row has more columns than the table"
        if nulls & self._required:
            return "a row lacks a required value"
        return None

    def _time_problem(self, rows: Sequence[bytes]) -> str | None:
        for at in self._bounded:
            one = struct.Struct(f"<{self.places[at]}x{self.kinds[at].code}")
            values = list(chain.from_iterable(map(one.unpack_from, rows)))
            problem = self._bounds_problem(at, values)
            if problem is not None:
                return problem
        return None

    def _bounds_problem(self, at: int, values: Sequence[int]) -> str | None:
        bounds = self.kinds[at].bounds
        assert bounds is not None
        if bounds[0] <= min(values) and max(values) <= bounds[1]:
            return None
        return f"column {self.names[at]} has a time beyond the years 1 to 9999"

    def _ends_problem(self, rows: Sequence[bytes]) -> str | None:
        for row in rows:
            ends = (0, *self.ends.unpack_from(row))
            if self.size + ends[-1] != len(row):
                return "the length of a row does not match its columns"
            if any(end > following for end, following in pairwise(ends)):
                return "a column of a row ends before it begins"
        return None

    # -- texts ------------------------------------------------------------------------------------

    def _text_problem(self, column: Strings, heads: Heads | None = None) -> str | None:
        """Checks the texts of rows that are otherwise valid."""
        if not self._texts:
            return None
        heads = Heads(self, column) if heads is None else heads
        # If everything is ASCII, the borders between texts do not matter.
        if heads.are_followed_by_ascii():
            return None
        for at in self._texts:
            if not _is_text(heads.parts(at)):
                return f"column {self.names[at]} is not UTF-8"
        return None


def _is_text(parts: Sequence[bytes]) -> bool:
    """Returns whether each of these is UTF-8; a zero byte cannot be inside a character."""
    try:
        b"\0".join(parts).decode()
    except UnicodeDecodeError:
        return False
    return True


class Heads:
    """The heads of many rows.

    If a row is too short, its head reaches into the next one: `Layout.problem` detects that.
    Rows that were checked before need no second check.
    """

    def __init__(self, layout: Layout, column: Strings) -> None:
        self.layout = layout
        self.count = len(column)
        self.data = bytes(column.data)
        offsets = column.offsets
        if not isinstance(offsets, array | memoryview):
            offsets = array("I", offsets)
        self.offsets = offsets.tobytes()
        self._starts = offsets.tolist()
        self._starts.pop()
        size, data = layout.size, self.data
        self.heads = data  # where columns without a size are behind them, they are put together
        if layout.loose:
            self.heads = b"".join([data[start : start + size] for start in self._starts])

    @property
    def are_whole(self) -> bool:
        return len(self.heads) == self.count * self.layout.size

    @property
    def are_of_schema(self) -> bool:
        """Returns whether all rows have the number of the schema."""
        number, size = self.layout.prefix[: NUMBER.size], self.layout.size
        return all(self.heads[at::size].count(byte) == self.count for at, byte in enumerate(number))

    def nulls(self) -> set[int]:
        """Returns the combinations of null columns that occur."""
        planes = [self.null_plane(8 * at) for at in range(self.layout.null_bytes)]
        if all(plane.count(0) == self.count for plane in planes):
            return {0}
        return {int.from_bytes(found, "little") for found in set(zip(*planes, strict=True))}

    def null_plane(self, at: int) -> bytes:
        """Returns the null byte of a column, for each row."""
        return self.heads[NUMBER.size + at // 8 :: self.layout.size]

    def stored(self, at: int) -> Sequence[Any]:
        """Returns the packed values of a column with a size."""
        code, place, size = self.layout.kinds[at].code, self.layout.places[at], self.layout.size
        width = struct.calcsize("<" + code)
        if code.endswith("s"):
            one = struct.Struct(f"{place}x{code}{size - place - width}x")
            return list(chain.from_iterable(one.iter_unpack(self.heads)))
        found = self._gathered(place, width)
        if code == "?":
            return list(map(bool, found))  # a cast would leave it open what 2 is
        return memoryview(found).cast(code).tolist()  # type: ignore[call-overload,no-any-return]

    def end_bytes(self, place: int) -> bytearray:
        """Returns where one of the columns without a size ends in each row, as u32."""
        return self._gathered(self.layout.ends_place + _END_BYTES * place, _END_BYTES)

    def parts(self, at: int) -> list[bytes]:
        """Returns the bytes of a column without a size."""
        place, data = self.layout.loose.index(at), self.data
        first = list(map(add, self._starts, repeat(self.layout.size)))
        starts = list(map(add, first, self._ends(place - 1))) if place else first
        stops = map(add, first, self._ends(place))
        return [data[start:stop] for start, stop in zip(starts, stops, strict=True)]

    def _ends(self, place: int) -> Sequence[int]:
        return memoryview(self.end_bytes(place)).cast("I").tolist()

    def _gathered(self, place: int, width: int) -> bytearray:
        """Returns `width` bytes of each head, concatenated row by row."""
        found, size = bytearray(width * self.count), self.layout.size
        for at in range(width):
            found[at::width] = self.heads[place + at :: size]
        return found

    def are_followed_by_ascii(self) -> bool:
        """Says whether everything after the heads is ASCII."""
        if self.data.isascii():
            return True
        if len(self.data) <= _SHORT_BYTES * self.count:
            # All non-ASCII bytes are in the heads.
            others = self.data.translate(None, _ASCII)
            return len(others) == len(self.heads.translate(None, _ASCII))
        size, data = self.layout.size, self.data
        stops = array("I", self.offsets[_END_BYTES:])
        pairs = zip(self._starts, stops, strict=True)
        return b"".join([data[start + size : stop] for start, stop in pairs]).isascii()


# -- encoding and decoding rows --------------------------------------------------------------------


class Rows(Layout):
    """Encodes and decodes rows of one schema."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._converted = [at for at, kind in enumerate(self.kinds) if kind.converts]
        self._key = [self.names.index(name) for name in schema.key]
        self._decode = _decoder(self.columns, self.head.size)
        self._combinations: set[tuple[type, ...]] = set()  # types of values that were fine

    # -- making -----------------------------------------------------------------------------------

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> Encoded:
        """Returns rows as bytes, and their keys if the schema has key columns, else none.

        Raises:
            LocalProtocolError: if a row does not fit the schema; the text says which and why.
        """
        if len(rows) == 1:
            self._check_names(rows[0].keys())
            return self._encode_one([rows[0].get(name) for name in self.names])
        return self._encode_named(as_columns(rows), len(rows))

    def encode_columns(self, columns: Mapping[str, Sequence[Any]]) -> Encoded:
        """Like `encode`, for columns of equal length; missing ones are null."""
        counts = {len(column) for column in columns.values()}
        if len(counts) > 1:
            raise _refused(f"columns have {' and '.join(map(str, sorted(counts)))} values")
        return self._encode_named(columns, max(counts, default=0))

    def _encode_named(self, columns: Mapping[str, Sequence[Any]], count: int) -> Encoded:
        self._check_names(columns.keys())
        none = [None] * count
        return self._encode([columns.get(name, none) for name in self.names], count)

    def _check_names(self, given: Set[str]) -> None:
        unknown = given - set(self.names)
        if unknown:
            raise self._unknown(min(unknown, key=str))

    def _unknown(self, name: str) -> LocalProtocolError:
        return _refused(f"there is no column {name!r}; there are {', '.join(self.names)}")

    def _encode(self, given: Sequence[Sequence[Any]], count: int) -> Encoded:
        types = [_types(values) for values in given]
        prefixes = self._prefixes(given, types, count)
        stored = list(map(self._store, self.columns, given, types))
        loose = [stored[at] for at in self.loose]
        heads = self._pack(stored, prefixes, _ends(loose), count)
        return list(map(b"".join, zip(heads, *loose, strict=True))), self._keys(stored, given)

    def _encode_one(self, given: Sequence[Any]) -> Encoded:
        """Encodes the values of a single row.

        Types that were valid once are not checked again; anything unusual is left to `_encode`,
        which reports errors.
        """
        types = tuple(map(type, given))
        if types not in self._combinations:
            found = self._encode([[value] for value in given], 1)
            if len(self._combinations) < _COMBINATIONS_MAX:
                self._combinations.add(types)
            return found
        prefix, stored = self.prefix, list(given)
        if _NONE in types:
            lacking = [at for at, value in enumerate(given) if value is None]
            prefix = self.prefix_of(sum(1 << at for at in lacking))
            for at in lacking:
                stored[at] = self.kinds[at].zero
        try:
            for at in self._converted:
                (stored[at],) = self.kinds[at].store((stored[at],))
            loose = [stored[at] for at in self.loose]
            fixed = [stored[at] for at in self.fixed]
            head = self.head.pack(prefix, *fixed, *accumulate(map(len, loose)))
        except (ValueError, TypeError, OverflowError, struct.error):
            return self._encode([[value] for value in given], 1)
        keys = self._keys([(one,) for one in stored], [(one,) for one in given])
        return [b"".join((head, *loose))], keys

    def _prefixes(
        self, given: Sequence[Sequence[Any]], types: Sequence[set[type]], count: int
    ) -> Iterable[bytes]:
        """Returns the prefix of each row, and refuses rows without required values."""
        lacking = [at for at, found in enumerate(types) if _NONE in found]
        if not lacking:
            return repeat(self.prefix, count)
        for at in lacking:
            if self.columns[at].required:
                place = [value is None for value in given[at]].index(True)
                raise _refused(f"column {self.columns[at].name} is required", place, count)
        nulls = [0] * count
        for at in lacking:
            bit = 1 << at
            nulls = [
                have if value is not None else have | bit
                for have, value in zip(nulls, given[at], strict=True)
            ]
        known = {have: self.prefix_of(have) for have in set(nulls)}
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
        fixed = [stored[at] for at in self.fixed]
        try:
            return list(map(self.head.pack, prefixes, *fixed, *ends))
        except (struct.error, OverflowError) as error:
            for at in self.fixed:
                for place, value in enumerate(stored[at]):
                    try:
                        struct.pack("<" + self.kinds[at].code, value)
                    except (struct.error, OverflowError):
                        raise _refused(_not(self.columns[at], value), place, count) from error
            raise _refused("a row has at most 4 GiB") from error

    def _explained(self, column: Column, values: Sequence[Any]) -> LocalProtocolError:
        """Returns the error of the first invalid value."""
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
        parts = [_texts(self.columns[at], stored[at], given[at]) for at in self._key]
        if len(parts) == 1:
            return parts[0]
        return list(map(_SEPARATOR.join, zip(*map(_escaped, parts), strict=True)))

    # -- taking apart -----------------------------------------------------------------------------

    def decode(self, rows: Sequence[bytes]) -> list[dict[str, Any]]:
        """Returns the rows as dicts of all columns.

        Rows were checked when they were written, so most checks are not repeated.

        Raises:
            RemoteProtocolError: if they are no rows of this schema.
        """
        found = self.decode_own(rows)
        if found is None:
            raise self._no_rows(Strings.of(rows), "a row of another schema")
        return found

    def decode_own(self, rows: Sequence[bytes]) -> list[dict[str, Any]] | None:
        """Returns the same, None if there are rows of another schema; raises the same."""
        size = len(self.prefix)
        begun = {row[:size] for row in rows}
        if any(not prefix.startswith(self.prefix[: NUMBER.size]) for prefix in begun):
            return None
        try:
            found = self._decode(rows, self.head.unpack_from)
            for at in self._converted:
                if self.kinds[at].is_fixed:  # texts are decoded already
                    name = self.names[at]
                    loaded = self.kinds[at].load([row[name] for row in found])
                    for row, value in zip(found, loaded, strict=True):
                        row[name] = value
        except (struct.error, ValueError, OverflowError) as error:
            raise self._no_rows(Strings.of(rows), str(error)) from error
        for at, lacking in self._lacking(begun).items():
            name = self.names[at]
            for row, data in zip(found, rows, strict=True):
                if data[:size] in lacking:
                    row[name] = None
        return found

    def _lacking(self, prefixes: Set[bytes]) -> dict[int, set[bytes]]:
        """Returns the columns that some rows lack, and how those rows begin."""
        found: dict[int, set[bytes]] = {}
        for prefix in prefixes - {self.prefix}:
            nulls = int.from_bytes(prefix[NUMBER.size :], "little")
            for at in range(len(self.columns)):
                if nulls & 1 << at:
                    found.setdefault(at, set()).add(prefix)
        return found

    def place_of(self, name: str) -> int:
        """Returns the place of a column in the schema.

        Raises:
            LocalProtocolError: if there is none of that name.
        """
        if name not in self.names:
            raise self._unknown(name)
        return self.names.index(name)

    def heads(self, column: Strings) -> Heads:
        """Returns rows that are to be read a column at a time.

        Raises:
            RemoteProtocolError: if they are no rows of this schema.
        """
        found = Heads(self, column)
        if not found.are_whole or not found.are_of_schema:
            raise self._no_rows(column, "rows of another schema")
        return found

    def decode_column(self, heads: Heads, at: int) -> Sequence[Any]:
        """Returns the values of the column at a place of the schema; raises the same."""
        kind = self.kinds[at]
        try:
            loaded = kind.load(heads.stored(at) if kind.is_fixed else heads.parts(at))
        except (ValueError, OverflowError) as error:
            raise RemoteProtocolError(
                Code.BAD_VALUE, f"column {self.names[at]} of a row: {error}"
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
    """Returns the schema number of a row, 0 if it is not a row."""
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
    """Returns the types of some values, fast if they are all equal."""
    found = list(map(type, values))
    return {found[0]} if found and found.count(found[0]) == len(found) else set(found)


def as_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Returns rows as columns, with None for missing values.

    If all dicts have as many keys as the first one, and all of its keys, they have no others: then
    the names need not be checked.
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


# -- a generated decoder for a schema -------------------------------------------------------------

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
