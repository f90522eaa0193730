"""Explains messages: every byte of requests, replies and changes by its name and meaning.

It follows the rows of commands and replies, and raises nothing: where bytes are not the protocol,
or end too early, it says so and names the rest as such.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from fjord import columns, limits, ops
from fjord.commands import FUNCTIONS, KINDS, Flag, Replies, Row, layout
from fjord.commands.codec import FLAG_NAMES, NESTED_REPLIES, unknown_flag
from fjord.commands.layout import Field, Kind
from fjord.values import Type
from fjord.wire import fields, seed
from fjord.wire.fields import QUERY_BITS, QUERY_CURSOR, VALUE_BITS
from fjord.wire.seed import Function

# How much of a column, and of a string, is written out; the rest is counted.
_ROWS_SHOWN: Final = 16
_NUMBERS_SHOWN: Final = 8
_BYTES_SHOWN: Final = 64
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# What two bits that are one number of two are called when both of them are set.
_BOTH_NAMES: Final = {VALUE_BITS: "VALUE_32", QUERY_BITS: "QUERY_CURSOR"}
_REPLY_FLAGS: Final = (
    fields.SIZE_FLAGS
    | Flag.TIMEOUT
    | Flag.OVERWRITE
    | Flag.WORKED_ON
    | QUERY_BITS
    | Flag.COUNT
    | Flag.BODY
)
_KEY_NAMES: Final = ("key", "key", "regex", "cursor")  # by what is queried
_OPAQUE: Final = "as the server gave it out; it means nothing to a client"


def explain(data: bytes, reply_to: int | None = None) -> list[Line]:
    """Names every byte of one or more messages.

    Args:
        data: Requests, replies and changes, in any order.
        reply_to: What replies answer whose requests do not stand before them.
    """
    lines: list[Line] = []
    walk = Walk(data, 0, len(data), lines)
    asked: dict[int, int] = {}
    try:
        while walk.position < walk.end:
            walk.start = walk.position
            if data.startswith(b"J", walk.position):
                _reply(walk, asked, reply_to)
            else:
                _request(walk, asked)
    except StoppedError as error:
        walk.stop(str(error))
    return lines


def function_name(number: int) -> str:
    """Returns the name of a function.

    Raises:
        StoppedError: if there is none with this number.
    """
    if number <= fields.LAST_SEED_FUNCTION:
        return Function(number).name
    if number not in FUNCTIONS:
        raise StoppedError(f"function {number} does not exist in this version")
    return FUNCTIONS[number].name


# -- requests -------------------------------------------------------------------------------------


def _request(walk: Walk, asked: dict[int, int]) -> None:
    _magic(walk, b"FJ")
    function, name = _function(walk, "function")
    identifier = walk.number(2, "identifier")
    is_seed = function <= fields.LAST_SEED_FUNCTION
    flags = _flags(walk, seed.ROWS[function].flags if is_seed else FUNCTIONS[function].flags, name)
    walk.time("timestamp")
    asked[identifier] = function
    if is_seed:
        _seed_fields(walk, Function(function), flags)
        return
    if flags & Flag.NUMBER:
        walk.number(8, "number")
    size = walk.number(4, "body length")
    if size > limits.MESSAGE_BYTES_MAX:
        raise StoppedError(f"a body has at most {limits.MESSAGE_BYTES_MAX} bytes")
    _inside(walk, size, lambda inner: _request_body(inner, FUNCTIONS[function], flags))


def _magic(walk: Walk, expected: bytes) -> None:
    found = walk.data[walk.position : walk.position + 2]
    if not expected.startswith(found):
        raise StoppedError("a message begins with FJ or JR")
    walk.take(2, "magic", "a request or a change" if expected == b"FJ" else "a reply")
    version = walk.number(2, "version")
    if version != fields.VERSION:
        raise StoppedError(f"supported versions: {fields.VERSION}")


def _function(walk: Walk, field: str) -> tuple[int, str]:
    number = walk.number(2, field)
    name = function_name(number)
    walk.explain(f"{number}, {name}")
    return number, name


def _flags(walk: Walk, known: int, by: str, *, is_reply: bool = False) -> int:
    flags = walk.number(2, "flags")
    walk.explain(f"{flags:#06x} {' '.join(flag_names(flags, is_reply=is_reply))}".rstrip())
    problem = unknown_flag(known, flags, by)
    if problem:
        raise StoppedError(problem)
    return flags


def flag_names(flags: int, *, is_reply: bool = False) -> list[str]:
    """Returns the names of flags, from bit 0 on; two-bit numbers have one name."""
    names = {both: name for both, name in _BOTH_NAMES.items() if flags & both == both}
    singles = flags & ~sum(names)
    names |= {bit: name for bit, name in FLAG_NAMES.items() if singles & bit}
    if is_reply and Flag.BODY in names:
        names[Flag.BODY] = "BODY"
    return [names[bits] for bits in sorted(names)]


def _seed_fields(walk: Walk, function: Function, flags: int) -> None:
    row = seed.ROWS[function]
    if not row.key:
        return
    query = flags & QUERY_BITS
    if query and flags & seed.ONE_KEY_FLAGS:
        raise StoppedError("bits 3, 4 and 11 are not known to GET with a query")
    if flags & Flag.TIMEOUT:
        walk.time("timeout")
    if flags & Flag.TTL:
        walk.explain(f"{walk.number(8, 'ttl')} microseconds")
    if query == Flag.QUERY_RANGE or flags & Flag.COUNT:
        walk.number(2, "count")
    if row.key == "job":
        _job_key(walk, flags)
    else:
        _sized(walk, flags, _KEY_NAMES[query // Flag.QUERY_RANGE] if query else row.key)
    if query == Flag.QUERY_RANGE or row.two_keys:
        _sized(walk, flags, "second key")
    if flags & VALUE_BITS or row.value:
        _value(walk, flags, function.name)


def _sized(walk: Walk, flags: int, name: str = "key") -> None:
    size = walk.number(2 if flags & Flag.KEY_16 else 1, f"size of the {name}")
    walk.take(size, name, _OPAQUE if name == "cursor" else shown)


def _job_key(walk: Walk, flags: int) -> None:
    """Explains the key that names a job that was taken: its xid, and its own key."""
    size = walk.number(2 if flags & Flag.KEY_16 else 1, "size of xid and key")
    if size >= 8:
        walk.number(8, "xid")
        size -= 8
    walk.take(size, "key", shown)


def _value(walk: Walk, flags: int, owner: str) -> None:
    bits = (flags & VALUE_BITS) >> 1
    if not bits:
        raise StoppedError(f"{owner} needs a value: set bits 1-2")
    size = walk.number((0, 1, 2, 4)[bits], "size of the value")
    if size == 0:
        raise StoppedError("a value's size counts its type byte")
    if size > 1 + limits.VALUE_BYTES_MAX:
        raise StoppedError(f"a value has at most {limits.VALUE_BYTES_MAX} bytes")
    walk.explain(f"{size}: type and {size - 1} bytes")
    type_ = walk.number(1, "type")
    walk.explain(shown_type(type_))
    walk.take(size - 1, "value", lambda data: shown_value(type_, data))


# -- bodies ---------------------------------------------------------------------------------------


def _request_body(walk: Walk, row: Row, flags: int) -> None:
    length = walk.number(2, "name length")
    walk.zeros(2)
    rows = walk.number(4, "rows")
    argument = next((one for one in row.fields if one.argument), None)
    walk.fixed(
        argument.kind if argument else layout.U64, argument.shown if argument else "argument", 8
    )
    walk.take(length, "table", shown)
    walk.padding()
    if rows > limits.BATCH_ROWS_MAX:
        raise StoppedError(f"a batch has at most {limits.BATCH_ROWS_MAX} rows")
    if row.holds is not None:
        for position in range(1, rows + 1):
            _inner_request(walk, row, position)
        return
    for one in row.fields:
        bit = Flag.TIMEOUT if one.kind is layout.DATES else one.bit
        is_in_head = one.argument or one.kind in (layout.NAME, layout.STAMP, layout.FLAG)
        if not is_in_head and flags & bit == bit:
            walk.field(one, rows)


def _inner_request(walk: Walk, outer: Row, position: int) -> None:
    number, name = _function(walk, f"command {position}: function")
    row = FUNCTIONS.get(number)
    if row is None or outer.holds is None or not outer.holds(row):
        raise StoppedError(f"function {number} has no place in {outer.name}")
    flags = _flags(walk, row.flags & ~Flag.NUMBER, name)
    size = walk.number(4, "body length")
    walk.time("timestamp")
    _inside(walk, size, lambda inner: _request_body(inner, row, flags))
    walk.padding()


def _inside(walk: Walk, size: int, explain_body: Callable[[Walk], None]) -> None:
    """Explains a body; an error ends only the body, since its length is known."""
    left = walk.end - walk.position
    if size > left:
        raise StoppedError(f"the body has {size} bytes, but only {left} are left")
    inner = walk.inner(size)
    try:
        explain_body(inner)
    except StoppedError as error:
        inner.stop(str(error))
    else:
        if inner.position < inner.end:
            inner.stop("the body is longer than its fields")
    walk.position += size


# -- replies --------------------------------------------------------------------------------------


def _reply(walk: Walk, asked: dict[int, int], reply_to: int | None) -> None:
    _magic(walk, b"JR")
    identifier = walk.number(2, "identifier")
    function = asked.get(identifier, reply_to)
    if function is not None:
        walk.explain(f"{identifier}, a reply to {function_name(function)}")
    flags = _flags(walk, _REPLY_FLAGS, "replies", is_reply=True)
    query = flags & QUERY_BITS
    paged = flags & Flag.COUNT
    if query not in (0, QUERY_CURSOR) or (query and not paged) or (paged and flags & Flag.BODY):
        raise StoppedError("no reply has these flags")
    walk.time("timestamp")
    if flags & Flag.TIMEOUT:
        walk.time("timeout")
    count = walk.number(2, "count") if paged else 0
    _sized(walk, flags, "error")
    if paged:
        _pairs(walk, flags, count, _job_key if function == Function.NEXT else _sized)
    elif flags & VALUE_BITS:
        _value(walk, flags, "a reply")
    if flags & Flag.BODY:
        size = walk.number(4, "body length")
        if size:  # else it is a refusal
            _inside(walk, size, _reply_body)


def _pairs(walk: Walk, flags: int, count: int, key: Callable[[Walk, int], None]) -> None:
    for _ in range(count):
        key(walk, flags)
        _value(walk, flags, "a pair")
    if flags & QUERY_BITS:
        _sized(walk, flags, "cursor")


def _reply_body(walk: Walk, *, is_inner: bool = False) -> None:
    kind = walk.number(2, "kind")
    row = KINDS.get(kind)
    if row is None:
        raise StoppedError(f"a reply of kind {kind}")
    walk.explain(f"{kind}, {row.name}")
    if is_inner and row is Replies.row:
        raise StoppedError(NESTED_REPLIES)
    walk.zeros(2)
    rows = walk.number(4, "rows")
    if row is not Replies.row:
        for one in row.fields:
            walk.field(one, rows)
        return
    for position in range(1, rows + 1):
        size = walk.number(4, f"reply {position}: length")
        walk.zeros(4)
        _inside(walk, size, lambda inner: _reply_body(inner, is_inner=True))
        walk.padding()


# -- a walk along bytes ---------------------------------------------------------------------------


class Line(NamedTuple):
    """A range of bytes and its meaning."""

    offset: int
    data: bytes
    field: str
    meaning: str
    is_problem: bool = False  # these bytes are not what should be here


class StoppedError(Exception):
    """The next bytes are invalid; the text says why."""


class Walk:
    """Goes along `data`, from `start` to `end`, and adds a line for each field."""

    def __init__(self, data: bytes, start: int, end: int, lines: list[Line]) -> None:
        self.data = data
        self.start = start  # padding is counted from here
        self.position = start
        self.end = end
        self._lines = lines

    def take(self, size: int, field: str, meaning: str | Callable[[bytes], str] = "") -> bytes:
        """Adds a line for the next `size` bytes.

        Raises:
            StoppedError: if there are fewer.
        """
        left = self.end - self.position
        if size > left:
            raise StoppedError(f"{field} has {size} bytes, but only {left} are left")
        found = self.data[self.position : self.position + size]
        if size:
            meaning = meaning if isinstance(meaning, str) else meaning(found)
            self._lines.append(Line(self.position, found, field, meaning))
        self.position += size
        return found

    def number(self, size: int, field: str) -> int:
        return _big(self.take(size, field, lambda data: str(_big(data))))

    def time(self, field: str) -> None:
        self.take(8, field, lambda data: shown_time(_big(data)))

    def zeros(self, size: int) -> None:
        self.take(size, "reserved", lambda data: "not 0" if any(data) else "0")

    def padding(self) -> None:
        size = -(self.position - self.start) % 8
        self.take(size, "padding", "to a multiple of 8")

    def explain(self, meaning: str) -> None:
        """Sets the meaning of the last field."""
        self._lines[-1] = self._lines[-1]._replace(meaning=meaning)

    def stop(self, reason: str) -> None:
        """Adds a line for the rest, which cannot be explained."""
        found = self.data[self.position : self.end]
        self._lines.append(Line(self.position, found, "?", reason, is_problem=True))
        self.position = self.end

    def inner(self, size: int) -> Walk:
        """Returns a walk along the next `size` bytes."""
        return Walk(self.data, self.position, self.position + size, self._lines)

    def field(self, one: Field, rows: int) -> None:
        """Names a field of a body; `rows` is how many its columns have."""
        kind, name = one.kind, one.shown
        if one.counted:
            rows = self.number(4, f"rows of {name}")
            self.zeros(4)
        if kind is layout.NESTED:
            for inner in one.of.row.fields:  # type: ignore[union-attr]
                self.field(inner, rows)
        elif kind in (layout.BLOB, layout.TEXT):
            size = self.number(4, f"size of {name}")
            self.zeros(4)
            self.take(size, name, shown)
            self.padding()
        elif kind in layout.NUMBERS or kind is layout.DATES:
            self._numbers(kind, name, rows)
        elif not kind.code:
            self._strings(name, rows, is_op=kind is layout.OPS)
        else:
            self.fixed(kind, name, struct.calcsize(f">{kind.code.removesuffix('4x')}"))
            self.padding()

    def fixed(self, kind: Kind, name: str, size: int) -> None:
        """Names a number, or an identity."""
        if kind is layout.UUID:
            self.take(size, name, lambda data: data.hex() if any(data) else "none")
        elif kind is layout.TIME:
            self.time(name)
        elif self.number(size, name) == 2**64 - 1 and kind is layout.SEQ:
            self.explain("none")

    def _numbers(self, kind: Kind, name: str, rows: int) -> None:
        data = self.take(rows * (1 if kind is layout.U8S else 8), f"{name} column")
        first = data[: _NUMBERS_SHOWN * 8]
        if kind is layout.U8S:
            found = [shown_type(one) if name == "type" else str(one) for one in first]
        else:
            plain = struct.unpack(f"<{len(first) // 8}Q", first)
            found = [str(one) if kind is layout.U64S else shown_time(one) for one in plain]
        if data:
            more = ", ..." if rows > len(found[:_NUMBERS_SHOWN]) else ""
            self.explain(", ".join(found[:_NUMBERS_SHOWN]) + more)
        self.padding()

    def _op(self, name: str) -> None:
        """Goes along one op of the journal, whose numbers are little-endian."""
        number = self.take(1, f"{name}: opcode")[0]
        opcode = ops.Opcode(number)
        self.explain(f"{number}, {opcode.name}")
        self.zeros(3)
        _, rows, _ = (self._little(field) for field in ("table id", "rows of the op", "op length"))
        for column, code in opcode.columns:
            if code == ops.STRINGS:
                self._strings(column, rows, is_op=False)
            else:
                numbers = layout.TIMES if column.endswith("_us") else layout.U64S
                kind = layout.U8S if code == ops.U8 else numbers
                self._numbers(kind, column, 1 if code == ops.ONCE else rows)

    def _little(self, field: str) -> int:
        found = self.take(4, field, lambda data: str(int.from_bytes(data, "little")))
        return int.from_bytes(found, "little")

    def _strings(self, name: str, rows: int, *, is_op: bool) -> None:
        view = memoryview(self.data)[self.position : self.end]
        try:
            column, _ = columns.decode_strings(view, 0, rows)
        except ValueError as error:
            raise StoppedError(f"{name} strings: {error}") from error
        self.take(4 * (rows + 1), f"{name} offsets", f"{rows} rows")
        self.padding()
        for row, size in enumerate(column.lengths()[:_ROWS_SHOWN], start=1):
            if is_op and _is_op(self.data[self.position : self.position + size]):
                self.inner(size)._op(f"{name} {row}")
                self.position += size
                continue
            self.take(size, f"{name} {row}", shown)
        rest = len(column.data) - column.offsets[min(_ROWS_SHOWN, rows)]
        self.take(rest, f"{name} more", f"{rows - _ROWS_SHOWN} more rows")
        self.padding()


def _big(data: bytes) -> int:
    return int.from_bytes(data, "big")


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
    """Returns a number as such, and everything else as bytes."""
    if type_ == Type.INTEGER and len(data) in (1, 2, 4, 8):
        return str(int.from_bytes(data, "little", signed=True))
    if type_ == Type.FLOAT and len(data) == 8:
        return str(struct.unpack("<d", data)[0])
    return shown(data)


def shown_type(type_: int) -> str:
    names = {int(one): one.name.lower() for one in Type}
    return f"{type_} ({names.get(type_, 'missing' if type_ == 255 else 'unknown')})"
