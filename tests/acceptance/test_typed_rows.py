"""Rows of declared columns against a real daemon: Python, asyncio and the shell see the same."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from typer.testing import CliRunner

import fjord
import fjord.aio
from fjord.cli.commands import app
from fjord.declared.schema import Schema
from tests.acceptance.daemon import Daemon
from tests.unit.declared.test_rows import _same, filled

COLUMNS: Any = {
    "uri": ("string", True),
    "depth": "uint8",
    "seen": "time_milliseconds",
    "body": "binary",
    "hash": "uint256",
    "score": "float64",
    "ok": "boolean",
}
ROW: dict[str, Any] = {
    "uri": "http://example.com/\u00e5",
    "depth": 3,
    "seen": datetime(2026, 1, 31, 12, 0, 0, 250_000, tzinfo=UTC),
    "body": b"\0\xff",
    "hash": 2**255,
    "score": 0.5,
    "ok": True,
}
TEXT = json.dumps(
    {
        **ROW,
        "seen": "2026-01-31T12:00:00.250000+00:00",
        "body": {"base64": "AP8="},
    }
)
EMPTY: dict[str, Any] = dict.fromkeys(COLUMNS)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("rows") / "data") as one:
        yield one


def cli(daemon: Daemon, *words: str, text: str = "", code: int = 0) -> list[dict[str, Any]]:
    """Runs a command; returns the objects that it printed."""
    result = CliRunner().invoke(app, [*words, "--to", daemon.url, "--json"], input=text)
    assert result.exit_code == code, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.req("SJ-17", "SJ-30")
def test_jobs_are_the_same_rows_for_everybody(daemon: Daemon) -> None:
    with fjord.connect(daemon.url) as db:
        pages = db.create_jobs("pages", columns=COLUMNS, key="uri")
        pages.push(ROW, priority=1)
    cli(daemon, "push", "pages", "--row", json.dumps({"uri": "shell"}), "--priority", "2")
    lines = json.dumps({"uri": "lines", "seen": "2026-01-31T12:00:00Z", "priority": 3}) + "\n{}\n"
    told = cli(daemon, "push", "pages", "--lines", "-", text=lines, code=1)
    assert told == [{"table": "pages", "pushed": 1, "bad": 1}]

    async def work() -> list[tuple[str, Any]]:
        async with await fjord.aio.connect(daemon.url) as db:
            pages = db.jobs("pages")
            await pages.push({"uri": "task"}, priority=4)
            await pages.push_many(values={"uri": ["tasks"]}, priority=5)
            async with db.transaction() as tx:
                tx.jobs("pages").push({"uri": "together"}, priority=6)
            found = await pages.get("task")
            assert found is not None
            assert found.value == {**EMPTY, "uri": "task"}
            return [(job.key, job.value) for job in await pages.next(9)]

    seen = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert asyncio.run(work()) == [
        (ROW["uri"], ROW),
        ("shell", {**EMPTY, "uri": "shell"}),
        ("lines", {**EMPTY, "uri": "lines", "seen": seen}),
        ("task", {**EMPTY, "uri": "task"}),
        ("tasks", {**EMPTY, "uri": "tasks"}),
        ("together", {**EMPTY, "uri": "together"}),
    ]
    cli(daemon, "push", "pages", "--row", TEXT)
    (peeked,) = cli(daemon, "jobs", "peek", "pages")
    (taken,) = cli(daemon, "next", "pages")
    assert peeked["value"] == taken["value"] == json.loads(TEXT)
    assert peeked["type"] == taken["type"] == "row"


@pytest.mark.req("SJ-17")
def test_a_worker_reads_a_row_as_json(daemon: Daemon) -> None:
    with fjord.connect(daemon.url) as db:
        db.create_jobs("work", columns=COLUMNS, key="uri").push(ROW)
        script = '[ "$FJORD_TYPE" = row ] && cat >&2; exit 9'
        words = ["work", "work", "--once", "--exec", script, "--to", daemon.url]
        assert CliRunner().invoke(app, words).exit_code == 1
        (job,) = db.jobs("work").peek()
        db.jobs("work").bury(job.key)
        (dead,) = db.jobs("work").dead()
        assert dead.value == ROW


@pytest.mark.req("SJ-17")
def test_messages_are_the_same_rows_for_everybody(daemon: Daemon) -> None:
    with fjord.connect(daemon.url) as db:
        events = db.create_stream("events", columns=COLUMNS)
        events.append(ROW)
        db.create_stream("latest", columns=COLUMNS, key="uri", mode="latest")
    cli(daemon, "stream", "append", "events", "--row", TEXT, "--row", '{"uri": "b"}')
    cli(daemon, "stream", "append", "events", "--json-lines", text=TEXT + "\n")
    cli(daemon, "stream", "append", "latest", "--row", TEXT)

    async def read() -> None:
        async with await fjord.aio.connect(daemon.url) as db:
            events, latest = db.stream("events"), db.stream("latest")
            await events.append_many({"uri": ["c", "d"]})
            await latest.append({"uri": "c"})
            wanted = [ROW, ROW, {**EMPTY, "uri": "b"}, ROW]
            wanted += [{**EMPTY, "uri": "c"}, {**EMPTY, "uri": "d"}]
            assert (await events.read()).values == wanted
            subscriber = await events.subscriber("s")
            assert [one.value for one in await subscriber.read()] == wanted
            assert await latest.get(ROW["uri"]) == ROW
            async with db.snapshot() as snapshot:
                then = snapshot.stream("latest")
                assert [key async for key, _ in then.items()] == ["c", ROW["uri"]]
                assert await then.get("c") == {**EMPTY, "uri": "c"}

    asyncio.run(read())
    assert [one["value"] for one in cli(daemon, "stream", "read", "events")][:2] == [
        json.loads(TEXT)
    ] * 2
    (got,) = cli(daemon, "stream", "get", "latest", ROW["uri"])
    assert got["value"] == json.loads(TEXT)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("push", "refused", "--row", '{"uri": 5}'), "is string (text), not 5, a whole number"),
        (("push", "refused", "--row", '{"uri": true}'), "is string (text), not true, a boolean"),
        (("push", "refused", "--row", '{"uri": "a", "uri": "b"}'), "'uri' occurs twice"),
        (("stream", "append", "none", "--row", '{"a": 1, "a": 2}'), "'a' occurs twice"),
        (("push", "refused", "--row", "5"), "a row must be a JSON object of columns"),
        (("push", "refused", "key", "--row", '{"uri": "a"}'), "give --row alone"),
        (("push", "refused", "key", "value"), "this table takes rows of its columns"),
        (("push", "refused", "key", "value", "--row", "{}"), "--row is the value"),
        (("push", "none", "--row", '{"uri": "a"}'), "has no declared columns"),
        (("stream", "append", "none", "--row", "{}"), "has no declared columns"),
        (("stream", "append", "none", "value", "--row", "{}"), "give it without VALUE"),
    ],
)
def test_what_is_no_row_is_told_in_the_shell(
    daemon: Daemon, words: tuple[str, ...], said: str
) -> None:
    with fjord.connect(daemon.url) as db:
        db.create_jobs("refused", columns=COLUMNS, key="uri")
    result = CliRunner().invoke(app, [*words, "--to", daemon.url])
    assert result.exit_code != 0
    assert said in " ".join(result.output.split())


@pytest.mark.req("SJ-17", "SJ-30")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(filled())
def test_any_rows_of_any_columns_come_back(sample: tuple[Schema, list[dict[str, Any]]]) -> None:
    made, rows = sample
    declared: Any = {"columns": made.columns, "key": made.key}
    with tempfile.TemporaryDirectory() as directory:
        with fjord.open(directory) as db:
            db.create_jobs("jobs", merge=False, **declared).push_many(values=rows)
            db.create_stream("stream", **declared).append_many(rows)
        with fjord.open(directory) as db:
            found = [job.value for job in db.jobs("jobs").next(10)]
            assert _all_same(found, rows)
            assert _all_same(db.stream("stream").read().values, rows)


def _all_same(found: list[dict[str, Any]], rows: list[dict[str, Any]]) -> bool:
    return len(found) == len(rows) and all(
        one.keys() == row.keys() and all(_same(one[name], row[name]) for name in row)
        for one, row in zip(found, rows, strict=True)
    )


@pytest.mark.req("SJ-04")
@pytest.mark.parametrize("kind", ["jobs", "stream"])
def test_who_knows_the_columns_of_a_dropped_table_finds_out(daemon: Daemon, kind: str) -> None:
    """Both rows have the same size: nothing but their number tells one from the other."""
    name = f"remade-{kind}"
    with fjord.connect(daemon.url) as db, fjord.connect(daemon.url) as other:
        old: Any = {"columns": {"count": "int64"}}
        new: Any = {"columns": {"share": "float64"}}
        if kind == "jobs":
            db.create_jobs(name, **old).push("a", {"count": 7})
            assert [job.value for job in other.jobs(name).peek()] == [{"count": 7}]
            db.drop(name)
            db.create_jobs(name, **new).push("a", {"share": 0.5})
            assert [job.value for job in other.jobs(name).peek()] == [{"share": 0.5}]
            return
        db.create_stream(name, **old).append({"count": 7})
        late = other.stream(name)
        late.append({"count": 8})
        db.drop(name)
        db.create_stream(name, **new)
        with pytest.raises(fjord.ProtocolError, match="no column 'count'"):
            late.append({"count": 9})
        late.append({"share": 0.5})
        assert [message.value for message in late.read()] == [{"share": 0.5}]
