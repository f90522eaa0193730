"""The source without Spark: planning, reading, and what travels between the two."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import fjord
import pyspark_fjord
from fjord.blocks import rows, schema
from fjord.errors import FjordError
from fjord.spark import source
from fjord.spark.source import ColdPartition, FjordReader, FjordSource, TailPartition
from tests.unit.spark import structs


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory whose table `events` has 30 rows in 3 ops, with another table between them."""
    with fjord.open(tmp_path) as database:
        for number in range(3):
            database.kv("other").set("k", number)
            database.kv("events").set_many({f"{number}-{row}": row for row in range(10)})
    return tmp_path


def reader(directory: Path, *, columns: StructType = structs.ALL, **given: str) -> FjordReader:
    found = FjordSource({"path": str(directory), "table": "events", **given})
    return found.reader(columns)


def read(found: FjordReader, partitions: list[InputPartition]) -> list[dict[str, Any]]:
    return [
        row
        for partition in partitions
        for batch in found.read(pickle.loads(pickle.dumps(partition)))
        for row in batch.to_pylist()
    ]


def seqs(found: FjordReader) -> list[int]:
    return [row["seq"] for row in read(found, list(found.partitions()))]


def test_the_module_that_spark_looks_for_has_the_source() -> None:
    assert pyspark_fjord.DefaultSource is FjordSource
    assert FjordSource.name() == "fjord"
    assert FjordSource({}).schema() == schema.DDL
    assert FjordSource({"Columns": "key,seq"}).schema() == "`key` binary, `seq` bigint"


def test_finding_the_source_does_not_import_what_reading_needs() -> None:
    code = "import sys, pyspark_fjord; print({'pyarrow', 'lmdb', 'typer'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_filters_are_left_to_spark() -> None:
    assert FjordReader.pushFilters is DataSourceReader.pushFilters


@pytest.mark.parametrize("count", [1, 2, 7, 29, 1000])
def test_partitions_cover_every_row_once(directory: Path, count: int) -> None:
    everything = read(reader(directory), list(reader(directory).partitions()))
    found = reader(directory, partitions=str(count))
    partitions = list(found.partitions())
    assert len(partitions) == min(count, 36)  # seqs, of which some are not of this table
    assert read(found, partitions) == everything
    assert [row["key"] for row in everything] == [
        b"%d-%d" % (number, row) for number in range(3) for row in range(10)
    ]


def test_the_end_of_everything_is_an_empty_range(directory: Path) -> None:
    with fjord.open(directory, read_only=True) as database:
        end_seq = database.span("events").durable_seq + 1
    found = reader(directory, startingSeq=str(end_seq))
    assert found.partitions() == []
    assert list(found.read(InputPartition(None))) == []  # which Spark makes of no partition


def test_rows_written_after_planning_are_not_read(directory: Path) -> None:
    found = reader(directory)
    partitions = list(found.partitions())
    with fjord.open(directory) as database:
        database.kv("events").set("late", 1)
    assert len(read(found, partitions)) == 30
    assert len(seqs(found)) == 31


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        (structs.struct({"nothing": "bigint"}), "`nothing` bigint"),
        (structs.struct({"key": "string"}), "`key` string"),
        (structs.struct({"seq": "bigint"}, nullable=False), "`seq` bigint NOT NULL"),
    ],
)
def test_a_column_that_does_not_exist_is_named(wanted: StructType, named: str) -> None:
    with pytest.raises(FjordError, match=f"no column {named}; a schema is some of: `seq` bigint"):
        source.check_columns(wanted)


def test_a_missing_table_is_named(directory: Path) -> None:
    with pytest.raises(FjordError, match=f"no table 'tabel' in {directory}; check the option"):
        reader(directory, table="tabel").partitions()


def test_a_start_behind_the_end_is_refused(directory: Path) -> None:
    with pytest.raises(FjordError, match="startingSeq 999 is beyond the end"):
        reader(directory, startingSeq="999").partitions()


def test_schema_is_what_spark_makes_of_the_columns() -> None:
    assert to_arrow_schema(structs.ALL, timezone="UTC") == rows.SCHEMA


# -- cold and warm --------------------------------------------------------------------------------


def test_blocks_are_read_from_storage_and_only_the_rest_from_the_journal(mixed: Path) -> None:
    found = reader(mixed)
    cold, tail = found.partitions()
    assert isinstance(cold, ColdPartition)
    assert isinstance(tail, TailPartition)
    assert [share.block.rows for share in cold.shares] == [100, 100, 100]
    assert tail.start_seq == cold.shares[-1].block.last + 1
    assert len(read(found, [cold])) == 300
    assert len(read(found, [tail])) == 50
    with fjord.open(mixed, read_only=True) as database:
        whole = [row for table in database.scan_arrow("events") for row in table.to_pylist()]
    assert read(found, [cold, tail]) == whole


def test_ranges_by_seq_and_by_time_over_the_edge_of_blocks(mixed: Path) -> None:
    every = seqs(reader(mixed))
    for start, end in ((0, 349), (95, 105), (295, 305), (299, 301), (10, 11)):
        found = reader(mixed, startingOffsets=str(every[start]), endingOffsets=str(every[end]))
        assert seqs(found) == every[start:end]
    rows_ = read(reader(mixed), list(reader(mixed).partitions()))
    moment = rows_[120]["ts"]
    before = [row["seq"] for row in rows_ if row["ts"] < moment]
    assert seqs(reader(mixed, endingTimestamp=moment.isoformat())) == before
    assert seqs(reader(mixed, startingTimestamp=moment.isoformat())) == every[len(before) :]
    assert seqs(reader(mixed, startingOffsets="latest")) == []


def test_the_latest_value_of_each_key(mixed: Path) -> None:
    given = {"path": str(mixed), "view": "latest"}
    profiles = FjordSource({**given, "table": "profiles"}).reader(structs.ALL)
    found = read(profiles, list(profiles.partitions()))
    assert [(row["op"], row["key"], row["value"], row["type"]) for row in found] == [
        ("SET", b"9", b"Bonn", 1),
        ("SET", b"7", b"Bergen", 1),
    ]
    assert all(row["seq"] == row["row"] > 0 for row in found)
    other = FjordSource({**given, "table": "other"}).reader(structs.ALL)
    (row,) = read(other, list(other.partitions()))
    assert (row["op"], row["key"], row["type"], row["seq"]) == ("SET", b"k", 3, None)
    assert row["value"] == (34).to_bytes(8, "little")
    with pytest.raises(
        FjordError, match=r"view=latest is for key/value tables.*events is a stream"
    ):
        FjordSource({**given, "table": "events"}).reader(structs.ALL).partitions()


def test_an_end_that_is_not_durable_yet_is_the_durable_end(directory: Path) -> None:
    assert seqs(reader(directory, endingSeq=str(10**9))) == seqs(reader(directory))
