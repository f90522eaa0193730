"""explain: it goes as far as the decoders do, names every byte, and never raises."""

from __future__ import annotations

import pytest

from fjord.commands import Command, Flag, Refusal, Reply
from fjord.wire.explain import Line, explain, shown_value
from tests.unit.wire.samples import COMMANDS, REPLIES, names_of
from tests.unit.wire.seed_samples import SAMPLES, VECTOR
from tests.unit.wire.streams import answered, reply_bytes, request_bytes, sent
from tests.unit.wire.test_bad_input import CLOSING, KEPT


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


@pytest.mark.parametrize("name", SAMPLES)
def test_every_request_of_functions_0_to_16_is_explained(name: str) -> None:
    data = SAMPLES[name][0]
    lines = explain(data)
    check_lines(data, lines)
    assert problems(lines) == []


@pytest.mark.parametrize("command", COMMANDS, ids=names_of(COMMANDS))
def test_every_request_above_16_is_explained(command: Command) -> None:
    for data in (sent(command), sent(command, number=9 if is_numbered(command) else 0)):
        lines = explain(data)
        check_lines(data, lines)
        assert problems(lines) == []
        row = type(command).row
        assert meaning_of(lines, "function") == f"{row.number}, {row.name}"


def is_numbered(command: Command) -> bool:
    return bool(type(command).row.flags & Flag.NUMBER)


@pytest.mark.parametrize("reply", REPLIES)
def test_every_reply_is_explained(reply: Reply) -> None:
    data = answered(reply)
    lines = explain(data)
    check_lines(data, lines)
    assert problems(lines) == []
    if not isinstance(reply, Refusal):
        row = type(reply).row
        assert meaning_of(lines, "kind") == f"{row.number}, {row.name}"


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


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (reply_bytes(b"\0", version=2), "supported versions: 1"),
        (reply_bytes(b"\0", flags=1 << 14), "bit 14 (TTL) is not known to replies"),
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
    longer = sent(COMMANDS[0])
    longer = longer[:18] + (len(longer) - 22 + 8).to_bytes(4, "big") + longer[22:] + bytes(8)
    assert problems(explain(longer)) == ["the body is longer than its fields"]


# -- a walk along bytes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "data", "text"),
    [
        *((3, b"\xff", "-1"), (3, b"\5" + bytes(7), "5"), (3, b"abc", "abc")),
        *((4, bytes(6) + b"\xf8\x3f", "1.5"), (4, b"short", "short"), (2, b"text", "text")),
    ],
)
def test_numbers_are_shown_as_numbers(type_: int, data: bytes, text: str) -> None:
    assert shown_value(type_, data) == text
