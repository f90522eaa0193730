"""Headers, fields and the bytes that they are read from: what all messages share.

Sizes are checked before the announced bytes are awaited, so a peer cannot make a server reserve
gigabytes.
"""

from __future__ import annotations

import struct
from typing import Final

from fjord import limits
from fjord.commands import Flag, Refusal
from fjord.errors import Code, RemoteProtocolError

MAGIC_REQUEST: Final = b"FJ"
MAGIC_REPLY: Final = b"JR"
VERSION: Final = 1
# Functions up to here have no body; docs/protocol.md says why they are called so.
LAST_SEED_FUNCTION: Final = 16

# magic, version, function, identifier, flags, timestamp
REQUEST = struct.Struct(">2sHHHHQ")
# magic, version, identifier, flags, timestamp
REPLY = struct.Struct(">2sHHHQ")
# Behind the header of functions above 16, and of replies with Flag.BODY: the body's length.
BODY_LENGTH = struct.Struct(">I")
U16 = struct.Struct(">H")
U64 = struct.Struct(">Q")
# By what the flags say: bit 0 for keys and error texts, bits 1 and 2 for values.
KEY_SIZES: Final = (struct.Struct(">B"), struct.Struct(">H"))
VALUE_SIZES: Final = (None, struct.Struct(">B"), struct.Struct(">H"), struct.Struct(">I"))
VALUE_BITS: Final = Flag.VALUE_8 | Flag.VALUE_16
QUERY_BITS: Final = Flag.QUERY_RANGE | Flag.QUERY_REGEX
QUERY_CURSOR: Final = QUERY_BITS  # both bits: a former GET is continued
SIZE_FLAGS: Final = Flag.KEY_16 | VALUE_BITS

# From this size on, bytes are passed on without a copy.
VIEW_BYTES_MIN: Final = 64 * 1024


class ReceiveBuffer:
    """Collects bytes; remembers how many are needed for the next message.

    A message mostly comes in one piece, which is used without a copy; only a remainder is copied
    and extended.
    """

    def __init__(self) -> None:
        self.data: bytes | bytearray = b""
        self.start = 0  # bytes before it are consumed
        self.pending_bytes = 0  # from there to the end
        self.needed = 1  # before that there is no message

    def feed(self, data: bytes | bytearray) -> None:
        if not self.pending_bytes:
            self.data, self.start, self.pending_bytes = data, 0, len(data)
            return
        if isinstance(self.data, bytes) or self.start:
            # Never in place: there may be views of consumed bytes.
            self.data = bytearray(memoryview(self.data)[self.start :])
            self.start = 0
        self.data += data
        self.pending_bytes += len(data)

    def has(self, size: int) -> bool:
        """Returns whether `size` bytes are there; if not, waits for them."""
        if self.pending_bytes >= size:
            return True
        self.needed = size
        return False

    @property
    def missing(self) -> int:
        """How many bytes the first message lacks, as far as known."""
        return max(0, self.needed - self.pending_bytes) if self.pending_bytes else 0

    def take_all(self) -> memoryview:
        """Consumes and returns everything, to assemble a large message elsewhere."""
        found = memoryview(self.data)[self.start :]
        self.data, self.start, self.pending_bytes, self.needed = b"", 0, 0, 1
        return found

    def take(self, offset: int, size: int) -> bytes:
        """Returns bytes at `offset` from the front, without consuming them."""
        begin = self.start + offset
        if isinstance(self.data, bytes):
            return self.data[begin : begin + size]
        return bytes(memoryview(self.data)[begin : begin + size])  # a slice would be one copy more

    def body(self, offset: int, size: int) -> bytes | memoryview:
        """Like `take`, for a message that is consumed next; a large one is not copied."""
        if size < VIEW_BYTES_MIN:
            return self.take(offset, size)
        begin = self.start + offset
        return memoryview(self.data)[begin : begin + size].toreadonly()

    def consume(self, size: int) -> None:
        self.start += size
        self.pending_bytes -= size
        self.needed = 1


class IncompleteError(Exception):
    """Bytes are missing; the buffer knows how many."""


class Fields:
    """The fields after a header; each read advances `offset`."""

    __slots__ = ("buffer", "flags", "offset")

    def __init__(self, buffer: ReceiveBuffer, offset: int, flags: int) -> None:
        self.buffer = buffer
        self.offset = offset
        self.flags = flags

    def skip(self, size: int) -> None:
        """Skips `size` bytes that are read elsewhere."""
        if not self.buffer.has(self.offset + size):
            raise IncompleteError
        self.offset += size

    def u16(self) -> int:
        return self._number(U16)

    def u64(self) -> int:
        return self._number(U64)

    def key(self) -> bytes:
        """Reads a key, or another field sized like one."""
        return self._sized(KEY_SIZES[self.flags & Flag.KEY_16])

    def value(self, owner: str) -> tuple[bytes, bytes]:
        """Reads size, type and data of the value that `owner` requires.

        Raises:
            RemoteProtocolError: if there is none, or its size is invalid.
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
        end = begin = self.offset + field.size
        if buffer.pending_bytes >= begin:
            (size,) = field.unpack_from(buffer.data, buffer.start + self.offset)
            end = begin + size
            if buffer.pending_bytes >= end:
                self.offset = end
                return buffer.take(begin, size)
        buffer.needed = end
        raise IncompleteError


def encode_keys(flags: int, *keys: bytes) -> tuple[int, bytes]:
    """Returns the flags, with the bit for wide keys if needed, and the keys."""
    wide = max(map(len, keys)) > 0xFF
    field = KEY_SIZES[wide]
    parts = [part for key in keys for part in (field.pack(len(key)), key)]
    return flags | (Flag.KEY_16 if wide else 0), b"".join(parts)


def encode_value(type_: int, data: bytes) -> tuple[int, bytes]:
    """Returns the bits for the narrowest sufficient size, and the value."""
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


# -- errors: a code, a colon, and a sentence for people -------------------------------------------


def encode_error(refusal: Refusal) -> bytes:
    return f"{refusal.code}: {refusal.text}".encode(errors="replace")[:0xFFFF]


def decode_error(text: bytes) -> Refusal:
    """Parses a refusal; an unknown code becomes FAILED."""
    code, _, sentence = text.decode(errors="replace").partition(": ")
    try:
        return Refusal(code=Code(code), text=sentence)
    except ValueError:
        return Refusal(code=Code.FAILED, text=text.decode(errors="replace"))
