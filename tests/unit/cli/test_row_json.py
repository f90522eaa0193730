"""Rows as JSON: the same form in and out."""

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


def in_lines(rows: list[Any]) -> io.BytesIO:
    return io.BytesIO(b"".join(json.dumps(row).encode() + b"\n" for row in rows))


Writer = Callable[[bulk.OnBad], bulk.BulkWriter[Any]]


def bad_lines(read: Callable[[bytes], Any], make: Writer, rows: list[Any]) -> dict[int, str]:
    bad: dict[int, str] = {}
    bulk.write_lines(in_lines(rows), read, make(bad.__setitem__), lambda done: None)
    return bad


def test_lines_of_jobs_are_rows(db: fjord.Database) -> None:
    jobs = db.create_jobs("pages", columns=COLUMNS, key="uri")
    bad = bad_lines(push.reader(PAGES), partial(bulk.job_writer, jobs, PAGES), LINES)
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
    writer = partial(bulk.message_writer, events)
    bad = bad_lines(stream.in_json("usual", PLAIN), writer, LINES[1:6])
    assert sorted(bad) == [2, 3, 5]
    assert "a message has no url" in bad[3]
    assert [(one.key, one.value["uri"]) for one in events.read()] == [("usual", "b"), ("k", "g")]
    latest = db.create_stream("latest", columns=COLUMNS, key="uri", mode="latest")
    writer = partial(bulk.message_writer, latest)
    assert [*bad_lines(stream.in_json("", PAGES), writer, [{"uri": "a"}, {"key": "k"}])] == [2]
    assert list(latest.keys()) == ["a"]
