"""Messages: headers that are refused and why, numbers, bodies however they arrive, random bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fjord import commands, limits, wire
from fjord.columns import Strings
from fjord.commands.codec import FLAG_NAMES
from fjord.errors import Code, LocalProtocolError, RemoteProtocolError
from fjord.wire.explain import function_name
from fjord.wire.fields import REQUEST
from tests.unit.wire import streams
from tests.unit.wire.job_samples import push
from tests.unit.wire.samples import COMMANDS, REPLIES, TOKEN, names_of
from tests.unit.wire.stream_samples import append

ABOVE = [number for number in commands.FUNCTIONS if number > wire.LAST_SEED_FUNCTION]


def refusal_of(data: bytes) -> RemoteProtocolError:
    """The error that ends a connection which sends `data`."""
    decoder = wire.RequestDecoder()
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


def test_every_function_without_a_meaning_is_refused() -> None:
    known = {*wire.Function, *commands.FUNCTIONS}
    for number in [*range(300), 0x7FFF, 0xFFFF]:
        if number not in known:
            error = refusal_of(streams.request_bytes(number))
            assert error.code is Code.UNKNOWN_FUNCTION
            assert str(number) in error.text


KNOWN = {number: row.flags for number, row in enumerate(wire.seed.ROWS) if row.command}
KNOWN |= {
    number: row.flags
    for number, row in commands.FUNCTIONS.items()
    if number > wire.LAST_SEED_FUNCTION
}


@pytest.mark.req("FJ-37")
@pytest.mark.parametrize("function", KNOWN)
def test_every_flag_that_a_function_does_not_know_is_refused_by_its_bit(function: int) -> None:
    for bit in range(16):
        if not KNOWN[function] & 1 << bit:
            error = refusal_of(streams.request_bytes(function, flags=1 << bit))
            assert error.code is Code.BAD_FLAGS
            assert f"bit {bit} ({FLAG_NAMES[1 << bit]})" in error.text
            assert function_name(function) in error.text


# -- functions above 16 ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [commands.Nop(), *COMMANDS], ids=names_of([commands.Nop(), *COMMANDS])
)
def test_each_command_arrives_as_it_was_sent(command: commands.Command) -> None:
    data = streams.sent(command, 0xFFFF)
    function, _, flags = struct.unpack_from(">HHH", data, 4)
    # A table is chosen where messages are read; who runs commands has nothing to do for it.
    found = commands.Nop() if isinstance(command, commands.Use) else command
    expected = wire.Request(function, 0xFFFF, flags, found, len(data))
    if len(data) < 2000:
        streams.check_request(data, expected)
    else:
        decoder = wire.RequestDecoder()
        decoder.feed(data)
        assert streams.plain(decoder.next()) == streams.plain(expected)


NUMBERED = [
    one
    for one in COMMANDS
    if type(one).row.flags & commands.Flag.NUMBER and len(streams.sent(one)) < 2000
]


@pytest.mark.parametrize("command", NUMBERED, ids=names_of(NUMBERED))
def test_a_number_stands_before_the_length(command: commands.Command) -> None:
    data, plain_one = streams.sent(command, 7, 2**64 - 1), streams.sent(command)
    flags = struct.unpack_from(">H", plain_one, 8)[0] | commands.Flag.NUMBER
    stamp = plain_one[10:18]
    assert data == plain_one[:8] + struct.pack(">H", flags) + stamp + b"\xff" * 8 + plain_one[18:]
    number = type(command).row.number
    streams.check_request(data, wire.Request(number, 7, flags, command, len(data), 2**64 - 1))


def test_the_number_0_is_none_and_refused() -> None:
    message = streams.sent(NUMBERED[0], 7, number=1)
    at = REQUEST.size + 7
    assert message[at] == 1
    decoder = wire.RequestDecoder()
    decoder.feed(message[:at] + b"\0" + message[at + 1 :])
    request = decoder.next()
    assert request is not None
    assert isinstance(request.command, commands.Refusal)
    assert request.command.code is Code.BAD_BATCH


def test_large_messages_are_sent_in_pieces_and_small_ones_in_one() -> None:
    assert len(wire.encode_request(append("t", [b"v"]), 7)) == 1
    large = append("t", [b"v" * 1_000] * 1_000)
    assert len(wire.encode_request(large, 7)) > 1
    assert (
        len(wire.encode_request(commands.Batch(commands=[append("t", [b"v" * 99] * 99)] * 100), 7))
        == 1
    )


@pytest.mark.parametrize(
    "command",
    [
        commands.Hello(client=b"short"),
        commands.Scan(table="t", start_seq=-1, end_seq=0),
        commands.Scan(table="t", start_seq=1, end_seq=2**64),
        commands.Unlisten(identifier=-1),
        commands.Listen(table="\ud800", keys=Strings.of([b"k"])),
        streams.get_many("n" * 70_000, [b"k"]),
        commands.Batch(commands=[commands.Next(table="t")]),
        push("t", [b"k", b"l"], types=b"\1"),
        push("t", [b"k"], expires_at_us=[1, 2]),
        push("t", [b"k"], domains=Strings.of([])),
        push("t", [b"k", b"l"], process_at_us=[1, 2**64]),
        commands.Finish(table="t", xids=[-1]),
        commands.Fail(table="t", xids=[1], delay_us=-1),
        commands.Reschedule(table="t", keys=Strings.of([b"k"]), priority=2**32),
        commands.AsOf(snapshot=1, commands=[streams.set_many("t", [(b"k", 1, b"v")])]),
        append("t", [b"v", b"w"], types=b"\1"),
        commands.Read(table="t", after=0, subscriber="\ud800"),
        commands.Acknowledge(table="t", name="n", seq=1, epoch=1, expected=-2),
        commands.Acknowledge(table="t", name="n", seq=1, epoch=1, expected=2**64 - 1),
        commands.Scan(table="t", start_seq=1, end_seq=0, columns=["\ud800"]),
    ],
    ids=lambda command: type(command).__name__,
)
def test_what_cannot_be_sent_is_refused_at_home(command: commands.Command) -> None:
    with pytest.raises(LocalProtocolError, match="this cannot be sent"):
        wire.encode_request(command, 1)


@pytest.mark.parametrize("function", ABOVE)
@pytest.mark.parametrize("size", [limits.MESSAGE_BYTES_MAX + 1, 2**31, 2**32 - 1])
def test_a_body_over_the_limit_is_refused_before_it_is_awaited(function: int, size: int) -> None:
    error = refusal_of(streams.request_bytes(function, struct.pack(">I", size)))
    assert error.code is Code.TOO_LARGE
    assert str(limits.MESSAGE_BYTES_MAX) in error.text


# -- anything at all ------------------------------------------------------------------------------


def feed_all(data: bytes, pieces: list[int]) -> list[wire.Request]:
    """Everything that comes out of bytes fed in pieces; ends at the first error."""
    decoder, start = wire.RequestDecoder(), 0
    found: list[wire.Request] = []
    try:
        for size in [*pieces, len(data)]:
            decoder.feed(data[start : start + size])
            start += size
            while (request := decoder.next()) is not None:
                found.append(request)
    except RemoteProtocolError:
        pass  # the server answers once and closes
    return found


@settings(max_examples=300)
@given(
    st.sampled_from(sorted(KNOWN)),
    st.integers(0, 0xFFFF),
    st.binary(max_size=80),
    st.lists(st.integers(0, 30), max_size=5),
)
def test_random_bytes_behind_a_good_header_raise_nothing_else(
    function: int, flags: int, rest: bytes, pieces: list[int]
) -> None:
    feed_all(streams.request_bytes(function, rest, flags=flags & KNOWN[function]), pieces)


@settings(max_examples=300)
@given(st.sampled_from(ABOVE), st.binary(max_size=120))
def test_a_random_body_is_a_command_or_a_refusal(function: int, body: bytes) -> None:
    found = feed_all(streams.batch_bytes(function, body) + streams.request_bytes(0), [])
    assert len(found) == 2
    assert found[0].function == function
    assert found[1].command == commands.Nop()


@settings(max_examples=200)
@given(st.sampled_from(COMMANDS), st.data())
def test_a_changed_byte_in_a_body_never_costs_the_connection(
    command: commands.Command, data: st.DataObject
) -> None:
    message = streams.sent(command)
    position = data.draw(st.integers(22, len(message) - 1))
    changed = bytearray(message)
    changed[position] ^= data.draw(st.integers(1, 255))
    found = feed_all(bytes(changed) + streams.request_bytes(0), [])
    assert len(found) == 2
    assert found[1].command == commands.Nop()


# -- replies --------------------------------------------------------------------------------------


def decode(data: bytes) -> wire.RawReply:
    decoder = wire.ReplyDecoder()
    decoder.feed(data)
    raw = decoder.next()
    assert isinstance(raw, wire.RawReply)
    return raw


GET_MANY = commands.FUNCTIONS[33]


@pytest.mark.req("FJ-39")
@pytest.mark.parametrize("reply", REPLIES)
def test_each_answer_reaches_the_client_under_its_identifier(reply: commands.Reply) -> None:
    for identifier in (0, 1, 0x1234, 0xFFFF):
        raw = decode(streams.answered(reply, identifier=identifier))
        assert raw.identifier == identifier
        assert streams.plain(wire.read_reply(GET_MANY, raw)) == streams.plain(reply)


def test_a_nop_is_answered_without_a_body_and_nothing_else_is() -> None:
    raw = decode(streams.answered(TOKEN, wire.Function.NOP))
    assert wire.read_reply(commands.Nop.row, raw) == commands.Done(master=b"", seq=0)
    with pytest.raises(RemoteProtocolError, match="without a body"):
        wire.read_reply(GET_MANY, raw)


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x80\0\0\0"])
def test_a_size_that_cannot_be_is_refused_before_it_is_awaited(size: bytes) -> None:
    decoder = wire.ReplyDecoder()
    decoder.feed(streams.reply_bytes(b"\0" + size, flags=commands.Flag.BODY))
    with pytest.raises(RemoteProtocolError):
        decoder.next()


@pytest.mark.parametrize("bit", [bit for bit in range(16) if bit not in (0, 15)])
def test_flags_of_other_replies_are_refused(bit: int) -> None:
    decoder = wire.ReplyDecoder()
    decoder.feed(streams.reply_bytes(bytes(64), flags=1 << bit))
    with pytest.raises(RemoteProtocolError):
        decoder.next()
