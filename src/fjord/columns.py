"""Columns: n entries on the wire and on disk, without an object for each.

A column of byte strings is n+1 little-endian u32 offsets and one run of bytes.  Columns of
numbers are arrays.  Every column starts at a multiple of 8, so a stored batch can be wrapped by
`memoryview.cast` here, and by Arrow elsewhere, without copying.
"""

from __future__ import annotations

import functools
import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, Final, Literal

if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("Fjord's columns are little-endian; this machine is big-endian")

Buffer = bytes | memoryview
# Columns of numbers are named by their `array` type codes: u8 and u64.
NumberKind = Literal["B", "Q"]
_NUMBER_BYTES: Final[dict[NumberKind, int]] = {"B": 1, "Q": 8}
ONE_ROW = struct.Struct("<II").pack  # the offsets of one string: 0, and its length
_TWO_OFFSETS = struct.Struct("<II").unpack_from
_ONE_NUMBER: Final[dict[NumberKind, Callable[[memoryview, int], tuple[int, ...]]]] = {
    "B": struct.Struct("<B").unpack_from,
    "Q": struct.Struct("<Q").unpack_from,
}
_ONE_U64 = struct.Struct("<Q").pack
# Up to this many offsets are checked one by one; more are checked as lanes of large integers,
# which takes a third of the time or less.
_FEW: Final = 64
_LANES: Final = 2048
_HIGH_BITS: Final = int.from_bytes(b"\0\0\0\x80" * _LANES, "little")
_ALL_BITS: Final = (1 << 32 * _LANES) - 1
# Batches of messages of equal length are common: their offsets are cached.
_EVEN_ROWS_MIN: Final = 1000
_EVEN_ROWS_MAX: Final = 16 * 1024
_EVEN_LENGTH_MAX: Final = 64 * 1024
_EVEN_KEPT: Final = 16
# By the lowest three bits of a size: the zero bytes that bring it to a multiple of 8.
PADDING: Final = (b"", b"\0" * 7, b"\0" * 6, b"\0" * 5, b"\0" * 4, b"\0" * 3, b"\0" * 2, b"\0")


def aligned(size: int) -> int:
    return (size + 7) & ~7


def repeat(number: int, count: int) -> Sequence[int]:
    """Returns a column of u64 that repeats one number."""
    return (number,) if count == 1 else array("Q", (number,)) * count


class Strings:
    """An immutable column of byte strings."""

    __slots__ = ("_encoded", "_rows", "data", "offsets")

    def __init__(self, offsets: Sequence[int], data: Buffer, encoded: Buffer | None = None) -> None:
        self.offsets = offsets  # n+1 ascending numbers, the first 0, the last len(data)
        self.data = data
        self._encoded = encoded  # a column that came as bytes is passed on as it came
        self._rows: list[bytes] | None = None  # once they were asked for

    @classmethod
    def of(cls, rows: Sequence[bytes]) -> Strings:
        if len(rows) == 1:
            return cls((0, len(rows[0])), rows[0])
        column = cls(_offsets(rows), b"".join(rows))
        column._rows = rows if isinstance(rows, list) else None
        return column

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> bytes:
        return bytes(self.data[self.offsets[row] : self.offsets[row + 1]])

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.rows())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Strings) and self.rows() == other.rows()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Strings({self.rows()!r})"

    def rows(self) -> list[bytes]:
        """Returns the entries as separate bytes objects, in a list that must not be changed."""
        if self._rows is not None:
            return self._rows
        data = self.data if isinstance(self.data, bytes) else bytes(self.data)
        if len(self.offsets) == 2:
            return [data]
        self._rows = [data[start:end] for start, end in pairwise(self.offsets)]
        return self._rows

    def lengths(self) -> list[int]:
        if len(self.offsets) == 2:
            return [len(self.data)]
        if self._rows is not None:
            return list(map(len, self._rows))
        return [end - start for start, end in pairwise(self.offsets)]

    def views(self) -> list[memoryview]:
        """Returns the entries without copying them."""
        if self._rows is not None:
            return [memoryview(row) for row in self._rows]
        view = memoryview(self.data)
        return [view[start:end] for start, end in pairwise(self.offsets)]

    def encode(self) -> Buffer:
        """Returns offsets and bytes, each padded to a multiple of 8."""
        return self._encoded if self._encoded is not None else b"".join(self.parts())

    def parts(self) -> tuple[Buffer, ...]:
        """Like `encode`, in pieces, so that the caller copies only once."""
        if self._encoded is not None:
            return (self._encoded,)
        offsets, data = self.offsets, self.data
        if len(offsets) == 2:
            return ONE_ROW(0, len(data)), data, PADDING[len(data) & 7]
        head = offsets.tobytes() if isinstance(offsets, array | memoryview) else _u32(offsets)
        return head, PADDING[len(head) & 7], data, PADDING[len(data) & 7]


class Loose(Strings):
    """A column whose rows are joined only on demand.

    Large rows that are only passed on in `parts` are never copied.
    """

    __slots__ = ()

    def __init__(self, rows: list[bytes]) -> None:
        self.offsets = array("I", accumulate(map(len, rows), initial=0))
        self._encoded = None
        self._rows = rows

    @property
    def data(self) -> Buffer:  # type: ignore[override]
        assert self._rows is not None
        return b"".join(self._rows)

    def __getitem__(self, row: int) -> bytes:
        assert self._rows is not None
        return self._rows[row]

    def encode(self) -> Buffer:
        return b"".join(self.parts())

    def parts(self) -> tuple[Buffer, ...]:
        assert self._rows is not None
        head = _u32(self.offsets)
        return head, PADDING[len(head) & 7], *self._rows, PADDING[self.offsets[-1] & 7]


def joined(columns: Sequence[Any]) -> Any:
    """Concatenates columns."""
    first = columns[0]
    if isinstance(first, Strings):
        return Strings.of([row for column in columns for row in column.rows()])
    if isinstance(first, bytes):
        return b"".join(columns)
    return array("Q", chain.from_iterable(columns))


def _u32(numbers: Sequence[int]) -> bytes:
    return array("I", numbers).tobytes()


def _offsets(rows: Sequence[bytes]) -> Sequence[int]:
    """Returns the offsets of concatenated strings, including the end."""
    count = len(rows)
    if _EVEN_ROWS_MIN <= count <= _EVEN_ROWS_MAX:
        length = len(rows[0])
        if length == len(rows[count // 2]) == len(rows[-1]) <= _EVEN_LENGTH_MAX:
            lengths = list(map(len, rows))
            if lengths.count(length) == count:
                return memoryview(_even(length))[: 4 * (count + 1)].cast("I")
    return array("I", accumulate(map(len, rows), initial=0))


@functools.lru_cache(maxsize=_EVEN_KEPT)
def _even(length: int) -> bytes:
    """Returns the offsets of many strings of equal length."""
    return _u32([row * length for row in range(_EVEN_ROWS_MAX + 1)])


def encode_u8(column: Sequence[int]) -> bytes:
    """Returns a column of u8, padded to a multiple of 8."""
    data = bytes(column)
    return data + PADDING[len(data) & 7]


def encode_u64(column: Sequence[int]) -> bytes:
    """Returns a column of u64."""
    if len(column) == 1:
        return _ONE_U64(column[0])
    if isinstance(column, array | memoryview):
        return column.tobytes()
    return array("Q", column).tobytes()


def decode_strings(view: memoryview, start: int, count: int) -> tuple[Strings, int]:
    """Reads a column of `count` strings at `start`; returns it and the position after it.

    Raises:
        ValueError: if the offsets do not ascend from 0 or point outside of `view`.
    """
    data_start = start + (4 * (count + 1) + 7 & ~7)
    if data_start > len(view):
        raise ValueError("a column of offsets is cut short")
    offsets: Sequence[int]
    if count == 1:
        offsets = _TWO_OFFSETS(view, start)
    else:
        offsets = view[start : start + 4 * (count + 1)].cast("I")
    size = offsets[count]
    if data_start + size > len(view):
        raise ValueError("a column of bytes is cut short")
    if offsets[0] != 0 or (isinstance(offsets, memoryview) and not _ascend(offsets, count, size)):
        raise ValueError("the offsets of a column do not ascend from 0")
    end = data_start + (size + 7 & ~7)
    encoded = view[start:end] if end <= len(view) else None
    return Strings(offsets, view[data_start : data_start + size], encoded), end


def _ascend(offsets: memoryview, count: int, size: int) -> bool:
    """Says whether `count` + 1 offsets, of which the first is 0 and the last `size`, ascend."""
    if count <= _FEW:
        found = offsets.tolist()
        return sorted(found) == found  # sorting what is sorted is the fastest way to see it
    if not size:
        return offsets.tobytes() == bytes(4 * (count + 1))
    return _are_even(offsets, count, size) or _lanes_ascend(offsets.cast("B"), count)


def _are_even(offsets: memoryview, count: int, size: int) -> bool:
    """Says whether these are the offsets of strings of one length; of few or long ones it is not
    worth to be known."""
    length = offsets[1]
    return (
        _EVEN_ROWS_MIN <= count <= _EVEN_ROWS_MAX
        and length <= _EVEN_LENGTH_MAX
        and length * count == size
        and length * (count // 2) == offsets[count // 2]
        and offsets.tobytes() == _even(length)[: 4 * (count + 1)]
    )


def _lanes_ascend(data: memoryview, count: int) -> bool:
    """Says whether offsets ascend, by a few operations on all of them instead of one on each.

    They are the lanes of 32 bits of a large integer.  Each lane is subtracted from the next one,
    whose highest bit is set before: it stays if, and only if, the next one is not smaller.  For
    that the highest bits must not be in use, and they are not: no column has 2 GiB.
    """
    lanes, high, low = _LANES, _HIGH_BITS, _ALL_BITS
    for first in range(0, count, _LANES):
        if first + lanes > count:
            lanes = count - first
            high, low = high >> 32 * (_LANES - lanes), low >> 32 * (_LANES - lanes)
        found = int.from_bytes(data[4 * first : 4 * (first + lanes + 1)], "little")
        these, following = found & low, found >> 32
        if ((following | high) - these) & (these ^ high) & high != high:
            return False
    return True


def decode_numbers(
    view: memoryview, start: int, count: int, kind: NumberKind
) -> tuple[Sequence[int], int]:
    """Reads a column of `count` numbers at `start`."""
    size = count * _NUMBER_BYTES[kind]
    if start + size > len(view):
        raise ValueError("a column of numbers is cut short")
    if count == 1:
        return _ONE_NUMBER[kind](view, start), start + (size + 7 & ~7)
    return view[start : start + size].cast(kind), start + (size + 7 & ~7)


def decode_columns(view: memoryview, start: int, count: int, kinds: str) -> list[Any]:
    """Reads neighbouring columns of `count` numbers, u8 as bytes; returns them and the end."""
    found: list[Any] = []
    for kind in kinds:
        end = start + (count if kind == "B" else 8 * count)
        if end > len(view):
            raise ValueError("a column of numbers is cut short")
        found.append(bytes(view[start:end]) if kind == "B" else view[start:end].cast("Q"))
        start = end + 7 & ~7
    found.append(start)
    return found
