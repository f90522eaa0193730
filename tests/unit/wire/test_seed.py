"""Functions 0 to 16 against frozen bytes: requests, jobs one at a time, replies and changes."""

from __future__ import annotations

import struct

import pytest

from fjord import wire
from fjord.commands import Changed, Command, Entries, Flag, Nop, Range, Reply, Use
from fjord.errors import Code
from fjord.wire import RequestDecoder
from tests.unit.wire import seed_client, streams
from tests.unit.wire.job_samples import LATER, NOTHING, seed_taken
from tests.unit.wire.seed_client import SeedDecoder, SeedReply, entries_without_dates
from tests.unit.wire.seed_samples import CHANGES, DEFAULT, PAGES, SAMPLES, SEEDS, VECTOR, XID

UNTIL = struct.pack(">Q", streams.NOW_US + 9)
# -- requests -------------------------------------------------------------------------------------

each_sample = pytest.mark.parametrize(
    ("data", "command", "canonical"), SAMPLES.values(), ids=SAMPLES.keys()
)


@pytest.mark.req("FJ-36")
def test_the_published_vector_decodes_and_encodes_byte_for_byte() -> None:
    command = streams.set_one(b"k", 2, b"v", timestamp_us=1_700_000_000_000_000)
    streams.check_request(
        VECTOR, wire.Request(wire.Function.SET, 0x1234, 0x0222, command, len(VECTOR))
    )
    assert seed_client.encode_request(command, 0x1234) == VECTOR


@pytest.mark.req("FJ-36", "FJ-37", "FJ-38", "FJ-45")
@each_sample
def test_each_sample_decodes_however_it_arrives(
    data: bytes, command: Command, canonical: bool
) -> None:
    number, identifier, flags = struct.unpack_from(">HHH", data, 4)
    expected = wire.Request(wire.Function(number), identifier, flags, command, len(data))
    if len(data) < 1000:
        streams.check_request(data, expected)
    else:
        decoder = wire.RequestDecoder()
        decoder.feed(data)
        assert streams.plain(decoder.next()) == streams.plain(expected)


@each_sample
def test_each_command_encodes_to_its_sample(data: bytes, command: Command, canonical: bool) -> None:
    encoded = seed_client.encode_request(command, 7, streams.NOW_US)
    assert (encoded == data) is canonical


@pytest.mark.req("FJ-44")
def test_set_and_get_may_ask_to_be_told_of_changes() -> None:
    for command in (streams.set_one(b"k", 2, b"v"), streams.get_many(DEFAULT, [b"k"])):
        data = seed_client.encode_request(command, 7, listens=True)
        flags = struct.unpack_from(">H", data, 8)[0]
        assert flags & Flag.LISTEN
        function = wire.Function(data[5])
        streams.check_request(data, wire.Request(function, 7, flags, command, len(data)))
        assert wire.Request(function, 7, flags, command, len(data)).listens
        assert not wire.Request(function, 7, 0, command, len(data)).listens


@each_sample
def test_each_sample_speaks_to_the_table_that_was_chosen(
    data: bytes, command: Command, canonical: bool
) -> None:
    decoder = streams.new_decoder()
    decoder.feed(streams.sent(Use(table="mine"), 8) + data)
    decoder.next()
    request = decoder.next()
    assert request is not None
    has_its_own = isinstance(command, Nop) or getattr(command, "table", "") == "other"
    if not has_its_own:
        assert getattr(request.command, "table", "") == "mine"


def test_a_cursor_is_refused_where_none_are_given_out() -> None:
    data = SAMPLES["get-cursor"][0]
    decoder = RequestDecoder()
    decoder.feed(data)
    request = decoder.next()
    assert request is not None
    assert getattr(request.command, "code", None) is Code.BAD_CURSOR


# -- one job --------------------------------------------------------------------------------------


def next_reply(answer: Reply, function: wire.Function = wire.Function.NEXT) -> bytes:
    return streams.answered(answer, function)


@pytest.mark.req("FJ-28")
def test_a_job_is_a_pair_and_the_end_of_its_lease() -> None:
    answer = seed_taken(b"k", 2, b"v", first_xid=7, until_us=streams.NOW_US + 9)
    rest = UNTIL + b"\0\1" + b"\0" + b"\x09" + XID + b"k" + b"\2\2v"
    assert next_reply(answer) == streams.reply_bytes(rest, flags=0x200A)


@pytest.mark.req("FJ-28")
def test_nothing_to_work_on_is_a_reply_with_nothing_in_it() -> None:
    assert next_reply(NOTHING) == streams.reply_bytes(b"\0")


@pytest.mark.req("FJ-28")
def test_the_next_process_date_is_a_timeout_without_a_job() -> None:
    date = struct.pack(">Q", streams.NOW_US + 5)
    assert next_reply(LATER) == streams.reply_bytes(date + b"\0", flags=Flag.TIMEOUT)


def decode(data: bytes) -> SeedReply | wire.RawChange | None:
    decoder = SeedDecoder()
    decoder.feed(data)
    return decoder.next()


def decode_reply(data: bytes) -> SeedReply:
    found = decode(data)
    assert isinstance(found, SeedReply)
    return found


# -- replies --------------------------------------------------------------------------------------


def reply(
    answer: Reply, *, flags: int = Flag.DATA, function: int = wire.Function.GET, cursor: bytes = b""
) -> bytes:
    return wire.seed.encode_reply(function, 7, flags, answer, now_us=streams.NOW_US, cursor=cursor)


@pytest.mark.req("FJ-39")
@pytest.mark.parametrize(("function", "flags", "answer", "expected"), SEEDS)
def test_each_answer_reaches_the_client_under_its_identifier(
    function: wire.Function, flags: int, answer: Reply, expected: Reply
) -> None:
    for identifier in (0, 1, 0x1234, 0xFFFF):
        found = decode_reply(streams.answered(answer, function, identifier=identifier, flags=flags))
        assert found.identifier == identifier
        assert streams.plain(found.read(function)) == streams.plain(expected)


@pytest.mark.req("FJ-45")
def test_an_answer_that_goes_on_carries_the_cursor_of_its_query() -> None:
    asked = Range(table="t", stop=b"z", count=2)
    request = wire.Request(wire.Function.GET, 7, Flag.QUERY_RANGE, asked, 30)
    answer = streams.page([b"a"], streams.entries((2, b"v", 0, 0)), b"next")
    (data,) = wire.encode_reply(request, answer, now_us=streams.NOW_US, cursors=streams.CURSORS)
    expected = streams.page([b"a"], entries_without_dates(b"\2", answer.entries.values))
    expected.next_key = streams.CURSORS.encode(asked, b"next")
    assert streams.plain(decode_reply(bytes(data)).read(wire.Function.GET)) == streams.plain(
        expected
    )


@pytest.mark.req("FJ-45")
def test_a_probe_tells_the_type_and_no_data() -> None:
    answer = streams.entries((2, b"v" * 1000, 5, 0))
    assert reply(answer, flags=0) == streams.reply_bytes(b"\0\1\2", flags=0x0002, timestamp_us=5)


@pytest.mark.req("FJ-35")
@pytest.mark.parametrize("function", [wire.Function.ADD, wire.Function.NOT, wire.Function.TRUNCATE])
def test_a_changed_value_is_returned_without_being_asked_for(function: wire.Function) -> None:
    answer = streams.entries((3, bytes(8), 5, 0))
    expected = streams.reply_bytes(b"\0\x09\3" + bytes(8), flags=0x0002, timestamp_us=5)
    assert reply(answer, flags=Flag.VALUE_8, function=function) == expected


@pytest.mark.req("FJ-35", "FJ-46")
@pytest.mark.parametrize(("state", "flags"), [(0, 2), (1, 0x22), (2, 0x42), (3, 0x62)])
def test_a_value_says_that_it_is_locked_or_worked_on(state: int, flags: int) -> None:
    answer = streams.entries((2, b"v", 5, 0), state=state)
    assert reply(answer) == streams.reply_bytes(b"\0\2\2v", flags=flags, timestamp_us=5)


@pytest.mark.parametrize(
    ("size", "flags", "field"), [(254, 2, ">B"), (255, 4, ">H"), (65534, 4, ">H"), (65535, 6, ">I")]
)
def test_the_size_field_is_as_wide_as_it_must_be(size: int, flags: int, field: str) -> None:
    answer = streams.entries((1, b"v" * size, 5, 0))
    value = struct.pack(field, size + 1) + b"\1" + b"v" * size
    assert reply(answer) == streams.reply_bytes(b"\0" + value, flags=flags, timestamp_us=5)


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
    answer = streams.entries((Entries.MISSING, b"", 0, 0))
    assert reply(answer, flags=flags) == streams.reply_bytes(bytes([len(text)]) + text)


@pytest.mark.req("FJ-40", "FJ-45")
@pytest.mark.parametrize(("data", "answer", "cursor"), PAGES.values(), ids=PAGES.keys())
def test_a_page_is_pairs_and_perhaps_a_cursor(data: bytes, answer: Reply, cursor: bytes) -> None:
    assert reply(answer, cursor=cursor) == data


# -- changes --------------------------------------------------------------------------------------


@pytest.mark.req("FJ-44")
@pytest.mark.parametrize(("data", "changed"), CHANGES.values(), ids=CHANGES.keys())
def test_a_change_is_a_request_of_the_server(data: bytes, changed: Changed) -> None:
    assert wire.encode_change(7, changed) == data
    found = decode(data)
    assert isinstance(found, wire.RawChange)
    assert found.identifier == 7
    assert found.of("t") == changed
    streams.check_arrivals(wire.ReplyDecoder, data, found, following=streams.reply_bytes(b"\0"))
