"""Declared columns in Spark: read as batches, as a stream and from blocks, and written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import fjord
import fjord.spark
from fjord.blocks import schema
from fjord.declared.schema import TYPES
from fjord.errors import FjordError
from fjord.spark.declared import SPARK_TYPES
from tests.acceptance.daemon import Daemon
from tests.unit.spark.test_declared import NEW, OLD

pytestmark = pytest.mark.spark

MOMENT = datetime(2026, 11, 16, 12, 30, 1, tzinfo=UTC)
EVERY: dict[str, Any] = {
    "boolean": True,
    **{f"int{bits}": -(2 ** (bits - 1)) for bits in (8, 16, 32, 64, 128, 256, 512)},
    **{f"uint{bits}": 2**bits - 1 for bits in (8, 16, 32, 64, 128, 256, 512)},
    "oid": 2**64 - 1,
    "float32": 0.5,
    "float64": 1e300,
    "string": "é",
    "binary": b"\0\xff",
    **dict.fromkeys(("time_seconds", "time_milliseconds", "time_microseconds"), MOMENT),
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One for all tests here; each has tables of its own."""
    with Daemon(tmp_path_factory.mktemp("typed") / "data") as daemon:
        yield daemon


@pytest.fixture
def database(daemon: Daemon) -> Iterator[fjord.Database]:
    with fjord.connect(daemon.url) as database:
        yield database


def read(spark: SparkSession, daemon: Daemon, table: str, **options: str) -> DataFrame:
    return spark.read.format("fjord").options(server=daemon.url, table=table, **options).load()


def write(frame: DataFrame, daemon: Daemon, table: str, **options: str | int) -> None:
    given = {"server": daemon.url, "table": table, **options}
    frame.write.format("fjord").options(**given).mode("append").save()


def in_spark(type_: str, value: Any) -> Any:
    """Returns what a row of Spark has in the place of a value."""
    if type_ in ("uint64", "oid"):
        return Decimal(value)
    if SPARK_TYPES[type_].simpleString() == "string":
        return str(value)
    if isinstance(value, datetime):  # once collected, it is in the zone of the machine
        return value.astimezone().replace(tzinfo=None)
    return value


@pytest.mark.req("SJ-17", "SJ-30")
def test_every_type_is_read_and_written_back(
    spark: SparkSession, daemon: Daemon, database: fjord.Database
) -> None:
    assert EVERY.keys() == TYPES.keys()
    columns = {f"a_{name}": name for name in TYPES}
    row = {f"a_{name}": value for name, value in EVERY.items()}
    for table in ("types", "copies"):
        database.create_stream(table, columns=columns)
    database.stream("types").append_many([row, {}])
    frame = read(spark, daemon, "types")
    assert frame.columns == [*schema.COLUMNS, *columns]
    first, second = frame.orderBy("seq").select(*columns).collect()
    assert first.asDict() == {f"a_{name}": in_spark(name, one) for name, one in EVERY.items()}
    assert set(second) == {None}
    write(frame.select(*columns).coalesce(1), daemon, "copies")
    copied = [message.value for message in database.stream("copies").read()]
    assert copied == [row, dict.fromkeys(columns)]
    # The same as bytes, which are rows of that table and of no other.
    with pytest.raises(Exception, match="read declared columns, and write those"):
        write(frame.select("key", "type", "value"), daemon, "copies")
    assert len(database.stream("copies").read(10)) == 2


@pytest.mark.req("SJ-04", "SJ-30")
def test_two_schemas_of_one_table_are_read_by_batches_streams_and_from_blocks(
    spark: SparkSession, daemon: Daemon, database: fjord.Database, tmp_path: Path
) -> None:
    pages = database.create_jobs("pages", columns=OLD, key="uri", period="hour")
    pages.push_many([{"uri": "a", "depth": 1, "size": 5}, {"uri": "b", "depth": 2}])
    running = (
        spark.readStream.format("fjord")
        .options(server=daemon.url, table="pages")
        .load()
        .where("op = 'ADD'")
        .writeStream.format("memory")
        .queryName("typed_pages")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        running.processAllAvailable()
        database.seal("pages")
        database.create_jobs("pages", columns=NEW, key="uri", period="hour", change=True)
        pages.push_many([{"uri": "c", "depth": 300, "title": "C"}, {"uri": "d", "depth": 4}])
        pages.done_many(pages.next(count=1))
        running.processAllAvailable()
    finally:
        running.stop()
    # A frame has the columns with which it was made, for rows of all schemas.
    streamed = spark.table("typed_pages").orderBy("seq").select("uri", "depth", "size").collect()
    assert [tuple(one) for one in streamed] == [
        ("a", 1, 5),
        ("b", 2, None),
        ("c", None, None),
        ("d", 4, None),
    ]
    expected = [("a", 1, None), ("b", 2, None), ("c", 300, "C"), ("d", 4, None)]
    batch = read(spark, daemon, "pages")
    assert dict(batch.dtypes)["depth"] == "smallint"
    history = fjord.spark.history(spark, daemon.url, "pages")
    assert history.columns == list(schema.COLUMNS)
    for frame in (batch, fjord.spark.typed(history, daemon.url, "pages")):
        assert frame.columns == [*schema.COLUMNS, *NEW]
        rows = [tuple(one) for one in frame.orderBy("seq").select("op", *NEW).collect()]
        assert [row[1:] for row in rows if row[0] == "ADD"] == expected
        assert [row[1:] for row in rows if row[0] != "ADD"] == [(None, None, None)] * 2
    with pytest.raises(FjordError, match="the frame has a column uri already; drop it first"):
        fjord.spark.typed(batch, daemon.url, "pages")
    with pytest.raises(FjordError, match="the frame has no column value, of which the declared"):
        fjord.spark.typed(history.drop("value"), daemon.url, "pages")
    database.kv("plain").set("a", 1)
    plain = fjord.spark.history(spark, daemon.url, "plain")
    assert fjord.spark.typed(plain, daemon.url, "plain") is plain


@pytest.mark.req("SJ-30")
def test_what_is_no_row_is_told_and_nothing_is_written(
    spark: SparkSession, daemon: Daemon, database: fjord.Database
) -> None:
    database.create_jobs("strict", columns=OLD, key="uri", period="hour")
    for select, told in (
        ("SELECT 1 AS depth", "the column uri is missing, and it is required"),
        ("SELECT 'a' AS uri, 1.5D AS depth", "the column depth is a double, and may be tinyint"),
        (
            "SELECT 'a' AS uri, 300 AS depth",
            "column depth is uint8 (a whole number from 0 to 255), not 300",
        ),
        ("SELECT nullif('a', 'a') AS uri", "column uri is required; in the row {'uri': None"),
    ):
        with pytest.raises(PySparkException, match=re.escape(told)):
            write(spark.sql(select), daemon, "strict")
    database.jobs("strict").push({"uri": "a"})
    copy = read(spark, daemon, "strict", columns="key,type,value", ops="ADD")
    database.create_jobs("strict", columns=NEW, key="uri", period="hour", change=True)
    with pytest.raises(PySparkException, match="columns of table strict are not those for which"):
        write(copy, daemon, "strict")
    assert database.jobs("strict").count().waiting == 1
