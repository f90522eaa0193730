"""Requests: headers that are refused and why, functions above 16, and random bytes."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fjord import limits
from fjord.columns import Strings
from fjord.commands import (
    Acknowledge,
    Advance,
    AsOf,
    Batch,
    Command,
    Extend,
    Fail,
    Finish,
    Hello,
    Lag,
    Listen,
    ListenJobs,
    Next,
    Nop,
    Peek,
    Read,
    Refusal,
    Reschedule,
    Scan,
    Stats,
    Subscribe,
    Unlisten,
)
from fjord.errors import Code, LocalProtocolError, RemoteProtocolError
from fjord.wire import Flag, Function, Request, RequestDecoder, encode_request, encode_use
from fjord.wire.functions import FLAG_NAMES, FLAGS
from tests.unit.wire.job_samples import push
from tests.unit.wire.samples import COMMANDS, names_of
from tests.unit.wire.stream_samples import append
from tests.unit.wire.streams import (
    batch_bytes,
    check_request,
    get_many,
    plain,
    request_bytes,
    set_many,
)


def refusal_of(data: bytes) -> RemoteProtocolError:
    """The error that ends a connection which sends `data`."""
    decoder = RequestDecoder()
    decoder.feed(data)
    with pytest.raises(RemoteProtocolError) as caught:
        while decoder.next() is not None:
            pass
    return caught.value


# -- the header -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
        (b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
        (b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40), "TLS"),
        (b"\x16", "TLS"),
        (b"JR" + bytes(20), ""),  # a reply, sent to a server
        (b"fj" + bytes(20), ""),
        (b"FK" + bytes(20), ""),
        (bytes(20), ""),
        (b"X", ""),
    ],
)
def test_another_magic_is_refused_with_a_hint(data: bytes, hint: str) -> None:
    error = refusal_of(data)
    assert error.code is Code.BAD_MAGIC
    assert "begins with FJ" in error.text
    assert (f"looks like {hint}" in error.text) if hint else ("looks like" not in error.text)


def test_a_wrong_magic_is_refused_at_its_first_byte_and_a_right_one_is_waited_for() -> None:
    assert refusal_of(b"G").code is Code.BAD_MAGIC
    decoder = RequestDecoder()
    decoder.feed(b"F")
    assert decoder.next() is None
    decoder.feed(b"J")
    assert decoder.next() is None


@pytest.mark.parametrize("version", [0, 2, 256, 65535])
def test_another_version_is_refused_with_the_supported_ones(version: int) -> None:
    error = refusal_of(request_bytes(0, version=version))
    assert error.code is Code.BAD_VERSION
    assert error.text == "supported versions: 1"


def test_every_function_without_a_meaning_is_refused() -> None:
    known = set(Function)
    for number in [*range(300), 0x7FFF, 0xFFFF]:
        if number not in known:
            error = refusal_of(request_bytes(number))
            assert error.code is Code.UNKNOWN_FUNCTION
            assert str(number) in error.text


def test_what_only_a_server_sends_is_forbidden() -> None:
    for rest in (b"", b"\1k"):
        assert refusal_of(request_bytes(16, rest)).code is Code.FORBIDDEN
    assert refusal_of(request_bytes(16, flags=0xFFFF)).code is Code.FORBIDDEN


SENT = [function for function in Function if function is not Function.CHANGE]


@pytest.mark.req("FJ-37")
@pytest.mark.parametrize("function", SENT)
def test_every_flag_that_a_function_does_not_know_is_refused_by_its_bit(
    function: Function,
) -> None:
    for bit in range(16):
        if not FLAGS[function] & 1 << bit:
            error = refusal_of(request_bytes(function, flags=1 << bit))
            assert error.code is Code.BAD_FLAGS
            assert f"bit {bit} ({FLAG_NAMES[1 << bit]})" in error.text
            assert function.name in error.text


def test_the_lowest_of_several_unknown_flags_is_named() -> None:
    error = refusal_of(request_bytes(0, flags=Flag.BODY | Flag.LISTEN))
    assert "bit 11 (LISTEN)" in error.text


def test_an_error_never_echoes_what_was_sent() -> None:
    for data in (b"<script>" + bytes(20), request_bytes(0xABCD, b"<script>")):
        assert "<script>" not in str(refusal_of(data))


# -- functions above 16 ---------------------------------------------------------------------------


@pytest.mark.parametrize("command", [Nop(), *COMMANDS], ids=names_of([Nop(), *COMMANDS]))
def test_each_command_arrives_as_it_was_sent(command: Command) -> None:
    function, data = encode_request(command, 0xFFFF)
    flags = struct.unpack_from(">H", data, 8)[0]
    expected = Request(function, 0xFFFF, flags, command, len(data))
    if len(data) < 2000:
        check_request(data, expected)
    else:
        decoder = RequestDecoder()
        decoder.feed(data)
        assert plain(decoder.next()) == plain(expected)


@pytest.mark.parametrize(
    "command",
    [
        Hello(client=b"short"),
        Scan(table="t", start_seq=-1, end_seq=0),
        Scan(table="t", start_seq=1, end_seq=2**64),
        Unlisten(identifier=-1),
        Listen(table="\ud800", keys=Strings.of([b"k"])),
        get_many("n" * 70_000, [b"k"]),
        Batch(commands=[Stats()]),
        Batch(commands=[Next(table="t")]),
        Batch(commands=[ListenJobs(table="t")]),
        push("t", [b"k", b"l"], types=b"\1"),
        push("t", [b"k"], priorities=b""),
        push("t", [b"k"], process_at_us=[]),
        push("t", [b"k"], expires_at_us=[1, 2]),
        push("t", [b"k"], timestamps_us=[]),
        push("t", [b"k"], domains=Strings.of([])),
        push("t", [b"k"], values=Strings.of([b"", b""])),
        push("t", [b"k"], process_at_us=[-1]),
        push("t", [b"k", b"l"], process_at_us=[1, 2**64]),
        Next(table="t", count=-1),
        Next(table="t", lease_us=2**64),
        Finish(table="t", xids=[-1]),
        Finish(table="t", xids=[1, 2**64]),
        Extend(table="t", xids=[1], lease_us=-1),
        Fail(table="t", xids=[1], delay_us=-1),
        Reschedule(table="t", keys=Strings.of([b"k"]), priority=2**32),
        Reschedule(table="t", keys=Strings.of([b"k"]), priority=-1),
        Peek(table="t", state=-1),
        Batch(commands=[Batch(commands=[Nop()])]),
        Batch(commands=[Read(table="t", after=0)]),
        Batch(commands=[AsOf(snapshot=1, commands=[get_many("t", [b"k"])])]),
        AsOf(snapshot=1, commands=[Nop()]),
        AsOf(snapshot=-1, commands=[get_many("t", [b"k"])]),
        AsOf(snapshot=1, commands=[set_many("t", [(b"k", 1, b"v")])]),
        append("t", [b"v"], types=b""),
        append("t", [b"v"], keys=Strings.of([])),
        append("t", [b"v", b"w"], types=b"\1"),
        append("\ud800", [b"v"]),
        Read(table="t", after=-1),
        Read(table="t", after=0, until=2**64),
        Read(table="t", after=0, subscriber="\ud800"),
        Subscribe(table="t", name="n", start=2**32),
        Acknowledge(table="t", name="n", seq=1, epoch=-1),
        Acknowledge(table="t", name="n", seq=1, epoch=1, expected=-2),
        Acknowledge(table="t", name="n", seq=1, epoch=1, expected=2**64 - 1),
        Lag(table="t", name="n", after=2**64 - 1),
        Advance(writer="w", expected=-2, batch=5),
        Advance(writer="w", expected=2**64 - 1, batch=5),
        Advance(writer="w", expected=0, batch=-1),
        Advance(writer="\ud800", expected=0, batch=5),
        Scan(table="t", start_seq=1, end_seq=0, columns=["\ud800"]),
    ],
    ids=lambda command: type(command).__name__,
)
def test_what_cannot_be_sent_is_refused_at_home(command: Command) -> None:
    with pytest.raises(LocalProtocolError, match="this cannot be sent"):
        encode_request(command, 1)


def test_use_is_answered_like_nothing_else_to_do() -> None:
    data = encode_use("mine", 7)
    check_request(data, Request(Function.USE, 7, 0, Nop(), len(data)))


keys = st.lists(st.binary(max_size=20), min_size=1, max_size=8)


@given(
    keys.flatmap(
        lambda found: st.tuples(
            st.just(found),
            st.lists(
                st.tuples(st.integers(0, 255), st.binary(max_size=20)),
                min_size=len(found),
                max_size=len(found),
            ),
        )
    ),
    st.from_regex(r"[A-Za-z0-9_-]{1,40}", fullmatch=True),
    st.fixed_dictionaries(
        {
            "expires_at_us": st.integers(0, 2**64 - 1),
            "ttl_us": st.integers(0, 2**64 - 1),
            "overwrite": st.booleans(),
            "persist": st.booleans(),
            "also": st.none() | st.lists(st.binary(max_size=9), max_size=5).map(Strings.of),
        }
    ),
)
def test_decode_of_encode_is_the_same_batch(
    columns: tuple[list[bytes], list[tuple[int, bytes]]], table: str, options: dict[str, Any]
) -> None:
    items = [(key, type_, value) for key, (type_, value) in zip(*columns, strict=True)]
    command = set_many(table, items, **options)
    _, data = encode_request(command, 1)
    decoder = RequestDecoder()
    decoder.feed(data)
    request = decoder.next()
    assert request is not None
    assert plain(request.command) == plain(command)
    assert decoder.pending_bytes == 0


@pytest.mark.parametrize("function", [one for one in Function if one > 16])
@pytest.mark.parametrize("size", [limits.MESSAGE_BYTES_MAX + 1, 2**31, 2**32 - 1])
def test_a_body_over_the_limit_is_refused_before_it_is_awaited(
    function: Function, size: int
) -> None:
    error = refusal_of(request_bytes(function, struct.pack(">I", size)))
    assert error.code is Code.TOO_LARGE
    assert str(limits.MESSAGE_BYTES_MAX) in error.text


def test_the_largest_body_is_awaited() -> None:
    decoder = RequestDecoder()
    decoder.feed(request_bytes(33, struct.pack(">I", limits.MESSAGE_BYTES_MAX)))
    assert decoder.next() is None


def test_pending_bytes_are_those_of_no_request_yet() -> None:
    decoder = RequestDecoder()
    decoder.feed(request_bytes(0) + b"FJ\0")
    assert decoder.pending_bytes == 18 + 3
    assert decoder.next() is not None
    assert decoder.pending_bytes == 3


# -- anything at all ------------------------------------------------------------------------------


def feed_all(data: bytes, pieces: list[int]) -> list[Request]:
    """Everything that comes out of bytes fed in pieces; ends at the first error."""
    decoder, start = RequestDecoder(), 0
    found: list[Request] = []
    try:
        for size in [*pieces, len(data)]:
            decoder.feed(data[start : start + size])
            start += size
            while (request := decoder.next()) is not None:
                found.append(request)
    except RemoteProtocolError:
        pass  # the server answers once and closes
    return found


@example(b"FJ\0\1")
@given(st.binary(max_size=100))
def test_random_bytes_raise_nothing_but_a_protocol_error(data: bytes) -> None:
    feed_all(data, [1, 2, 3])


@settings(max_examples=300)
@given(
    st.sampled_from(SENT),
    st.integers(0, 0xFFFF),
    st.binary(max_size=80),
    st.lists(st.integers(0, 30), max_size=5),
)
def test_random_bytes_behind_a_good_header_raise_nothing_else(
    function: Function, flags: int, rest: bytes, pieces: list[int]
) -> None:
    feed_all(request_bytes(function, rest, flags=flags & FLAGS[function]), pieces)


@settings(max_examples=300)
@given(st.sampled_from([one for one in Function if one > 16]), st.binary(max_size=120))
def test_a_random_body_is_a_command_or_a_refusal(function: Function, body: bytes) -> None:
    found = feed_all(batch_bytes(function, body) + request_bytes(0), [])
    assert len(found) == 2
    assert found[0].function is function
    assert found[1].command == Nop()


@settings(max_examples=200)
@given(st.sampled_from(COMMANDS), st.data())
def test_a_changed_byte_in_a_body_never_costs_the_connection(
    command: Command, data: st.DataObject
) -> None:
    _, message = encode_request(command, 7)
    position = data.draw(st.integers(22, len(message) - 1))
    changed = bytearray(message)
    changed[position] ^= data.draw(st.integers(1, 255))
    found = feed_all(bytes(changed) + request_bytes(0), [])
    assert len(found) == 2
    assert found[1].command == Nop()


def test_a_refused_body_leaves_the_next_message_alone() -> None:
    decoder = RequestDecoder()
    _, good = encode_request(get_many("t", [b"k"]), 9)
    decoder.feed(batch_bytes(33, b"not a body") + good)
    refused = decoder.next()
    assert refused is not None
    assert isinstance(refused.command, Refusal)
    assert refused.command.code is Code.BAD_BATCH
    following = decoder.next()
    assert following is not None
    assert following.identifier == 9
    assert plain(following.command) == plain(get_many("t", [b"k"]))
