"""Rows as JSON: the same form in and out."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

import fjord
from fjord.cli import lines, push, stream
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


def test_values_are_what_their_columns_say() -> None:
    text = (
        '{"uri": "nan", "depth": 3, "seen": "2026-01-31T13:00:00+01:00", '
        '"body": {"base64": "/w=="}, "score": "-inf"}'
    )
    assert lines.row_of(text, PAGES) == {
        "uri": "nan",
        "depth": 3,
        "seen": datetime(2026, 1, 31, 12, tzinfo=UTC),
        "body": b"\xff",
        "score": -float("inf"),
    }
    assert lines.row_of('{"uri": null, "other": 5}', PAGES) == {"uri": None, "other": 5}


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


def test_the_columns_of_a_table_are_asked_for(db: fjord.Database) -> None:
    db.create_jobs("pages", columns=COLUMNS, key="uri")
    db.create_stream("events", columns=COLUMNS)
    db.kv("kv").set("k", 1)
    for table, wanted in (("pages", PAGES), ("events", PLAIN)):
        found = lines.schema_of(db, table)
        assert (found.columns, found.key) == (wanted.columns, wanted.key)
    assert lines.schema_of(db, "kv") == lines.schema_of(db, "none") == Schema()


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


def test_lines_of_jobs_are_rows(db: fjord.Database) -> None:
    jobs = db.create_jobs("pages", columns=COLUMNS, key="uri")
    pushing = push.Pushing(jobs, lambda done, total: None, PAGES)
    bad = {one.number: one.reason for one in pushing.run(in_lines(LINES), None)}
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


def test_lines_of_jobs_have_keys_where_no_columns_are(db: fjord.Database) -> None:
    jobs = db.create_jobs("pages", columns=COLUMNS, merge=False)
    pushing = push.Pushing(jobs, lambda done, total: None, PLAIN)
    assert [one.number for one in pushing.run(in_lines(LINES[:1] + LINES[4:5]), None)] == []
    assert [(job.key, job.value["uri"]) for job in jobs.next(9)] == [("", "a"), ("k", "g")]


def test_rows_that_are_larger_than_their_lines_are_pushed_in_smaller_batches(
    db: fjord.Database,
) -> None:
    wide: Any = {f"n{number}": "uint512" for number in range(256)}
    jobs = db.create_jobs("wide", columns=wide, merge=False)
    pushing = push.Pushing(jobs, lambda done, total: None, schema.read(wide))
    assert list(pushing.run(in_lines([{"n1": 1}] * 600), None)) == []
    assert jobs.count().waiting == pushing.pushed == 600


def test_lines_of_messages_are_rows(db: fjord.Database) -> None:
    events = db.create_stream("events", columns=COLUMNS)
    read = stream.in_json("usual", PLAIN)
    appending = stream.Appending(events, read, lambda done, total: None)
    bad = {one.number: one.reason for one in appending.run(in_lines(LINES[1:6]))}
    assert sorted(bad) == [2, 3, 5]
    assert "a message has no url" in bad[3]
    assert [(one.key, one.value["uri"]) for one in events.read()] == [("usual", "b"), ("k", "g")]
    latest = db.create_stream("latest", columns=COLUMNS, key="uri", mode="latest")
    read = stream.in_json("", PAGES)
    appending = stream.Appending(latest, read, lambda done, total: None)
    assert [one.number for one in appending.run(in_lines([{"uri": "a"}, {"key": "k"}]))] == [2]
    assert list(latest.keys()) == ["a"]
