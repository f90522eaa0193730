"""`lifecycle` and `dead-letters` of a directory with one of everything, and their commands."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import fjord
from fjord.errors import FjordError
from fjord.spark.options import Location
from fjord.spark.pipelines.lifecycle import lifecycle
from tests.acceptance.conftest import Typed
from tests.unit.spark.pipelines.test_page import check

pytestmark = pytest.mark.spark


def fill(db: fjord.Database) -> None:
    """Two tables of jobs with one of everything; a part of the history is in cold blocks."""
    pages = db.jobs("pages")
    pages.push_many(keys=[f"http://a.example/{n}" for n in range(50)], values=["body"] * 50)
    for _ in range(9):
        pages.push("http://a.example/7", "again")
    pages.done_many(pages.next(count=40))
    db.seal("pages")
    evil = "http://b.example/<script>alert(1)</script>"
    pages.push(evil, 42, priority=0)
    for _ in range(2):
        (job,) = pages.next(count=1)
        assert job.key == evil
        job.fail(delay=0, reason="exit code 7")
    (job,) = pages.next(count=1)
    job.fail(bury=True, reason="exit code 7\nsecond line")
    for number in range(3):
        pages.push(f"http://c.example/{number}", priority=1)
        pages.bury(f"http://c.example/{number}", reason=f"no user 12345{number}")
    assert pages.redrive(key="http://c.example/0").revived == 1
    db.jobs("mails").push("m", "hello")
    db.kv("settings").set("k", 1)


EXPECTED = {
    "tables": "mails, pages",
    "jobs": 55,
    "done": 40,
    "waiting": 12,
    "taken": 0,
    "dead": 3,
    "attempts": 43,
    "failed_twice": 1,
    "pushes_saved": 9,
    "late": 0,
    "expired": 0,
}


def test_what_a_directory_has_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    location = Location.of_path(str(tmp_path / "data"))
    with fjord.open(tmp_path / "data") as db:
        fill(db)
    seen: list[tuple[int, int | None]] = []
    report = lifecycle(
        spark,
        location,
        target=str(tmp_path / "out"),
        breach_seconds={"mails": 0.0},
        progress=lambda what, done, total: seen.append((done, total)),
    )
    assert {name: report.figures[name] for name in EXPECTED} == EXPECTED
    assert report.figures["breaches"] == 1  # that of mails, which still waits
    assert [(row["table"], row["measure"], row["count"]) for row in report.rows] == [
        ("pages", "run", 43),
        ("pages", "total", 40),
        ("pages", "wait", 43),
    ]
    assert seen == [(done, 8) for done in range(8)]
    failures = spark.read.parquet(str(tmp_path / "out" / "failures")).collect()
    evil = b"http://b.example/<script>alert(1)</script>"
    assert [(bytes(row["key"]), row["failures"], row["dead"]) for row in failures] == [(evil, 3, 1)]
    page = check((tmp_path / "out" / "report.html").read_text())
    assert evil.decode() in page.text
    later = datetime.now(UTC) + timedelta(seconds=1)
    open_only = lifecycle(spark, location, ["pages"], start=later, end=later + timedelta(days=1))
    assert [open_only.figures[name] for name in ("jobs", "waiting", "attempts")] == [11, 11, 0]
    with pytest.raises(FjordError, match="settings is a table of kind kv"):
        lifecycle(spark, location, ["settings"])
    with pytest.raises(FjordError, match="tabel is no table in"):
        lifecycle(spark, location, ["tabel"])
    with pytest.raises(FjordError, match="not a folder on this machine"):
        lifecycle(spark, location, target="s3://bucket/report")


def test_dead_letters_are_grouped_listed_and_revived(
    spark: SparkSession, tmp_path: Path, typed: Typed
) -> None:
    data, rows = str(tmp_path / "data"), tmp_path / "rows.txt"
    with fjord.open(data) as db:
        fill(db)
    words = ("--data", data, "--out", tmp_path / "dead", "--redrive", rows, "--json")
    told = json.loads(typed("pipeline", "dead-letters", "pages", *words).stdout)
    figures = ("dead", "groups", "ever_died", "revived", "discarded", "listed")
    assert [told[name] for name in figures] == [3, 2, 4, 1, 0, 3]
    first, second = told["lines"]
    assert (first["reason"], first["domain"], first["jobs"]) == ("no user \u2026", "c.example", 2)
    assert first["keys"] == "http://c.example/2, http://c.example/1"
    assert (second["reason"], second["payload"]) == ("exit code 7", "42")
    assert (second["last_hour"], second["older"]) == (1, 0)
    listed = spark.read.parquet(str(tmp_path / "dead" / "redrive")).orderBy("row").collect()
    assert rows.read_text().split() == [f"--row={row['row']}" for row in listed]
    back = typed("jobs", "redrive", "pages", "--data", data, "--json", *rows.read_text().split())
    assert json.loads(back.stdout)["revived"] == 3
