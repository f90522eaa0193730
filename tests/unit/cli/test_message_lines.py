"""Messages from lines."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

import fjord
from fjord import limits
from fjord.cli import stream as message_lines
from fjord.cli.arguments import TypeName
from fjord.client import bulk
from fjord.declared.schema import Schema
from fjord.errors import UsageError


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[fjord.Stream]:
    with fjord.open(tmp_path) as db:
        yield db.stream("lines")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{}", ("usual", None)),
        (b'{"value": 5}', ("usual", 5)),
        (b'{"key": "k", "value": true}', ("k", True)),
        (b'{"key": "", "value": "x"}', ("", "x")),
        (b'{"key": {"base64": "/w=="}, "value": {"base64": "AA=="}}', (b"\xff", b"\x00")),
        (b"  \r", None),
    ],
)
def test_a_line_of_json_is_a_message(line: bytes, message: object) -> None:
    assert message_lines.in_json("usual", Schema())(line) == message


def test_a_plain_line_is_a_value_of_its_type() -> None:
    assert message_lines.plain("k", TypeName.integer)(b"-7") == ("k", -7)
    assert message_lines.plain("", TypeName.buffer)(b"\xff") == ("", b"\xff")
    assert message_lines.plain("", TypeName.string)(b"") == ("", "")
    with pytest.raises(UsageError, match="seven is not a valid integer"):
        message_lines.plain("", TypeName.integer)(b"seven")
    with pytest.raises(UsageError, match="not UTF-8"):
        message_lines.plain("", TypeName.string)(b"\xff")
    with pytest.raises(UsageError, match="at most"):
        message_lines.plain("", TypeName.buffer)(b"x" * (limits.VALUE_BYTES_MAX + 1))


def test_a_bad_line_is_told_and_all_others_are_appended(stream: fjord.Stream) -> None:
    key = b'{"key": "%s"}\n' % (b"k" * 500)
    data = b'{"value": 1}\nbad\n' + key + b'{"value": 2}\n'
    bad: list[tuple[int, str]] = []
    writer = bulk.message_writer(stream, lambda *one: bad.append(one))
    read = message_lines.in_json("", Schema())
    bulk.write_lines(io.BytesIO(data), read, writer, lambda done: None, as_they_come=True)
    assert [number for number, _ in bad] == [2, 3]
    assert bad[1][1].startswith("KEY_TOO_LONG")
    assert (writer.written, writer.bad) == (2, 2)
    assert [one.value for one in stream.read()] == [1, 2]
