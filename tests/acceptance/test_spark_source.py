"""`spark.read.format("fjord")`: every op of a table, from a directory and from a daemon."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.testing import assertDataFrameEqual

import fjord
from fjord.blocks import schema
from tests.acceptance.daemon import Daemon

pytestmark = pytest.mark.spark

DAY = timedelta(days=1)


def ops_of(spark: SparkSession, directory: Path, table: str = "default", **more: int) -> DataFrame:
    return spark.read.format("fjord").options(table=table, **more).load(str(directory))


def keys_and_values(frame: DataFrame) -> list[tuple[str, bytes, bytes | None]]:
    rows = frame.orderBy("seq").collect()
    return [(row.op, bytes(row.key), row.value and bytes(row.value)) for row in rows]


def write_history(database: fjord.Database) -> None:
    """Writes a value, another one over it, and a deletion; some rows, and a row of elsewhere."""
    table = database.kv("events")
    table.set("a", b"first")
    database.kv("other").set("elsewhere", b"")
    table.set("a", b"second")
    table.delete("a")
    table.set_many({"b": b"third", "c": b"fourth"})


HISTORY = [
    ("SET", b"a", b"first"),
    ("SET", b"a", b"second"),
    ("DELETE", b"a", None),
    ("SET", b"b", b"third"),
    ("SET", b"c", b"fourth"),
]


def test_the_format_is_found_with_its_schema(spark: SparkSession, tmp_path: Path) -> None:
    found = spark.read.format("fjord").load(str(tmp_path)).schema
    assert {field.name: field.dataType.simpleString() for field in found} == schema.COLUMNS


def test_a_directory_without_a_writer_gives_every_op(spark: SparkSession, tmp_path: Path) -> None:
    before = datetime.now(tz=UTC)
    with fjord.open(tmp_path) as database:
        write_history(database)
    frame = ops_of(spark, tmp_path, "events")
    assert keys_and_values(frame) == HISTORY
    times = frame.filter((frame.ts >= before) & (frame.ts <= datetime.now(tz=UTC)))
    assert times.count() == len(HISTORY)


def test_rows_are_whole(spark: SparkSession, tmp_path: Path) -> None:
    expires_at = datetime.now(tz=UTC).replace(microsecond=0) + timedelta(hours=1)
    with fjord.open(tmp_path) as database:
        database.kv().set_many({"a": 1, "b": 2}, expires_at=expires_at)
        database.kv().delete("a")
    # Seq 1 is the writer's own, seq 2 the table's, seq 5 takes an expiry back.
    nothing = dict.fromkeys(schema.COLUMNS)
    numbers = [number.to_bytes(8, "little") for number in (1, 2)]
    integer = {"op": "SET", "txn": 4, "type": 3, "expires_at": expires_at}
    expected = [
        Row(**{**nothing, **integer, "seq": 3, "row": 3, "key": b"a", "value": numbers[0]}),
        Row(**{**nothing, **integer, "seq": 4, "row": 4, "key": b"b", "value": numbers[1]}),
        Row(**{**nothing, "op": "DELETE", "txn": 6, "seq": 6, "row": 6, "key": b"a"}),
    ]
    frame = ops_of(spark, tmp_path).drop("ts")
    assertDataFrameEqual(
        frame,
        spark.createDataFrame(expected, ops_of(spark, tmp_path).schema).drop("ts"),
        checkRowOrder=True,
    )


def test_every_type_has_its_number_and_bytes(spark: SparkSession, tmp_path: Path) -> None:
    with fjord.open(tmp_path) as database:
        database.kv().set_many({"0": None, "1": b"\0\xff", "2": "é", "3": -2, "4": 0.5, "5": True})
    rows = ops_of(spark, tmp_path).orderBy("seq").collect()
    assert [(bytes(row.key), row.type, bytes(row.value)) for row in rows] == [
        (b"0", 0, b""),
        (b"1", 1, b"\0\xff"),
        (b"2", 2, b"\xc3\xa9"),
        (b"3", 3, b"\xfe" + b"\xff" * 7),
        (b"4", 4, b"\0\0\0\0\0\0\xe0\x3f"),
        (b"5", 5, b"\1"),
    ]


def test_the_life_of_jobs_is_whole_rows(spark: SparkSession, tmp_path: Path) -> None:
    tomorrow = datetime.now(tz=UTC).replace(microsecond=0) + timedelta(days=1)
    with fjord.open(tmp_path) as database:
        pages = database.create_jobs("pages", timeouts_max=0)
        pages.push("http://Example.com/a", b"one", priority=10)
        pages.push("later", 5, domain="given", process_at=tomorrow, expires_at=2 * DAY + tomorrow)
        (job,) = pages.next(lease=60)
        job.fail(reason="no luck")
        pages.redrive()
        (again,) = pages.next()
        again.done()
        pages.cancel("later")
    # Seq 1 is the writer's own, seq 2 the table's.
    example = {"row": 3, "key": b"http://Example.com/a", "domain": "example.com", "priority": 10}
    once, twice = {"process_at": job.process_at}, {"process_at": again.process_at}
    dates = {"process_at": tomorrow, "expires_at": tomorrow + 2 * DAY}
    later = {"row": 4, "priority": 100, **dates}
    five = {"type": 3, "value": (5).to_bytes(8, "little")}
    dead = {"timeouts": 1, "type": 2, "value": b"failed 1 times: no luck"}
    expected = [
        {"op": "ADD", **example, **once, "timeouts": 0, "type": 1, "value": b"one"},
        {"op": "ADD", **later, "key": b"later", "domain": "given", "timeouts": 0, **five},
        {"op": "TAKE", **example, **once, "xid": 5, "timeouts": 0},
        {"op": "DEAD", **example, **once, "xid": 5, **dead},
        {"op": "REVIVE", **example, **twice, "timeouts": 0},
        {"op": "TAKE", **example, **twice, "xid": 8, "timeouts": 0},
        {"op": "DONE", "row": 3, "xid": 8},
        {"op": "CANCEL", **later},
    ]
    nothing = dict.fromkeys(schema.COLUMNS)
    rows = [
        Row(**{**nothing, "seq": seq, "txn": seq, **one}) for seq, one in enumerate(expected, 3)
    ]
    found = ops_of(spark, tmp_path, "pages")
    assertDataFrameEqual(
        found.drop("ts"), spark.createDataFrame(rows, found.schema).drop("ts"), checkRowOrder=True
    )


def test_jobs_of_a_daemon_are_counted_by_what_became_of_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Daemon(tmp_path / "data") as daemon, fjord.connect(daemon.url) as database:
        pages = database.jobs("pages")
        pages.push_many(keys=[f"http://{n % 3}.example/{n}" for n in range(3_000)])
        taken = pages.next(count=1_000)
        assert pages.done_many(taken) == []
        pages.fail_many(pages.next(count=100), count=False)
        options = {"server": daemon.url, "table": "pages", "partitions": "3"}
        served = spark.read.format("fjord").options(**options).load()
        counts = {row.op: row["count"] for row in served.groupBy("op").count().collect()}
        assert counts == {"ADD": 3_000, "TAKE": 1_100, "DONE": 1_000, "GIVEN_BACK": 100}
        domains = served.filter("op = 'TAKE'").groupBy("domain").count().collect()
        assert {row.domain: row["count"] for row in domains} == {
            "0.example": 367,
            "1.example": 367,
            "2.example": 366,
        }


def test_a_directory_is_read_beside_its_writer(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "data"
    with Daemon(path) as daemon, fjord.connect(daemon.url) as database:
        write_history(database)
        assert keys_and_values(ops_of(spark, path, "events")) == HISTORY
        database.kv("events").set("d", b"late")
        assert ops_of(spark, path, "events").count() == len(HISTORY) + 1


def test_a_directory_is_read_after_its_writer_was_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "data"
    with Daemon(path) as daemon:
        with fjord.connect(daemon.url) as database:
            write_history(database)
        daemon.kill()
    assert keys_and_values(ops_of(spark, path, "events")) == HISTORY


def test_a_daemon_gives_the_same_rows_as_its_directory(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "data"
    with Daemon(path) as daemon, fjord.connect(daemon.url) as database:
        write_history(database)
        for address in (daemon.url, daemon.url.removeprefix("fjord://")):
            options = {"server": address, "table": "events"}
            served = spark.read.format("fjord").options(**options).load()
            assertDataFrameEqual(served, ops_of(spark, path, "events"))
        assert keys_and_values(served) == HISTORY


def test_several_partitions_give_the_same_rows_as_one(spark: SparkSession, tmp_path: Path) -> None:
    with fjord.open(tmp_path) as database:
        for start in range(0, 5_000, 1_000):
            database.kv().set_many({f"{number}": number for number in range(start, start + 1_000)})
            database.kv().delete(f"{start}")
    whole = ops_of(spark, tmp_path, partitions=1)
    parts = ops_of(spark, tmp_path, partitions=7)
    assert (whole.rdd.getNumPartitions(), parts.rdd.getNumPartitions()) == (1, 7)
    assertDataFrameEqual(parts, whole)
    assert parts.count() == parts.select("seq").distinct().count() == 5_005


def test_a_range_of_seqs_is_read(spark: SparkSession, tmp_path: Path) -> None:
    with fjord.open(tmp_path) as database:
        database.kv().set_many({f"{number}": number for number in range(100)})
    seqs = [row.seq for row in ops_of(spark, tmp_path).orderBy("seq").collect()]
    frame = ops_of(spark, tmp_path, startingSeq=seqs[10], endingSeq=seqs[20])
    assert [row.seq for row in frame.orderBy("seq").collect()] == seqs[10:20]


def test_a_schema_chooses_columns(spark: SparkSession, tmp_path: Path) -> None:
    with fjord.open(tmp_path) as database:
        database.kv().set("a", b"value")
    reader = spark.read.format("fjord").schema("key binary, seq bigint")
    (row,) = reader.load(str(tmp_path)).collect()
    assert row.asDict() == {"key": b"a", "seq": 3}


def test_a_view_in_sql(spark: SparkSession, tmp_path: Path) -> None:
    with fjord.open(tmp_path) as database:
        write_history(database)
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW history USING fjord "
        f"OPTIONS (path '{tmp_path}', table 'events')"
    )
    (row,) = spark.sql("SELECT max_by(value, seq) AS value FROM history WHERE key = 'c'").collect()
    assert bytes(row.value) == b"fourth"


def test_a_read_that_stops_early_leaves_nothing_open(spark: SparkSession, tmp_path: Path) -> None:
    with fjord.open(tmp_path) as database:
        for start in range(0, 300_000, 50_000):
            database.kv().set_many({f"{n}": b"x" * 50 for n in range(start, start + 50_000)})
    frame = ops_of(spark, tmp_path, partitions=1)
    for _ in range(5):
        assert len(frame.limit(3).collect()) == 3
    assert frame.count() == 300_000


@pytest.mark.parametrize(
    ("options", "told"),
    [
        pytest.param({"table": "tabel"}, "there is no table 'tabel'", id="table"),
        pytest.param({"path": "/nowhere"}, "there is no directory /nowhere", id="directory"),
        pytest.param(
            {"path": "", "server": "127.0.0.1:1"}, "is `fjord serve` running", id="daemon"
        ),
        pytest.param({"tabel": "x"}, "unknown option tabel", id="option"),
    ],
)
def test_what_is_missing_is_named(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], told: str
) -> None:
    with fjord.open(tmp_path) as database:
        database.kv().set("a", 1)
    reader = spark.read.format("fjord").options(**{"path": str(tmp_path), **options})
    with pytest.raises(AnalysisException, match=told):
        reader.load().count()


def test_the_page_runs_as_it_stands(spark: SparkSession, tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    latest, waits, states = re.findall(r'spark\.sql\("""(.*?)"""\)', page, re.DOTALL)
    with Daemon(tmp_path / "served") as daemon, fjord.connect(daemon.url) as database:
        database.kv("settings").set_many({"colour": "green", "gone": 1})
        database.kv("settings").delete("gone")
        # The session was started elsewhere, and looks for directories there.
        code = "".join(blocks).replace('"data"', repr(str(tmp_path / "data")))
        code = code.replace("fjord://127.0.0.1:17994", daemon.url)
        code = code.replace(".show()", "")  # its queries are run below
        exec(compile(code, "spark.md", "exec"), {})  # noqa: S102 - our own page
        (row,) = spark.sql(latest).collect()
        assert (row.key, row.type, bytes(row.value)) == ("colour", 2, b"green")
    (row,) = spark.sql(waits).collect()
    assert (row.domain, row.jobs) == ("example.com", 3)
    assert 0 <= row.waited_seconds < 60
    assert 0 < row.worked_seconds < 60
    assert sorted((row.key, row.state) for row in spark.sql(states).collect()) == [
        ("http://example.com/3", "waiting"),
        ("http://example.com/4", "waiting"),
    ]
