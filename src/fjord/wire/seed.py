"""Messages of functions 0 to 16: one key, one value, flags that say which fields are there.

They carry no total length (decision 10), so a parser either finds a whole message, or says how
many bytes it needs, or gives the connection up.
"""

from __future__ import annotations

import struct
from typing import Final

from fjord import commands, limits
from fjord.columns import Strings
from fjord.commands import Command, Entries, Refusal, Reply
from fjord.errors import Code, RemoteProtocolError
from fjord.wire.buffer import ReceiveBuffer
from fjord.wire.functions import (
    MAGIC_REPLY,
    MAGIC_REQUEST,
    REPLY,
    REQUEST,
    VALUE_BITS,
    VERSION,
    Flag,
    Function,
)

_U64 = struct.Struct(">Q")
_KEY_SIZES: Final = {False: struct.Struct(">B"), True: struct.Struct(">H")}
_VALUE_SIZES: Final = {
    Flag.VALUE_8: struct.Struct(">B"),
    Flag.VALUE_16: struct.Struct(">H"),
    VALUE_BITS: struct.Struct(">I"),
}


# -- requests -------------------------------------------------------------------------------------


def decode_request(
    buffer: ReceiveBuffer, function: Function, flags: int, timestamp_us: int
) -> tuple[Command | Refusal, int] | None:
    """Reads what follows the header.

    Returns:
        The command, or what is wrong with it, and the length of the whole message; None if
        bytes are missing.

    Raises:
        RemoteProtocolError: if the message cannot be followed any further.
    """
    fields = _Fields(buffer, REQUEST.size)
    if function in (Function.NOP, Function.QUIT):
        return commands.Nop(), fields.offset
    expires_at_us = fields.u64() if flags & Flag.TIMEOUT else 0
    if expires_at_us is None:
        return None
    key = fields.sized(_KEY_SIZES[bool(flags & Flag.KEY_16)])
    if key is None:
        return None
    keys = Strings.of([key])
    table = commands.DEFAULT_TABLE
    if function is Function.GET:
        return commands.Get(table=table, keys=keys), fields.offset
    if function is Function.DELETE:
        command = commands.Delete(table=table, keys=keys, timestamp_us=timestamp_us)
        return command, fields.offset
    value = fields.value(flags)
    if value is None:
        return None
    if flags & Flag.TIMEOUT and not expires_at_us:
        return Refusal(code=Code.BAD_TIMEOUT, text="a timeout of 0 is none; clear bit 3"), (
            fields.offset
        )
    type_, data = value
    return commands.Set(
        table=table,
        keys=keys,
        types=type_,
        values=Strings.of([data]),
        timestamps_us=(timestamp_us,),
        expires_at_us=expires_at_us,
        overwrite=bool(flags & Flag.OVERWRITE),
        persist=bool(flags & (Flag.PERSIST | Flag.PERSIST_SYNONYM)),
    ), fields.offset


def encode_request(command: Command, identifier: int, timestamp_us: int = 0) -> bytes:
    """Returns the message for a command on one key of the default table."""
    if isinstance(command, commands.Set):
        return _encode_set(command, identifier)
    if isinstance(command, commands.Get):
        return _request(Function.GET, identifier, Flag.DATA, timestamp_us, command.keys)
    if isinstance(command, commands.Delete):
        return _request(Function.DELETE, identifier, 0, command.timestamp_us, command.keys)
    return REQUEST.pack(MAGIC_REQUEST, VERSION, Function.NOP, identifier, 0, timestamp_us)


def _encode_set(command: commands.Set, identifier: int) -> bytes:
    size_flag, value = _encode_value(command.types[0], command.values[0])
    flags = size_flag
    if command.overwrite:
        flags |= Flag.OVERWRITE
    if command.persist:
        flags |= Flag.PERSIST
    timeout = b""
    if command.expires_at_us:
        flags |= Flag.TIMEOUT
        timeout = _U64.pack(command.expires_at_us)
    head = _request(
        Function.SET, identifier, flags, command.timestamps_us[0], command.keys, timeout=timeout
    )
    return head + value


def _request(
    function: Function,
    identifier: int,
    flags: int,
    timestamp_us: int,
    keys: Strings,
    *,
    timeout: bytes = b"",
) -> bytes:
    key = keys[0]
    wide = len(key) > 0xFF
    if wide:
        flags |= Flag.KEY_16
    head = REQUEST.pack(MAGIC_REQUEST, VERSION, function, identifier, flags, timestamp_us)
    return b"".join((head, timeout, _KEY_SIZES[wide].pack(len(key)), key))


def _encode_value(type_: int, data: bytes) -> tuple[int, bytes]:
    size = 1 + len(data)
    flag = Flag.VALUE_8 if size <= 0xFF else Flag.VALUE_16 if size <= 0xFFFF else VALUE_BITS
    return flag, b"".join((_VALUE_SIZES[flag].pack(size), bytes([type_]), data))


class _Fields:
    """Reads one field after the other; None as soon as bytes are missing."""

    def __init__(self, buffer: ReceiveBuffer, offset: int) -> None:
        self._buffer = buffer
        self.offset = offset

    def u64(self) -> int | None:
        if not self._buffer.has(self.offset + _U64.size):
            return None
        number: int = _U64.unpack_from(self._buffer.data, self._buffer.start + self.offset)[0]
        self.offset += _U64.size
        return number

    def sized(self, size_field: struct.Struct) -> bytes | None:
        buffer = self._buffer
        if not buffer.has(self.offset + size_field.size):
            return None
        (size,) = size_field.unpack_from(buffer.data, buffer.start + self.offset)
        if not buffer.has(self.offset + size_field.size + size):
            return None
        data = buffer.take(self.offset + size_field.size, size)
        self.offset += size_field.size + size
        return data

    def value(self, flags: int) -> tuple[bytes, bytes] | None:
        """Reads size, type and data; the size is judged before the data is waited for."""
        size_field = _VALUE_SIZES.get(flags & VALUE_BITS)
        if size_field is None:
            raise RemoteProtocolError(Code.BAD_VALUE_SIZE, "SET needs a value: set bits 1-2")
        buffer = self._buffer
        if not buffer.has(self.offset + size_field.size):
            return None
        (size,) = size_field.unpack_from(buffer.data, buffer.start + self.offset)
        if size == 0:
            raise RemoteProtocolError(Code.BAD_VALUE_SIZE, "a value's size counts its type byte")
        if size > 1 + limits.VALUE_BYTES_MAX:
            raise RemoteProtocolError(
                Code.VALUE_TOO_LARGE, f"a value has at most {limits.VALUE_BYTES_MAX} bytes"
            )
        data = self.sized(size_field)
        return None if data is None else (data[:1], data[1:])


# -- replies --------------------------------------------------------------------------------------


def encode_reply(identifier: int, reply: Reply, *, now_us: int, with_data: bool) -> bytes:
    """Returns the JR message for a reply to one of these functions."""
    if isinstance(reply, Refusal):
        return encode_error(identifier, reply, now_us=now_us)
    if isinstance(reply, Entries):
        return _encode_entry(identifier, reply, now_us=now_us, with_data=with_data)
    return REPLY.pack(MAGIC_REPLY, VERSION, identifier, 0, now_us) + b"\0"


def encode_error(identifier: int, refusal: Refusal, *, now_us: int, flags: int = 0) -> bytes:
    text = f"{refusal.code}: {refusal.text}".encode()[:0xFFFF]
    wide = len(text) > 0xFF
    flags |= Flag.KEY_16 if wide else 0
    head = REPLY.pack(MAGIC_REPLY, VERSION, identifier, flags, now_us)
    return b"".join((head, _KEY_SIZES[wide].pack(len(text)), text))


def _encode_entry(identifier: int, entries: Entries, *, now_us: int, with_data: bool) -> bytes:
    type_ = entries.types[0]
    if type_ == Entries.MISSING:
        refusal = Refusal(code=Code.NOT_FOUND, text="the key does not exist")
        return encode_error(identifier, refusal, now_us=now_us)
    flags, value = _encode_value(type_, entries.values[0] if with_data else b"")
    timeout = b""
    if entries.expires_at_us[0]:
        flags |= Flag.TIMEOUT
        timeout = _U64.pack(entries.expires_at_us[0])
    head = REPLY.pack(MAGIC_REPLY, VERSION, identifier, flags, entries.timestamps_us[0])
    return b"".join((head, timeout, b"\0", value))


def decode_reply_fields(
    buffer: ReceiveBuffer, flags: int
) -> tuple[int, bytes, bytes, bytes, int] | None:
    """Reads what follows a reply's header, but for a body.

    Returns:
        Timeout, error text, type byte, data, and the length so far; None if bytes are missing.
    """
    fields = _Fields(buffer, REPLY.size)
    timeout = fields.u64() if flags & Flag.TIMEOUT else 0
    if timeout is None:
        return None
    error = fields.sized(_KEY_SIZES[bool(flags & Flag.KEY_16)])
    if error is None:
        return None
    type_, data = b"", b""
    if flags & VALUE_BITS:
        value = fields.value(flags)
        if value is None:
            return None
        type_, data = value
    return timeout, error, type_, data, fields.offset
