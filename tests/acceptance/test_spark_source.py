"""`spark.read.format("fjord")`: every op of a table, from a directory and from a daemon."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

import fjord
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


def test_a_daemon_gives_the_same_rows_as_its_directory(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "data"
    with Daemon(path) as daemon, fjord.connect(daemon.url) as database:
        write_history(database)
        for address in (daemon.url, daemon.url.removeprefix("fjord://")):
            options = {"server": address, "table": "events"}
            served = spark.read.format("fjord").options(**options).load()
            assertDataFrameEqual(served, ops_of(spark, path, "events"))
        assert keys_and_values(served) == HISTORY


def test_a_read_that_stops_early_leaves_nothing_open(spark: SparkSession, tmp_path: Path) -> None:
    with fjord.open(tmp_path) as database:
        database.stream("many").append_many([b"x" * 50] * 140_000)  # some batches of a task
    frame = ops_of(spark, tmp_path, "many", partitions=1)
    for _ in range(3):
        assert len(frame.limit(3).collect()) == 3
    assert frame.count() == 140_000


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
