"""The day that `make run` tells of is the same each time, and ends well."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import fjord
from examples.day import __main__ as story
from examples.day import website
from examples.day.node import Daemon, Forwarder

ROOT = Path(__file__).resolve().parents[2]


def test_a_day_is_the_same_each_time_and_whole() -> None:
    first, second = website.Day(), website.Day()
    edits: Counter[str] = Counter()
    for hour in range(website.HOURS):
        pushes = list(first.edits(hour))
        assert pushes == list(second.edits(hour))
        edits.update(key for push in pushes for key in push.keys)
    assert edits.total() == website.EDITS
    # A tenth of the pages has most of the edits, and most pages have some.
    assert sum(count for _, count in edits.most_common(website.PAGES // 10)) > website.EDITS * 0.6
    assert len(edits) > website.PAGES * 0.7
    assert any(website.is_broken(key) for key in edits)


@pytest.mark.req("FJ-24", "FJ-27")
def test_what_a_website_writes_arrives_once_whoever_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(story, "HOUR_SECONDS", 0.02)
    monkeypatch.setattr(story, "LEASE_SECONDS", 1)
    spooled = tmp_path / "spool"
    with (
        Daemon(tmp_path / "data", tmp_path / "daemon.log") as daemon,
        fjord.connect(daemon.url) as db,
        fjord.spool(spooled) as spool,
        Forwarder(spooled, daemon.url, tmp_path / "forwarder.log") as forwarder,
    ):
        fed = story.live(db, spool, daemon, forwarder)
        story.check(db, fed)
        assert fed.edits == website.EDITS
        assert fed.away_seconds > 0
        assert sum(len(batch) for batch in db.stream("events").reader().batches()) == fed.events
    assert "SIGKILL for the forwarder" in capfd.readouterr().out


@pytest.mark.soak
def test_the_story_ends_well_and_leaves_what_it_was_told_to(
    tmp_path: Path, soak_seconds: float
) -> None:
    assert soak_seconds
    kept = tmp_path / "kept"
    done = subprocess.run(
        [sys.executable, "-m", "examples.day", "--keep", str(kept)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Everything agrees." in done.stdout
    assert (kept / "report" / "report.html").stat().st_size > 10_000
    assert list((kept / "warehouse" / "events").rglob("*.parquet"))
    assert list((kept / "spool").glob("*.spool"))
