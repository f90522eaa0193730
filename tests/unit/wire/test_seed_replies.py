"""Replies to functions 0 to 16, and changes: laid out as the seed says."""

from __future__ import annotations

import struct

import pytest

from fjord import limits
from fjord.commands import Changed, Entries, Refusal, Reply
from fjord.errors import Code, RemoteProtocolError
from fjord.job_commands import ARRIVED, DUE
from fjord.wire import (
    Flag,
    Function,
    RawChange,
    RawReply,
    ReplyDecoder,
    encode_change,
    seed_replies,
)
from fjord.wire.seed_replies import entries_without_dates
from tests.unit.wire.streams import (
    NOW_US,
    check_arrivals,
    entries,
    page,
    plain,
    reply_bytes,
    request_bytes,
)


def reply(
    answer: Reply, *, flags: int = Flag.DATA, function: int = Function.GET, cursor: bytes = b""
) -> bytes:
    return seed_replies.encode_reply(
        Function(function), 7, flags, answer, now_us=NOW_US, cursor=cursor
    )


def test_a_value_is_laid_out_as_the_seed_says() -> None:
    answer = entries((2, b"v", 5, 0))
    assert reply(answer) == reply_bytes(b"\0\2\2v", flags=0x0002, timestamp_us=5)


@pytest.mark.req("FJ-45")
def test_a_probe_tells_the_type_and_no_data() -> None:
    answer = entries((2, b"v" * 1000, 5, 0))
    assert reply(answer, flags=0) == reply_bytes(b"\0\1\2", flags=0x0002, timestamp_us=5)


@pytest.mark.req("FJ-35")
@pytest.mark.parametrize("function", [Function.ADD, Function.NOT, Function.TRUNCATE])
def test_a_changed_value_is_returned_without_being_asked_for(function: Function) -> None:
    answer = entries((3, bytes(8), 5, 0))
    expected = reply_bytes(b"\0\x09\3" + bytes(8), flags=0x0002, timestamp_us=5)
    assert reply(answer, flags=Flag.VALUE_8, function=function) == expected


def test_an_expiry_stands_before_the_error() -> None:
    answer = entries((0, b"", 5, 9))
    expected = reply_bytes(bytes(7) + b"\x09\0\1\0", flags=0x000A, timestamp_us=5)
    assert reply(answer) == expected


@pytest.mark.req("FJ-35", "FJ-46")
@pytest.mark.parametrize(("state", "flags"), [(0, 2), (1, 0x22), (2, 0x42), (3, 0x62)])
def test_a_value_says_that_it_is_locked_or_worked_on(state: int, flags: int) -> None:
    answer = entries((2, b"v", 5, 0), state=state)
    assert reply(answer) == reply_bytes(b"\0\2\2v", flags=flags, timestamp_us=5)


@pytest.mark.parametrize(
    ("size", "flags", "field"), [(254, 2, ">B"), (255, 4, ">H"), (65534, 4, ">H"), (65535, 6, ">I")]
)
def test_the_size_field_is_as_wide_as_it_must_be(size: int, flags: int, field: str) -> None:
    answer = entries((1, b"v" * size, 5, 0))
    value = struct.pack(field, size + 1) + b"\1" + b"v" * size
    assert reply(answer) == reply_bytes(b"\0" + value, flags=flags, timestamp_us=5)


@pytest.mark.req("FJ-45")
@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (Flag.DATA, b"NOT_FOUND: the key does not exist"),
        (Flag.WORKED_ON, b"NOT_FOUND: the key does not exist, or its value is worked on"),
        (Flag.TIMEOUT, b"NOT_FOUND: the key does not exist, or its value is worked on"),
    ],
)
def test_a_missing_key_is_an_error(flags: int, text: bytes) -> None:
    answer = entries((Entries.MISSING, b"", 0, 0))
    assert reply(answer, flags=flags) == reply_bytes(bytes([len(text)]) + text)


@pytest.mark.parametrize(("size", "flags", "field"), [(251, 0, ">B"), (252, 1, ">H")])
def test_a_long_error_has_a_wide_size(size: int, flags: int, field: str) -> None:
    text = "BUSY: " + "x" * (size - 2)
    answer = Refusal(code=Code.BUSY, text="x" * (size - 2))
    expected = reply_bytes(struct.pack(field, len(text)) + text.encode(), flags=flags)
    assert reply(answer) == expected


def test_an_endless_error_is_cut_to_64_kib() -> None:
    encoded = reply(Refusal(code=Code.BUSY, text="x" * 100_000))
    assert len(encoded) == 16 + 2 + 0xFFFF


# -- queries --------------------------------------------------------------------------------------

TWO = entries((2, b"v", 5, 0), (1, b"", 6, 0))
WIDE = entries((2, b"v", 5, 0), (1, b"w" * 255, 6, 0))
PAGES: dict[str, tuple[bytes, Reply, bytes]] = {
    "nothing": (reply_bytes(b"\0\0\0", flags=0x2002), page([], entries()), b""),
    "the-end": (
        reply_bytes(b"\0\2\0" + b"\1a\2\2v" + b"\1b\1\1", flags=0x2002),
        page([b"a", b"b"], TWO),
        b"",
    ),
    "more": (
        reply_bytes(b"\0\2\0" + b"\1a\2\2v" + b"\1b\1\1" + b"\6cursor", flags=0x2182),
        page([b"a", b"b"], TWO, b"c"),
        b"cursor",
    ),
    "nothing-so-far": (
        reply_bytes(b"\0\0\0" + b"\6cursor", flags=0x2182),
        page([], entries(), b"c"),
        b"cursor",
    ),
    "wide-cursor": (
        reply_bytes(b"\0\1\0\0" + b"\0\1a\1\1" + b"\1\0" + b"c" * 256, flags=0x2183),
        page([b"a"], entries((1, b"", 6, 0)), b"c"),
        b"c" * 256,
    ),
    "wide-value": (
        reply_bytes(
            b"\0\2\0" + b"\1a\0\2\2v" + b"\1b\1\0\1" + b"w" * 255, flags=0x2004
        ),
        page([b"a", b"b"], WIDE),
        b"",
    ),
}  # fmt: skip


@pytest.mark.req("FJ-40", "FJ-45")
@pytest.mark.parametrize(("data", "answer", "cursor"), PAGES.values(), ids=PAGES.keys())
def test_a_page_is_pairs_and_perhaps_a_cursor(data: bytes, answer: Reply, cursor: bytes) -> None:
    assert reply(answer, cursor=cursor) == data


@pytest.mark.parametrize(("data", "answer", "cursor"), PAGES.values(), ids=PAGES.keys())
def test_a_page_decodes_however_it_arrives(data: bytes, answer: Reply, cursor: bytes) -> None:
    found = decode(data)
    assert isinstance(found, RawReply)
    assert found.page is not None
    assert found.page.next_key == cursor
    check_arrivals(ReplyDecoder, data, found, following=reply_bytes(b"\0"))


def test_pairs_have_no_dates() -> None:
    found = decode(PAGES["the-end"][0])
    assert isinstance(found, RawReply)
    assert found.page is not None
    expected = entries_without_dates(b"\2\1", TWO.values)
    assert plain(found.page) == plain(page([b"a", b"b"], expected))


def test_a_page_that_goes_on_is_not_sent_without_its_cursor() -> None:
    with pytest.raises(AssertionError, match="needs a cursor"):
        reply(page([b"a"], entries((1, b"", 6, 0)), b"next"))


def test_pairs_without_end_are_refused() -> None:
    pair = (
        b"\0\1k" + struct.pack(">I", 1 + limits.VALUE_BYTES_MAX) + bytes(1 + limits.VALUE_BYTES_MAX)
    )
    decoder = ReplyDecoder()
    decoder.feed(reply_bytes(b"\xff\xff\0\0", flags=0x2007))
    with pytest.raises(RemoteProtocolError) as caught:
        for _ in range(limits.ANSWER_BYTES_MAX // limits.VALUE_BYTES_MAX + 16):
            decoder.feed(pair)
            assert decoder.next() is None
    assert caught.value.code is Code.TOO_LARGE


# -- changes --------------------------------------------------------------------------------------

CHANGES: dict[str, tuple[bytes, Changed]] = {
    "set": (
        request_bytes(16, b"\1k\2\2v", flags=0x0002),
        Changed("t", b"k", 2, b"v", NOW_US, 0),
    ),
    "gone": (request_bytes(16, b"\1k"), Changed("t", b"k", Entries.MISSING, b"", NOW_US, 0)),
    "expires": (
        request_bytes(16, struct.pack(">Q", 9) + b"\1k\1\0", flags=0x000A),
        Changed("t", b"k", 0, b"", NOW_US, 9),
    ),
    "wide": (
        request_bytes(16, b"\1\0" + b"k" * 256 + b"\1\0\1" + b"v" * 255, flags=0x0005),
        Changed("t", b"k" * 256, 1, b"v" * 255, NOW_US, 0),
    ),
    "jobs-arrived": (
        request_bytes(16, b"\0\x08\2arrived", flags=0x0002),
        Changed("t", b"", 2, ARRIVED, NOW_US, 0),
    ),
    "jobs-due": (
        request_bytes(16, b"\0\4\2due", flags=0x0002),
        Changed("t", b"", 2, DUE, NOW_US, 0),
    ),
}


def decode(data: bytes) -> RawReply | RawChange | None:
    decoder = ReplyDecoder()
    decoder.feed(data)
    return decoder.next()


@pytest.mark.req("FJ-44")
@pytest.mark.parametrize(("data", "changed"), CHANGES.values(), ids=CHANGES.keys())
def test_a_change_is_a_request_of_the_server(data: bytes, changed: Changed) -> None:
    assert encode_change(7, changed) == data
    found = decode(data)
    assert isinstance(found, RawChange)
    assert found.identifier == 7
    assert found.of("t") == changed
    check_arrivals(ReplyDecoder, data, found, following=reply_bytes(b"\0"))


@pytest.mark.parametrize(
    "data",
    [
        request_bytes(16, b"\1k", version=2),
        request_bytes(16, b"\1k", flags=Flag.OVERWRITE),
        request_bytes(15, b"\1k"),
        request_bytes(16, b"\1k", magic=b"FK"),
    ],
)
def test_any_other_request_of_a_server_is_none(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(data)
