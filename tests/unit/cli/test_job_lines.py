"""Jobs from JSON lines."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fjord
from fjord.cli.push import reader
from fjord.client import bulk
from fjord.client.blocking.jobs import Jobs
from fjord.declared.schema import Schema
from fjord.errors import UsageError
from tests.unit.cli.test_lines import written

read = reader(Schema())


@pytest.mark.parametrize(
    ("line", "job"),
    [
        ("{}", {"key": b"", "value": None}),
        ('{"key": {"base64": "/w=="}}', {"key": b"\xff", "value": None}),
        ('{"key": "k", "value": true}', {"key": "k", "value": True}),
        ('{"key": "k", "value": {"base64": ""}}', {"key": "k", "value": b""}),
        ('{"key": "k", "priority": "slow"}', {"key": "k", "value": None, "priority": 200}),
        ('{"key": "k", "delay": 1}', {"key": "k", "value": None, "delay": 1}),
        (
            '{"key": "k", "process_at": "2026-01-31T12:00:00Z"}',
            {"key": "k", "value": None, "process_at": datetime(2026, 1, 31, 12, tzinfo=UTC)},
        ),
    ],
)
def test_a_line_is_a_job(line: str, job: dict[str, Any]) -> None:
    assert read(line.encode()) == job


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\xff", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b'{"kye": "k"}', "no kye"),
        (b'{"key": 5}', "key must be a string"),
        (b'{"key": {"base64": "!"}}', "invalid base64"),
        (b'{"key": "k", "value": [1]}', "value must be null"),
        (b'{"key": "k", "value": {"base64": "", "x": 1}}', "value must be null"),
        (b'{"key": "k", "priority": true}', "priority must be a number"),
        (b'{"key": "k", "priority": -1}', "not a priority"),
        (b'{"key": "k", "delay": -1}', "delay must be a number of seconds"),
        (b'{"key": "k", "delay": NaN}', "delay must be a number of seconds"),
        (b'{"key": "k", "process_at": 5}', "process_at must be a date"),
        (b'{"key": "k", "expires_at": "soon"}', "soon is not a date"),
        (b'{"key": "k", "domain": 5}', "domain must be a string"),
        (b'{"key": "k", "delay": 1, "process_at": "2026-01-31T12:00:00Z"}', "exclude each other"),
    ],
)
def test_a_line_that_is_none_says_why(line: bytes, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        read(line)


@given(st.binary() | st.recursive(st.none() | st.text(), st.lists).map(lambda x: str(x).encode()))
def test_any_bytes_are_a_job_or_a_reason(line: bytes) -> None:
    with contextlib.suppress(UsageError):
        job = read(line)
        assert job.keys() >= {"key", "value"} if job else not line.strip()


# -- pushing --------------------------------------------------------------------------------------


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with fjord.open(tmp_path) as db:
        yield db.jobs("lines")


def test_one_bad_row_of_a_batch_is_found_and_all_others_are_pushed(jobs: Jobs) -> None:
    rows: list[dict[str, Any]] = [{"key": f"k{number}"} for number in range(100)]
    rows[17] = {"key": ""}
    rows[18] = {"key": "k" * 2000}
    rows[99] = {"key": "x", "expires_at": "2020-01-01T00:00:00Z"}
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    bad, writer = written(data, read, partial(bulk.job_writer, jobs, Schema()))
    assert [(number, reason.split(":")[0]) for number, reason in bad.items()] == [
        (18, "EMPTY_KEY"),
        (19, "KEY_TOO_LONG"),
        (100, "BAD_TIMEOUT"),
    ]
    assert (writer.written, writer.bad) == (97, 3)
    assert jobs.count().waiting == 97
