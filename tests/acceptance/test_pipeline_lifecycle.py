"""`lifecycle` and `dead-letters`: a million ops against plain Python, and the real commands."""

from __future__ import annotations

import json
import math
import random
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

import fjord
from fjord.cli.commands import app
from fjord.cli.pipelines import running
from fjord.errors import FjordError
from fjord.spark.options import Location
from fjord.spark.pipelines import lifecycle as job_frames
from fjord.spark.pipelines.lifecycle import lifecycle
from tests.acceptance.daemon import FJORD, Daemon
from tests.unit.spark.pipelines.test_page import check

pytestmark = pytest.mark.spark

JOBS = 250_000
START_US = 1_790_000_000_000_000
SITES = [f"site{number}.example" for number in range(20)]
SCHEMA = pa.schema(
    {
        "table": pa.string(),
        "seq": pa.int64(),
        "ts": pa.timestamp("us", tz="UTC"),
        "op": pa.string(),
        "row": pa.int64(),
        "xid": pa.int64(),
        "key": pa.binary(),
        "domain": pa.string(),
        "priority": pa.int16(),
        "process_at": pa.timestamp("us", tz="UTC"),
    }
)


class World:
    """A history that is made up, and what Python finds out about it on the way."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
        self.seq = 0
        self.times: dict[tuple[str, str], list[int]] = defaultdict(list)  # of a table's measure
        self.by_domain: dict[tuple[str, str], list[int]] = defaultdict(list)  # waits
        self.states: Counter[tuple[str, str]] = Counter()
        self.hours: Counter[tuple[str, int, str]] = Counter()
        self.failures: Counter[tuple[str, bytes]] = Counter()
        self.late = self.merged = 0

    def add(self, op: str, us: int, job: dict[str, Any], xid: int | None = None) -> int:
        self.seq += 1
        is_bare = op in ("DONE", "EXPIRE")
        row = (
            *(job["table"], self.seq, us, op, job.setdefault("row", self.seq)),
            *(self.seq if op == "TAKE" else xid, None if is_bare else job["key"]),
            *(None if is_bare else job["domain"], None if op == "DONE" else job["priority"]),
            None if op == "DONE" else job["due"],
        )
        for name, one in zip(SCHEMA.names, row, strict=True):
            self.columns[name].append(one)
        self.hours[job["table"], us // 3_600_000_000, op] += 1
        return self.seq

    def live(self, number: int) -> None:
        """Lets one job live; about four ops."""
        chance = self.random
        job: dict[str, Any] = {
            "table": chance.choice(("pages", "mails")),
            "key": b"k%d" % number,
            "domain": chance.choice(SITES),
            "priority": chance.choice((10, 100, 200)),
        }
        us = START_US + chance.randrange(86_400_000_000)
        job["due"] = us + (chance.randrange(60_000_000) if chance.random() < 0.3 else 0)
        self.add("ADD", us, job)
        began = us
        for _ in range(2 if chance.random() < 0.5 else 0):
            us += chance.randrange(1000)
            job["due"] = max(job["due"], us)
            self.add("REPLACE", us, job)
            self.merged += 1
        if chance.random() < 0.02:
            self.add("EXPIRE", max(us, job["due"]) + 1, job)
            self.states[job["table"], "expired"] += 1
            return
        self.work(job, began)

    def work(self, job: dict[str, Any], began: int) -> None:
        chance, table, failures, first = self.random, job["table"], 0, None
        while True:
            due = max(job["due"], began)
            first = due if first is None else first
            taken = due + int(chance.lognormvariate(14, 2))
            xid = self.add("TAKE", taken, job)
            self.times[table, "wait"].append(taken - due)
            self.by_domain[table, job["domain"]].append(taken - due)
            if (fate := chance.random()) < 0.01:
                self.states[table, "taken"] += 1
                break
            end = taken + int(chance.lognormvariate(12, 1))
            self.times[table, "run"].append(end - taken)
            began = end
            if fate < 0.9:
                self.add("DONE", end, job, xid)
                self.times[table, "total"].append(end - first)
                self.states[table, "done"] += 1
                break
            failures += 1
            if failures == 3:
                self.add("DEAD", end, job, xid)
                self.states[table, "dead"] += 1
                break
            op = "TIMEOUT" if fate < 0.95 else "FAIL"
            self.add(op, end, job, xid)
            self.late += op == "TIMEOUT"  # since it is always taken again
        if failures >= 2:
            self.failures[table, job["key"]] = failures

    def write(self, path: Path) -> None:
        table = pa.table(self.columns, schema=SCHEMA)
        pq.write_table(table.take(pa.array(self.shuffled())), path)

    def shuffled(self) -> list[int]:
        """Spark gets rows in no order at all."""
        places = list(range(self.seq))
        self.random.shuffle(places)
        return places


def percentile(times: list[int], share: float) -> float:
    """Returns the percentile that lies between the two nearest, in seconds."""
    ordered = sorted(times)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return (ordered[low] + (ordered[high] - ordered[low]) * (place - low)) / 1e6


def check_percentiles(found: DataFrame, world: World) -> int:
    """Compares all percentiles of tables, and those of waits by domain; returns how many."""
    expected: dict[tuple[str, str, str | None, str], list[int]]
    expected = {("table", table, None, what): times for (table, what), times in world.times.items()}
    expected |= {("domain", *where, "wait"): times for where, times in world.by_domain.items()}
    rows = found.where("level IN ('table', 'domain')").collect()
    seen = {(row["level"], row["table"], row["domain"], row["measure"]): row for row in rows}
    for where, times in expected.items():
        row = seen[where]
        assert (row["count"], row["max"]) == (len(times), max(times) / 1e6)
        for name, share in job_frames.PERCENTILES.items():
            # Four digits are a rounding error of at most one in two thousand.
            assert row[name] == pytest.approx(percentile(times, share), rel=0.0005, abs=1e-9)
    return len(expected)


@pytest.mark.soak
def test_a_million_ops_against_plain_python(spark: SparkSession, tmp_path: Path) -> None:
    world = World(7)
    for number in range(JOBS):
        world.live(number)
    assert world.seq >= 1_000_000
    world.write(tmp_path / "history.parquet")
    history = spark.read.parquet(str(tmp_path / "history.parquet"))
    attempts, jobs = job_frames.attempts(history).persist(), job_frames.jobs(history).persist()
    frequencies = job_frames.frequencies(attempts, jobs)
    assert check_percentiles(job_frames.percentiles(frequencies), world) == 46
    until = datetime.fromtimestamp(START_US / 1e6, UTC) + timedelta(days=3)
    totals = [row.asDict() for row in job_frames.totals(jobs, attempts, until).collect()]
    for row in totals:
        for state in ("done", "taken", "dead", "expired"):
            assert row[state] == world.states[row["table"], state]
    assert sum(row["jobs"] for row in totals) == JOBS
    assert sum(row["late"] for row in totals) == world.late
    assert sum(row["merged"] for row in totals) == world.merged
    failures = job_frames.failures(jobs).collect()
    assert {(row["table"], bytes(row["key"])): row["failures"] for row in failures} == (
        dict(world.failures)
    )
    slow = sum(
        us > 60_000_000 for (_, what), found in world.times.items() for us in found if what != "run"
    )
    assert job_frames.breaches(attempts, jobs, 60, until).count() == slow
    hours = job_frames.throughput(history, attempts, 3600)
    counted = hours.selectExpr("table", "unix_seconds(at) DIV 3600 AS hour", "done", "failed")
    for table, hour, done, failed in counted.collect():
        assert done == world.hours[table, hour, "DONE"]
        assert failed == world.hours[table, hour, "FAIL"]
    attempts.unpersist()
    jobs.unpersist()


# -- real data ------------------------------------------------------------------------------------


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
    with pytest.raises(FjordError, match="no folder on this machine"):
        lifecycle(spark, location, target="s3://bucket/report")


@pytest.mark.soak
def test_the_commands_against_a_daemon(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Daemon(tmp_path / "data") as daemon:
        with fjord.connect(daemon.url) as db:
            fill(db)
        words = ["pipeline", "lifecycle", "pages", "mails", "--to", daemon.url]
        words += ["--out", str(tmp_path / "out"), "--breach", "0", "--strict", "--json"]
        done = subprocess.run(
            [*FJORD, *words, "--master", "local[1]"],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 1, done.stderr  # since everything took longer than no time
        told = json.loads(done.stdout)
        assert {name: told[name] for name in EXPECTED} == {**EXPECTED, "tables": "mails, pages"}
        assert (told["job"], told["ok"], len(told["lines"])) == ("lifecycle", False, 3)
        assert told["breaches"] >= 83
        check(Path(told["page"]).read_text())
        check_dead_letters(spark, daemon.url, tmp_path, monkeypatch)


def check_dead_letters(
    spark: SparkSession, url: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs the command in this process, with the session that is there."""

    @contextmanager
    def same(*_: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(running, "spark_of", same)
    rows = path / "rows.txt"
    words = ["pipeline", "dead-letters", "pages", "--to", url, "--json"]
    done = CliRunner().invoke(
        app, [*words, "--out", str(path / "dead"), "--redrive", str(rows)], catch_exceptions=False
    )
    told = json.loads(done.stdout)
    figures = ("dead", "groups", "ever_died", "revived", "discarded", "listed")
    assert [told[name] for name in figures] == [3, 2, 4, 1, 0, 3]
    first, second = told["lines"]
    assert (first["reason"], first["domain"], first["jobs"]) == ("no user \u2026", "c.example", 2)
    assert first["keys"] == "http://c.example/2, http://c.example/1"
    assert (second["reason"], second["payload"]) == ("exit code 7", "42")
    assert (second["last_hour"], second["older"]) == (1, 0)
    listed = spark.read.parquet(str(path / "dead" / "redrive")).orderBy("row").collect()
    assert rows.read_text().split() == [f"--row={row['row']}" for row in listed]
    back = ["jobs", "redrive", "pages", "--to", url, "--json", *rows.read_text().split()]
    revived = CliRunner().invoke(app, back, catch_exceptions=False)
    assert json.loads(revived.stdout)["revived"] == 3
    picked = CliRunner().invoke(app, [*words, "--reason", "exit"], catch_exceptions=False)
    told = json.loads(picked.stdout)
    assert (told["dead"], told["ever_died"], told["revived"]) == (0, 4, 4)
    assert "listed" not in told
