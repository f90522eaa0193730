"""Where things stand in a row, and many rows looked at as columns.

    row = head, bytes          head = schema u16, nulls, the columns that have a size, ends u32 each

The heads of all rows of a schema have one size.  Put one behind the other, a column is every n-th
byte of them, a few times: slices with a step take it out, and no Python runs for a row.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from itertools import chain, repeat
from operator import add
from typing import Any, Final

from fjord.columns import Strings
from fjord.declared.schema import Schema

NUMBER: Final = struct.Struct("<H")
_END_BYTES: Final = 4
_ASCII: Final = bytes(range(128))
# Bytes of shorter rows are counted, since that is faster than to cut the rows.
_SHORT_BYTES: Final = 256


class Layout:
    """Where the columns of a schema stand."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.names = schema.names
        self.kinds = [column.kind for column in schema.columns]
        # Which columns have a size, and which are behind them.
        self.fixed = [at for at, kind in enumerate(self.kinds) if kind.is_fixed]
        self.loose = [at for at, kind in enumerate(self.kinds) if not kind.is_fixed]
        self.null_bytes = -(-len(schema.columns) // 8)
        self.prefix = self.prefix_of(0)  # of a row that has all
        fixed = f"<{len(self.prefix)}s"
        self.places: dict[int, int] = {}  # where columns with a size begin
        for at in self.fixed:
            self.places[at] = struct.calcsize(fixed)
            fixed += self.kinds[at].code
        self.ends_place = struct.calcsize(fixed)
        self.head = struct.Struct(fixed + "I" * len(self.loose))
        self.ends = struct.Struct(f"<{self.ends_place}x{'I' * len(self.loose)}")
        self.size = self.head.size

    def prefix_of(self, nulls: int) -> bytes:
        """Returns how a row begins that lacks some columns."""
        return NUMBER.pack(self.schema.number) + nulls.to_bytes(self.null_bytes, "little")


class Heads:
    """The heads of many rows.

    Where a row is too short, its head reaches into the next one: `row_check` finds that out, and
    who reads rows that were checked need not.
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
        """Says whether all rows begin with the number of the schema."""
        number, size = self.layout.prefix[: NUMBER.size], self.layout.size
        return all(self.heads[at::size].count(byte) == self.count for at, byte in enumerate(number))

    def nulls(self) -> set[int]:
        """Returns which combinations of columns have no value in some rows."""
        planes = [self.null_plane(8 * at) for at in range(self.layout.null_bytes)]
        if all(plane.count(0) == self.count for plane in planes):
            return {0}
        return {int.from_bytes(found, "little") for found in set(zip(*planes, strict=True))}

    def null_plane(self, at: int) -> bytes:
        """Returns the byte of each row that has the bit of a column."""
        return self.heads[NUMBER.size + at // 8 :: self.layout.size]

    def stored(self, at: int) -> Sequence[Any]:
        """Returns what is packed of a column with a size."""
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
        """Returns what the rows have of a column without a size."""
        place, data = self.layout.loose.index(at), self.data
        first = list(map(add, self._starts, repeat(self.layout.size)))
        starts = list(map(add, first, self._ends(place - 1))) if place else first
        stops = map(add, first, self._ends(place))
        return [data[start:stop] for start, stop in zip(starts, stops, strict=True)]

    def _ends(self, place: int) -> Sequence[int]:
        return memoryview(self.end_bytes(place)).cast("I").tolist()

    def _gathered(self, place: int, width: int) -> bytearray:
        """Returns `width` bytes of each head, those of one row behind those of the one before."""
        found, size = bytearray(width * self.count), self.layout.size
        for at in range(width):
            found[at::width] = self.heads[place + at :: size]
        return found

    def are_followed_by_ascii(self) -> bool:
        """Says whether there is nothing but ASCII behind the heads."""
        if self.data.isascii():
            return True
        if len(self.data) <= _SHORT_BYTES * self.count:
            # As many other bytes are in all as in the heads alone.
            others = self.data.translate(None, _ASCII)
            return len(others) == len(self.heads.translate(None, _ASCII))
        size, data = self.layout.size, self.data
        stops = array("I", self.offsets[_END_BYTES:])
        pairs = zip(self._starts, stops, strict=True)
        return b"".join([data[start + size : stop] for start, stop in pairs]).isascii()
