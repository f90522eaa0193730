"""A walk along bytes: every byte named once, and nothing raised but that it stopped."""

from __future__ import annotations

import pytest

from fjord import ops
from fjord.columns import Strings
from fjord.wire.layouts import Step
from fjord.wire.walk import Line, StoppedError, Walk, shown, shown_time, shown_type, shown_value


def walk_of(data: bytes) -> tuple[Walk, list[Line]]:
    lines: list[Line] = []
    return Walk(data, 0, len(data), lines), lines


def test_fields_are_named_in_order() -> None:
    walk, lines = walk_of(b"\0\5" + bytes(7) + b"\1" + bytes(2) + b"k")
    assert (walk.number(2, "count"), walk.time("timestamp")) == (5, 1)
    walk.zeros(2)
    walk.take(1, "key")
    walk.explain("the key")
    assert [(line.offset, line.field, line.meaning) for line in lines] == [
        (0, "count", "5"),
        (2, "timestamp", "1, 1970-01-01T00:00:00.000001+00:00"),
        (10, "reserved", "0"),
        (12, "key", "the key"),
    ]


def test_what_is_cut_short_is_not_named() -> None:
    walk, lines = walk_of(b"\0")
    with pytest.raises(StoppedError, match="count has 2 bytes, but only 1 are left"):
        walk.number(2, "count")
    walk.stop("why")
    assert lines == [Line(offset=0, data=b"\0", field="?", meaning="why", is_problem=True)]
    assert walk.position == walk.end


def test_a_long_column_is_counted_and_not_listed() -> None:
    data = bytes(Strings.of([b"x"] * 100).encode())
    walk, lines = walk_of(data)
    walk.step(Step("strings", "key"), 100)
    assert b"".join(line.data for line in lines) == data
    assert len(lines) < 25
    assert lines[-2].meaning == "84 more rows"


def test_a_column_of_numbers_shows_the_first_of_them() -> None:
    walk, lines = walk_of(bytes([2] * 20) + bytes(4))
    walk.step(Step("u8 column", "type"), 20)
    assert lines[0].meaning == ", ".join(["2 (string)"] * 8) + ", ..."


def test_wrong_offsets_stop_the_walk() -> None:
    walk, _ = walk_of(b"\xff" * 24)
    with pytest.raises(StoppedError, match="key strings: "):
        walk.step(Step("strings", "key"), 1)


def test_an_op_of_the_journal_is_taken_apart() -> None:
    columns = (b"\2\1", Strings.of([b"k", b""]), Strings.of([b"v", b"w"]))
    data, _ = ops.encode(ops.Op(ops.Opcode.STREAM_APPEND, 7, 2, columns))
    column = bytes(Strings.of([data, b"no op", data]).encode())
    walk, lines = walk_of(column)
    walk.step(Step("ops", "op"), 3)
    assert b"".join(line.data for line in lines) == column
    found = [(line.field, line.meaning) for line in lines if line.field != "padding"]
    one = [
        ("reserved", "0"),
        ("table id", "7"),
        ("rows of the op", "2"),
        ("op length", str(len(data))),
        ("type column", "2 (string), 1 (buffer)"),
        ("key offsets", "2 rows"),
        ("key 1", "k"),
        ("value offsets", "2 rows"),
        ("value 1", "v"),
        ("value 2", "w"),
    ]
    assert found == [
        ("op offsets", "3 rows"),
        ("op 1: opcode", "48, STREAM_APPEND"),
        *one,
        ("op 2", "no op"),
        ("op 3: opcode", "48, STREAM_APPEND"),
        *one,
    ]


@pytest.mark.parametrize(("data", "text"), [(bytes(7) + b"\5", "5"), (b"\xff" * 8, "none")])
def test_the_largest_seq_is_none(data: bytes, text: str) -> None:
    walk, lines = walk_of(data)
    walk.step(Step("seq", "expected"))
    assert [(line.field, line.meaning) for line in lines] == [("expected", text)]


def test_reserved_bytes_that_are_not_0_are_told() -> None:
    walk, lines = walk_of(b"\0\1")
    walk.zeros(2)
    assert lines[0].meaning == "not 0"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"key", "key"),
        (b"\x1b[31m\n\0\xff", r"\x1b[31m\n\x00\xff"),
        (b"x" * 65, "x" * 64 + "... 65 bytes"),
    ],
)
def test_bytes_are_shown_as_text_that_is_safe_to_print(data: bytes, text: str) -> None:
    assert shown(data) == text
    assert shown(data).isprintable()


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0, none"),
        (1_700_000_000_000_000, "1700000000000000, 2023-11-14T22:13:20+00:00"),
        (2**64 - 1, f"{2**64 - 1}, beyond the year 9999"),
    ],
)
def test_times_are_shown_as_dates(number: int, text: str) -> None:
    assert shown_time(number) == text


def test_types_are_shown_by_name() -> None:
    assert [shown_type(one) for one in (0, 5, 6, 255)] == [
        "0 (void)",
        "5 (boolean)",
        "6 (unknown)",
        "255 (missing)",
    ]


@pytest.mark.parametrize(
    ("type_", "data", "text"),
    [
        (3, b"\xff", "-1"),
        (3, b"\5" + bytes(7), "5"),
        (3, b"abc", "abc"),
        (4, bytes(6) + b"\xf8\x3f", "1.5"),
        (4, b"short", "short"),
        (2, b"text", "text"),
    ],
)
def test_numbers_are_shown_as_numbers(type_: int, data: bytes, text: str) -> None:
    assert shown_value(type_, data) == text
