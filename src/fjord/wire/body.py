"""The body of a message above 16: a head, fields, and columns of n entries as the journal has them.

    body = name length u16, 2 zero bytes, rows u32, argument u64, name, padding, field*, column*

Numbers in the head and in fields are big-endian as everywhere on the wire; columns are data, and
data is little-endian (decision 9).  A body's length is known before it is read, so a bad body costs
its sender a refusal and not the connection.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from fjord import columns, limits
from fjord.columns import Strings
from fjord.commands import Command, Refusal
from fjord.wire.functions import Flag, Function

HEAD = struct.Struct(">HHIQ")
U64 = struct.Struct(">Q")
COUNT = struct.Struct(">I4x")

Encoded = tuple[Function, int, int, bytes]  # function, flags, timestamp, body


class Body:
    """A body whose head is read, and how far its columns are.

    Raises:
        ValueError, struct.error: wherever it is not one.
    """

    __slots__ = ("argument", "flags", "position", "rows", "table", "timestamp_us", "view")

    def __init__(self, body: bytes | memoryview, flags: int, timestamp_us: int) -> None:
        length, reserved, self.rows, self.argument = HEAD.unpack_from(body)
        end = HEAD.size + length
        if end > len(body):
            raise ValueError("the name of the table is cut short")
        if reserved:
            raise ValueError("bytes 2 and 3 of a body are 0")
        if self.rows > limits.BATCH_ROWS_MAX:
            raise ValueError(f"a batch has at most {limits.BATCH_ROWS_MAX} rows")
        self.table = str(body[HEAD.size : end], "ascii", "replace")
        self.view = memoryview(body)
        self.position = columns.aligned(end)
        self.flags = flags
        self.timestamp_us = timestamp_us

    def field(self, field: struct.Struct) -> tuple[Any, ...]:
        found = field.unpack_from(self.view, self.position)
        self.position += field.size
        return found

    def strings(self) -> Strings:
        column, self.position = columns.decode_strings(self.view, self.position, self.rows)
        return column

    def numbers(self, kind: columns.NumberKind) -> Sequence[int]:
        column, self.position = columns.decode_numbers(self.view, self.position, self.rows, kind)
        return column

    def dates(self) -> Sequence[int] | None:
        """Reads when each entry was written; None if the message says when all of them were."""
        return self.numbers("Q") if self.flags & Flag.TIMEOUT else None

    def further_strings(self) -> Strings:
        """Reads a column that has a count of its own."""
        (count,) = self.field(COUNT)
        if count > limits.BATCH_ROWS_MAX:
            raise ValueError(f"a batch has at most {limits.BATCH_ROWS_MAX} rows")
        column, self.position = columns.decode_strings(self.view, self.position, count)
        return column

    def has_rows(self, rows: int) -> None:
        if self.rows != rows:
            raise ValueError(f"rows must be {rows} here")

    def has_no_table(self) -> None:
        if self.table:
            raise ValueError("no name of a table belongs here")

    def end_plain(self) -> None:
        """Checks that there is neither an argument nor anything behind the columns."""
        if self.argument:
            raise ValueError("the argument must be 0 here")
        if self.position != len(self.view):
            raise ValueError("the body is longer than its columns")

    def end(self) -> None:
        if self.position != len(self.view):
            raise ValueError("the body is longer than its columns")


def encode_dates(stamps_us: Sequence[int]) -> tuple[int, int, bytes]:
    """Returns when entries were written: the flag, the timestamp of the message, and a column.

    A message has one timestamp, and that is enough for nearly all; only who passes on what others
    have written has more.
    """
    if not stamps_us:
        return 0, 0, b""
    first = stamps_us[0]
    if len(stamps_us) == 1 or _count(stamps_us, first) == len(stamps_us):
        return 0, first, b""
    return Flag.TIMEOUT, 0, bytes(columns.encode_u64(stamps_us))


def _count(numbers: Sequence[int], number: int) -> int:
    """Returns how many of some numbers are this one, without a step of Python for each."""
    if isinstance(numbers, memoryview):
        numbers = array("Q", numbers)
    return numbers.count(number)


def encode_head(table: str, rows: int, argument: int = 0) -> bytes:
    name = table.encode()
    head = HEAD.pack(len(name), 0, rows, argument) + name
    return head + columns.padding(len(head))


Encoders = dict[type[Command], Callable[[Any], Encoded]]
Decoders = dict[Function, Callable[[Body], Command | Refusal]]
