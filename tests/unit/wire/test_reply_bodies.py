"""Bodies of replies: every one there and back, and refused when it is broken."""

from __future__ import annotations

import struct

import pytest

from fjord import limits
from fjord.commands import Done, Replies, Reply
from fjord.wire import Function, reply_bodies
from tests.unit.wire.samples import ONE_ENTRY, REPLIES, TWO
from tests.unit.wire.streams import page, plain

SINGLE = [(function, reply) for function, reply in REPLIES if not isinstance(reply, Replies)]
each_reply = pytest.mark.parametrize(("function", "reply"), SINGLE)


def test_every_function_above_16_has_a_reply() -> None:
    above = {function for function in Function if function > 16}
    assert {function for function, _ in REPLIES} == above
    assert set(reply_bodies.REPLY_TYPES) == above - {Function.BATCH, Function.AS_OF}


@each_reply
def test_each_reply_decodes_to_itself(function: Function, reply: Reply) -> None:
    body = reply_bodies.encode_body(reply)
    assert plain(reply_bodies.decode_body(function, body)) == plain(reply)


@each_reply
def test_every_truncation_of_a_reply_is_refused(function: Function, reply: Reply) -> None:
    body = reply_bodies.encode_body(reply)
    for size in range(len(body)):
        with pytest.raises((ValueError, struct.error)):
            reply_bodies.decode_body(function, body[:size])


@each_reply
def test_a_reply_with_more_than_its_columns_is_refused(function: Function, reply: Reply) -> None:
    body = reply_bodies.encode_body(reply)
    for more in (b"x", bytes(8)):
        with pytest.raises((ValueError, struct.error)):
            reply_bodies.decode_body(function, body + more)


def test_a_done_is_the_token_of_master_and_seq() -> None:
    body = reply_bodies.encode_body(Done(master=bytes(range(16)), seq=0x0102))
    assert body == bytes(range(16)) + b"\0\0\0\0\0\0\1\2"


@pytest.mark.req("FJ-30")
def test_an_entry_has_all_its_dates() -> None:
    dates = (5, 9, 2**63, 2**63 + 10, 2**63 + 20)
    expected = struct.pack(">I4x", 1) + struct.pack("<B7xB7x5Q", 3, 1, *dates)
    assert reply_bodies.encode_body(ONE_ENTRY)[: len(expected)] == expected


def test_entries_are_columns() -> None:
    body = reply_bodies.encode_body(TWO)
    assert body.startswith(b"\0\0\0\2" + bytes(4) + b"\x02\xff" + bytes(6) + b"\3\3" + bytes(6))
    assert struct.unpack_from("<10Q", body, 24) == (5, 0, 0, 0, 100, 101, 110, 111, 120, 121)


def test_a_page_begins_with_where_the_next_one_does() -> None:
    body = reply_bodies.encode_body(page([b"k"], ONE_ENTRY, b"next"))
    assert body.startswith(struct.pack(">II", 1, 4) + b"next" + bytes(4))


@pytest.mark.parametrize(
    "function", [Function.GET_MANY, Function.RANGE, Function.TABLES, Function.STATS]
)
def test_rows_beyond_all_bounds_are_refused_by_their_number(function: Function) -> None:
    for rows in (limits.BATCH_ROWS_MAX + 1, 2**32 - 1):
        with pytest.raises(ValueError, match=str(limits.BATCH_ROWS_MAX)):
            reply_bodies.decode_body(function, struct.pack(">II", rows, 0) + bytes(64))


def test_a_next_key_outside_the_body_is_refused() -> None:
    with pytest.raises(ValueError, match="cut short"):
        reply_bodies.decode_body(Function.RANGE, struct.pack(">II", 0, 2**32 - 1) + bytes(64))
