"""NEXT, DONE and TOUCH of the seed functions, byte by byte."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.commands import Command, Extend, Finish, Next, Refusal, Reply
from fjord.errors import Code, LocalProtocolError
from fjord.wire import (
    Flag,
    Function,
    RawReply,
    ReplyDecoder,
    encode_reply,
    read_reply,
    seed,
)
from tests.unit.wire.job_samples import (
    ACTED,
    DEFAULT,
    LATER,
    MISSING_ONE,
    NOTHING,
    XID,
    push,
    seed_taken,
)
from tests.unit.wire.streams import NOW_US, new_decoder, plain, reply_bytes, request_bytes

UNTIL = struct.pack(">Q", NOW_US + 9)


def command_of(data: bytes) -> Command | Refusal:
    decoder = new_decoder()
    decoder.feed(data)
    request = decoder.next()
    assert request is not None
    assert request.size == len(data)
    return request.command


def next_reply(answer: Reply, function: Function = Function.NEXT) -> bytes:
    return encode_reply(function, 7, 0, answer, now_us=NOW_US)


# -- requests -------------------------------------------------------------------------------------


@given(st.integers(0, 2**63 - 1), st.integers(1, 2**63))
def test_a_lease_is_as_long_as_its_end_is_behind_the_timestamp(
    timestamp_us: int, lease_us: int
) -> None:
    until = struct.pack(">Q", timestamp_us + lease_us)
    for function, rest in ((11, b"\0"), (13, b"\x08" + XID)):
        data = request_bytes(function, until + rest, flags=Flag.TIMEOUT, timestamp_us=timestamp_us)
        found = command_of(data)
        assert isinstance(found, Next | Extend)
        assert found.lease_us == lease_us
        assert seed.encode_request(found, 7, timestamp_us) == data


@pytest.mark.parametrize("function", [11, 13])
def test_a_lease_that_is_over_at_once_is_refused(function: int) -> None:
    rest = b"\0" if function == 11 else b"\x08" + XID
    for until_us in (0, 1, NOW_US - 1, NOW_US):
        until = struct.pack(">Q", until_us)
        found = command_of(request_bytes(function, until + rest, flags=Flag.TIMEOUT))
        assert isinstance(found, Refusal)
        assert found.code is Code.BAD_TIMEOUT


def test_without_a_timeout_a_lease_is_as_usual() -> None:
    assert command_of(request_bytes(11, b"\0")) == Next(table=DEFAULT, lease_us=0)
    assert command_of(request_bytes(13, b"\x08" + XID)) == Extend(table=DEFAULT, xids=(7,))


@given(st.integers(0, 2**64 - 1), st.binary(max_size=1024))
def test_the_key_that_a_next_gives_is_taken_by_done_and_touch(xid: int, key: bytes) -> None:
    given_key = struct.pack(">Q", xid) + key
    rest = struct.pack(">H", len(given_key)) + given_key
    for function, type_ in ((12, Finish), (13, Extend)):
        found = command_of(request_bytes(function, rest, flags=Flag.KEY_16))
        assert found == type_(table=DEFAULT, xids=(xid,))


@pytest.mark.parametrize("function", [12, 13])
@pytest.mark.parametrize(
    ("size", "code"), [(0, Code.BAD_VALUE), (7, Code.BAD_VALUE), (1033, Code.KEY_TOO_LONG)]
)
def test_a_key_that_no_next_gave_is_refused(function: int, size: int, code: Code) -> None:
    rest = struct.pack(">H", size) + bytes(size)
    found = command_of(request_bytes(function, rest, flags=Flag.KEY_16))
    assert isinstance(found, Refusal)
    assert found.code is code


@pytest.mark.parametrize(
    "command",
    [
        Next(table=DEFAULT, count=2),
        Next(table=DEFAULT, count=0),
        Next(table=DEFAULT, wait_us=1),
        Finish(table=DEFAULT, xids=()),
        Finish(table=DEFAULT, xids=(1, 2)),
        Extend(table=DEFAULT, xids=(1, 2)),
        push(DEFAULT, [b"k"]),
    ],
    ids=repr,
)
def test_what_takes_more_than_one_job_is_not_encoded(command: Command) -> None:
    with pytest.raises(LocalProtocolError):
        seed.encode_request(command, 7, NOW_US)


# -- replies --------------------------------------------------------------------------------------


@pytest.mark.req("FJ-28")
def test_a_job_is_a_pair_and_the_end_of_its_lease() -> None:
    answer = seed_taken(b"k", 2, b"v", first_xid=7, until_us=NOW_US + 9)
    rest = UNTIL + b"\0\1" + b"\0" + b"\x09" + XID + b"k" + b"\2\2v"
    assert next_reply(answer) == reply_bytes(rest, flags=0x200A)


@pytest.mark.req("FJ-28")
def test_nothing_to_work_on_is_a_reply_with_nothing_in_it() -> None:
    assert next_reply(NOTHING) == reply_bytes(b"\0")


@pytest.mark.req("FJ-28")
def test_the_next_process_date_is_a_timeout_without_a_job() -> None:
    date = struct.pack(">Q", NOW_US + 5)
    assert next_reply(LATER) == reply_bytes(date + b"\0", flags=Flag.TIMEOUT)


def test_a_job_that_is_done_already_has_no_lease() -> None:
    rest = b"\0\1" + b"\0" + b"\x09" + bytes(8) + b"k" + b"\1\0"
    assert next_reply(seed_taken(b"k", 0, b"")) == reply_bytes(rest, flags=0x2002)


def test_sizes_are_as_wide_as_they_must_be() -> None:
    narrow = next_reply(seed_taken(b"k" * 247, 1, b"v" * 254, first_xid=7))
    assert narrow == reply_bytes(
        b"\0\1" + b"\0" + b"\xff" + XID + b"k" * 247 + b"\xff\1" + b"v" * 254, flags=0x2002
    )
    wide = next_reply(seed_taken(b"k" * 248, 1, b"v" * 255, first_xid=7))
    assert wide == reply_bytes(
        b"\0\1" + b"\0\0" + b"\1\0" + XID + b"k" * 248 + b"\1\0\1" + b"v" * 255, flags=0x2005
    )


@pytest.mark.parametrize("function", [Function.DONE, Function.TOUCH])
def test_a_lease_that_is_somebody_elses_by_now_is_an_error(function: Function) -> None:
    assert next_reply(ACTED, function) == reply_bytes(b"\0")
    stale = next_reply(MISSING_ONE, function)
    assert stale[17:].startswith(b"STALE_XID: ")
    assert stale[16] == len(stale) - 17


@given(
    key=st.binary(max_size=300),
    type_=st.integers(0, 255),
    value=st.binary(max_size=300),
    first_xid=st.integers(0, 2**64 - 1),
    until_us=st.integers(0, 2**64 - 1),
)
def test_decode_of_encode_is_the_job(
    key: bytes, type_: int, value: bytes, first_xid: int, until_us: int
) -> None:
    answer = seed_taken(key, type_, value, first_xid=first_xid, until_us=until_us)
    assert plain(answer_of(next_reply(answer))) == plain(answer)


def answer_of(data: bytes) -> Reply:
    decoder = ReplyDecoder()
    decoder.feed(data)
    raw = decoder.next()
    assert isinstance(raw, RawReply)
    return read_reply(Function.NEXT, raw)
