"""Naming every byte of a segment: header, frames, ops, columns.

The fields of an explanation follow each other without a gap.  A column of few rows is shown row
by row; one of many as a whole, beside the row that stands at the byte that was asked for.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """Some bytes of a segment, and what they mean."""

    offset: int
    size: int
    name: str
    value: str

    @property
    def end(self) -> int:
        return self.offset + self.size


# Name, size, how it is shown.  The order is that of docs/journal-format.md.
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
    """Returns the fields of what stands at byte `at` of a segment: its header, or one frame.

    Without `at` it is the header and the first frame.  Where no frame is, one field says so.

    Raises:
        LookupError: if there is no such segment, or no such byte in it.
        CorruptionError: if far too many segments are missing for this to be one journal.
    """
    parts = {part.segment: part for part in survey.make_out(disk, directory)}
    part = parts.get(segment)
    if part is None or not part.is_readable:
        raise LookupError(f"there is no segment {segment} that can be read")
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
        return [Field(offset=0, size=len(data), name=reason, value=_hex(data))]
    return list(_fields(_SEGMENT, data, 0))


def _explain_at(disk: disks.Disk, part: Part, at: int) -> list[Field]:
    """Explains the frame that holds a byte, or what lies there instead of one."""
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
    return _no_frame(disk, part, start, end)


def _no_frame(disk: disks.Disk, part: Part, start: int, end: int) -> list[Field]:
    with contextlib.closing(disk.open(part.path)) as file:
        data = file.read(start, min(end - start, _BYTES_SHOWN))
    name = "no frame" if data.strip(b"\0") else "no frame, zeros so far"
    return [Field(offset=start, size=end - start, name=name, value=_hex(data))]


def _frame(located: Located, salt: bytes, at: int) -> Iterator[Field]:
    yield from _fields(_FRAME, located.frame.encode(salt), located.offset)
    base = located.offset + frames.FRAME_HEADER_BYTES
    view, position = memoryview(located.body), 0
    for _ in range(located.frame.op_count):
        try:
            op, _, end = ops.decode(view, position)
        except ValueError as error:
            data = located.body[position:]
            yield Field(
                offset=base + position, size=len(data), name=f"no op: {error}", value=_hex(data)
            )
            return
        yield from _fields(
            _OP, located.body[position : position + ops.HEADER.size], base + position
        )
        yield from _columns(op, base + position + ops.HEADER.size, at)
        position = end


def _columns(op: ops.Op, offset: int, at: int) -> Iterator[Field]:
    for (name, kind), column in zip(op.opcode.columns, op.columns, strict=True):
        if isinstance(column, Strings):
            runs = _strings(name, column, offset)
        else:
            runs = [_numbers(name, column, _SIZES[kind], offset)]
        for run in runs:
            yield from _rows(run, at)
            offset = columns.aligned(run.bounds[-1])
            if offset > run.bounds[-1]:
                size = offset - run.bounds[-1]
                yield Field(
                    offset=run.bounds[-1], size=size, name="padding", value=_hex(bytes(size))
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Rows that stand one after the other."""

    name: str
    bounds: Sequence[int]  # where each row begins, and where the last one ends
    show: Callable[[int], str]


def _numbers(name: str, column: ops.Numbers, size: int, offset: int) -> _Run:
    bounds = range(offset, offset + size * (len(column) + 1), size)
    return _Run(name=name, bounds=bounds, show=lambda row: str(column[row]))


def _strings(name: str, column: Strings, offset: int) -> list[_Run]:
    offsets = _numbers(f"{name} offset", column.offsets, 4, offset)
    data = columns.aligned(offsets.bounds[-1])
    bounds = [data + one for one in column.offsets]
    return [offsets, _Run(name=name, bounds=bounds, show=lambda row: _shown(column[row]))]


def _rows(run: _Run, at: int) -> Iterator[Field]:
    """Yields a field for each row, or for the row at a byte and for those before and behind it."""
    count = len(run.bounds) - 1
    if count <= _ROWS_SHOWN:
        yield from (_row(run, row) for row in range(count))
        return
    wanted = bisect.bisect_right(run.bounds, at) - 1
    if not 0 <= wanted < count:
        yield from _several(run, 0, count)
        return
    yield from _several(run, 0, wanted)
    yield _row(run, wanted)
    yield from _several(run, wanted + 1, count)


def _row(run: _Run, row: int) -> Field:
    start, end = run.bounds[row], run.bounds[row + 1]
    return Field(offset=start, size=end - start, name=f"{run.name}[{row}]", value=run.show(row))


def _several(run: _Run, first: int, end: int) -> Iterator[Field]:
    if first < end:
        start = run.bounds[first]
        name = f"{run.name}[{first}..{end - 1}]"
        size = run.bounds[end] - start
        yield Field(offset=start, size=size, name=name, value=f"{end - first} rows")


def _fields(layout: _Layout, data: bytes, offset: int) -> Iterator[Field]:
    position = 0
    for name, size, show in layout:
        raw = data[position : position + size]
        yield Field(offset=offset + position, size=size, name=name, value=show(raw))
        position += size


def _shown(data: bytes) -> str:
    """Returns bytes as a text literal, cut where they are long."""
    text = repr(data[:_BYTES_SHOWN])[1:]
    return text if len(data) <= _BYTES_SHOWN else f"{text}... {len(data)} bytes"


def _hex(data: bytes) -> str:
    return data[:_BYTES_SHOWN].hex(" ", 8)
