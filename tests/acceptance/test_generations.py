"""Generations through clients and a real daemon: other columns while the old ones are worked on."""

from __future__ import annotations

import asyncio
import json

import pytest
from typer.testing import CliRunner, Result

import fjord
import fjord.aio
from fjord.cli.commands import app
from tests.acceptance.daemon import Daemon


def run(*words: str) -> Result:
    result = CliRunner().invoke(app, ["table", *words])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


OLD = {"uri": "string", "depth": "uint8"}
NEW = {"uri": "string", "agent": "string"}


@pytest.mark.req("SJ-04", "SJ-18", "SJ-30")
def test_columns_change_while_both_generations_are_read_and_worked_on(daemon: Daemon) -> None:
    with fjord.connect(daemon.url) as db, fjord.connect(daemon.url) as other:
        pages = db.create_jobs("pages", columns=OLD, period="day")
        pages.push("a", {"uri": "http://a/", "depth": 1})
        pages.push("b", {"uri": "http://b/", "depth": 2})
        late = other.jobs("pages")
        late.push("c", {"uri": "http://c/", "depth": 3})  # it knows the columns from now on
        with pytest.raises(fjord.ExistsError):
            db.create_jobs("pages", columns=NEW, period="day")
        (taken,) = pages.next(lease=60)
        pages = db.create_jobs("pages", columns=NEW, period="day", change=True)
        pages.push("d", {"uri": "http://d/", "agent": "x"})
        late.push("e", {"uri": "http://e/", "agent": "y"})  # and asks for the new ones by itself
        first, second = pages.generations()
        assert [(one.number, one.jobs) for one in (first, second)] == [(1, 3), (2, 2)]
        assert second.schema == first.schema + 1
        values = {job.key: job.value for job in late.peek()}
        assert values["b"] == {"uri": "http://b/", "depth": 2}
        assert values["d"] == {"uri": "http://d/", "agent": "x"}
        # A key of the old one is merged, and moves.
        pages.push("b", {"uri": "http://b/", "agent": "z"})
        assert [one.jobs for one in pages.generations()] == [2, 3]
        taken.done()
        assert {job.key: job.value for job in pages.next(count=10, done=True)} == {
            "b": {"uri": "http://b/", "agent": "z"},
            "c": {"uri": "http://c/", "depth": 3},
            "d": {"uri": "http://d/", "agent": "x"},
            "e": {"uri": "http://e/", "agent": "y"},
        }
        current = pages.generations()[-1]
        assert (current.number, current.jobs, current.is_current) == (2, 0, True)
    assert asyncio.run(_generations(daemon.url))[-1] == current


async def _generations(url: str) -> list[fjord.Generation]:
    async with await fjord.aio.connect(url) as db:
        return await db.jobs("pages").generations()


@pytest.mark.req("SJ-18")
def test_generations_are_listed(daemon: Daemon) -> None:
    with fjord.connect(daemon.url) as db:
        db.create_jobs("visits", period="hour").push("a")
        db.create_jobs("visits", period="month", change=True).push("b")
        db.create_jobs("plain")
        first, second = db.jobs("visits").generations()
    shown = run("generations", "visits", "--to", daemon.url).stdout.splitlines()
    assert [line.split("\t") for line in shown] == [
        ["1", first.began_at.isoformat(), "1", "1", "drains"],
        ["2", second.began_at.isoformat(), "1", "1", "current"],
    ]
    _, line = run("generations", "visits", "--json", "--to", daemon.url).stdout.splitlines()
    told = json.loads(line)
    assert (told["number"], told["is_current"]) == (2, True)
    assert told["first_row"] == second.first_row
    plain = run("generations", "plain", "--to", daemon.url)
    assert (plain.exit_code, plain.stdout) == (0, "")
    assert plain.stderr == "table plain has no period, so it has no generations\n"
    missing = run("generations", "none", "--to", daemon.url)
    assert missing.exit_code == 1
    assert "there is no table none" in missing.stderr
