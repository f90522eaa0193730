"""Requests of functions 0 to 16: every field that a flag announces, and what is wrong with it."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fjord import limits
from fjord.columns import Strings
from fjord.commands import (
    Change,
    Command,
    Get,
    Listen,
    Lock,
    Nop,
    Range,
    Rename,
    Scan,
    Touch,
    Unlock,
)
from fjord.errors import Code, LocalProtocolError
from fjord.wire import Flag, Function, Request, RequestDecoder, encode_use, seed
from tests.unit.wire.job_samples import SEED_JOBS
from tests.unit.wire.samples import EIGHT, ONE, modify, rename
from tests.unit.wire.streams import (
    CURSORS,
    NOW_US,
    check_request,
    delete_many,
    get_many,
    new_decoder,
    plain,
    request_bytes,
    set_one,
)

VECTOR = bytes.fromhex("464a000100021234022200060a24181e4000016b020276")
LONG_KEY = b"k" * 256
LATER_US = NOW_US + 5_000_000

# What a client sends, the command that it means, and whether Fjord would send the same bytes.
DATES = struct.pack(">QQ", LATER_US, 60_000_000)
TIMEOUT = DATES[:8]
DEFAULT = "default"
NEXT_PAGE = Range(table="other", start=b"next", stop=b"z", count=5, with_data=False)
CURSOR = CURSORS.encode(NEXT_PAGE, b"next")

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
        request_bytes(2, TIMEOUT + b"\1k\1\0", flags=0x022A),
        set_one(b"k", 0, b"", expires_at_us=LATER_US),
        True,
    ),
    "set-with-a-ttl": (
        request_bytes(2, DATES[8:] + b"\1k\1\0", flags=0x4222),
        set_one(b"k", 0, b"", ttl_us=60_000_000),
        True,
    ),
    "set-with-a-timeout-and-a-ttl": (
        request_bytes(2, DATES + b"\1k\1\0", flags=0x422A),
        set_one(b"k", 0, b"", expires_at_us=LATER_US, ttl_us=60_000_000),
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
    "get": (request_bytes(3, b"\1k", flags=0x0400), get_many(DEFAULT, [b"k"]), True),
    "get-16-bit-key": (
        request_bytes(3, b"\1\0" + LONG_KEY, flags=0x0401),
        get_many(DEFAULT, [LONG_KEY]),
        True,
    ),
    "probe": (request_bytes(3, b"\1k"), get_many(DEFAULT, [b"k"], with_data=False), True),
    "get-what-nobody-works-on": (
        request_bytes(3, b"\1k", flags=0x0440),
        get_many(DEFAULT, [b"k"], skip_worked=True),
        True,
    ),
    "get-for-work": (
        request_bytes(3, TIMEOUT + b"\1k", flags=0x0448),
        Touch(table=DEFAULT, keys=ONE, worked_until_us=LATER_US),
        True,
    ),
    "get-with-a-timeout-alone": (
        request_bytes(3, TIMEOUT + b"\1k", flags=0x0408),
        Touch(table=DEFAULT, keys=ONE, worked_until_us=LATER_US),
        False,
    ),
    "get-and-let-live": (
        request_bytes(3, TIMEOUT + b"\1k", flags=0x0418),
        Touch(table=DEFAULT, keys=ONE, extend=True, expires_at_us=LATER_US),
        True,
    ),
    "get-for-work-and-let-live": (
        request_bytes(3, TIMEOUT + b"\1k", flags=0x0058),
        Touch(
            table=DEFAULT,
            keys=ONE,
            extend=True,
            expires_at_us=LATER_US,
            worked_until_us=LATER_US,
            with_data=False,
        ),
        True,
    ),
    "get-range": (
        request_bytes(3, b"\0\x64\1a\1m", flags=0x0480),
        Range(table=DEFAULT, start=b"a", stop=b"m", count=100),
        True,
    ),
    "get-all": (
        request_bytes(3, b"\0\0\0\0", flags=0x0480),
        Range(table=DEFAULT),
        True,
    ),
    "get-range-that-says-that-it-has-a-count": (
        request_bytes(3, b"\xff\xff\1a\0", flags=0x20C0),
        Range(table=DEFAULT, start=b"a", count=65535, with_data=False, skip_worked=True),
        False,
    ),
    "get-range-16-bit-keys": (
        request_bytes(3, b"\0\1\0\1a\1\0" + LONG_KEY, flags=0x0481),
        Range(table=DEFAULT, start=b"a", stop=LONG_KEY, count=1),
        True,
    ),
    "get-regex": (
        request_bytes(3, b"\2^k", flags=0x0500),
        Range(table=DEFAULT, regex=b"^k"),
        False,
    ),
    "get-regex-with-a-count": (
        request_bytes(3, b"\0\5\2^k", flags=0x2500),
        Range(table=DEFAULT, regex=b"^k", count=5),
        True,
    ),
    "get-cursor": (
        request_bytes(3, bytes([len(CURSOR)]) + CURSOR, flags=0x0580),
        NEXT_PAGE,
        False,
    ),
    "get-cursor-with-a-count": (
        request_bytes(3, b"\0\7\0" + bytes([len(CURSOR)]) + CURSOR, flags=0x2181),
        Range(table="other", start=b"next", stop=b"z", count=7, with_data=False),
        False,
    ),
    "delete": (request_bytes(4, b"\1k"), delete_many(DEFAULT, [b"k"]), True),
    "delete-16-bit-key": (
        request_bytes(4, b"\1\0" + LONG_KEY, flags=0x0001),
        delete_many(DEFAULT, [LONG_KEY]),
        True,
    ),
    "purge": (
        request_bytes(4, b"\1k", flags=0x0020),
        delete_many(DEFAULT, [b"k"], purge=True),
        True,
    ),
    "add": (
        request_bytes(5, b"\1k\x09\3" + EIGHT, flags=0x0002),
        modify(Change.ADD, table=DEFAULT),
        True,
    ),
    "add-a-float": (
        request_bytes(5, b"\1k\x09\4" + EIGHT, flags=0x0002),
        modify(Change.ADD, type_=4, table=DEFAULT),
        True,
    ),
    "add-one-byte": (
        request_bytes(5, b"\1k\0\2\3\xff", flags=0x0004),
        modify(Change.ADD, b"\xff" * 8, table=DEFAULT),
        False,
    ),
    "not": (
        request_bytes(6, b"\1k"),
        modify(Change.NOT, b"", table=DEFAULT),
        True,
    ),
    "truncate": (
        request_bytes(7, b"\1k\x09\3" + EIGHT, flags=0x0002),
        modify(Change.TRUNCATE, table=DEFAULT),
        True,
    ),
    "lock": (request_bytes(8, b"\1k"), Lock(table=DEFAULT, keys=ONE), True),
    "unlock": (request_bytes(9, b"\1k"), Unlock(table=DEFAULT, keys=ONE), True),
    "rename": (
        request_bytes(10, b"\1k\2to"),
        rename(b"k", b"to", table=DEFAULT),
        True,
    ),
    "rename-onto": (
        request_bytes(10, b"\0\1k\1\0" + LONG_KEY, flags=0x0021),
        rename(b"k", LONG_KEY, table=DEFAULT, overwrite=True),
        True,
    ),
    "listen": (request_bytes(15, b"\1k"), Listen(table=DEFAULT, keys=ONE), True),
    **SEED_JOBS,
}

each_sample = pytest.mark.parametrize(
    ("data", "command", "canonical"), SAMPLES.values(), ids=SAMPLES.keys()
)


@pytest.mark.req("FJ-36")
def test_the_published_vector_decodes_and_encodes_byte_for_byte() -> None:
    command = set_one(b"k", 2, b"v", timestamp_us=1_700_000_000_000_000)
    check_request(VECTOR, Request(Function.SET, 0x1234, 0x0222, command, len(VECTOR)))
    assert seed.encode_request(command, 0x1234) == VECTOR


@pytest.mark.req("FJ-36", "FJ-37", "FJ-38", "FJ-45")
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


def test_every_function_that_a_client_may_send_has_a_sample() -> None:
    sampled = {struct.unpack_from(">H", data, 4)[0] for data, _, _ in SAMPLES.values()}
    seeds = {function for function in Function if function <= 16}
    assert sampled == seeds - {Function.QUIT, Function.CHANGE}


def test_quit_is_a_header_and_nothing_more() -> None:
    data = request_bytes(1, timestamp_us=0)
    check_request(data, Request(Function.QUIT, 7, 0, Nop(), len(data)))


@pytest.mark.req("FJ-44")
def test_set_and_get_may_ask_to_be_told_of_changes() -> None:
    for command in (set_one(b"k", 2, b"v"), get_many(DEFAULT, [b"k"])):
        data = seed.encode_request(command, 7, listens=True)
        flags = struct.unpack_from(">H", data, 8)[0]
        assert flags & Flag.LISTEN
        function = Function(data[5])
        check_request(data, Request(function, 7, flags, command, len(data), listens=True))


def test_the_table_is_the_one_that_was_chosen() -> None:
    decoder = new_decoder()
    assert decoder.table == DEFAULT
    get = request_bytes(3, b"\1k", flags=0x0400)
    decoder.feed(get + encode_use("mine", 8) + get + encode_use("no/name", 9) + get)
    found = [decoder.next() for _ in range(5)]
    tables = [one.command.table for one in found if one and isinstance(one.command, Get)]
    assert tables == [DEFAULT, "mine", "mine"]
    assert decoder.table == "mine"


@each_sample
def test_each_sample_speaks_to_the_table_that_was_chosen(
    data: bytes, command: Command, canonical: bool
) -> None:
    decoder = new_decoder()
    decoder.feed(encode_use("mine", 8) + data)
    decoder.next()
    request = decoder.next()
    assert request is not None
    has_its_own = isinstance(command, Nop) or getattr(command, "table", "") == "other"
    if not has_its_own:
        assert getattr(request.command, "table", "") == "mine"


@pytest.mark.parametrize(
    "command",
    [
        Scan(table=DEFAULT, start_seq=1, end_seq=0),
        Range(table=DEFAULT, start=b"a", regex=b"^a"),
        Touch(table=DEFAULT, keys=ONE, extend=True),
        Touch(table=DEFAULT, keys=ONE, extend=True, expires_at_us=5, worked_until_us=6),
    ],
)
def test_what_these_functions_cannot_say_is_not_encoded(command: Command) -> None:
    with pytest.raises(LocalProtocolError):
        seed.encode_request(command, 7)


numbers = st.integers(1, 2**64 - 1)
keys_ = st.binary(max_size=300)
commands_on_one_key: st.SearchStrategy[Command] = st.one_of(
    st.builds(
        set_one,
        keys_,
        st.integers(0, 255),
        st.binary(max_size=300),
        timestamp_us=st.integers(0, 2**64 - 1),
        expires_at_us=st.integers(0, 2**64 - 1),
        ttl_us=st.integers(0, 2**64 - 1),
        overwrite=st.booleans(),
        persist=st.booleans(),
    ),
    st.builds(
        Get,
        table=st.just(DEFAULT),
        keys=keys_.map(lambda key: Strings.of([key])),
        with_data=st.booleans(),
        skip_worked=st.booleans(),
    ),
    st.builds(
        Range,
        table=st.just(DEFAULT),
        start=keys_,
        stop=keys_,
        count=st.integers(0, 0xFFFF),
        with_data=st.booleans(),
        skip_worked=st.booleans(),
    ),
    st.builds(
        Rename,
        table=st.just(DEFAULT),
        key=keys_,
        to=keys_,
        timestamp_us=numbers,
        overwrite=st.booleans(),
    ),
    st.builds(
        lambda key, timestamp_us, purge: delete_many(DEFAULT, [key], timestamp_us, purge=purge),
        keys_,
        numbers,
        st.booleans(),
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


def test_a_cursor_is_refused_where_none_are_given_out() -> None:
    data = SAMPLES["get-cursor"][0]
    decoder = RequestDecoder()
    decoder.feed(data)
    request = decoder.next()
    assert request is not None
    assert getattr(request.command, "code", None) is Code.BAD_CURSOR


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
    decoder = new_decoder()
    found: list[Request] = []
    for start, end in itertools.pairwise([0, *cuts, len(stream)]):
        decoder.feed(stream[start:end])
        while (request := decoder.next()) is not None:
            found.append(request)
    assert [plain(request.command) for request in found] == [plain(one[1]) for one in chosen]
