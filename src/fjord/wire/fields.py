"""Fields of messages without a total length: read one after the other, as far as bytes are there.

Sizes are judged before what they announce is waited for, so a peer that announces gigabytes makes
nobody hold them.
"""

from __future__ import annotations

import struct
from typing import Final

from fjord import limits
from fjord.errors import Code, RemoteProtocolError
from fjord.wire.buffer import ReceiveBuffer
from fjord.wire.functions import VALUE_BITS, Flag

U16 = struct.Struct(">H")
U64 = struct.Struct(">Q")
# By what the flags say: bit 0 for keys and error texts, bits 1 and 2 for values.
KEY_SIZES: Final = (struct.Struct(">B"), struct.Struct(">H"))
VALUE_SIZES: Final = (None, struct.Struct(">B"), struct.Struct(">H"), struct.Struct(">I"))


class IncompleteError(Exception):
    """Bytes are missing; the buffer knows how many are worth another look."""


class Fields:
    """The fields behind a header; each read moves `offset` on."""

    __slots__ = ("buffer", "flags", "offset")

    def __init__(self, buffer: ReceiveBuffer, offset: int, flags: int) -> None:
        self.buffer = buffer
        self.offset = offset
        self.flags = flags

    def skip(self, size: int) -> None:
        """Goes on behind `size` bytes that are read elsewhere."""
        if not self.buffer.has(self.offset + size):
            raise IncompleteError
        self.offset += size

    def u16(self) -> int:
        return self._number(U16)

    def u64(self) -> int:
        return self._number(U64)

    def key(self) -> bytes:
        """Reads a key, or whatever is sized like one."""
        return self._sized(KEY_SIZES[self.flags & Flag.KEY_16])

    def value(self, owner: str) -> tuple[bytes, bytes]:
        """Reads size, type and data of a value that `owner` cannot do without.

        Raises:
            RemoteProtocolError: if there is none, or one of a size that cannot be.
        """
        field = VALUE_SIZES[(self.flags & VALUE_BITS) >> 1]
        if field is None:
            raise RemoteProtocolError(Code.BAD_VALUE_SIZE, f"{owner} needs a value: set bits 1-2")
        buffer = self.buffer
        if not buffer.has(self.offset + field.size):
            raise IncompleteError
        (size,) = field.unpack_from(buffer.data, buffer.start + self.offset)
        if size == 0:
            raise RemoteProtocolError(Code.BAD_VALUE_SIZE, "a value's size counts its type byte")
        if size > 1 + limits.VALUE_BYTES_MAX:
            raise RemoteProtocolError(
                Code.VALUE_TOO_LARGE, f"a value has at most {limits.VALUE_BYTES_MAX} bytes"
            )
        data = self._sized(field)
        return data[:1], data[1:]

    def _number(self, field: struct.Struct) -> int:
        buffer = self.buffer
        end = self.offset + field.size
        if not buffer.has(end):
            raise IncompleteError
        number: int = field.unpack_from(buffer.data, buffer.start + self.offset)[0]
        self.offset = end
        return number

    def _sized(self, field: struct.Struct) -> bytes:
        buffer = self.buffer
        begin = self.offset + field.size
        if not buffer.has(begin):
            raise IncompleteError
        (size,) = field.unpack_from(buffer.data, buffer.start + self.offset)
        end = begin + size
        if not buffer.has(end):
            raise IncompleteError
        self.offset = end
        return buffer.take(begin, size)


def encode_keys(flags: int, *keys: bytes) -> tuple[int, bytes]:
    """Returns the flags with the bit for wide keys, if they need it, and the keys."""
    wide = max(map(len, keys)) > 0xFF
    field = KEY_SIZES[wide]
    parts = [part for key in keys for part in (field.pack(len(key)), key)]
    return flags | (Flag.KEY_16 if wide else 0), b"".join(parts)


def encode_value(type_: int, data: bytes) -> tuple[int, bytes]:
    """Returns the bits for the narrowest size that will do, and the value."""
    size = 1 + len(data)
    if size <= 0xFF:
        return Flag.VALUE_8, bytes((size, type_)) + data
    bits = value_bits(size)
    field = VALUE_SIZES[bits >> 1]
    assert field is not None
    return bits, b"".join((field.pack(size), bytes((type_,)), data))


def value_bits(size: int) -> int:
    """Returns the bits that announce a value of `size` bytes, its type byte included."""
    return Flag.VALUE_8 if size <= 0xFF else Flag.VALUE_16 if size <= 0xFFFF else VALUE_BITS
