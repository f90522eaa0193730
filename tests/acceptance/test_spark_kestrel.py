"""Queues of a Kestrel in Spark: read as rows, and imported into tables, exactly once."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

import fjord
from fjord import limits
from fjord.cli.commands import app
from fjord.cli.pipelines import running
from fjord.clock import SystemClock
from fjord.errors import FjordError
from fjord.kestrel import codec
from fjord.kestrel.importer import Importer, ImportOptions
from fjord.spark.pipelines.kestrel_import import kestrel_import
from tests.acceptance.daemon import Daemon
from tests.unit.kestrel import vectors
from tests.unit.spark.kestrel.journals import ADD_MS, item, put, written

pytestmark = pytest.mark.spark

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One for all tests here; each has tables of its own."""
    with Daemon(tmp_path_factory.mktemp("kestrel") / "data") as daemon:
        yield daemon


@pytest.fixture
def database(daemon: Daemon) -> Iterator[fjord.Database]:
    with fjord.connect(daemon.url) as database:
        yield database


def load(spark: SparkSession, directory: Path, **options: Any) -> DataFrame:
    return spark.read.format("kestrel").options(**options).load(str(directory))


def numbers(start: int, end: int) -> list[codec.Op]:
    return [item(b"%d" % number, add_ms=ADD_MS + number) for number in range(start, end)]


# -- the source -----------------------------------------------------------------------------------


@pytest.mark.req("KJ-14", "KJ-16")
def test_what_is_in_queues_is_read_in_order(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path, "cars.904.pack", *numbers(0, 3000), codec.remove_tentative(7))
    put(tmp_path, "cars.904", item(b"dead"))
    put(tmp_path, "cars", *numbers(3000, 4000), codec.remove())
    put(tmp_path, "trucks", item(b"one"))
    put(tmp_path, "empty")
    found = load(spark, tmp_path)
    assert found.rdd.getNumPartitions() == 3
    cars = found.where("queue = 'cars'").collect()
    assert [bytes(row.data) for row in cars] == [b"%d" % n for n in (0, *range(2, 4000))]
    assert [row.position for row in cars] == list(range(3999))
    assert [row.xid for row in cars[:2]] == [7, None]
    counts = found.groupBy("queue").count().collect()
    assert {row["queue"]: row["count"] for row in counts} == {"cars": 3999, "trucks": 1}
    assert load(spark, tmp_path, queue="empty").collect() == []
    made = load(spark, tmp_path, mode="ops", queue="cars").groupBy("file", "op").count().collect()
    assert {(row["file"], row["op"]): row["count"] for row in made} == {
        ("cars.904.pack", "ADDX"): 3000,
        ("cars.904.pack", "REMOVE_TENTATIVE_XID"): 1,
        ("cars", "ADDX"): 1000,
        ("cars", "REMOVE"): 1,
    }


def test_columns_are_chosen_by_schema_and_in_sql(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path, "cars", item(b"a"), codec.remove_tentative(3))
    plain = spark.read.format("kestrel").schema("data binary, queue string").load(str(tmp_path))
    assert [tuple(row) for row in plain.collect()] == [(b"a", "cars")]
    some = load(spark, tmp_path, mode="ops").select("op", "xid")
    assert [tuple(row) for row in some.collect()] == [
        ("ADDX", None),
        ("REMOVE_TENTATIVE_XID", 3),
    ]
    spark.sql(f"CREATE TEMPORARY VIEW cars USING kestrel OPTIONS (path '{tmp_path}')")
    try:
        (row,) = spark.sql("SELECT count(*) AS n, max(xid) AS xid FROM cars").collect()
        assert tuple(row) == (1, 3)
    finally:
        spark.catalog.dropTempView("cars")


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/Los_Angeles"])
def test_dates_are_read_in_any_time_zone(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    dates = (1, ADD_MS + 1, -5, -(2**63), 2**63 - 1)
    put(tmp_path, "cars", *[item(b"", add_ms=date, expiry_ms=date) for date in dates])
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before is not None
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = load(spark, tmp_path)
        exact = frame.selectExpr("unix_micros(added) AS added", "unix_micros(expires) AS expires")
        last_us = 253_402_128_000_000_000
        assert [tuple(row) for row in exact.collect()] == [
            (us, us) for us in (1000, (ADD_MS + 1) * 1000, 0, 0, last_us)
        ]
        assert len(frame.selectExpr("cast(added AS string)", "date(expires)").collect()) == 5
        assert all(row.added is not None for row in frame.collect())
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_what_is_wrong_is_said(spark: SparkSession, tmp_path: Path) -> None:
    path = put(tmp_path, "cars", item(b"a"))
    path.write_bytes(path.read_bytes() + b"\x63" + written(item(b"lost")))
    for told, options in {
        r"the option mode is state or ops, not 'all'": {"mode": "all"},
        r"has no queue truck": {"queue": "truck"},
        r"unknown option server": {"server": "x"},
        rf"{path}.*22": {},
    }.items():
        with pytest.raises(PySparkException, match=told):
            load(spark, tmp_path, **options).collect()
    (row,) = load(spark, tmp_path, damaged="skip").collect()
    assert bytes(row.data) == b"a"


# -- the import -----------------------------------------------------------------------------------


def test_queues_become_jobs_tables_once(
    spark: SparkSession, tmp_path: Path, daemon: Daemon, database: fjord.Database
) -> None:
    now_ms = SystemClock().wall_us() // 1000
    lives = item(b"lives", expiry_ms=now_ms + HOUR_MS)
    far = item(b"far", expiry_ms=now_ms + 9000 * HOUR_MS)
    over = item(b"over", expiry_ms=1)
    path = put(tmp_path, "cars", *numbers(0, 25_000), lives, over, far, codec.remove_tentative(1))
    put(tmp_path, "trucks", vectors.add(b"old"), item(b""))
    put(tmp_path, "bikes", item(b"gone", expiry_ms=1))

    dry = kestrel_import(spark, str(tmp_path), daemon.url, dry_run=True)
    assert (dry.figures["items"], dry.figures["written"], dry.figures["expired"]) == (25006, 0, 2)
    assert database.tables() == []

    first = kestrel_import(spark, str(tmp_path), daemon.url)
    assert (first.figures["written"], first.figures["expired"]) == (25_004, 2)
    assert [table.name for table in database.tables()] == ["cars", "trucks"]
    second = kestrel_import(spark, str(tmp_path), daemon.url)
    assert (second.figures["written"], second.figures["queues_there_before"]) == (0, 2)

    assert database.jobs("cars", merge=False).count().waiting == 25_002
    taken = [job for _ in range(3) for job in database.jobs("cars").next(count=10_000)]
    assert [job.value for job in taken] == [*(b"%d" % n for n in range(25_000)), b"lives", b"far"]
    assert [job.expires_at is None for job in taken[-3:]] == [True, False, True]
    dates_ms = [round(job.inserted_at.timestamp() * 1000) for job in taken]
    assert dates_ms == [ADD_MS + n for n in (*range(25_000), 24_999, 24_999)]
    assert [job.value for job in database.jobs("trucks").next(count=5)] == [b"old", b""]

    path.write_bytes(path.read_bytes() + written(item(b"new")))
    with pytest.raises(FjordError, match=r"files of cars have changed since .*--anew imports"):
        kestrel_import(spark, str(tmp_path), daemon.url)
    more = kestrel_import(spark, str(tmp_path), daemon.url, anew=True)
    again = kestrel_import(spark, str(tmp_path), daemon.url, anew=True)
    assert (more.figures["written"], again.figures["written"]) == (25_003, 0)
    assert database.jobs("cars").count().waiting == 25_003


def plainly(directory: Path, url: str, **given: bool) -> tuple[int, int]:
    """Runs `fjord kestrel import`; returns how many items were there before, and are now."""
    options = ImportOptions(directory=str(directory), url=url, **given)  # type: ignore[arg-type]
    importer = Importer(options)
    (outcome,) = [importer.send(plan) for plan in importer.plans()]
    return outcome.imported_before, outcome.imported_before + outcome.tally.imported


def test_what_one_command_has_imported_the_other_one_knows(
    spark: SparkSession, tmp_path: Path, daemon: Daemon, database: fjord.Database
) -> None:
    vans, coaches = tmp_path / "a", tmp_path / "b"
    vans.mkdir()
    coaches.mkdir()
    put(vans, "vans", *numbers(0, 3))
    assert kestrel_import(spark, str(vans), daemon.url).figures["written"] == 3
    assert plainly(vans, daemon.url) == (3, 3)

    path = put(coaches, "coaches", *numbers(0, 3))
    assert plainly(coaches, daemon.url) == (0, 3)
    known = kestrel_import(spark, str(coaches), daemon.url).figures
    assert (known["written"], known["queues_there_before"]) == (0, 1)
    with pytest.raises(FjordError, match="give one of them"):
        kestrel_import(spark, str(coaches), daemon.url, moved=True, anew=True)
    path.write_bytes(path.read_bytes() + written(item(b"new")))
    with pytest.raises(FjordError, match="files of coaches have changed since 3 items"):
        kestrel_import(spark, str(coaches), daemon.url, moved=True)
    assert kestrel_import(spark, str(coaches), daemon.url, anew=True).figures["written"] == 4
    assert database.jobs("coaches").count().waiting == 7


def test_nothing_is_written_if_something_is_wrong(
    spark: SparkSession,
    tmp_path: Path,
    daemon: Daemon,
    database: fjord.Database,
) -> None:
    before = database.tables()
    put(tmp_path, "planes", item(b"fits"))
    put(tmp_path, "ships", item(bytes(limits.VALUE_BYTES_MAX + 1)), item(b"small"))
    with pytest.raises(
        FjordError, match=r"ships has 1 item of more than 1048576.*--skip-too-large"
    ):
        kestrel_import(spark, str(tmp_path), daemon.url)
    with pytest.raises(FjordError, match="items become jobs or stream, not 'kv'"):
        kestrel_import(spark, str(tmp_path), daemon.url, kind="kv")
    broken = put(tmp_path, "trains", item(b"a"))
    broken.write_bytes(broken.read_bytes() + b"\x63x")
    with pytest.raises(FjordError, match="trains is damaged at byte"):
        kestrel_import(spark, str(tmp_path), daemon.url, skip_too_large=True)
    assert database.tables() == before

    # A queue that changes between the look and the write is not written.
    def change(what: str, done: int, total: int | None) -> None:
        if what == "writing items" and not done:
            path = tmp_path / "planes"
            path.write_bytes(path.read_bytes() + written(item(b"late")))

    with pytest.raises(FjordError, match=r"files of planes in .* changed while they were read"):
        kestrel_import(spark, str(tmp_path), daemon.url, queues=["planes"], progress=change)
    assert database.jobs("planes").count().waiting == 0

    report = kestrel_import(spark, str(tmp_path), daemon.url, skip_too_large=True, damaged=True)
    figures = report.figures
    assert (figures["written"], figures["too_large"], figures["damaged_bytes"]) == (4, 1, 2)
    assert [job.value for job in database.jobs("planes").next(count=5)] == [b"fits", b"late"]


def test_the_verb_writes_a_stream_and_reports(
    spark: SparkSession,
    tmp_path: Path,
    daemon: Daemon,
    database: fjord.Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(tmp_path, "a+b", *numbers(0, 10), codec.remove())
    put(tmp_path, "other", item(b"x"))
    # The session of all tests, which is not ended.
    monkeypatch.setattr(running, "spark_of", lambda *_: contextlib.nullcontext(spark))

    def run(*words: str) -> tuple[int, str]:
        given = ["pipeline", "kestrel-import", str(tmp_path), "--to", daemon.url, *words]
        done = CliRunner().invoke(app, given)
        return done.exit_code, done.stdout

    named = ("--queue", "a+b", "--table", "a+b=both", "--as", "stream")
    code, told = run(*named, "--json")
    figures = json.loads(told)
    assert (code, figures["job"], figures["written"]) == (0, "kestrel-import", 9)
    (line,) = figures["lines"]
    assert (line["queue"], line["table"], line["there_before"]) == ("a+b", "both", False)
    code, told = run(*named)
    assert (code, "yes" in told) == (0, True)
    values = [message.value for message in database.stream("both").read()]
    assert values == [b"%d" % number for number in range(1, 10)]
    assert run("--as", "kv")[0] == 2
    assert run("--to", "nonsense://")[0] == 2
    assert run()[0] == 2  # no table can be called a+b
