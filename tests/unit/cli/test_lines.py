"""Lines of a file or of standard input, and rows as JSON: the same form in and out."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

import fjord
from fjord.cli import lines, push, stream
from fjord.client import bulk
from fjord.declared import schema
from fjord.declared.schema import Schema
from fjord.errors import UsageError
from fjord.text import value_text
from tests.unit.declared.test_rows import _same, filled

COLUMNS: Any = {
    "uri": ("string", True),
    "depth": "uint8",
    "seen": "time_seconds",
    "body": "binary",
    "score": "float64",
}
PAGES = schema.read(COLUMNS, "uri")
PLAIN = schema.read(COLUMNS)


def test_a_file_has_a_size_and_a_missing_one_is_wrong_use(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"{}\n")
    with lines.opened(str(path)) as (file, size):
        assert (file.read(), size) == (b"{}\n", 3)
    with pytest.raises(UsageError, match="cannot be read"), lines.opened(str(tmp_path)):
        pass


@pytest.mark.parametrize("text", [b'{"a": 1, "b": 2, "a": 1}', b'{"b": {"a": 1, "a": 2}}'])
def test_a_member_that_is_there_twice_is_refused(text: bytes) -> None:
    with pytest.raises(UsageError, match="'a' occurs twice in an object"):
        lines.from_json(text, "it")


@pytest.mark.req("SJ-17")
@given(filled())
def test_any_row_comes_back_from_its_json(sample: tuple[Schema, list[dict[str, Any]]]) -> None:
    made, listed = sample
    for row in listed:
        found = lines.row_of(value_text(row), made)
        assert found.keys() == row.keys()
        assert all(_same(row[name], found[name]) for name in row)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("5", "a row must be a JSON object of columns"),
        ('{"seen": 5}', "column seen must be a date with a zone"),
        ('{"seen": "2026-01-31T12:00:00"}', "column seen must be a date with a zone"),
        ('{"seen": "soon"}', "column seen must be a date with a zone"),
        ('{"body": "text"}', 'column body must be {"base64": "..."}'),
        ('{"body": {"base64": "?"}}', "invalid base64"),
    ],
)
def test_what_is_no_row_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("{", r"\{")):
        lines.row_of(text, PAGES)


# -- lines ----------------------------------------------------------------------------------------


def written(
    data: bytes, read: Callable[[bytes], Any], make: Callable[[bulk.OnBad], bulk.BulkWriter[Any]]
) -> tuple[dict[int, str], bulk.BulkWriter[Any]]:
    """Writes lines; returns the bad ones, and the writer."""
    bad: dict[int, str] = {}
    writer = make(bad.__setitem__)
    bulk.write_lines(io.BytesIO(data), read, writer, lambda done: None)
    return bad, writer


@pytest.fixture
def db(tmp_path: Path) -> Iterator[fjord.Database]:
    with fjord.open(tmp_path) as one:
        yield one


LINES = [
    {"uri": "a", "depth": 3, "priority": 5},
    {"value": {"uri": "b", "seen": "2026-01-31T12:00:00Z"}},
    {"uri": "c", "value": {"uri": "d"}},
    {"uri": "e", "url": "f"},
    {"key": "k", "uri": "g"},
    {"uri": "h", "depth": 300},
    {"uri": "i", "delay": 1, "process_at": "2026-01-31T12:00:00Z"},
]


def in_lines(rows: list[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def test_lines_of_jobs_are_rows(db: fjord.Database) -> None:
    jobs = db.create_jobs("pages", columns=COLUMNS, key="uri")
    make = partial(bulk.job_writer, jobs, PAGES)
    bad, _ = written(in_lines(LINES), push.reader(PAGES), make)
    assert list(bad) == [3, 4, 5, 7, 6]
    assert "no columns beside it" in bad[3]
    assert "a job has no url" in bad[4]
    assert "a job has no key" in bad[5]
    assert "column depth is uint8 (a whole number" in bad[6]
    assert "give one of them" in bad[7]
    assert [(job.key, job.priority, job.value["depth"]) for job in jobs.next(9)] == [
        ("a", 5, 3),
        ("b", 100, None),
    ]


def test_lines_of_messages_are_rows(db: fjord.Database) -> None:
    events = db.create_stream("events", columns=COLUMNS)
    make = partial(bulk.message_writer, events)
    bad, _ = written(in_lines(LINES[1:6]), stream.in_json("usual", PLAIN), make)
    assert sorted(bad) == [2, 3, 5]
    assert "a message has no url" in bad[3]
    assert [(one.key, one.value["uri"]) for one in events.read()] == [("usual", "b"), ("k", "g")]
    latest = db.create_stream("latest", columns=COLUMNS, key="uri", mode="latest")
    two = in_lines([{"uri": "a"}, {"key": "k"}])
    bad, _ = written(two, stream.in_json("", PAGES), partial(bulk.message_writer, latest))
    assert list(bad) == [2]
    assert list(latest.keys()) == ["a"]
