"""Messages as users see them: as columns, or as objects made on demand.

The result of a read is decoded on first access, a column at a time, so a program that only passes
columns on, to Arrow for example, pays for nothing else.
"""

from __future__ import annotations

import bisect
import functools
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import accumulate, chain, repeat
from typing import Any, Final, NamedTuple, cast, overload

from fjord import columns, ops, values
from fjord.client import arrow
from fjord.client.entries import date, decode_key, decode_value
from fjord.client.schemas import NO_COLUMNS, Schemas
from fjord.columns import Strings
from fjord.commands import Messages
from fjord.declared.rows import Heads, Rows
from fjord.errors import Code, LocalProtocolError, RemoteProtocolError
from fjord.ops import Opcode
from fjord.streams import decode_settings
from fjord.values import ROW, Type, Value


class Message(NamedTuple):
    """One message of a stream."""

    seq: int  # its number; those of a stream ascend
    key: str  # may be empty in mode log
    value: Any  # None for a tombstone; a dict, in a stream with declared columns
    at: datetime  # when it was committed, by the server's clock
    is_tombstone: bool = False  # its key was deleted, in mode latest


class ReadBy(NamedTuple):
    """The subscriber that has read a batch, for the ack."""

    name: str
    epoch: int  # at the time of the read


class MessageColumns(NamedTuple):
    """A run of messages, as columns of equal length."""

    seqs: Sequence[int]
    at_us: Sequence[int]  # Unix microseconds
    types: bytes  # `fjord.values.Type`, or `fjord.ops.TOMBSTONE`
    keys: Strings
    values: Strings


class MessageBatch:
    """The result of a read: messages in order, possibly none."""

    __slots__ = ("_columns", "_declared", "_decoding", "found", "read_by", "stream")

    def __init__(
        self,
        stream: str,
        found: Messages,
        read_by: ReadBy | None = None,
        schemas: Schemas | None = None,
    ) -> None:
        self.stream = stream  # its name
        self.found = found  # as received
        self.read_by = read_by  # the subscriber that has read it, if any
        self._decoding = Schemas(stream, decode_settings) if schemas is None else schemas
        self._columns: list[MessageColumns] | None = None
        self._declared: RowColumns | None = None

    def __repr__(self) -> str:
        end = ", end of snapshot" if self.end_of_snapshot else ""
        return f"<{type(self).__name__} of {len(self)} up to seq {self.last_seq}{end}>"

    def __len__(self) -> int:
        return self.found.rows

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    @property
    def lacks_columns(self) -> bool:
        """Whether columns must be fetched from the server before rows can be read.

        A stream keeps the columns that it was created with, so checking one message is enough.
        """
        known = self._decoding.current
        if not self.found.rows or (known is not None and not known.schema.columns):
            return False
        if _begins_plain(self.found):
            self._decoding.current = NO_COLUMNS
            return False
        for part in self.columns:
            place = part.types.find(ROW)
            if place >= 0:
                return self._decoding.lacks(_ROW, [part.values[place]])
            if part.types.strip(_TOMBSTONE):
                self._decoding.current = NO_COLUMNS
                return False
        return False

    @property
    def last_seq(self) -> int:
        """Everything up to here was returned; seqs of other tables may be in between."""
        return self.found.after

    @property
    def end_of_snapshot(self) -> bool:
        """Whether the snapshot ends here.

        Everything that was committed together is in one snapshot, so this is a consistent point
        for an ack.
        """
        return self.found.ended

    # -- columns ----------------------------------------------------------------------------------

    @property
    def columns(self) -> list[MessageColumns]:
        """The messages as columns, one record for each run.

        Raises:
            RemoteProtocolError: if the server sent something other than messages.
        """
        if self._columns is None:
            self._columns = _decode(self.found)
        return self._columns

    @property
    def seqs(self) -> list[int]:
        return list(chain.from_iterable(part.seqs for part in self.columns))

    @property
    def keys(self) -> list[str]:
        return list(chain.from_iterable(_keys(part.keys) for part in self.columns))

    @property
    def values(self) -> list[Any]:
        return list(chain.from_iterable(_values(part, self._decoding) for part in self.columns))

    def column(self, name: str) -> list[Any]:
        """Returns the values of a declared column, one for each message, None for a tombstone.

        Only this column is decoded, which is much faster than dicts.

        Raises:
            LocalProtocolError: if there is no such column, or the stream has no declared ones.
        """
        return self._rows.column(name)

    @property
    def value_columns(self) -> dict[str, list[Any]]:
        """The values of all declared columns, as `append_many` takes them.

        Empty if the batch has no rows, so that the columns are unknown.
        """
        return {name: self._rows.column(name) for name in self._rows.names}

    @property
    def _rows(self) -> RowColumns:
        if self._declared is None:
            parts = ((part.types, part.values) for part in self.columns)
            self._declared = RowColumns(self.stream, parts, self._decoding)
        return self._declared

    @property
    def times(self) -> list[datetime]:
        """When each of them was committed."""
        return list(chain.from_iterable(_dates(part.at_us) for part in self.columns))

    def to_arrow(self) -> Any:
        """Returns a pyarrow table with the columns seq, ts, key, type and value.

        Raises:
            FjordError: if pyarrow is not installed.
        """
        return arrow.messages_table(self.found)

    # -- objects ----------------------------------------------------------------------------------

    @property
    def messages(self) -> MessageSequence:
        """The messages as objects, made on demand."""
        return MessageSequence(self.columns, self._decoding)


class MessageSequence(Sequence[Message]):
    """Messages made on demand; iterating is the fastest access."""

    __slots__ = ("_decoding", "_ends", "_parts")

    def __init__(self, parts: Sequence[MessageColumns], schemas: Schemas) -> None:
        self._parts = parts
        self._decoding = schemas
        self._ends = list(accumulate(len(part.types) for part in parts))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Message]:
        return chain.from_iterable(map(_messages, self._parts, repeat(self._decoding)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)}>"

    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> list[Message]: ...
    def __getitem__(self, place: int | slice) -> Message | list[Message]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        place = range(len(self))[place]
        number = bisect.bisect_right(self._ends, place)
        part = self._parts[number]
        row = place - self._ends[number] + len(part.types)
        is_tombstone = part.types[row] == ops.TOMBSTONE
        return Message(
            part.seqs[row],
            decode_key(part.keys[row]),
            None if is_tombstone else self._decoding.decode(part.types[row], part.values[row]),
            date(part.at_us[row]),
            is_tombstone,
        )


# -- from ops to columns --------------------------------------------------------------------------


def _begins_plain(found: Messages) -> bool:
    """Says whether the first op shows that the first message is not a row."""
    data = found.ops.data
    return (
        len(data) > ops.HEADER.size
        and data[0] == Opcode.STREAM_APPEND
        and data[ops.HEADER.size] not in (ROW, ops.TOMBSTONE)
    )


def _decode(found: Messages) -> list[MessageColumns]:
    parts: list[MessageColumns] = []
    singles = _Singles()
    try:
        for view, first_seq, wall_us in zip(
            found.ops.views(), found.first_seqs, found.walls_us, strict=True
        ):
            if len(view) <= _SINGLE_BYTES_MAX and singles.add(view):
                singles.seqs.append(first_seq)
                singles.at_us.append(wall_us)
                continue
            if singles.seqs:
                parts.append(singles.columns())
                singles = _Singles()
            parts.append(_part(view, first_seq, wall_us))
        if singles.seqs:
            parts.append(singles.columns())
    except (ValueError, struct.error) as error:
        raise RemoteProtocolError(Code.BAD_BATCH, f"not messages: {error}") from error
    rows = sum(len(part.types) for part in parts)
    if rows != found.rows:
        raise RemoteProtocolError(Code.BAD_BATCH, f"{rows} messages, not {found.rows}")
    return parts


# An op of one message: header, type, and the offsets of its key; the key and the value follow.
_SINGLE: Final = struct.Struct(f"{ops.HEADER.format}B7xII")
_OFFSETS: Final = struct.Struct("<II")
# Longer ones need no fast path.
_SINGLE_BYTES_MAX: Final = 4096


class _Singles:
    """Gathers many ops of one message each into one run."""

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.at_us: list[int] = []
        self._types = bytearray()
        self._keys: list[bytes] = []
        self._values: list[bytes] = []

    def add(self, data: memoryview) -> bool:
        """Adds an op if it has one message; says whether it has."""
        opcode, flags, reserved, _, rows, length, type_, zero, key_bytes = _SINGLE.unpack_from(data)
        if opcode != Opcode.STREAM_APPEND or rows != 1 or flags or reserved or zero:
            return False
        key = _SINGLE.size
        offsets = key + columns.aligned(key_bytes)
        zero, value_bytes = _OFFSETS.unpack_from(data, offsets)
        value = offsets + _OFFSETS.size
        if zero or not length == len(data) == value + columns.aligned(value_bytes):
            return False
        self._types.append(type_)
        self._keys.append(bytes(data[key : key + key_bytes]))
        self._values.append(bytes(data[value : value + value_bytes]))
        return True

    def columns(self) -> MessageColumns:
        keys, values = Strings.of(self._keys), Strings.of(self._values)
        return MessageColumns(self.seqs, self.at_us, bytes(self._types), keys, values)


def _part(view: memoryview, first_seq: int, wall_us: int) -> MessageColumns:
    op, _, end = ops.decode(view, 0)
    if end != len(view):
        raise ValueError("bytes behind an op")
    found: tuple[Any, ...] = op.columns
    if op.opcode is Opcode.STREAM_MOVE:
        seqs, at_us, _, _, types, keys, values = found
        return MessageColumns(seqs, at_us, bytes(types), keys, values)
    if op.opcode is not Opcode.STREAM_APPEND:
        raise ValueError(f"an op {op.opcode.name}")
    types, keys, values = found
    seqs = range(first_seq, first_seq + op.rows)
    return MessageColumns(seqs, columns.repeat(wall_us, op.rows), bytes(types), keys, values)


# -- from columns to objects ----------------------------------------------------------------------

_BUFFER: Final = bytes((Type.BUFFER,))
_STRING: Final = bytes((Type.STRING,))
_ROW: Final = bytes((ROW,))
_TOMBSTONE: Final = bytes((ops.TOMBSTONE,))
# Strings of equal length that are cut out of a column at a time.
_EVEN_ROWS: Final = 64
# Makes a named tuple without running Python code.
_make: Final = cast(Callable[[type[Message], tuple[Any, ...]], Message], tuple.__new__)


def _messages(part: MessageColumns, schemas: Schemas) -> Iterable[Message]:
    count = len(part.types)
    marks: Iterable[bool] = repeat(False, count)
    if ops.TOMBSTONE in part.types:
        marks = map(ops.TOMBSTONE.__eq__, part.types)
    rows = zip(
        part.seqs, _keys(part.keys), _values(part, schemas), _dates(part.at_us), marks, strict=True
    )
    return map(_make, repeat(Message), rows)


def _keys(column: Strings) -> Iterable[str]:
    if not column.data:
        return repeat("", len(column))
    try:
        return list(map(bytes.decode, _rows(column)))
    except UnicodeDecodeError:
        return map(decode_key, column.rows())


def _rows(column: Strings) -> Iterable[bytes]:
    """Returns the strings of a column; many of equal length are cut out in large pieces."""
    count, length = len(column), column.offsets[1]
    if count < _EVEN_ROWS or not length or len(column.data) != count * length:
        return column.rows()
    if column.offsets != array("I", range(0, count * length + 1, length)):
        return column.rows()
    many, data = _even(length), memoryview(column.data)
    whole = len(data) - len(data) % many.size
    rest = (bytes(data[start : start + length]) for start in range(whole, len(data), length))
    return chain(chain.from_iterable(many.iter_unpack(data[:whole])), rest)


@functools.lru_cache(maxsize=64)
def _even(length: int) -> struct.Struct:
    return struct.Struct(f"{length}s" * _EVEN_ROWS)


def _values(part: MessageColumns, schemas: Schemas) -> Iterable[Any]:
    types, rows = part.types, _rows(part.values)
    if not types.strip(_BUFFER):
        return rows
    if not types.strip(_STRING):
        try:
            return list(map(bytes.decode, rows))
        except UnicodeDecodeError as error:
            raise RemoteProtocolError(Code.BAD_VALUE, f"a string: {error}") from error
    if ROW in types:
        return schemas.decode_all(types, list(rows), _value)
    return map(_value, types, rows)


def _value(type_: int, data: bytes) -> Value:
    return None if type_ == ops.TOMBSTONE else decode_value(type_, data)


def _dates(at_us: Sequence[int]) -> Iterable[datetime]:
    # Messages of one commit have the same time, and most runs are of one commit.
    if at_us == columns.repeat(at_us[0], len(at_us)):
        return repeat(date(at_us[0]), len(at_us))
    known = {one: date(one) for one in set(at_us)}
    return map(known.__getitem__, at_us)


# -- rows of declared columns, read a column at a time --------------------------------------------
#
# No row is made for that: a column is taken out of all of them at once, when it is asked for, and
# the others are not looked at.


_KINDS: Final = bytes((values.ROW, ops.TOMBSTONE))


class RowColumns:
    """The declared columns of messages that came together."""

    def __init__(self, table: str, parts: Iterable[tuple[bytes, Strings]], schemas: Schemas):
        """Takes types and values; a tombstone has no value in any column.

        Raises:
            LocalProtocolError: if there are values that are no rows.
            RemoteProtocolError: if what the server sent are no rows.
            UnknownSchemaError: if the server is to be asked first.
        """
        self._rows: Rows | None = None  # None: there are only tombstones, or nothing
        self._parts: list[tuple[bytes, Heads | None]] = []
        for types, column in parts:
            if types.strip(_KINDS):
                text = f"stream {table} has no declared columns; its messages are in `values`"
                raise LocalProtocolError(Code.BAD_TYPE, text)
            if types.strip(_ROW):
                pairs = zip(types, column.rows(), strict=True)
                column = Strings.of([row for type_, row in pairs if type_ == values.ROW])
            if self._rows is None and len(column):
                self._rows = schemas.rows_of(column[0])
            heads = self._rows.heads(column) if self._rows is not None and len(column) else None
            self._parts.append((types, heads))

    @property
    def names(self) -> list[str]:
        """The columns that there are; none if there is no row that says it."""
        return [] if self._rows is None else self._rows.schema.names

    def column(self, name: str) -> list[Any]:
        """Returns the values of a column, one for each message.

        Raises:
            LocalProtocolError: if there is no such column.
        """
        found: list[Any] = []
        place = 0 if self._rows is None else self._rows.place_of(name)
        for types, heads in self._parts:
            if self._rows is None or heads is None:
                found.extend([None] * len(types))
                continue
            read = self._rows.decode_column(heads, place)
            if heads.count < len(types):
                rest = iter(read)
                read = [next(rest) if type_ == values.ROW else None for type_ in types]
            found.extend(read)
        return found
