"""Rows of the journal that speak of jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fjord
from fjord.cli import journal_reports
from fjord.engine.layout import Layout
from fjord.journal.inspect import DumpRow


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the journal says of a life with everything in it."""
    path = tmp_path_factory.mktemp("rows")
    live(path)
    found = journal_reports.dump(Layout(str(path)), 0, 2**64 - 1, "t")
    return [journal_reports.row_json(row) for row in found if isinstance(row, DumpRow)]


def live(path: Path) -> None:
    with fjord.open(path) as db:
        jobs = db.create_jobs("t", timeouts_max=0)
        jobs.push("http://a.com/x", "old", priority=7)
        jobs.push("http://a.com/x", "new", domain="d.com")
        (job,) = jobs.next()
        job.touch()
        job.fail(reason="boom")
        jobs.redrive()
        (job,) = jobs.next()
        job.done()
        jobs.push(b"\xff")
        jobs.reschedule(b"\xff", priority=3)
        jobs.cancel(b"\xff")


def of(rows: list[dict[str, Any]], op: str) -> list[dict[str, Any]]:
    return [row["fields"] for row in rows if row["op"] == op]


def test_every_row_names_its_job(rows: list[dict[str, Any]]) -> None:
    take, again = of(rows, "JOB_TAKE")
    for fields in (take, again, *of(rows, "JOB_TOUCH"), *of(rows, "JOB_BURY")):
        assert (fields["key"], fields["domain"], fields["type"]) == (
            "http://a.com/x",
            "d.com",
            "string",
        )
        assert fields["priority"] == 7
    assert take["row"] == again["row"]


def test_states_and_reasons_are_words(rows: list[dict[str, Any]]) -> None:
    (bury,) = of(rows, "JOB_BURY")
    assert (bury["state"], bury["how"]) == ("taken", "fail")
    assert bury["reason"] == "failed 1 times: boom"
    revived, rescheduled = of(rows, "JOB_WAIT")
    assert (revived["state"], revived["how"]) == ("dead", "revive")
    assert (rescheduled["state"], rescheduled["how"]) == ("waiting", "reschedule")
    assert (rescheduled["priority"], rescheduled["was_priority"]) == (3, 100)
    (removed,) = of(rows, "JOB_REMOVE")
    assert (removed["how"], removed["priority"]) == ("cancel", 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [("image", b"short"), ("was", b"short"), ("state", 99), ("how", b"x"), ("reason", 5)],
)
def test_what_cannot_be_taken_apart_is_shown_as_it_is(name: str, value: bytes | int) -> None:
    assert journal_reports.readable({name: value}) == {name: value}
