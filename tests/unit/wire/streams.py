"""Messages of the FJ protocol as bytes, made without the codec, and the ways they arrive."""

from __future__ import annotations

import dataclasses
import struct
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from fjord.columns import Strings, repeat
from fjord.commands import Delete, Entries, Get, Scan, Scanned, Set
from fjord.wire import Request, RequestDecoder

NOW_US = 1_700_000_000_000_000
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


def set_one(
    key: bytes,
    type_: int,
    value: bytes,
    *,
    timestamp_us: int = NOW_US,
    expires_at_us: int = 0,
    overwrite: bool = True,
    persist: bool = True,
) -> Set:
    return Set(
        table="default",
        keys=Strings.of([key]),
        types=bytes([type_]),
        values=Strings.of([value]),
        timestamps_us=(timestamp_us,),
        expires_at_us=expires_at_us,
        overwrite=overwrite,
        persist=persist,
    )


def set_many(table: str, items: Sequence[tuple[bytes, int, bytes]], **options: Any) -> Set:
    return Set(
        table=table,
        keys=Strings.of([key for key, _, _ in items]),
        types=bytes([type_ for _, type_, _ in items]),
        values=Strings.of([value for _, _, value in items]),
        timestamps_us=repeat(NOW_US, len(items)),
        **options,
    )


def get_many(table: str, keys: Sequence[bytes]) -> Get:
    return Get(table=table, keys=Strings.of(keys))


def delete_many(table: str, keys: Sequence[bytes], timestamp_us: int = NOW_US) -> Delete:
    return Delete(table=table, keys=Strings.of(keys), timestamp_us=timestamp_us)


def entries(*rows: tuple[int, bytes, int, int]) -> Entries:
    """Entries of (type, value, timestamp, expiry)."""
    return Entries(
        types=bytes([row[0] for row in rows]),
        values=Strings.of([row[1] for row in rows]),
        timestamps_us=array("Q", [row[2] for row in rows]),
        expires_at_us=array("Q", [row[3] for row in rows]),
    )


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


BATCHES = [
    set_many("t", [(b"k", 1, b"v")]),
    set_many("a-name", [(b"k", 1, b""), (b"key", 2, b"text"), (b"\0\xff", 5, b"\1")]),
    set_many("t", [(b"k", 3, bytes(8))] * 9, expires_at_us=NOW_US + 1, overwrite=False),
    set_many("12345678", [(b"k", 0, b"")], persist=False),
    get_many("t", [b"k"]),
    get_many("longer_name", [b"a", b"", b"a", b"x" * 300]),
    delete_many("t", [b"k"]),
    delete_many("t", [b"a", b"bb", b"ccc"], timestamp_us=2**64 - 1),
    Scan(table="t", start_seq=1, end_seq=0),
    Scan(table="longer_name", start_seq=2**64 - 1, end_seq=2**64 - 1, bytes_max=2**32 - 1),
]


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


def check_request(data: bytes, expected: Request) -> None:
    check_arrivals(RequestDecoder, data, expected, following=request_bytes(0))
