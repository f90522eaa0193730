"""Bodies of functions 65 to 79, byte by byte."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import limits
from fjord.columns import Strings
from fjord.commands import (
    Acknowledge,
    Append,
    CloseSnapshot,
    Command,
    Erase,
    Lag,
    ListBlocks,
    ListSubscribers,
    OpenSnapshot,
    Read,
    Refusal,
    Rest,
    SealNow,
    Seek,
    Subscribe,
    Unsubscribe,
)
from fjord.errors import Code
from fjord.streams import Start
from fjord.wire import Function, bodies, encode_request
from fjord.wire.functions import Flag
from tests.unit.wire.stream_samples import LARGEST, append
from tests.unit.wire.streams import new_decoder, plain
from tests.unit.wire.test_body import head

KEYS = Strings.of([b"a", b"bc"])
KEY_COLUMN = bytes(KEYS.encode())


def strings(*rows: bytes) -> bytes:
    return bytes(Strings.of(rows).encode())


def text_of(found: Command | Refusal) -> str:
    assert isinstance(found, Refusal)
    assert found.code is Code.BAD_BATCH
    return found.text


def there_and_back(command: Command) -> Command | Refusal:
    return bodies.decode_body(*bodies.encode_body(command))


def test_messages_are_laid_out_column_by_column() -> None:
    command = Append(table="tab", types=b"\2\1", keys=KEYS, values=Strings.of([b"v", b""]))
    body = (
        b"\0\3" + b"\0\0" + b"\0\0\0\2" + bytes(8) + b"tab" + bytes(5)
        + b"\2\1" + bytes(6)
        + b"\0\0\0\0\1\0\0\0\3\0\0\0" + bytes(4) + b"abc" + bytes(5)
        + b"\0\0\0\0\1\0\0\0\1\0\0\0" + bytes(4) + b"v" + bytes(7)
    )  # fmt: skip
    assert bodies.encode_body(command) == (Function.APPEND, 0, 0, body)


def test_dates_stand_before_the_messages() -> None:
    plain_one = Append(table="tab", types=b"\2\1", keys=KEYS, values=Strings.of([b"v", b""]))
    dated = replace(plain_one, timestamps_us=[5, 2**64 - 1])
    _, _, _, body = bodies.encode_body(plain_one)
    at = len(head(b"tab", 2))
    expected = body[:at] + b"\5" + bytes(7) + b"\xff" * 8 + body[at:]
    assert bodies.encode_body(dated) == (Function.APPEND, Flag.TIMEOUT, 0, expected)
    assert plain(there_and_back(dated)) == plain(dated)


def test_a_date_is_said_of_each_message_or_of_none() -> None:
    command = replace(append("t", [b"v", b"w"]), timestamps_us=[5])
    with pytest.raises(ValueError, match="differ in number"):
        bodies.encode_body(command)


@pytest.mark.parametrize("size", [100, 7, 0])
def test_many_messages_are_handed_on_as_they_came(size: int) -> None:
    """The engine stores what is encoded already: columns stay views of the message."""
    command = append("t", [b"v" * size] * 10_000)
    body = bodies.encode_body(command)[3]
    found = bodies.decode_body(Function.APPEND, 0, 0, body)
    assert isinstance(found, Append)
    for column, sent in ((found.keys, command.keys), (found.values, command.values)):
        assert isinstance(column.offsets, memoryview)
        assert isinstance(column.data, memoryview)
        stored = column.encode()
        assert isinstance(stored, memoryview)
        assert stored.obj is body
        assert stored == sent.encode()
    assert (found.table, found.types) == ("t", command.types)


def test_large_requests_one_behind_the_other_do_not_disturb_each_other() -> None:
    sent = [append("t", [b"%d" % number * 50] * 5_000) for number in range(10, 15)]
    data = b"".join(encode_request(command, 7)[1] for command in sent)
    decoder, found = new_decoder(), []
    for at in range(0, len(data), 100_001):
        decoder.feed(data[at : at + 100_001])
        while (request := decoder.next()) is not None:
            found.append(request.command)
    assert plain(found) == plain(sent)


@given(
    st.lists(
        st.tuples(st.integers(0, 255), st.binary(max_size=9), st.binary(max_size=40)), max_size=90
    ),
    st.from_regex(r"[A-Za-z0-9_-]{1,40}", fullmatch=True),
    st.booleans(),
)
def test_decode_of_encode_is_the_same_messages(
    rows: list[tuple[int, bytes, bytes]], table: str, has_dates: bool
) -> None:
    command = Append(
        table=table,
        types=bytes(type_ for type_, _, _ in rows),
        keys=Strings.of([key for _, key, _ in rows]),
        values=Strings.of([value for _, _, value in rows]),
        timestamps_us=list(range(len(rows))) if has_dates else None,
    )
    assert plain(there_and_back(command)) == plain(command)
    function, data = encode_request(command, 7)
    assert data[22:] == bodies.encode_body(command)[3]
    decoder = new_decoder()
    decoder.feed(data)
    request = decoder.next()
    assert request is not None
    assert (request.function, plain(request.command)) == (function, plain(command))


numbers = st.integers(0, LARGEST - 1)
names = st.from_regex(r"[A-Za-z0-9_-]{0,40}", fullmatch=True)
some = st.lists(st.binary(max_size=9), max_size=9).map(Strings.of)


@given(
    st.one_of(
        st.builds(Erase, table=names, keys=some),
        st.builds(
            Read,
            table=names,
            after=numbers,
            until=numbers,
            count=numbers,
            bytes_max=numbers,
            wait_us=numbers,
            subscriber=names,
        ),
        st.builds(Subscribe, table=names, name=names, start=st.integers(0, 9), at=numbers),
        st.builds(
            Acknowledge,
            table=names,
            name=names,
            seq=numbers,
            epoch=numbers,
            expected=st.integers(-1, LARGEST - 1),
        ),
        st.builds(Seek, table=names, name=names, start=st.sampled_from(Start), at=numbers),
        st.builds(Rest, table=names, name=names, asleep=st.booleans()),
        st.builds(Unsubscribe, table=names, name=names),
        st.builds(ListSubscribers, table=names, start=names, count=numbers),
        st.builds(Lag, table=names, name=names, after=st.integers(-1, LARGEST - 1)),
        st.builds(OpenSnapshot, lifetime_us=numbers),
        st.builds(CloseSnapshot, snapshot=numbers),
        st.builds(ListBlocks, table=names, after=numbers, count=numbers),
        st.builds(SealNow, table=names),
    )
)
def test_decode_of_encode_is_the_same_command(command: Command) -> None:
    assert plain(there_and_back(command)) == plain(command)


def test_a_reading_says_from_where_to_where_how_much_and_how_long_it_waits() -> None:
    command = Read(
        table="t", after=1, until=2, count=3, bytes_max=4, wait_us=5, subscriber="billing"
    )
    body = head(b"t", 1, 1) + struct.pack(">QQQQ", 2, 3, 4, 5) + strings(b"billing")
    assert bodies.encode_body(command) == (Function.READ, 0, 0, body)


def test_a_start_is_a_field_and_its_place_the_argument() -> None:
    body = head(b"t", 1, 5) + struct.pack(">I4x", 3) + strings(b"billing")
    subscribe = Subscribe(table="t", name="billing", start=Start.SEQ, at=5)
    assert bodies.encode_body(subscribe) == (Function.SUBSCRIBE, 0, 0, body)
    seek = Seek(table="t", name="billing", start=Start.SEQ, at=5)
    assert bodies.encode_body(seek) == (Function.SEEK, 0, 0, body)


@pytest.mark.parametrize(("expected", "sent"), [(-1, LARGEST), (0, 0), (9, 9)])
def test_what_is_expected_may_be_nothing(expected: int, sent: int) -> None:
    command = Acknowledge(table="t", name="b", seq=7, epoch=2, expected=expected)
    body = head(b"t", 1, 7) + struct.pack(">QQ", 2, sent) + strings(b"b")
    assert bodies.encode_body(command) == (Function.ACKNOWLEDGE, 0, 0, body)
    assert there_and_back(command) == command


def test_a_lag_is_counted_from_the_mark_or_from_a_seq() -> None:
    for after, sent in ((-1, LARGEST), (0, 0), (5, 5)):
        command = Lag(table="t", name="b", after=after)
        expected = (Function.LAG, 0, 0, head(b"t", 1, sent) + strings(b"b"))
        assert bodies.encode_body(command) == expected


def test_a_name_alone_stands_behind_the_head() -> None:
    for command, function, argument in (
        (Rest(table="t", name="b", asleep=True), Function.REST, 1),
        (Rest(table="t", name="b", asleep=False), Function.REST, 0),
        (Unsubscribe(table="t", name="b"), Function.UNSUBSCRIBE, 0),
        (ListSubscribers(table="t", start="b", count=9), Function.SUBSCRIBERS, 9),
    ):
        expected = (function, 0, 0, head(b"t", 1, argument) + strings(b"b"))
        assert bodies.encode_body(command) == expected


def test_keys_alone_stand_behind_the_head() -> None:
    expected = (Function.ERASE, 0, 0, head(b"t", 2) + KEY_COLUMN)
    assert bodies.encode_body(Erase(table="t", keys=KEYS)) == expected


def test_snapshots_and_blocks_are_little_more_than_heads() -> None:
    for command, function, body in (
        (OpenSnapshot(lifetime_us=5), Function.OPEN_SNAPSHOT, head(b"", 0, 5)),
        (CloseSnapshot(snapshot=5), Function.CLOSE_SNAPSHOT, head(b"", 0, 5)),
        (ListBlocks(table="t", after=5, count=9), Function.BLOCKS, head(b"t", 0, 5) + b"\0" * 7),
        (SealNow(table="t"), Function.SEAL, head(b"t", 0)),
        (SealNow(), Function.SEAL, head(b"", 0)),
    ):
        expected = body + b"\x09" if function is Function.BLOCKS else body
        assert bodies.encode_body(command) == (function, 0, 0, expected)


@pytest.mark.parametrize("start", [0, 5, 2**32 - 1])
def test_a_start_that_is_none_is_left_to_the_table_to_refuse(start: int) -> None:
    command = Subscribe(table="t", name="b", start=start)
    assert there_and_back(command) == command


@pytest.mark.parametrize("name", [b"", b"a/b", b"\xc3\xa9", b"\xff", b"n" * 300])
def test_a_name_that_is_none_is_left_to_the_table_to_refuse(name: bytes) -> None:
    found = bodies.decode_body(Function.UNSUBSCRIBE, 0, 0, head(b"t", 1) + strings(name))
    assert found == Unsubscribe(table="t", name=name.decode("ascii", "replace"))


NAMED = [
    (Function.READ, bytes(32)),
    (Function.SUBSCRIBE, bytes(8)),
    (Function.ACKNOWLEDGE, bytes(16)),
    (Function.SEEK, bytes(8)),
    (Function.REST, b""),
    (Function.UNSUBSCRIBE, b""),
    (Function.SUBSCRIBERS, b""),
    (Function.LAG, b""),
]


@pytest.mark.parametrize(("function", "fields"), NAMED)
@pytest.mark.parametrize("rows", [0, 1, 2, 100])
def test_one_subscriber_is_named_and_no_more(function: Function, fields: bytes, rows: int) -> None:
    body = head(b"t", rows) + fields + strings(*[b"n"] * rows)
    found = bodies.decode_body(function, 0, 0, body)
    assert isinstance(found, Refusal) is (rows != 1)
    if rows != 1:
        assert text_of(found) == "rows must be 1 here"


def test_who_rests_is_asleep_or_not() -> None:
    for argument in (2, LARGEST):
        found = bodies.decode_body(Function.REST, 0, 0, head(b"t", 1, argument) + strings(b"n"))
        assert text_of(found) == "the argument is 0, or 1: asleep"


def test_messages_are_bounded_by_rows() -> None:
    most = append("t", [b""] * limits.BATCH_ROWS_MAX)
    assert isinstance(there_and_back(most), Append)
    more = append("t", [b""] * (limits.BATCH_ROWS_MAX + 1))
    assert str(limits.BATCH_ROWS_MAX) in text_of(there_and_back(more))


@pytest.mark.parametrize("at", [1, 64, 65, 1_000, 2_048, 2_049, 9_999])
@pytest.mark.parametrize("offset", [1_000_001, 2**31, 2**32 - 1])
def test_an_offset_that_goes_back_refuses_the_messages(at: int, offset: int) -> None:
    """One of values, of which all others are right; no reader may be led astray by it."""
    values = bytearray(Strings.of([b"v" * 100] * 10_000).encode())
    struct.pack_into("<I", values, 4 * at, offset)
    body = head(b"t", 10_000) + bytes(10_000) + strings(*[b""] * 10_000) + values
    found = bodies.decode_body(Function.APPEND, 0, 0, body)
    assert text_of(found) == "the offsets of a column do not ascend from 0"
