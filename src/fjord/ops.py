"""Ops: the one vocabulary of durable change.

Everything durable is one ordered stream of ops, and state is `fold(apply, ops)`.  An op of n rows
takes n consecutive seqs and stores n rows of columns, or a number once for all of them.  It is
*resolved*: everything was looked up when it was decided, so applying it only writes.

    op      = opcode u8, flags u8 (0), reserved u16 (0), table u32, rows u32, length u32, column*
    column  = numbers | strings | number            each padded to a multiple of 8
    length  = of the whole op, header and padding included

The ops and their columns are in `opcodes`.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from fjord import columns
from fjord.columns import Strings
from fjord.opcodes import ONCE, STRINGS, U8, U64, ColumnKind, Opcode

HEADER = struct.Struct("<BBHIII")

# Beside the types of values, 0 to 5, an entry of a key/value table may have one of these.
TOMBSTONE: Final = 0xFF
ALIAS: Final = 0xFE
# What a row counts toward the live bytes of the journal beside its key and its payload: its share
# of headers and columns.
ROW_BYTES: Final = 96


def _one_row(opcode: Opcode) -> tuple[int, Callable[..., bytes]]:
    """Returns the number of leading number columns of an op, and a function that packs a row."""
    kinds = [kind for _, kind in opcode.columns if kind != STRINGS]
    codes = ["B7x" if kind == U8 else "Q" for kind in kinds]
    return len(kinds), struct.Struct("<" + "".join(codes)).pack


_ONE_ROW: Final = {opcode: _one_row(opcode) for opcode in Opcode}

Numbers = Sequence[int]
Column = Numbers | Strings


class Op(NamedTuple):
    """One durable change of `rows` rows."""

    opcode: Opcode
    table: int
    rows: int
    # In the order of `opcode.columns`, which tells numbers from strings.
    columns: tuple[Any, ...]

    def column(self, name: str) -> Any:
        return self.columns[self.opcode.position[name]]


class Place(NamedTuple):
    """The position of an op, with what apply needs beside the op itself."""

    seq: int  # of the op's first row
    segment: int
    payload: int  # offset in the segment of the last column's bytes
    wall_us: int = 0  # of the commit
    data: columns.Buffer = b""  # the whole op as stored


_COLUMN_OF: Final[dict[ColumnKind, Callable[[tuple[Any, ...]], Any]]] = {
    U8: bytes,
    U64: tuple,
    STRINGS: lambda rows: Strings.of(list(rows)),
}


def of_rows(opcode: Opcode, table: int, rows: Iterable[tuple[Any, ...]]) -> list[Op]:
    """Returns the op of some rows, each with a value for every column; none for no rows."""
    found = list(zip(*rows, strict=True))
    if not found:
        return []
    kinds = [kind for _, kind in opcode.columns]
    columns_ = tuple(_COLUMN_OF[kind](row) for kind, row in zip(kinds, found, strict=True))
    return [Op(opcode, table, len(found[0]), columns_)]


def part(op: Op, start: int, end: int) -> Op:
    """Returns an op with a range of the rows of another one."""
    columns_ = tuple(
        column if kind == ONCE else _column_part(column, start, end)
        for column, (_, kind) in zip(op.columns, op.opcode.columns, strict=True)
    )
    return op._replace(rows=end - start, columns=columns_)


def _column_part(column: Column, start: int, end: int) -> Column:
    if not isinstance(column, Strings):
        return column[start:end]
    base = column.offsets[start]
    offsets = [offset - base for offset in column.offsets[start : end + 1]]
    return Strings(offsets, column.data[base : column.offsets[end]])


def only(op: Op, rows: Sequence[int]) -> Op:
    """Returns an op with selected rows of another one."""
    columns_ = tuple(
        Strings.of([column[at] for at in rows])
        if isinstance(column, Strings)
        else [column[at] for at in rows]
        for column in op.columns
    )
    return op._replace(rows=len(rows), columns=columns_)


_first: Final = operator.itemgetter(0)


def encode(op: Op) -> tuple[bytes, int]:
    """Returns the op's bytes and the offset of its payload."""
    opcode, table, rows, found = op
    if len(found) != len(opcode.columns):
        raise ValueError(f"{opcode.name} has {len(opcode.columns)} columns, not {len(found)}")
    parts: list[columns.Buffer] = [b""]
    size = 0  # of the payload
    if rows == 1:
        count, pack = _ONE_ROW[opcode]
        parts.append(pack(*map(_first, found[:count])))
        for column in found[count:]:
            data = column.data
            size = len(data)
            parts += (columns.ONE_ROW(0, size), data, columns.PADDING[size & 7])
    else:
        for (_, kind), column in zip(opcode.columns, found, strict=True):
            if kind == STRINGS:
                parts += column.parts()
                size = column.offsets[-1]
            else:
                encode_ = columns.encode_u8 if kind == U8 else columns.encode_u64
                parts.append(encode_(column))
    length = HEADER.size + sum(map(len, parts))
    parts[0] = HEADER.pack(opcode, 0, 0, table, rows, length)
    return b"".join(parts), length - (size + 7 & ~7)


def decode(view: memoryview, start: int) -> tuple[Op, int, int]:
    """Decodes the op at `start`: returns it, the offset of its payload, and its end.

    Assumes that the checksum of the bytes was verified.

    Raises:
        ValueError: if they are not a valid op.
    """
    if start + HEADER.size > len(view):
        raise ValueError("an op is cut short")
    number, flags, reserved, table, rows, length = HEADER.unpack_from(view, start)
    end = start + length
    if flags or reserved or length < HEADER.size or end > len(view) or not rows:
        raise ValueError("the header of an op is wrong")
    opcode = Opcode(number)
    position = start + HEADER.size
    found: list[Column] = []
    inside = view[:end]
    column: Column
    size = 0  # of the payload
    for _, kind in opcode.columns:
        if kind == STRINGS:
            column, position = columns.decode_strings(inside, position, rows)
            size = column.offsets[-1]
        elif kind == ONCE:
            column, position = columns.decode_numbers(inside, position, 1, U64)
        else:
            column, position = columns.decode_numbers(inside, position, rows, kind)
        found.append(column)
    if position != end:
        raise ValueError("an op is longer than its columns")
    return Op(opcode, table, rows, tuple(found)), end - (size + 7 & ~7), end
