"""A walk along bytes that names each of them; it stops where they do not go on as they should."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from fjord import columns, ops
from fjord.values import Type
from fjord.wire.layouts import Kind, Step

# Of a column, and of a string, this much is written out; the rest is counted.
_ROWS_SHOWN = 16
_NUMBERS_SHOWN = 8
_BYTES_SHOWN = 64
# How the columns of an op are shown.
_OP_STEPS: Final[dict[str, Kind]] = {
    ops.U8: "u8 column",
    ops.U64: "u64 column",
    ops.STRINGS: "strings",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Some bytes, and what they are."""

    offset: int
    data: bytes
    field: str
    meaning: str
    is_problem: bool = False  # these bytes are not what should be here


class StoppedError(Exception):
    """The bytes do not go on as they should; says why."""


class Walk:
    """Goes along `data`, from `start` to `end`, and adds a line for each field."""

    def __init__(self, data: bytes, start: int, end: int, lines: list[Line]) -> None:
        self.data = data
        self.start = start  # padding is counted from here
        self.position = start
        self.end = end
        self._lines = lines
        self._rows = 0
        self._size = 0

    def take(self, size: int, field: str, meaning: str = "") -> bytes:
        """Names the next `size` bytes.

        Raises:
            StoppedError: if there are fewer.
        """
        left = self.end - self.position
        if size > left:
            raise StoppedError(f"{field} has {size} bytes, but only {left} are left")
        found = self.data[self.position : self.position + size]
        if size:
            self._add(found, field, meaning)
        self.position += size
        return found

    def number(self, size: int, field: str) -> int:
        found = int.from_bytes(self.data[self.position : self.position + size], "big")
        self.take(size, field, str(found))
        return found

    def seq(self, field: str) -> int:
        """Names a seq, of which the largest number says that none is meant."""
        found = self.number(8, field)
        if found == 2**64 - 1:
            self.explain("none")
        return found

    def time(self, field: str) -> int:
        found = int.from_bytes(self.data[self.position : self.position + 8], "big")
        self.take(8, field, shown_time(found))
        return found

    def zeros(self, size: int, field: str = "reserved") -> None:
        found = self.data[self.position : self.position + size]
        self.take(size, field, "not 0" if any(found) else "0")

    def padding(self) -> None:
        size = -(self.position - self.start) % 8
        self.take(size, "padding", "to a multiple of 8")

    def explain(self, meaning: str) -> None:
        """Says more of the last field."""
        last = self._lines[-1]
        self._lines[-1] = Line(
            offset=last.offset, data=last.data, field=last.field, meaning=meaning
        )

    def stop(self, reason: str) -> None:
        """Names all that is left as what cannot be explained."""
        found = self.data[self.position : self.end]
        self._lines.append(
            Line(offset=self.position, data=found, field="?", meaning=reason, is_problem=True)
        )
        self.position = self.end

    def inner(self, size: int) -> Walk:
        """Returns a walk of its own along the next `size` bytes."""
        return Walk(self.data, self.position, self.position + size, self._lines)

    def step(self, step: Step, rows: int | None = None) -> None:
        """Takes one step of a layout; `rows` is how many the head of a body has said."""
        if rows is not None:
            self._rows = rows
        kind, name = step.kind, step.name
        if kind == "rows":
            self._rows = self.number(4, name)
        elif kind == "size":
            self._size = self.number(4, name)
        elif kind == "sized":
            found = self.take(self._size, name)
            if found:
                self.explain(shown(found))
            self.padding()
        elif kind == "sized column":
            self._rows = self._size
            self._numbers("u64 column", name)
        elif kind in ("strings", "ops"):
            self._strings(name, is_op=kind == "ops")
        elif kind.endswith("column"):
            self._numbers(kind, name)
        else:
            self._field(kind, name)

    def _field(self, kind: str, name: str) -> None:
        if kind == "zeros":
            self.zeros(4, name)
        elif kind == "uuid":
            found = self.take(16, name)
            self.explain(found.hex())
        elif kind == "time":
            self.time(name)
        elif kind == "seq":
            self.seq(name)
        else:
            self.number(4 if kind == "u32" else 8, name)

    def _add(self, data: bytes, field: str, meaning: str) -> None:
        self._lines.append(Line(offset=self.position, data=data, field=field, meaning=meaning))

    def _numbers(self, kind: str, name: str) -> None:
        size = self._rows * (1 if kind == "u8 column" else 8)
        data = self.take(size, f"{name} column")
        first = data[: _NUMBERS_SHOWN * 8]
        if kind == "u8 column":
            found = [shown_type(one) if name == "type" else str(one) for one in first]
        else:
            plain = struct.unpack(f"<{len(first) // 8}Q", first)
            found = [shown_time(one) if kind == "time column" else str(one) for one in plain]
        if data:
            more = ", ..." if self._rows > len(found[:_NUMBERS_SHOWN]) else ""
            self.explain(", ".join(found[:_NUMBERS_SHOWN]) + more)
        self.padding()

    def _op(self, name: str) -> None:
        """Goes along one op of the journal, whose numbers are little-endian."""
        number = self.take(1, f"{name}: opcode")[0]
        opcode = ops.Opcode(number)
        self.explain(f"{number}, {opcode.name}")
        self.zeros(3)
        _, rows, _ = (self._little(field) for field in ("table id", "rows of the op", "op length"))
        for column, kind in ops.COLUMNS[opcode]:
            self.step(Step(_OP_STEPS[kind], column), rows)

    def _little(self, field: str) -> int:
        found = int.from_bytes(self.take(4, field), "little")
        self.explain(str(found))
        return found

    def _strings(self, name: str, *, is_op: bool) -> None:
        view = memoryview(self.data)[self.position : self.end]
        try:
            column, _ = columns.decode_strings(view, 0, self._rows)
        except ValueError as error:
            raise StoppedError(f"{name} strings: {error}") from error
        self.take(4 * (self._rows + 1), f"{name} offsets", f"{self._rows} rows")
        self.padding()
        for row, size in enumerate(column.lengths()[:_ROWS_SHOWN], start=1):
            if is_op and _is_op(self.data[self.position : self.position + size]):
                self.inner(size)._op(f"{name} {row}")
                self.position += size
                continue
            found = self.take(size, f"{name} {row}")
            if found:
                self.explain(shown(found))
        rest = len(column.data) - column.offsets[min(_ROWS_SHOWN, self._rows)]
        self.take(rest, f"{name} more", f"{self._rows - _ROWS_SHOWN} more rows")
        self.padding()


def _is_op(data: bytes) -> bool:
    try:
        return ops.decode(memoryview(data), 0)[2] == len(data)
    except ValueError:
        return False


def shown(data: bytes) -> str:
    """Returns bytes as text that is safe to print."""
    text = repr(data[:_BYTES_SHOWN])[2:-1]
    return text if len(data) <= _BYTES_SHOWN else f"{text}... {len(data)} bytes"


def shown_time(microseconds: int) -> str:
    if microseconds == 0:
        return "0, none"
    try:
        moment = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return f"{microseconds}, beyond the year 9999"
    return f"{microseconds}, {moment.isoformat()}"


def shown_value(type_: int, data: bytes) -> str:
    """Returns a number as such, and all else as bytes."""
    if type_ == Type.INTEGER and len(data) in (1, 2, 4, 8):
        return str(int.from_bytes(data, "little", signed=True))
    if type_ == Type.FLOAT and len(data) == 8:
        return str(struct.unpack("<d", data)[0])
    return shown(data)


def shown_type(type_: int) -> str:
    names = {int(one): one.name.lower() for one in Type}
    return f"{type_} ({names.get(type_, 'missing' if type_ == 255 else 'unknown')})"
