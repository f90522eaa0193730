"""Reading streams to an end, or only the last of it, and messages from lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fjord
from fjord import limits
from fjord.cli import stream as cli_stream
from fjord.cli.arguments import TypeName
from fjord.client.blocking.subscribers import Reader
from fjord.declared.schema import Schema
from fjord.errors import UsageError


@pytest.fixture
def db(tmp_path: Path) -> Iterator[fjord.Database]:
    with fjord.open(tmp_path) as one:
        yield one


@pytest.fixture
def stream(db: fjord.Database, monkeypatch: pytest.MonkeyPatch) -> fjord.Stream:
    monkeypatch.setattr(cli_stream, "BATCH", 4)
    found = db.stream("s")
    found.append_many(list(range(10)))
    return found


def read(reader: Reader, count: int | None = None) -> list[list[object]]:
    found = cli_stream.batches(reader, count=count, wait=None, follow=False)
    return [[message.value for message in batch] for batch in found]


def test_reading_ends_after_as_many_as_are_wanted(stream: fjord.Stream) -> None:
    assert read(stream.reader(), 6) == [[0, 1, 2, 3], [4, 5]]
    assert read(stream.reader(), 100) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@pytest.mark.parametrize("count", [0, 1, 3, 9, 10, 11, 1000])
def test_the_last_are_found(db: fjord.Database, stream: fjord.Stream, count: int) -> None:
    db.kv("other").set_many({f"k{number}": number for number in range(100)})
    found, end_seq = cli_stream.last(stream, count)
    assert [one.value for one in found] == list(range(10))[10 - min(count, 10) :]
    seq = stream.append("new")
    assert [one.seq for one in stream.read(after=end_seq)] == [seq]


# -- messages from lines --------------------------------------------------------------------------


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
    assert cli_stream.in_json("usual", Schema())(line) == message


def test_a_plain_line_is_a_value_of_its_type() -> None:
    assert cli_stream.plain("k", TypeName.integer)(b"-7") == ("k", -7)
    assert cli_stream.plain("", TypeName.buffer)(b"\xff") == ("", b"\xff")
    assert cli_stream.plain("", TypeName.string)(b"") == ("", "")
    with pytest.raises(UsageError, match="seven is not a valid integer"):
        cli_stream.plain("", TypeName.integer)(b"seven")
    with pytest.raises(UsageError, match="not UTF-8"):
        cli_stream.plain("", TypeName.string)(b"\xff")
    with pytest.raises(UsageError, match="at most"):
        cli_stream.plain("", TypeName.buffer)(b"x" * (limits.VALUE_BYTES_MAX + 1))
