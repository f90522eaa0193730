"""The six value types of the wire, and the Python values that stand for them.

A value is bytes and one type byte.  Numbers are little-endian, as decision 9 fixes: an integer is
8 bytes two's complement, a float an IEEE double, a boolean one byte 0 or 1, a string UTF-8.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Mapping
from typing import Final

from fjord.errors import Code, LocalProtocolError, RemoteProtocolError

Value = None | bytes | str | int | float | bool

_FLOAT = struct.Struct("<d")
_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**63 - 1


class Type(enum.IntEnum):
    """The type byte of a value."""

    VOID = 0
    BUFFER = 1
    STRING = 2
    INTEGER = 3
    FLOAT = 4
    BOOLEAN = 5


# The type byte of a row of a declared table: `declared.rows` has its bytes.
ROW: Final = 6


class RowType(enum.IntEnum):
    """The type byte of a row, with a name."""

    ROW = ROW


_BUFFER: Final = int(Type.BUFFER)


def encode(value: Value) -> tuple[int, bytes]:
    """Returns the type byte and the bytes of a Python value.

    Raises:
        LocalProtocolError: for an unsupported type, or an integer beyond 64 bits.
    """
    if type(value) is bytes:  # as most are that come in numbers
        return _BUFFER, value
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        raise LocalProtocolError(Code.BAD_TYPE, _no_value(value))
    return encoder(value)


def decode(type_: int, data: bytes) -> Value:
    """Returns the Python value of stored bytes.

    Raises:
        RemoteProtocolError: if the type is unknown.
    """
    decoder = _DECODERS.get(type_)
    if decoder is None:
        text = "a row of declared columns; read it as a job or as a message of its stream"
        raise RemoteProtocolError(
            Code.BAD_TYPE, text if type_ == ROW else f"a value of type {type_}"
        )
    return decoder(data)


def problem(type_: int, data: bytes) -> tuple[Code, str] | None:
    """Returns what is wrong with a value from outside, or None."""
    if type_ == Type.BUFFER:
        return None
    if type_ == ROW:
        return Code.BAD_TYPE, "a row is for a table with declared columns; this one has none"
    if type_ > Type.BOOLEAN:
        return Code.BAD_TYPE, f"type {type_} does not exist; types are 0 to 5"
    return _CHECKS[type_](data)


def _no_value(given: object) -> str:
    text = f"a value is None, bytes, str, int, float or bool, not {type(given).__name__}"
    if isinstance(given, Mapping):
        text += "; rows are for jobs tables and streams with declared columns"
    return text


def _encode_integer(value: int) -> tuple[int, bytes]:
    if not _INTEGER_MIN <= value <= _INTEGER_MAX:
        raise LocalProtocolError(Code.BAD_VALUE, "an integer has at most 64 bits")
    return Type.INTEGER, value.to_bytes(8, "little", signed=True)


def _encode_string(value: str) -> tuple[int, bytes]:
    try:
        return Type.STRING, value.encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(Code.BAD_VALUE, f"the string is not UTF-8: {error}") from error


def _check_void(data: bytes) -> tuple[Code, str] | None:
    return (Code.BAD_TYPE, "a void value has no data") if data else None


def _check_string(data: bytes) -> tuple[Code, str] | None:
    try:
        data.decode()
    except UnicodeDecodeError:
        return Code.BAD_VALUE, "a string value must be UTF-8"
    return None


def _check_number(data: bytes) -> tuple[Code, str] | None:
    return None if len(data) == 8 else (Code.BAD_VALUE, "a number has exactly 8 bytes")


def _check_boolean(data: bytes) -> tuple[Code, str] | None:
    return None if data in (b"\0", b"\1") else (Code.BAD_VALUE, "a boolean is one byte, 0 or 1")


_ENCODERS: dict[type, Callable[..., tuple[int, bytes]]] = {
    type(None): lambda value: (Type.VOID, b""),
    bytes: lambda value: (Type.BUFFER, value),
    bytearray: lambda value: (Type.BUFFER, bytes(value)),
    memoryview: lambda value: (Type.BUFFER, bytes(value)),
    str: _encode_string,
    int: _encode_integer,
    float: lambda value: (Type.FLOAT, _FLOAT.pack(value)),
    bool: lambda value: (Type.BOOLEAN, b"\1" if value else b"\0"),
}

# Of what is no row.
PLAIN_TYPES: Final = frozenset(_ENCODERS)

_DECODERS: dict[int, Callable[[bytes], Value]] = {
    Type.VOID: lambda data: None,
    Type.BUFFER: bytes,
    Type.STRING: lambda data: data.decode(),
    Type.INTEGER: lambda data: int.from_bytes(data, "little", signed=True),
    Type.FLOAT: lambda data: float(_FLOAT.unpack(data)[0]),
    Type.BOOLEAN: lambda data: data == b"\1",
}

_CHECKS: dict[int, Callable[[bytes], tuple[Code, str] | None]] = {
    Type.VOID: _check_void,
    Type.BUFFER: lambda data: None,
    Type.STRING: _check_string,
    Type.INTEGER: _check_number,
    Type.FLOAT: _check_number,
    Type.BOOLEAN: _check_boolean,
}
