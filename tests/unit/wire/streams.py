"""Messages of the FJ protocol as bytes, made without the codec, and the ways they arrive."""

from __future__ import annotations

import dataclasses
import struct
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from fjord.columns import Strings, repeat
from fjord.commands import Command, Delete, Entries, Get, Nop, Page, Reply, Scanned, Set, codec
from fjord.wire import Cursors, Request, RequestDecoder, encode_reply, encode_request

NOW_US = 1_700_000_000_000_000
MASTER = bytes(range(16))
CURSORS = Cursors(b"secret", MASTER)
_REQUEST = struct.Struct(">2sHHHHQ")
_REPLY = struct.Struct(">2sHHHQ")

Message_co = TypeVar("Message_co", covariant=True)


class Decoder(Protocol[Message_co]):
    """What takes bytes and gives messages."""

    def feed(self, data: bytes) -> None: ...

    def next(self) -> Message_co | None: ...


def request_bytes(
    function: int,
    rest: bytes = b"",
    *,
    identifier: int = 7,
    flags: int = 0,
    timestamp_us: int = NOW_US,
    magic: bytes = b"FJ",
    version: int = 1,
) -> bytes:
    """The header of FJ-36, then `rest`."""
    return _REQUEST.pack(magic, version, function, identifier, flags, timestamp_us) + rest


def reply_bytes(
    rest: bytes,
    *,
    identifier: int = 7,
    flags: int = 0,
    timestamp_us: int = NOW_US,
    magic: bytes = b"JR",
    version: int = 1,
) -> bytes:
    """The header of FJ-40, then `rest`."""
    return _REPLY.pack(magic, version, identifier, flags, timestamp_us) + rest


def batch_bytes(function: int, body: bytes, *, flags: int = 0, timestamp_us: int = 0) -> bytes:
    """A request of a function above 16: header, length, body."""
    rest = struct.pack(">I", len(body)) + body
    return request_bytes(function, rest, flags=flags, timestamp_us=timestamp_us)


def head(name: bytes, rows: int, argument: int = 0, *, name_bytes: int | None = None) -> bytes:
    """The head of a request's body."""
    length = len(name) if name_bytes is None else name_bytes
    fields = struct.pack(">HHIQ", length, 0, rows, argument) + name
    return fields + bytes(-len(fields) % 8)


def inner(
    function: int, body: bytes = b"", *, flags: int = 0, timestamp_us: int = 0, length: int = -1
) -> bytes:
    """A command of a BATCH."""
    size = len(body) if length < 0 else length
    return struct.pack(">HHIQ", function, flags, size, timestamp_us) + body + bytes(-len(body) % 8)


def strings(*rows: bytes) -> bytes:
    """A column of strings."""
    return bytes(Strings.of(rows).encode())


def blob(data: bytes) -> bytes:
    return struct.pack(">I4x", len(data)) + data + bytes(-len(data) % 8)


def body_of(record: Command | Reply) -> bytes:
    """The body of a command or a reply."""
    if isinstance(record, Command):
        return b"".join(codec.encode(record)[3])
    return b"".join(codec.encode_reply(record))


def sent(command: Command, identifier: int = 7, number: int = 0) -> bytes:
    """A request as it is sent."""
    return b"".join(encode_request(command, identifier, number))


def answered(
    reply: Reply, function: int = 33, *, identifier: int = 7, flags: int = 0, now_us: int = NOW_US
) -> bytes:
    """A reply as it is sent, to a request of this function with these flags."""
    request = Request(function, identifier, flags, Nop(), 0)
    return b"".join(encode_reply(request, reply, now_us=now_us))


def set_one(key: bytes, type_: int, value: bytes, **options: Any) -> Set:
    return set_many("default", [(key, type_, value)], **options)


def set_many(
    table: str,
    items: Sequence[tuple[bytes, int, bytes]],
    *,
    timestamp_us: int = NOW_US,
    **options: Any,
) -> Set:
    return Set(
        table=table,
        keys=Strings.of([key for key, _, _ in items]),
        types=bytes([type_ for _, type_, _ in items]),
        values=Strings.of([value for _, _, value in items]),
        timestamps_us=repeat(timestamp_us, len(items)),
        **options,
    )


def get_many(table: str, keys: Sequence[bytes], **options: Any) -> Get:
    return Get(table=table, keys=Strings.of(keys), **options)


def delete_many(
    table: str, keys: Sequence[bytes], timestamp_us: int = NOW_US, **options: Any
) -> Delete:
    return Delete(table=table, keys=Strings.of(keys), timestamp_us=timestamp_us, **options)


def entries(*rows: tuple[int, bytes, int, int], state: int = 0, more: int = 0) -> Entries:
    """Entries of (type, value, timestamp, expiry); `more` makes the other dates differ from 0."""
    count = len(rows)
    return Entries(
        types=bytes([row[0] for row in rows]),
        values=Strings.of([row[1] for row in rows]),
        timestamps_us=array("Q", [row[2] for row in rows]),
        expires_at_us=array("Q", [row[3] for row in rows]),
        states=bytes([state] * count),
        created_us=array("Q", [more and more + row for row in range(count)]),
        accessed_us=array("Q", [more and more + 10 + row for row in range(count)]),
        ttls_us=array("Q", [more and more + 20 + row for row in range(count)]),
    )


def page(keys: Sequence[bytes], found: Entries, next_key: bytes = b"") -> Page:
    return Page(keys=Strings.of(keys), entries=found, next_key=next_key)


def scanned(ops: Sequence[bytes], *, next_seq: int, end_seq: int) -> Scanned:
    count = len(ops)
    return Scanned(
        first_seqs=array("Q", range(1, 1 + count)),
        walls_us=array("Q", [NOW_US] * count),
        last_seqs=array("Q", range(2, 2 + count)),
        ops=Strings.of(ops),
        next_seq=next_seq,
        end_seq=end_seq,
    )


def plain(record: object) -> object:
    """A record as types that compare by content, whichever array holds its numbers."""
    if isinstance(record, Strings):
        return record.rows()
    if isinstance(record, array | memoryview | tuple | list):
        return [plain(one) for one in record]
    if dataclasses.is_dataclass(record):
        names = [field.name for field in dataclasses.fields(record)]
        return type(record), {name: plain(getattr(record, name)) for name in names}
    return record


def check_arrivals(
    make: Callable[[], Decoder[object]], data: bytes, expected: object, following: bytes
) -> None:
    """Checks that `data` is one message: whole, byte by byte, and with another one behind it."""
    decoder = make()
    decoder.feed(data)
    assert plain(decoder.next()) == plain(expected)
    assert decoder.next() is None

    decoder = make()
    for position in range(len(data)):
        assert decoder.next() is None
        decoder.feed(data[position : position + 1])
    assert plain(decoder.next()) == plain(expected)
    assert decoder.next() is None

    decoder = make()
    middle = len(following) // 2
    decoder.feed(data + following[:middle])
    assert plain(decoder.next()) == plain(expected)
    assert decoder.next() is None
    decoder.feed(following[middle:] + data)
    assert decoder.next() is not None
    assert plain(decoder.next()) == plain(expected)
    assert decoder.next() is None


def new_decoder() -> RequestDecoder:
    return RequestDecoder(CURSORS)


def check_request(data: bytes, expected: Request) -> None:
    check_arrivals(new_decoder, data, expected, following=request_bytes(0))
