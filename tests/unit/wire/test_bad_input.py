"""Bad input, row by row: what the decoder itself has to answer, and whether it can go on.

C: the stream cannot be followed, one error and no more.  K: the request is refused, and the next
one is understood.  What only a table can judge (types, clocks, ranges) is not here.
"""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from fjord import limits
from fjord.columns import Strings
from fjord.commands import Change, Flag, Nop, Range, Read, Refusal, Use
from fjord.errors import Code, RemoteProtocolError
from fjord.wire import Cursors, Function, Request
from tests.unit.wire.job_samples import push
from tests.unit.wire.samples import modify
from tests.unit.wire.stream_samples import append
from tests.unit.wire.streams import (
    CURSORS,
    NOW_US,
    batch_bytes,
    blob,
    body_of,
    head,
    inner,
    new_decoder,
    request_bytes,
    sent,
)

VALUE_32 = Flag.VALUE_8 | Flag.VALUE_16
ZERO = bytes(8)
SOON = struct.pack(">Q", 2**60)
NOW = struct.pack(">Q", NOW_US)
ONE_KEY = bytes(Strings.of([b"k"]).encode())
LONG_KEY = struct.pack(">H", limits.KV_KEY_BYTES_MAX + 1) + b"k" * (limits.KV_KEY_BYTES_MAX + 1)
PAGE = Range(table="t", stop=b"z")


def get(flags: int, rest: bytes = b"\1k") -> bytes:
    return request_bytes(Function.GET, rest, flags=flags)


def cursor(data: bytes) -> bytes:
    rest = struct.pack(">H", len(data)) + data
    return get(Flag.KEY_16 | Flag.QUERY_RANGE | Flag.QUERY_REGEX, rest)


CLOSING: dict[str, tuple[bytes, Code]] = {
    "magic": (b"XJ" + bytes(16), Code.BAD_MAGIC),
    "http": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", Code.BAD_MAGIC),
    "version-2": (request_bytes(0, version=2), Code.BAD_VERSION),
    "function-62": (request_bytes(62), Code.UNKNOWN_FUNCTION),
    "server-only": (request_bytes(16, b"\1k"), Code.FORBIDDEN),
    "bit-15": (request_bytes(2, flags=1 << 15), Code.BAD_FLAGS),
    "timeout-with-a-query": (get(Flag.QUERY_RANGE | Flag.TIMEOUT, b""), Code.BAD_FLAGS),
    "touch-with-a-query": (get(Flag.QUERY_REGEX | Flag.UPDATE_TIMEOUT, b""), Code.BAD_FLAGS),
    "listen-with-a-query": (get(Flag.QUERY_REGEX | Flag.LISTEN, b""), Code.BAD_FLAGS),
    "set-value-flag-0": (request_bytes(2, b"\1k"), Code.BAD_VALUE_SIZE),
    "add-value-flag-0": (request_bytes(5, b"\1k"), Code.BAD_VALUE_SIZE),
    "set-size-0-of-8": (request_bytes(2, b"\1k\0", flags=Flag.VALUE_8), Code.BAD_VALUE_SIZE),
    "set-size-0-of-16": (request_bytes(2, b"\1k\0\0", flags=Flag.VALUE_16), Code.BAD_VALUE_SIZE),
    "add-size-0": (request_bytes(5, b"\1k\0", flags=Flag.VALUE_8), Code.BAD_VALUE_SIZE),
    "set-4-gib": (request_bytes(2, b"\1k\xff\xff\xff\xff", flags=VALUE_32), Code.VALUE_TOO_LARGE),
    "set-one-byte-too-many": (
        request_bytes(2, b"\1k" + struct.pack(">I", limits.VALUE_BYTES_MAX + 2), flags=VALUE_32),
        Code.VALUE_TOO_LARGE,
    ),
    "body-4-gib": (request_bytes(32, b"\xff\xff\xff\xff"), Code.TOO_LARGE),
    "body-one-byte-too-many": (
        request_bytes(19, struct.pack(">I", limits.MESSAGE_BYTES_MAX + 1)),
        Code.TOO_LARGE,
    ),
}

KEPT: dict[str, tuple[bytes, Code]] = {
    "a-number-in-a-batch": (
        batch_bytes(19, head(b"", 1) + inner(65, body_of(append("t", [b"v"])), flags=1 << 15)),
        Code.BAD_BATCH,
    ),
    "set-timeout-0": (
        request_bytes(2, ZERO + b"\1k\1\0", flags=Flag.VALUE_8 | Flag.TIMEOUT),
        Code.BAD_TIMEOUT,
    ),
    "set-ttl-0": (
        request_bytes(2, ZERO + b"\1k\1\0", flags=Flag.VALUE_8 | Flag.TTL),
        Code.BAD_TIMEOUT,
    ),
    "get-timeout-0": (get(Flag.TIMEOUT, ZERO + b"\1k"), Code.BAD_TIMEOUT),
    "get-update-timeout-0": (
        get(Flag.TIMEOUT | Flag.UPDATE_TIMEOUT, ZERO + b"\1k"),
        Code.BAD_TIMEOUT,
    ),
    "get-update-timeout-without-timeout": (get(Flag.UPDATE_TIMEOUT), Code.BAD_TIMEOUT),
    "count-without-range": (get(Flag.COUNT, b"\0\5\1k"), Code.BAD_COUNT),
    "range-key-too-long": (
        get(Flag.QUERY_RANGE | Flag.KEY_16, b"\0\5" + LONG_KEY + b"\0\0"),
        Code.KEY_TOO_LONG,
    ),
    "range-second-key-too-long": (
        get(Flag.QUERY_RANGE | Flag.KEY_16, b"\0\5\0\0" + LONG_KEY),
        Code.KEY_TOO_LONG,
    ),
    "regex-too-long": (get(Flag.QUERY_REGEX | Flag.KEY_16, b"\1\1" + b"k" * 257), Code.BAD_REGEX),
    "cursor-empty": (cursor(b""), Code.BAD_CURSOR),
    "cursor-forged": (cursor(Cursors(b"?", bytes(range(16))).encode(PAGE, b"k")), Code.BAD_CURSOR),
    "cursor-of-an-earlier-start": (
        cursor(Cursors(b"secret", bytes(16)).encode(PAGE, b"k")),
        Code.CURSOR_EXPIRED,
    ),
    "cursor-cut": (cursor(CURSORS.encode(PAGE, b"k")[:-1]), Code.BAD_CURSOR),
    "add-a-string": (request_bytes(5, b"\1k\2\2v", flags=Flag.VALUE_8), Code.BAD_TYPE),
    "add-a-void": (request_bytes(5, b"\1k\1\0", flags=Flag.VALUE_8), Code.BAD_TYPE),
    "add-type-6": (request_bytes(5, b"\1k\2\6v", flags=Flag.VALUE_8), Code.BAD_TYPE),
    "add-3-bytes": (request_bytes(5, b"\1k\4\3\0\0\0", flags=Flag.VALUE_8), Code.BAD_VALUE),
    "add-a-short-float": (request_bytes(5, b"\1k\5\4" + bytes(4), flags=2), Code.BAD_VALUE),
    "truncate-to-a-float": (request_bytes(7, b"\1k\x09\4" + ZERO, flags=2), Code.BAD_TYPE),
    "next-timeout-0": (request_bytes(11, ZERO + b"\0", flags=8), Code.BAD_TIMEOUT),
    "next-timeout-now": (request_bytes(11, NOW + b"\0", flags=8), Code.BAD_TIMEOUT),
    "touch-timeout-now": (request_bytes(13, NOW + b"\x08" + ZERO, flags=8), Code.BAD_TIMEOUT),
    "done-short-key": (request_bytes(12, b"\7" + bytes(7)), Code.BAD_VALUE),
    "done-key-too-long": (
        request_bytes(12, b"\x04\x09" + bytes(1033), flags=Flag.KEY_16),
        Code.KEY_TOO_LONG,
    ),
    "touch-short-key": (request_bytes(13, SOON + b"\7" + bytes(7), flags=8), Code.BAD_VALUE),
    "push-a-column-short": (batch_bytes(48, body_of(push("t", [b"k", b"l"]))[:-8]), Code.BAD_BATCH),
    "push-with-an-argument": (
        batch_bytes(48, head(b"t", 1, 1) + body_of(push("t", [b"k"]))[24:]),
        Code.BAD_BATCH,
    ),
    "next-of-two-domains": (batch_bytes(49, head(b"t", 2) + bytes(64)), Code.BAD_BATCH),
    "fail-reason-beyond-the-body": (
        batch_bytes(52, head(b"t", 1) + struct.pack(">I4x", 2**32 - 1) + ZERO),
        Code.BAD_BATCH,
    ),
    "reschedule-a-priority-without-its-bit": (
        batch_bytes(54, head(b"t", 1) + struct.pack(">I4x", 5) + ONE_KEY),
        Code.BAD_BATCH,
    ),
    "reschedule-a-date-without-its-bit": (
        batch_bytes(54, head(b"t", 1, 5) + ONE_KEY),
        Code.BAD_BATCH,
    ),
    "listen-to-jobs-by-key": (batch_bytes(61, head(b"t", 1) + ONE_KEY), Code.BAD_BATCH),
    "read-for-two": (batch_bytes(67, head(b"t", 2) + bytes(64)), Code.BAD_BATCH),
    "subscribe-nobody": (batch_bytes(68, head(b"t", 0) + bytes(8)), Code.BAD_BATCH),
    "rest-more-than-asleep": (batch_bytes(71, head(b"t", 0, 2) + blob(b"n")), Code.BAD_BATCH),
    "as-of-a-wait": (
        batch_bytes(77, head(b"", 1, 5) + inner(67, body_of(Read(table="t", after=0, wait_us=1)))),
        Code.BAD_TIMEOUT,
    ),
    "use-a-path": (sent(Use(table="../etc")), Code.BAD_NAME),
    "body-cut": (batch_bytes(33, head(b"t", 2) + bytes(8)), Code.BAD_BATCH),
    "batch-of-nothing": (batch_bytes(19, head(b"", 0)), Code.BAD_BATCH),
    "batch-too-many": (
        batch_bytes(19, head(b"", 10_001) + inner(0, head(b"", 0)) * 10_001),
        Code.BAD_BATCH,
    ),
}


@pytest.mark.parametrize(("data", "code"), CLOSING.values(), ids=CLOSING.keys())
def test_a_stream_that_cannot_be_followed_ends_with_one_error(data: bytes, code: Code) -> None:
    for pieces in ([data], [data[at : at + 1] for at in range(len(data))], [data + bytes(99)]):
        decoder = new_decoder()
        with pytest.raises(RemoteProtocolError) as caught:
            for piece in pieces:
                decoder.feed(piece)
                assert decoder.next() is None
        assert caught.value.code is code


@pytest.mark.parametrize(("data", "code"), KEPT.values(), ids=KEPT.keys())
def test_a_bad_request_is_refused_and_the_next_one_is_understood(data: bytes, code: Code) -> None:
    nop = request_bytes(0)
    step = max(1, len(data) // 300)
    single = [data[at : at + step] for at in range(0, len(data), step)]
    for pieces in ([data, nop], [*single, nop], [data + nop[:5], nop[5:]]):
        decoder = new_decoder()
        found: list[Request] = []
        for piece in pieces:
            decoder.feed(piece)
            while (request := decoder.next()) is not None:
                found.append(request)
        refused, following = found
        assert isinstance(refused.command, Refusal)
        assert refused.command.code is code
        assert refused.size == len(data)
        assert following.command == Nop()
        assert decoder.table == "default"


@pytest.mark.parametrize(
    "name", ["set-4-gib", "body-4-gib", "set-one-byte-too-many", "magic", "bit-15"]
)
def test_what_is_refused_by_its_header_costs_no_memory(name: str) -> None:
    data, code = CLOSING[name]
    decoder = new_decoder()
    tracemalloc.start()
    try:
        decoder.feed(data)
        with pytest.raises(RemoteProtocolError) as caught:
            decoder.next()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.code is code
    assert peak < 64 * limits.KIB


def test_operands_that_are_good_are_not_refused() -> None:
    decoder = new_decoder()
    decoder.feed(request_bytes(5, b"\1k\5\3\1\0\0\0", flags=Flag.VALUE_8))
    request = decoder.next()
    assert request is not None
    assert request.command == modify(Change.ADD, b"\1" + bytes(7), table="default")
