"""`frame.write.format("fjord")` and `frame.writeStream`: every kind of table, exactly once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import fjord
from tests.acceptance.daemon import Daemon

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One for all tests here; each has tables of its own."""
    with Daemon(tmp_path_factory.mktemp("sink") / "data") as daemon:
        yield daemon


@pytest.fixture
def database(daemon: Daemon) -> Iterator[fjord.Database]:
    with fjord.connect(daemon.url) as database:
        yield database


def write(frame: DataFrame, daemon: Daemon, table: str, **options: str | int) -> None:
    given = {"server": daemon.url, "table": table, **options}
    frame.write.format("fjord").options(**given).mode("append").save()


# -- batch ----------------------------------------------------------------------------------------


def test_a_stream_gets_rows_in_order(
    spark: SparkSession, daemon: Daemon, database: fjord.Database
) -> None:
    frame = spark.range(140_000, numPartitions=2).selectExpr(
        "cast(id % 10 AS string) AS key", "id AS value"
    )
    write(frame, daemon, "numbers", kind="stream")
    write(frame.limit(0), daemon, "numbers")
    found = pa.concat_tables(database.scan_arrow("numbers", columns=["txn", "key", "value"]))
    assert found["value"].to_pylist() == [n.to_bytes(8, "little") for n in range(140_000)]
    assert found["key"].to_pylist() == [b"%d" % (n % 10) for n in range(140_000)]
    assert len(found["txn"].unique()) == 1


def test_jobs_get_all_that_they_have(
    spark: SparkSession, daemon: Daemon, database: fjord.Database
) -> None:
    tomorrow = datetime.now(tz=UTC).replace(microsecond=0) + timedelta(days=1)
    rows = [
        ("http://a.example/1", "one", 10, tomorrow, tomorrow + timedelta(hours=1), "given"),
        ("http://a.example/2", None, None, None, None, None),
    ]
    frame = spark.createDataFrame(
        rows,
        "key string, value string, priority int, "
        "process_at timestamp, expires_at timestamp, domain string",
    )
    write(frame, daemon, "pages", kind="jobs")
    pages = database.jobs("pages")
    first, second = pages.get("http://a.example/1"), pages.get("http://a.example/2")
    assert first is not None
    assert second is not None
    assert (first.value, first.priority, first.domain) == ("one", 10, "given")
    assert (first.process_at, first.expires_at) == (tomorrow, tomorrow + timedelta(hours=1))
    assert (second.value, second.priority, second.domain) == (None, 100, "a.example")
    # A delay counts from now on; a job whose key waits is merged with it.
    write(spark.sql("SELECT 'http://a.example/2' AS key, 0.5 AS delay"), daemon, "pages")
    again = pages.get("http://a.example/2")
    assert again is not None
    assert again.process_at > second.process_at
    assert pages.count().waiting == 2


def test_values_are_set_and_live_as_long_as_is_said(
    spark: SparkSession, daemon: Daemon, database: fjord.Database
) -> None:
    frame = spark.range(2_500).selectExpr("concat('k', id) AS key", "id AS value")
    write(frame, daemon, "settings", kind="kv", ttl=3600)
    write(frame.filter("id < 2").selectExpr("key", "value + 100 AS value"), daemon, "settings")
    settings = database.kv("settings")
    assert len(list(settings.keys())) == 2_500
    assert (settings["k0"], settings["k1"], settings["k2"]) == (100, 101, 2)
    entry, replaced = settings.entry("k2"), settings.entry("k0")
    assert entry is not None
    assert replaced is not None
    assert entry.expires_at is not None
    assert timedelta(minutes=50) < entry.expires_at - datetime.now(tz=UTC) <= timedelta(hours=1)
    assert replaced.expires_at is None


def test_a_write_with_a_number_is_done_once(
    spark: SparkSession, daemon: Daemon, database: fjord.Database
) -> None:
    frame = spark.range(3).selectExpr("id AS value")
    for version in (0, 0, 1):
        write(frame, daemon, "once", kind="stream", txnId="nightly", txnVersion=version)
    assert [message.value for message in database.stream("once").read()] == [0, 1, 2] * 2


# -- what is refused ------------------------------------------------------------------------------


def test_what_is_wrong_is_refused_and_nothing_is_written(
    spark: SparkSession, daemon: Daemon, database: fjord.Database
) -> None:
    database.stream("kept").append(b"there")
    database.create_jobs("kept_jobs")
    good = spark.sql("SELECT 'a' AS key, X'00' AS value")
    nothing = good.selectExpr("cast(null AS string) AS key", "value")
    refused: list[tuple[DataFrame, dict[str, str], str]] = [
        (good.withColumnRenamed("value", "colour"), {}, "there is no column 'colour'"),
        (good, {"table": "nowhere"}, "there is no table 'nowhere'"),
        (good, {"server": "127.0.0.1:1"}, "is `fjord serve` running"),
        (nothing, {"table": "kept_jobs"}, "the column key has a null"),
        (good.selectExpr("repeat('k', 500) AS key", "value"), {}, "KEY_TOO_LONG"),
    ]
    for frame, options, told in refused:
        with pytest.raises(PySparkException, match=told):
            write(frame, daemon, **{"table": "kept", **options})
    with pytest.raises(PySparkException, match="rows can only be appended"):
        good.write.format("fjord").options(server=daemon.url, table="kept").mode("overwrite").save()
    assert [message.value for message in database.stream("kept").read()] == [b"there"]
    assert list(database.jobs("kept_jobs").peek()) == []
    assert "nowhere" not in [table.name for table in database.tables()]


# -- streams --------------------------------------------------------------------------------------


class Files:
    """A directory that is a streaming source: each file is a batch."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.path = path
        path.mkdir()
        reader = spark.readStream.option("maxFilesPerTrigger", 1)
        self.frame = reader.text(str(path))

    def add(self, name: str, *lines: str) -> None:
        (self.path / name).write_text("".join(f"{line}\n" for line in lines))


def run(frame: DataFrame, daemon: Daemon, checkpoint: Path, **options: str) -> str:
    """Runs a streaming query over all that there is; returns its id."""
    given = {"server": daemon.url, "checkpointLocation": str(checkpoint), **options}
    writer = frame.writeStream.format("fjord").options(**given).trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    return str(query.id)


def test_a_batch_that_runs_again_changes_nothing(
    spark: SparkSession, daemon: Daemon, database: fjord.Database, tmp_path: Path
) -> None:
    files, checkpoint = Files(spark, tmp_path / "files"), tmp_path / "checkpoint"
    files.add("1", "a", "b")
    files.add("2", "skipped")
    frame = files.frame.filter("value != 'skipped'")
    options = {"table": "lines", "kind": "stream"}
    name = run(frame, daemon, checkpoint, **options)
    last = database.staging("lines").last_batch
    assert last(name) == 1  # an empty one counts, too
    files.add("3", "c")
    assert run(frame, daemon, checkpoint, **options) == name
    assert (last(name), values_of(database, "lines")) == (2, ["a", "b", "c"])
    # As if Spark had died before it could note that the batch was done: it runs once more.
    for noted in (checkpoint / "commits").glob("*2*"):
        noted.unlink()
    assert run(frame, daemon, checkpoint, **options) == name
    assert (checkpoint / "commits" / "2").exists()
    assert (last(name), values_of(database, "lines")) == (2, ["a", "b", "c"])


def values_of(database: fjord.Database, table: str) -> list[object]:
    return [message.value for message in database.stream(table).read()]


# -- the page -------------------------------------------------------------------------------------


def test_the_chapter_runs_as_it_stands(
    spark: SparkSession, daemon: Daemon, database: fjord.Database, tmp_path: Path
) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text()
    (chapter,) = re.findall(r"^## Write\n(.*?)^## ", page, re.DOTALL | re.MULTILINE)
    # Blocks of `py` keep checkpoints, for which only this test has a place.
    blocks = re.findall(r"^```py(?:thon)?\n(.*?)^```", chapter, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 4
    code = "".join(blocks).replace("fjord://127.0.0.1:17994", daemon.url)
    code = code.replace('"checkpoints/', f'"{tmp_path}/checkpoints/')
    exec(compile(code, "spark.md", "exec"), {"spark": spark})  # noqa: S102 - our own page
    (site,) = database.jobs("sites").peek()
    assert (site.value, site.priority) == ({"uri": "http://example.com/c", "depth": 2}, 10)
    assert sorted(job.key for job in database.jobs("visits").peek()) == [
        "http://example.com/a",
        "http://example.com/b",
    ]
    for table in ("visited", "visits_a", "visits_b"):
        assert sorted(map(str, values_of(database, table))) == ["first", "second"]
