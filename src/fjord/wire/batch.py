"""Bodies of functions above 16: columns of n entries, laid out as the journal stores them.

    body = name length u16, 2 zero bytes, rows u32, argument u64, name, padding, column*

Numbers in that head are big-endian as everywhere on the wire; columns are data, and data is
little-endian (decision 9).  A body's length is known before it is read, so a bad body costs its
sender a refusal and not the connection.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from fjord import columns, commands, limits
from fjord.columns import Strings, repeat
from fjord.commands import Command, Done, Entries, Refusal, Reply, Scan, Scanned
from fjord.errors import Code
from fjord.wire.functions import Flag, Function

_HEAD = struct.Struct(">HxxIQ")
_SCAN = struct.Struct(">QI4x")
_DONE = struct.Struct(">16sQ")
_ROWS = struct.Struct(">I4x")
_SCANNED = struct.Struct(">QQI4x")


# -- requests -------------------------------------------------------------------------------------


def encode_body(command: Command) -> tuple[Function, int, int, bytes]:
    """Returns function, flags, timestamp and body of the message for a command."""
    return _ENCODERS[type(command)](command)


def decode_body(
    function: Function, flags: int, timestamp_us: int, body: bytes
) -> Command | Refusal:
    """Returns the command of a body, or what is wrong with it."""
    try:
        return _DECODERS[function](_Body(body, flags, timestamp_us))
    except (ValueError, struct.error) as error:
        return Refusal(code=Code.BAD_BATCH, text=str(error))


class _Body:
    """A body whose head is read, and how far its columns are."""

    __slots__ = ("argument", "flags", "position", "rows", "table", "timestamp_us", "view")

    def __init__(self, body: bytes, flags: int, timestamp_us: int) -> None:
        length, self.rows, self.argument = _HEAD.unpack_from(body)
        end = _HEAD.size + length
        if end > len(body):
            raise ValueError("the name of the table is cut short")
        if self.rows > limits.BATCH_ROWS_MAX:
            raise ValueError(f"a batch has at most {limits.BATCH_ROWS_MAX} rows")
        self.table = body[_HEAD.size : end].decode("ascii", "replace")
        self.view = memoryview(body)
        self.position = columns.aligned(end)
        self.flags = flags
        self.timestamp_us = timestamp_us

    def strings(self) -> Strings:
        column, self.position = columns.decode_strings(self.view, self.position, self.rows)
        return column

    def numbers(self, kind: columns.NumberKind) -> Sequence[int]:
        column, self.position = columns.decode_numbers(self.view, self.position, self.rows, kind)
        return column

    def end(self) -> None:
        _check_end(self.position, self.view)


def _check_end(position: int, view: memoryview) -> None:
    if position != len(view):
        raise ValueError("the body is longer than its columns")


def _encode_head(table: str, rows: int, argument: int) -> bytes:
    name = table.encode()
    head = _HEAD.pack(len(name), rows, argument) + name
    return head + columns.padding(len(head))


def _encode_set(command: commands.Set) -> tuple[Function, int, int, bytes]:
    flags = Flag.OVERWRITE if command.overwrite else 0
    if command.persist:
        flags |= Flag.PERSIST
    body = b"".join(
        (
            _encode_head(command.table, len(command.keys), command.expires_at_us),
            columns.encode_u8(command.types),
            command.keys.encode(),
            command.values.encode(),
        )
    )
    # A message has one timestamp; commands of a client never have more.
    timestamp_us = command.timestamps_us[0] if command.timestamps_us else 0
    return Function.SET_MANY, flags, timestamp_us, body


def _decode_set(body: _Body) -> Command:
    types = bytes(body.numbers("B"))
    keys = body.strings()
    stored = body.strings()
    body.end()
    return commands.Set(
        table=body.table,
        keys=keys,
        types=types,
        values=stored,
        timestamps_us=repeat(body.timestamp_us, body.rows),
        expires_at_us=body.argument,
        overwrite=bool(body.flags & Flag.OVERWRITE),
        persist=bool(body.flags & Flag.PERSIST),
    )


def _encode_get(command: commands.Get) -> tuple[Function, int, int, bytes]:
    body = _encode_head(command.table, len(command.keys), 0) + command.keys.encode()
    return Function.GET_MANY, 0, 0, body


def _decode_get(body: _Body) -> Command:
    keys = body.strings()
    body.end()
    return commands.Get(table=body.table, keys=keys)


def _encode_delete(command: commands.Delete) -> tuple[Function, int, int, bytes]:
    body = _encode_head(command.table, len(command.keys), 0) + command.keys.encode()
    return Function.DELETE_MANY, 0, command.timestamp_us, body


def _decode_delete(body: _Body) -> Command:
    keys = body.strings()
    body.end()
    return commands.Delete(table=body.table, keys=keys, timestamp_us=body.timestamp_us)


def _encode_scan(command: Scan) -> tuple[Function, int, int, bytes]:
    head = _encode_head(command.table, 0, command.start_seq)
    body = head + _SCAN.pack(command.end_seq, command.bytes_max)
    return Function.SCAN, 0, 0, body


def _decode_scan(body: _Body) -> Command:
    end_seq, bytes_max = _SCAN.unpack_from(body.view, body.position)
    body.position += _SCAN.size
    body.end()
    return Scan(table=body.table, start_seq=body.argument, end_seq=end_seq, bytes_max=bytes_max)


_ENCODERS: Final[dict[type[Command], Callable[[Any], tuple[Function, int, int, bytes]]]] = {
    commands.Set: _encode_set,
    commands.Get: _encode_get,
    commands.Delete: _encode_delete,
    Scan: _encode_scan,
}

_DECODERS: Final[dict[Function, Callable[[_Body], Command]]] = {
    Function.SET_MANY: _decode_set,
    Function.GET_MANY: _decode_get,
    Function.DELETE_MANY: _decode_delete,
    Function.SCAN: _decode_scan,
}


# -- replies --------------------------------------------------------------------------------------


def encode_reply_body(reply: Reply) -> bytes:
    if isinstance(reply, Done):
        return _DONE.pack(reply.master, reply.seq)
    if isinstance(reply, Entries):
        return b"".join(
            (
                _ROWS.pack(len(reply.types)),
                columns.encode_u8(reply.types),
                columns.encode_u64(reply.timestamps_us),
                columns.encode_u64(reply.expires_at_us),
                reply.values.encode(),
            )
        )
    if isinstance(reply, Scanned):
        return b"".join(
            (
                _SCANNED.pack(reply.next_seq, reply.end_seq, len(reply.ops)),
                columns.encode_u64(reply.first_seqs),
                columns.encode_u64(reply.walls_us),
                columns.encode_u64(reply.last_seqs),
                reply.ops.encode(),
            )
        )
    return b""


def decode_reply_body(function: Function, body: bytes) -> Reply:
    """Returns the reply of a body.

    Raises:
        ValueError, struct.error: if the body is not one.
    """
    return _REPLIES[function](body)


def _decode_done(body: bytes) -> Reply:
    master, seq = _DONE.unpack(body)
    return Done(master=master, seq=seq)


def _decode_entries(body: bytes) -> Reply:
    view = memoryview(body)
    (rows,) = _ROWS.unpack_from(body)
    types, position = columns.decode_numbers(view, _ROWS.size, rows, "B")
    timestamps_us, position = columns.decode_numbers(view, position, rows, "Q")
    expires_at_us, position = columns.decode_numbers(view, position, rows, "Q")
    stored, position = columns.decode_strings(view, position, rows)
    _check_end(position, view)
    return Entries(
        types=bytes(types),
        values=stored,
        timestamps_us=timestamps_us,
        expires_at_us=expires_at_us,
    )


def _decode_scanned(body: bytes) -> Reply:
    view = memoryview(body)
    next_seq, end_seq, count = _SCANNED.unpack_from(body)
    first_seqs, position = columns.decode_numbers(view, _SCANNED.size, count, "Q")
    walls_us, position = columns.decode_numbers(view, position, count, "Q")
    last_seqs, position = columns.decode_numbers(view, position, count, "Q")
    found, position = columns.decode_strings(view, position, count)
    _check_end(position, view)
    return Scanned(
        first_seqs=first_seqs,
        walls_us=walls_us,
        last_seqs=last_seqs,
        ops=found,
        next_seq=next_seq,
        end_seq=end_seq,
    )


_REPLIES: Final[dict[Function, Callable[[bytes], Reply]]] = {
    Function.SET_MANY: _decode_done,
    Function.GET_MANY: _decode_entries,
    Function.DELETE_MANY: _decode_done,
    Function.SCAN: _decode_scanned,
}
