"""explain: it goes as far as the decoders do, names every byte, and never raises."""

from __future__ import annotations

import pytest

from fjord.commands import Acknowledge, Advance, Batch, Command, Lag, Reply
from fjord.errors import RemoteProtocolError
from fjord.wire import Function, encode_reply, encode_request, encode_use
from fjord.wire.explain import Line, explain
from tests.unit.wire.job_samples import ONE_JOB, push
from tests.unit.wire.samples import COMMANDS, LONG, REPLIES, names_of
from tests.unit.wire.stream_samples import ARROW, AS_OF
from tests.unit.wire.streams import (
    NOW_US,
    batch_bytes,
    new_decoder,
    reply_bytes,
    request_bytes,
    scanned,
)
from tests.unit.wire.test_bad_input import CLOSING, KEPT
from tests.unit.wire.test_batch import inner
from tests.unit.wire.test_body import head
from tests.unit.wire.test_seed import SAMPLES, VECTOR
from tests.unit.wire.test_seed_replies import CHANGES, PAGES


def check_lines(data: bytes, lines: list[Line]) -> None:
    """Checks that the lines are the data, each byte once and in order."""
    assert b"".join(line.data for line in lines) == data
    offset = 0
    for line in lines:
        assert line.offset == offset
        offset += len(line.data)


def meaning_of(lines: list[Line], field: str) -> str:
    return next(line.meaning for line in lines if line.field == field)


def problems(lines: list[Line]) -> list[str]:
    return [line.meaning for line in lines if line.is_problem]


def test_the_published_vector_is_explained_field_by_field() -> None:
    lines = explain(VECTOR)
    assert [(line.offset, line.data.hex(), line.field, line.meaning) for line in lines] == [
        (0, "464a", "magic", "a request or a change"),
        (2, "0001", "version", "1"),
        (4, "0002", "function", "2, SET"),
        (6, "1234", "identifier", "4660"),
        (8, "0222", "flags", "0x0222 VALUE_8 OVERWRITE PERSIST"),
        (10, "00060a24181e4000", "timestamp", "1700000000000000, 2023-11-14T22:13:20+00:00"),
        (18, "01", "size of the key", "1"),
        (19, "6b", "key", "k"),
        (20, "02", "size of the value", "2: type and 1 bytes"),
        (21, "02", "type", "2 (string)"),
        (22, "76", "value", "v"),
    ]


def test_two_bits_that_are_one_number_are_shown_as_one() -> None:
    wide = request_bytes(2, flags=0x0006)
    assert meaning_of(explain(wide), "flags") == "0x0006 VALUE_32"
    cursor = request_bytes(3, flags=0x0180)
    assert meaning_of(explain(cursor), "flags") == "0x0180 QUERY_CURSOR"


@pytest.mark.parametrize("name", SAMPLES)
def test_every_request_of_functions_0_to_16_is_explained(name: str) -> None:
    data = SAMPLES[name][0]
    lines = explain(data)
    check_lines(data, lines)
    assert problems(lines) == []


@pytest.mark.parametrize("command", COMMANDS, ids=names_of(COMMANDS))
def test_every_request_above_16_is_explained(command: Command) -> None:
    function, data = encode_request(command, 7)
    lines = explain(data)
    check_lines(data, lines)
    assert problems(lines) == []
    assert meaning_of(lines, "function") == f"{int(function)}, {function.name}"


@pytest.mark.parametrize(("function", "reply"), REPLIES)
def test_every_reply_is_explained_if_its_request_is_known(function: Function, reply: Reply) -> None:
    data = encode_reply(function, 7, 0, reply, now_us=NOW_US)
    asked = request_bytes(function, flags=0) + b"\0\0\0\0"
    for lines, known in (
        (explain(data, function), data),
        (explain(asked + data), asked + data),
        (explain(data), data),
    ):
        check_lines(known, lines)
        assert [one for one in problems(lines) if "name length" not in one] == []


def test_the_body_of_a_reply_to_an_unknown_request_stays_a_body() -> None:
    function, reply = REPLIES[0]
    lines = explain(encode_reply(function, 7, 0, reply, now_us=NOW_US))
    assert meaning_of(lines, "body") == "depends on the request, which is not known"


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_explained(name: str) -> None:
    data = PAGES[name][0]
    check_lines(data, explain(data))
    assert problems(explain(data)) == []


def shown(data: bytes, function: Function | None = None) -> list[tuple[str, str]]:
    """Fields and meanings behind the header."""
    lines = explain(data, function)
    check_lines(data, lines)
    assert problems(lines) == []
    names = [line.field for line in lines]
    return [(line.field, line.meaning) for line in lines[names.index("timestamp") + 1 :]]


def test_jobs_of_functions_0_to_16_are_named_by_xid_and_key() -> None:
    key = [("size of xid and key", "11"), ("xid", "7"), ("key", "key")]
    assert shown(SAMPLES["done-by-the-whole-key"][0]) == key
    assert shown(SAMPLES["touch-by-the-whole-key"][0])[1:] == key
    assert shown(SAMPLES["done"][0]) == [("size of xid and key", "8"), ("xid", "7")]
    assert shown(SAMPLES["next-of-a-domain"][0]) == [
        ("size of the domain", "5"),
        ("domain", "x.com"),
    ]
    assert shown(SAMPLES["ping"][0]) == []
    reply = encode_reply(Function.NEXT, 7, 0, ONE_JOB, now_us=NOW_US)
    assert ("xid", "7") in shown(reply, Function.NEXT)
    assert ("key", "http://x.com/a") in shown(reply, Function.NEXT)
    assert ("xid", "7") not in shown(reply)  # it might be a page


def test_a_key_without_an_xid_is_explained_as_it_is() -> None:
    data = request_bytes(12, b"\3key")
    assert shown(data) == [("size of xid and key", "3"), ("key", "key")]


def test_dates_and_delays_of_jobs_are_told_apart() -> None:
    for relative, expected in (
        (False, ("process at column", "5, 1970-01-01T00:00:00.000005+00:00")),
        (True, ("delay column", "5")),
    ):
        command = push("t", [b"k"], process_at_us=[5], relative=relative)
        assert expected in shown(encode_request(command, 7)[1])


def test_a_seq_that_is_none_is_said_to_be_none() -> None:
    for command, expected in (
        (Acknowledge(table="t", name="b", seq=7, epoch=2), ("expected", "none")),
        (Acknowledge(table="t", name="b", seq=7, epoch=2, expected=5), ("expected", "5")),
        (Lag(table="t", name="b"), ("after", "none")),
        (Lag(table="t", name="b", after=0), ("after", "0")),
        (Advance(writer="w", expected=-1, batch=5), ("expected", "none")),
        (Advance(writer="w", expected=0, batch=5), ("expected", "0")),
    ):
        assert expected in shown(encode_request(command, 7)[1])


def test_the_reads_of_a_snapshot_are_explained_one_by_one() -> None:
    found = shown(encode_request(AS_OF[1], 7)[1])
    assert ("snapshot", str(2**64 - 1)) in found
    assert ("command 1: function", "33, GET_MANY") in found
    assert ("command 4: function", "67, READ") in found
    wrong = batch_bytes(77, head(b"", 1, 5) + inner(32))
    assert problems(explain(wrong)) == ["function 32 has no place in AS_OF"]


def test_pieces_of_history_are_explained_by_their_form() -> None:
    data = encode_reply(Function.SCAN, 7, 0, ARROW[1], now_us=NOW_US)
    found = shown(data, Function.SCAN)
    assert found[-4:] == [
        ("size of the stream", "15"),
        ("form", "1"),
        ("stream", "an Arrow stream"),
        ("padding", "to a multiple of 8"),
    ]
    ops = encode_reply(Function.SCAN, 7, 0, scanned([b"op"], next_seq=3, end_seq=3), now_us=1)
    assert ("form", "0") in shown(ops, Function.SCAN)


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_explained(name: str) -> None:
    data = CHANGES[name][0]
    check_lines(data, explain(data))
    assert problems(explain(data)) == []


def test_several_messages_are_explained_one_after_the_other() -> None:
    refusal = encode_reply(Function.SET, 0x1234, 0, LONG, now_us=NOW_US)
    data = VECTOR + encode_use("mine", 8) + refusal + CHANGES["gone"][0]
    lines = explain(data)
    check_lines(data, lines)
    assert problems(lines) == []
    assert [line.meaning for line in lines if line.field == "identifier"] == [
        "4660",
        "8",
        "4660, a reply to SET",
        "7",
    ]


# A server may send it, so it is explained.
@pytest.mark.parametrize("name", [name for name in CLOSING if name != "server-only"])
def test_it_stops_where_the_server_closes(name: str) -> None:
    data, _ = CLOSING[name]
    lines = explain(data)
    check_lines(data, lines)
    assert lines[-1].is_problem


@pytest.mark.parametrize("name", KEPT)
def test_a_request_that_is_refused_is_explained_and_so_is_the_next(name: str) -> None:
    data = KEPT[name][0]
    lines = explain(data + VECTOR)
    check_lines(data + VECTOR, lines)
    assert lines[-1].field == "value"


def test_every_truncation_is_explained_up_to_where_it_stops() -> None:
    for data in (VECTOR, encode_request(Batch(commands=[COMMANDS[1]]), 7)[1], PAGES["more"][0]):
        for size in range(len(data)):
            lines = explain(data[:size])
            check_lines(data[:size], lines)
            assert bool(problems(lines)) is (size > 0)


def test_nothing_is_explained_as_nothing() -> None:
    assert explain(b"") == []


def test_what_the_decoder_takes_is_explained_without_a_problem_outside_of_bodies() -> None:
    for data, _, _ in SAMPLES.values():
        for position in range(min(len(data), 60)):
            changed = bytearray(data)
            changed[position] ^= 0x01
            check_agrees(bytes(changed))


def check_agrees(data: bytes) -> None:
    decoder = new_decoder()
    decoder.feed(data)
    try:
        while decoder.next() is not None:
            pass
        is_whole = decoder.pending_bytes == 0
    except RemoteProtocolError:
        is_whole = False
    if is_whole:
        assert problems(explain(data)) == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (reply_bytes(b"\0", version=2), "supported versions: 1"),
        (reply_bytes(b"\0", flags=1 << 14), "no reply has these flags"),
        (reply_bytes(b"\0", flags=0xA000), "no reply has these flags"),
        (reply_bytes(b"\0", flags=0x0080), "no reply has these flags"),
        (b"XX", "a message begins with FJ or JR"),
        (b"F", "magic has 2 bytes, but only 1 are left"),
    ],
)
def test_it_says_why_it_stopped(data: bytes, reason: str) -> None:
    assert problems(explain(data)) == [reason]


def test_a_broken_body_is_a_problem_inside_of_it() -> None:
    data = request_bytes(33, b"\0\0\0\3abc") + VECTOR
    lines = explain(data)
    assert problems(lines) == ["reserved has 2 bytes, but only 1 are left"]
    longer = encode_request(COMMANDS[0], 7)[1]
    longer = longer[:18] + (len(longer) - 22 + 8).to_bytes(4, "big") + longer[22:] + bytes(8)
    assert problems(explain(longer)) == ["the body is longer than its columns"]
