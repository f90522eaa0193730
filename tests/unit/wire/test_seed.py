"""Messages of functions 0 to 16: every field that a flag announces, in both directions."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fjord import limits
from fjord.commands import Command, Entries, Nop, Refusal
from fjord.errors import Code, RemoteProtocolError
from fjord.wire import Flag, Function, Request, RequestDecoder, seed
from tests.unit.wire.streams import (
    NOW_US,
    check_request,
    delete_many,
    entries,
    get_many,
    plain,
    reply_bytes,
    request_bytes,
    set_one,
)

VECTOR = bytes.fromhex("464a000100021234022200060a24181e4000016b020276")
VALUE_32 = Flag.VALUE_8 | Flag.VALUE_16
LONG_KEY = b"k" * 256
LATER_US = NOW_US + 5_000_000

# What a client sends, the command that it means, and whether Fjord would send the same bytes.
SAMPLES: dict[str, tuple[bytes, Command, bool]] = {
    "nop": (request_bytes(0), Nop(), True),
    "set-8-bit-value": (
        request_bytes(2, b"\1k\2\2v", flags=0x0222),
        set_one(b"k", 2, b"v"),
        True,
    ),
    "set-16-bit-value": (
        request_bytes(2, b"\1k\1\1\1" + b"v" * 256, flags=0x0224),
        set_one(b"k", 1, b"v" * 256),
        True,
    ),
    "set-32-bit-value": (
        request_bytes(2, b"\1k\0\1\0\1\1" + b"v" * 65536, flags=0x0226),
        set_one(b"k", 1, b"v" * 65536),
        True,
    ),
    "set-small-value-in-a-32-bit-size": (
        request_bytes(2, b"\1k\0\0\0\2\2v", flags=0x0226),
        set_one(b"k", 2, b"v"),
        False,
    ),
    "set-16-bit-key": (
        request_bytes(2, b"\1\0" + LONG_KEY + b"\1\0", flags=0x0223),
        set_one(LONG_KEY, 0, b""),
        True,
    ),
    "set-short-key-in-a-16-bit-size": (
        request_bytes(2, b"\0\1k\1\0", flags=0x0223),
        set_one(b"k", 0, b""),
        False,
    ),
    "set-with-a-timeout": (
        request_bytes(2, struct.pack(">Q", LATER_US) + b"\1k\1\0", flags=0x022A),
        set_one(b"k", 0, b"", expires_at_us=LATER_US),
        True,
    ),
    "set-without-overwrite": (
        request_bytes(2, b"\1k\1\0", flags=0x0202),
        set_one(b"k", 0, b"", overwrite=False),
        True,
    ),
    "set-without-persist": (
        request_bytes(2, b"\1k\1\0", flags=0x0022),
        set_one(b"k", 0, b"", persist=False),
        True,
    ),
    "set-with-the-other-persist-bit": (
        request_bytes(2, b"\1k\1\0", flags=0x1022),
        set_one(b"k", 0, b""),
        False,
    ),
    "set-empty-key": (
        request_bytes(2, b"\0\1\0", flags=0x0222),
        set_one(b"", 0, b""),
        True,
    ),
    "get": (request_bytes(3, b"\1k", flags=0x0400), get_many("default", [b"k"]), True),
    "get-16-bit-key": (
        request_bytes(3, b"\1\0" + LONG_KEY, flags=0x0401),
        get_many("default", [LONG_KEY]),
        True,
    ),
    "probe": (request_bytes(3, b"\1k"), get_many("default", [b"k"]), False),
    "delete": (request_bytes(4, b"\1k"), delete_many("default", [b"k"]), True),
    "delete-16-bit-key": (
        request_bytes(4, b"\1\0" + LONG_KEY, flags=0x0001),
        delete_many("default", [LONG_KEY]),
        True,
    ),
}

each_sample = pytest.mark.parametrize(
    ("data", "command", "canonical"), SAMPLES.values(), ids=SAMPLES.keys()
)


@pytest.mark.req("FJ-36")
def test_the_published_vector_decodes_and_encodes_byte_for_byte() -> None:
    command = set_one(b"k", 2, b"v", timestamp_us=1_700_000_000_000_000)
    check_request(VECTOR, Request(Function.SET, 0x1234, 0x0222, command, len(VECTOR)))
    assert seed.encode_request(command, 0x1234) == VECTOR


@pytest.mark.req("FJ-36", "FJ-37", "FJ-38")
@each_sample
def test_each_sample_decodes_however_it_arrives(
    data: bytes, command: Command, canonical: bool
) -> None:
    number, identifier, flags = struct.unpack_from(">HHH", data, 4)
    expected = Request(Function(number), identifier, flags, command, len(data))
    if len(data) < 1000:
        check_request(data, expected)
    else:
        decoder = RequestDecoder()
        decoder.feed(data)
        assert plain(decoder.next()) == plain(expected)


@each_sample
def test_each_command_encodes_to_its_sample(data: bytes, command: Command, canonical: bool) -> None:
    encoded = seed.encode_request(command, 7, NOW_US)
    assert (encoded == data) is canonical


def test_quit_is_a_header_and_nothing_more() -> None:
    data = request_bytes(1, timestamp_us=0)
    check_request(data, Request(Function.QUIT, 7, 0, Nop(), len(data)))


commands_on_one_key: st.SearchStrategy[Command] = st.one_of(
    st.builds(
        set_one,
        st.binary(max_size=300),
        st.integers(0, 255),
        st.binary(max_size=300),
        timestamp_us=st.integers(0, 2**64 - 1),
        expires_at_us=st.integers(0, 2**64 - 1),
        overwrite=st.booleans(),
        persist=st.booleans(),
    ),
    st.binary(max_size=300).map(lambda key: get_many("default", [key])),
    st.builds(
        lambda key, timestamp_us: delete_many("default", [key], timestamp_us),
        st.binary(max_size=300),
        st.integers(0, 2**64 - 1),
    ),
    st.just(Nop()),
)


@given(commands_on_one_key, st.integers(0, 0xFFFF))
def test_decode_of_encode_is_the_same_command(command: Command, identifier: int) -> None:
    decoder = RequestDecoder()
    decoder.feed(seed.encode_request(command, identifier))
    request = decoder.next()
    assert request is not None
    assert request.identifier == identifier
    assert plain(request.command) == plain(command)
    assert decoder.pending_bytes == 0


# -- values are judged before they are waited for --------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "size", "code"),
    [
        (VALUE_32, b"\xff\xff\xff\xff", Code.VALUE_TOO_LARGE),
        (VALUE_32, b"\x80\0\0\0", Code.VALUE_TOO_LARGE),
        (VALUE_32, struct.pack(">I", limits.VALUE_BYTES_MAX + 2), Code.VALUE_TOO_LARGE),
        (VALUE_32, bytes(4), Code.BAD_VALUE_SIZE),
        (Flag.VALUE_16, bytes(2), Code.BAD_VALUE_SIZE),
        (Flag.VALUE_8, bytes(1), Code.BAD_VALUE_SIZE),
        (0, b"", Code.BAD_VALUE_SIZE),
    ],
)
def test_a_bad_value_size_is_refused_before_a_byte_of_the_value(
    flags: int, size: bytes, code: Code
) -> None:
    decoder = RequestDecoder()
    decoder.feed(request_bytes(2, b"\1k" + size, flags=flags))
    with pytest.raises(RemoteProtocolError) as caught:
        decoder.next()
    assert caught.value.code is code


def test_the_largest_value_is_waited_for_and_taken() -> None:
    value = b"v" * limits.VALUE_BYTES_MAX
    data = seed.encode_request(set_one(b"k", 1, value), 7)
    decoder = RequestDecoder()
    decoder.feed(data[:-1])
    assert decoder.next() is None
    decoder.feed(data[-1:])
    request = decoder.next()
    assert request is not None
    assert plain(request.command) == plain(set_one(b"k", 1, value))


def test_a_timeout_of_0_is_refused_and_the_connection_goes_on() -> None:
    decoder = RequestDecoder()
    decoder.feed(request_bytes(2, bytes(8) + b"\1k\1\0", flags=0x022A) + request_bytes(0))
    request = decoder.next()
    assert request is not None
    assert isinstance(request.command, Refusal)
    assert request.command.code is Code.BAD_TIMEOUT
    following = decoder.next()
    assert following is not None
    assert following.command == Nop()


# -- replies --------------------------------------------------------------------------------------


def reply(answer: Refusal | Entries, *, with_data: bool = True) -> bytes:
    return seed.encode_reply(7, answer, now_us=NOW_US, with_data=with_data)


def test_a_value_is_laid_out_as_the_seed_says() -> None:
    answer = entries((2, b"v", 5, 0))
    assert reply(answer) == reply_bytes(b"\0\2\2v", flags=0x0002, timestamp_us=5)


def test_a_probe_tells_the_type_and_no_data() -> None:
    answer = entries((2, b"v" * 1000, 5, 0))
    assert reply(answer, with_data=False) == reply_bytes(b"\0\1\2", flags=0x0002, timestamp_us=5)


def test_an_expiry_stands_before_the_error() -> None:
    answer = entries((0, b"", 5, 9))
    expected = reply_bytes(bytes(7) + b"\x09\0\1\0", flags=0x000A, timestamp_us=5)
    assert reply(answer) == expected


@pytest.mark.parametrize(
    ("size", "flags", "field"), [(254, 2, ">B"), (255, 4, ">H"), (65534, 4, ">H"), (65535, 6, ">I")]
)
def test_the_size_field_is_as_wide_as_it_must_be(size: int, flags: int, field: str) -> None:
    answer = entries((1, b"v" * size, 5, 0))
    value = struct.pack(field, size + 1) + b"\1" + b"v" * size
    assert reply(answer) == reply_bytes(b"\0" + value, flags=flags, timestamp_us=5)


def test_a_missing_key_is_an_error() -> None:
    text = b"NOT_FOUND: the key does not exist"
    assert reply(entries((Entries.MISSING, b"", 0, 0))) == reply_bytes(bytes([len(text)]) + text)


@pytest.mark.parametrize(("size", "flags", "field"), [(251, 0, ">B"), (252, 1, ">H")])
def test_a_long_error_has_a_wide_size(size: int, flags: int, field: str) -> None:
    text = "BUSY: " + "x" * (size - 2)
    answer = Refusal(code=Code.BUSY, text="x" * (size - 2))
    expected = reply_bytes(struct.pack(field, len(text)) + text.encode(), flags=flags)
    assert reply(answer) == expected


def test_an_endless_error_is_cut_to_64_kib() -> None:
    encoded = reply(Refusal(code=Code.BUSY, text="x" * 100_000))
    assert len(encoded) == 16 + 2 + 0xFFFF


@pytest.mark.parametrize("cut", range(1, 5))
def test_an_unfinished_message_waits(cut: int) -> None:
    for data, _, _ in SAMPLES.values():
        decoder = RequestDecoder()
        decoder.feed(data[:-cut])
        assert decoder.next() is None


@settings(max_examples=50)
@given(st.data())
def test_messages_are_found_in_any_pieces(data: st.DataObject) -> None:
    """A stream of samples, cut at random: the same messages come out."""
    small = [sample for sample in SAMPLES.values() if len(sample[0]) < 1000]
    chosen = data.draw(st.lists(st.sampled_from(small), max_size=5))
    stream = b"".join(sample[0] for sample in chosen)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    decoder = RequestDecoder()
    found: list[Request] = []
    for start, end in itertools.pairwise([0, *cuts, len(stream)]):
        decoder.feed(stream[start:end])
        while (request := decoder.next()) is not None:
            found.append(request)
    assert [plain(request.command) for request in found] == [plain(one[1]) for one in chosen]
