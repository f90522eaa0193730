"""Naming every byte of a segment: header, frames, ops, columns.

The fields of an explanation follow each other without gaps.  A column of few rows is shown row by
row; a long one is summarized around the row at the requested byte.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from fjord import columns, ops
from fjord import disk as disks
from fjord.columns import Strings
from fjord.journal import frame as frames
from fjord.journal import search, survey
from fjord.journal.reader import Located
from fjord.journal.survey import Damage, Part

# Columns of up to this many rows are shown row by row.
_ROWS_SHOWN: Final = 16
_BYTES_SHOWN: Final = 32
_SIZES: Final[dict[ops.ColumnKind, int]] = {ops.U8: 1, ops.U64: 8, ops.ONCE: 8}


@dataclass(frozen=True, slots=True)
class Field:
    """Some bytes of a segment, and their meaning."""

    offset: int
    size: int
    name: str
    value: str

    @property
    def end(self) -> int:
        return self.offset + self.size


# Adjacent rows: their name, their offsets and the end of the last one, the rows.
_Run = tuple[str, Sequence[int], ops.Column]
# Name, size, formatting.  The order is that of docs/journal-format.md.
_Layout = tuple[tuple[str, int, Callable[[bytes], str]], ...]


def _number(data: bytes) -> str:
    return str(int.from_bytes(data, "little"))


def _crc(data: bytes) -> str:
    return f"{int.from_bytes(data, 'little'):08x}"


def _opcode(data: bytes) -> str:
    return f"{data[0]} {ops.Opcode(data[0]).name}"


_SEGMENT: Final[_Layout] = (
    ("magic", 8, bytes.decode),
    ("version", 4, _number),
    ("header crc", 4, _crc),
    ("segment", 8, _number),
    ("first seq", 8, _number),
    ("shard", 16, bytes.hex),
    ("created", 8, _number),
    ("lease", 8, _number),
)
_FRAME: Final[_Layout] = (
    ("frame length", 4, _number),
    ("frame header crc", 4, _crc),
    ("frame first seq", 8, _number),
    ("frame rows", 4, _number),
    ("frame ops", 4, _number),
    ("frame wall time", 8, _number),
    ("frame lease time", 8, _number),
    ("frame durable seq", 8, _number),
    ("frame body crc", 4, _crc),
    ("frame reserved", 12, bytes.hex),
)
_OP: Final[_Layout] = (
    ("opcode", 1, _opcode),
    ("flags", 1, _number),
    ("reserved", 2, _number),
    ("table", 4, _number),
    ("rows", 4, _number),
    ("length", 4, _number),
)


def explain(disk: disks.Disk, directory: str, segment: int, at: int | None = None) -> list[Field]:
    """Returns the fields around byte `at` of a segment: its header, or one frame.

    Without `at`: the header and the first frame.  If there is no frame, one field says so.

    Raises:
        LookupError: if there is no such segment, or no such byte in it.
        CorruptionError: if far too many segments are missing for this to be one journal.
    """
    parts = {part.segment: part for part in survey.make_out(disk, directory)}
    part = parts.get(segment)
    if part is None or not part.is_readable:
        raise LookupError(f"segment {segment} does not exist, or cannot be read")
    if at is not None and at >= part.size:
        raise LookupError(f"segment {segment} has {part.size} bytes; there is no byte {at}")
    if at is None:
        return [*_header(disk, part), *_explain_at(disk, part, frames.SEGMENT_HEADER_BYTES)]
    if at < frames.SEGMENT_HEADER_BYTES:
        return _header(disk, part)
    return _explain_at(disk, part, at)


def _header(disk: disks.Disk, part: Part) -> list[Field]:
    with contextlib.closing(disk.open(part.path)) as file:
        data = file.read(0, frames.SEGMENT_HEADER_BYTES)
    if part.damage is not None:
        reason = f"no header: {part.damage.reason}"
        return [Field(0, len(data), reason, _hex(data))]
    return list(_fields(_SEGMENT, data, 0))


def _explain_at(disk: disks.Disk, part: Part, at: int) -> list[Field]:
    """Explains the frame that contains a byte, or what is there instead."""
    part = dataclasses.replace(part, strays=search.Strays(disk, {}, {}))  # of this file alone
    start = frames.SEGMENT_HEADER_BYTES
    end = max(part.size, start)
    for step in survey.walk(disk, part):
        if isinstance(step, Damage):
            continue
        if step.offset <= at < step.end:
            return list(_frame(step, part.header.salt, at))
        if at < step.offset:
            end = min(end, step.offset)
        else:
            start = max(start, step.end)
    with contextlib.closing(disk.open(part.path)) as file:
        data = file.read(start, min(end - start, _BYTES_SHOWN))
    name = "no frame" if data.strip(b"\0") else "no frame, zeros so far"
    return [Field(start, end - start, name, _hex(data))]


def _frame(located: Located, salt: bytes, at: int) -> Iterator[Field]:
    yield from _fields(_FRAME, located.frame.encode(salt), located.offset)
    base = located.offset + frames.FRAME_HEADER_BYTES
    view, position = memoryview(located.body), 0
    for _ in range(located.frame.op_count):
        try:
            op, _, end = ops.decode(view, position)
        except ValueError as error:
            data = located.body[position:]
            yield Field(base + position, len(data), f"no op: {error}", _hex(data))
            return
        columns_at = position + ops.HEADER.size
        yield from _fields(_OP, located.body[position:columns_at], base + position)
        yield from _columns(op, base + columns_at, at)
        position = end


def _columns(op: ops.Op, offset: int, at: int) -> Iterator[Field]:
    for (name, kind), column in zip(op.opcode.columns, op.columns, strict=True):
        if isinstance(column, Strings):
            data = columns.aligned(offset + 4 * len(column.offsets))
            runs: list[_Run] = [
                (f"{name} offset", _bounds(column.offsets, 4, offset), column.offsets),
                (name, [data + one for one in column.offsets], column),
            ]
        else:
            runs = [(name, _bounds(column, _SIZES[kind], offset), column)]
        for run in runs:
            yield from _rows(*run, at)
            end = run[1][-1]
            offset = columns.aligned(end)
            if offset > end:
                yield Field(end, offset - end, "padding", _hex(bytes(offset - end)))


def _bounds(column: ops.Numbers, size: int, offset: int) -> range:
    return range(offset, offset + size * (len(column) + 1), size)


def _rows(name: str, bounds: Sequence[int], column: ops.Column, at: int) -> Iterator[Field]:
    """Yields a field for each row, or for the row at a byte and its neighbours."""
    count = len(bounds) - 1
    wanted = bisect.bisect_right(bounds, at) - 1
    if count <= _ROWS_SHOWN:
        parts = [(row, row + 1) for row in range(count)]
    elif 0 <= wanted < count:
        parts = [(0, wanted), (wanted, wanted + 1), (wanted + 1, count)]
    else:
        parts = [(0, count)]
    for first, end in parts:
        start, size = bounds[first], bounds[end] - bounds[first]
        if count <= _ROWS_SHOWN or first == wanted:
            yield Field(start, size, f"{name}[{first}]", _shown(column[first]))
        elif first < end:
            yield Field(start, size, f"{name}[{first}..{end - 1}]", f"{end - first} rows")


def _fields(layout: _Layout, data: bytes, offset: int) -> Iterator[Field]:
    position = 0
    for name, size, show in layout:
        yield Field(offset + position, size, name, show(data[position : position + size]))
        position += size


def _shown(data: int | bytes) -> str:
    """Returns a number, or bytes as a text literal, shortened if long."""
    if isinstance(data, int):
        return str(data)
    text = repr(data[:_BYTES_SHOWN])[1:]
    return text if len(data) <= _BYTES_SHOWN else f"{text}... {len(data)} bytes"


def _hex(data: bytes) -> str:
    return data[:_BYTES_SHOWN].hex(" ", 8)
