"""Replies: what the engine answered arrives at the client, for every function."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fjord import limits
from fjord.commands import Done, Get, Nop, Range, Refusal, Reply, Taken
from fjord.errors import Code, RemoteProtocolError
from fjord.wire import (
    Flag,
    Function,
    RawReply,
    ReplyDecoder,
    Request,
    encode_answer,
    encode_reply,
    read_reply,
)
from fjord.wire.functions import QUERY_BITS
from fjord.wire.replies import encode_fatal
from fjord.wire.seed_replies import entries_without_dates
from tests.unit.wire.job_samples import ACTED, LATER, MISSING_ONE, NOTHING, ONE_JOB, seed_taken
from tests.unit.wire.samples import LONG, MISSING, REPLIES, SHORT, TOKEN
from tests.unit.wire.streams import (
    CURSORS,
    NOW_US,
    check_arrivals,
    entries,
    page,
    plain,
    reply_bytes,
)

NO_TOKEN = Done(master=b"", seq=0)
HIDDEN = Refusal(code=Code.NOT_FOUND, text="the key does not exist, or its value is worked on")
PAGE = page([b"a", b"b"], entries((2, b"v", 0, 0), (1, b"", 0, 0)))

STALE = Refusal(
    code=Code.STALE_XID, text="the lease was over, or the job is done; somebody else may have it"
)
SEED_JOB = seed_taken(ONE_JOB.keys[0], 0, b"text", first_xid=7, until_us=NOW_US)
AUTO_DONE = seed_taken(b"k", 1, b"")
LONG_JOB = seed_taken(b"k" * 1024, 2, b"v" * 70_000, first_xid=2**64 - 1, until_us=1)

# Function, flags of the request, what the engine answers, what the client gets.
SEEDS: list[tuple[Function, int, Reply, Reply]] = [
    (Function.NOP, 0, TOKEN, NO_TOKEN),
    (Function.QUIT, 0, TOKEN, NO_TOKEN),
    (Function.SET, 0x0222, TOKEN, NO_TOKEN),
    (Function.SET, 0x0222, SHORT, SHORT),
    (Function.SET, 0x0222, LONG, LONG),
    (Function.GET, Flag.DATA, entries((2, b"v", 5, 0)), entries((2, b"v", 5, 0))),
    (Function.GET, Flag.DATA, entries((0, b"", 5, 9)), entries((0, b"", 5, 9))),
    (Function.GET, Flag.DATA, entries((1, b"v" * 300, 5, 0)), entries((1, b"v" * 300, 5, 0))),
    (Function.GET, 0, entries((3, bytes(8), 5, 9)), entries((3, b"", 5, 9))),
    (Function.GET, 0, entries((0, b"", 5, 9), state=3), entries((0, b"", 5, 9), state=3)),
    (Function.GET, 0, entries((0, b"", 5, 9), state=2), entries((0, b"", 5, 9), state=2)),
    (Function.GET, Flag.DATA, MISSING, SHORT),
    (Function.GET, Flag.WORKED_ON, MISSING, HIDDEN),
    (Function.GET, 0, MISSING, SHORT),
    (Function.GET, Flag.QUERY_RANGE, PAGE, PAGE),
    (Function.DELETE, 0, TOKEN, NO_TOKEN),
    (Function.DELETE, 0, LONG, LONG),
    (Function.ADD, 2, entries((3, bytes(8), 5, 9)), entries((3, bytes(8), 5, 9))),
    (Function.NOT, 0, entries((5, b"\1", 5, 9)), entries((5, b"\1", 5, 9))),
    (Function.TRUNCATE, 2, entries((1, b"v", 5, 9)), entries((1, b"v", 5, 9))),
    (Function.LOCK, 0, TOKEN, NO_TOKEN),
    (Function.UNLOCK, 0, SHORT, SHORT),
    (Function.RENAME, 0, TOKEN, NO_TOKEN),
    (Function.NEXT, 0, NOTHING, NOTHING),
    (Function.NEXT, 0, LATER, LATER),
    (Function.NEXT, 0, ONE_JOB, SEED_JOB),
    (Function.NEXT, Flag.TIMEOUT | Flag.OVERWRITE, AUTO_DONE, AUTO_DONE),
    (Function.NEXT, 0, LONG_JOB, LONG_JOB),
    (Function.NEXT, 0, SHORT, SHORT),
    (Function.DONE, 0, ACTED, NO_TOKEN),
    (Function.DONE, 0, MISSING_ONE, STALE),
    (Function.TOUCH, Flag.TIMEOUT, ACTED, NO_TOKEN),
    (Function.TOUCH, 0, MISSING_ONE, STALE),
    (Function.PING, 0, TOKEN, NO_TOKEN),
    (Function.LISTEN, 0, TOKEN, NO_TOKEN),
]
SAMPLES = [
    *SEEDS,
    *((function, 0, reply, reply) for function, reply in REPLIES),
    *((function, 0, SHORT, SHORT) for function in Function if function > 16),
    (Function.SCAN, 0, LONG, LONG),
]


def decode(data: bytes) -> RawReply:
    decoder = ReplyDecoder()
    decoder.feed(data)
    raw = decoder.next()
    assert isinstance(raw, RawReply)
    return raw


@pytest.mark.req("FJ-39")
@pytest.mark.parametrize(("function", "flags", "answer", "expected"), SAMPLES)
def test_each_answer_reaches_the_client_under_its_identifier(
    function: Function, flags: int, answer: Reply, expected: Reply
) -> None:
    for identifier in (0, 1, 0x1234, 0xFFFF):
        data = encode_reply(function, identifier, flags, answer, now_us=NOW_US)
        raw = decode(data)
        assert raw.identifier == identifier
        assert plain(read_reply(function, raw)) == plain(expected)


@pytest.mark.parametrize(("function", "flags", "answer", "expected"), SAMPLES)
def test_each_answer_decodes_however_it_arrives(
    function: Function, flags: int, answer: Reply, expected: Reply
) -> None:
    data = encode_reply(function, 7, flags, answer, now_us=NOW_US)
    check_arrivals(ReplyDecoder, data, decode(data), following=reply_bytes(b"\0"))


def test_every_function_has_a_sample() -> None:
    assert {function for function, *_ in SAMPLES} == set(Function) - {Function.CHANGE}


@pytest.mark.req("FJ-45")
def test_an_answer_that_goes_on_carries_the_cursor_of_its_query() -> None:
    asked = Range(table="t", stop=b"z", count=2)
    request = Request(Function.GET, 7, Flag.QUERY_RANGE, asked, 30)
    answer = page([b"a"], entries((2, b"v", 0, 0)), b"next")
    raw = decode(encode_answer(request, answer, now_us=NOW_US, cursors=CURSORS))
    found = read_reply(Function.GET, raw)
    expected = page([b"a"], entries_without_dates(b"\2", answer.entries.values))
    expected.next_key = CURSORS.encode(asked, b"next")
    assert plain(found) == plain(expected)


@pytest.mark.parametrize("command", [Nop(), SHORT, Get(table="t", keys=PAGE.keys)])
def test_other_answers_carry_none(command: Nop | Refusal | Get) -> None:
    request = Request(Function.SET, 7, 0, command, 30)
    for cursors in (None, CURSORS):
        data = encode_answer(request, TOKEN, now_us=NOW_US, cursors=cursors)
        assert data == encode_reply(Function.SET, 7, 0, TOKEN, now_us=NOW_US)


@pytest.mark.req("FJ-28")
def test_the_three_answers_to_a_next_are_told_apart() -> None:
    found = [
        read_reply(Function.NEXT, decode(encode_reply(Function.NEXT, 7, 0, one, now_us=NOW_US)))
        for one in (ONE_JOB, NOTHING, LATER)
    ]
    assert [(len(one.types), one.next_at_us) for one in found if isinstance(one, Taken)] == [
        (1, 0),
        (0, 0),
        (0, NOW_US + 5),
    ]


def test_a_reply_carries_the_servers_time_and_a_value_its_own() -> None:
    assert decode(encode_reply(Function.SET, 7, 0, TOKEN, now_us=NOW_US)).timestamp_us == NOW_US
    answer = entries((2, b"v", 5, 0))
    assert decode(encode_reply(Function.GET, 7, 0, answer, now_us=NOW_US)).timestamp_us == 5


def test_functions_above_16_are_answered_with_a_body() -> None:
    data = encode_reply(Function.SET_MANY, 7, 0, TOKEN, now_us=NOW_US)
    body = struct.pack(">16sQ", TOKEN.master, TOKEN.seq)
    assert data == reply_bytes(b"\0" + struct.pack(">I", len(body)) + body, flags=Flag.BODY)


def test_a_refused_body_function_has_an_empty_body() -> None:
    text = b"NOT_FOUND: the key does not exist"
    expected = reply_bytes(bytes([len(text)]) + text + bytes(4), flags=Flag.BODY)
    assert encode_reply(Function.SCAN, 7, 0, SHORT, now_us=NOW_US) == expected


def test_the_last_words_of_a_server_have_identifier_0() -> None:
    error = RemoteProtocolError(Code.BAD_VERSION, "supported versions: 1")
    raw = decode(encode_fatal(error, now_us=NOW_US))
    assert raw.identifier == 0
    assert read_reply(Function.NOP, raw) == Refusal(
        code=Code.BAD_VERSION, text="supported versions: 1"
    )


# -- what is no reply -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        reply_bytes(b"\0" * 8, magic=b"FJ"),
        reply_bytes(b"\0", version=0),
        reply_bytes(b"\0", version=2),
        b"HTTP/1.1 400 Bad Request\r\n",
        b"-ERR unknown command\r\n",
    ],
)
def test_a_peer_that_is_no_fjord_server_is_found_out(data: bytes) -> None:
    decoder = ReplyDecoder()
    decoder.feed(data)
    with pytest.raises(RemoteProtocolError, match="no Fjord server of version 1"):
        decoder.next()


@pytest.mark.parametrize(
    ("flags", "rest"),
    [
        (Flag.BODY, b"\0\xff\xff\xff\xff"),
        (Flag.BODY, b"\0\x80\0\0\0"),
        (Flag.VALUE_8 | Flag.VALUE_16, b"\0\xff\xff\xff\xff"),
        (Flag.VALUE_8, b"\0\0"),
        (Flag.COUNT, b"\0\1\0\1k"),
        (Flag.COUNT | Flag.VALUE_8, b"\0\1\0\1k\0"),
    ],
)
def test_a_size_that_cannot_be_is_refused_before_it_is_awaited(flags: int, rest: bytes) -> None:
    decoder = ReplyDecoder()
    decoder.feed(reply_bytes(rest, flags=flags))
    with pytest.raises(RemoteProtocolError):
        decoder.next()


@pytest.mark.parametrize(
    "flags",
    [
        *(
            Flag.UPDATE_TIMEOUT,
            Flag.PERSIST,
            Flag.DATA,
            Flag.LISTEN,
            Flag.PERSIST_SYNONYM,
            Flag.TTL,
        ),
        *(Flag.QUERY_RANGE, Flag.QUERY_REGEX, Flag.QUERY_RANGE | Flag.QUERY_REGEX),
        *(Flag.QUERY_RANGE | Flag.COUNT, Flag.QUERY_REGEX | Flag.COUNT, Flag.COUNT | Flag.BODY),
    ],
)
def test_flags_that_no_reply_has_are_refused(flags: int) -> None:
    decoder = ReplyDecoder()
    decoder.feed(reply_bytes(bytes(64), flags=flags))
    with pytest.raises(RemoteProtocolError):
        decoder.next()


def test_the_largest_answer_is_awaited() -> None:
    decoder = ReplyDecoder()
    size = limits.ANSWER_BYTES_MAX + limits.BATCH_ROWS_MAX * (1 + 1 + 5 * 8 + 4)
    decoder.feed(reply_bytes(b"\0" + struct.pack(">I", size), flags=Flag.BODY))
    assert decoder.next() is None


@pytest.mark.parametrize("function", [one for one in Function if one != 16])
def test_a_body_that_does_not_answer_the_function_is_refused(function: Function) -> None:
    raw = decode(reply_bytes(b"\0\0\0\0\3abc", flags=Flag.BODY))
    with pytest.raises(RemoteProtocolError) as caught:
        read_reply(function, raw)
    assert caught.value.code is Code.BAD_BATCH


@pytest.mark.parametrize("function", [one for one in Function if one > 16])
def test_a_reply_without_the_body_that_was_asked_for_is_refused(function: Function) -> None:
    for raw in (decode(reply_bytes(b"\0")), decode(reply_bytes(b"\0\2\2v", flags=Flag.VALUE_8))):
        with pytest.raises(RemoteProtocolError):
            read_reply(function, raw)


ONE_PAIR = b"\0\1\0" + b"\x09\0\0\0\0\0\0\0\7k" + b"\1\0"


@pytest.mark.parametrize(
    ("flags", "rest"),
    [
        (Flag.VALUE_8, b"\0\2\2v"),
        (Flag.VALUE_8 | Flag.COUNT, b"\0\0\0"),
        (Flag.VALUE_8 | Flag.COUNT, b"\0\1\0" + b"\7seven b" + b"\1\0"),
        (Flag.VALUE_8 | Flag.COUNT, b"\0\2" + ONE_PAIR[2:] + ONE_PAIR[3:]),
        (Flag.VALUE_8 | Flag.COUNT | QUERY_BITS, ONE_PAIR + b"\6cursor"),
    ],
    ids=["a-value", "no-pair", "no-xid", "two-pairs", "a-cursor"],
)
def test_what_is_no_answer_to_a_next_is_refused(flags: int, rest: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read_reply(Function.NEXT, decode(reply_bytes(rest, flags=flags)))
    assert caught.value.code is Code.BAD_BATCH


@settings(max_examples=200)
@given(st.integers(0, 0xFFFF), st.binary(max_size=80), st.sampled_from(Function))
def test_random_replies_raise_nothing_but_a_protocol_error(
    flags: int, rest: bytes, function: Function
) -> None:
    decoder = ReplyDecoder()
    decoder.feed(reply_bytes(rest, flags=flags))
    try:
        while (raw := decoder.next()) is not None:
            if isinstance(raw, RawReply):
                read_reply(function, raw)
    except RemoteProtocolError:
        pass  # the client closes the connection
