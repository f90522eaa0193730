"""The source without Spark: planning, reading, and what travels between the two."""

from __future__ import annotations

import pickle
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import fjord
import pyspark_fjord
from fjord.blocks import rows, schema
from fjord.errors import FjordError
from fjord.spark import options, source
from fjord.spark.options import Location
from fjord.spark.source import FjordReader, FjordSource, SeqRange
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


def test_finding_the_source_does_not_import_what_reading_needs() -> None:
    code = "import sys, pyspark_fjord; print({'pyarrow', 'lmdb', 'typer'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_a_partition_survives_pickling() -> None:
    partition = SeqRange(
        location=Location(path="data"), table="t", start_seq=3, end_seq=9, columns=("seq", "key")
    )
    assert pickle.loads(pickle.dumps(partition)) == partition


def test_a_reader_survives_pickling(directory: Path) -> None:
    found = pickle.loads(pickle.dumps(reader(directory)))
    assert len(seqs(found)) == 30


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


def test_a_range_has_its_start_and_not_its_end(directory: Path) -> None:
    every = seqs(reader(directory))
    found = reader(directory, startingSeq=str(every[4]), endingSeq=str(every[25]))
    assert seqs(found) == every[4:25]


def test_an_end_that_is_not_durable_yet_is_the_durable_end(directory: Path) -> None:
    assert seqs(reader(directory, endingSeq=str(10**9))) == seqs(reader(directory))


def test_the_end_of_everything_is_an_empty_range(directory: Path) -> None:
    end_seq = source.durable_end(options.parse({"path": str(directory), "table": "events"}))
    found = reader(directory, startingSeq=str(end_seq))
    assert len(found.partitions()) == 1
    assert seqs(found) == []


def test_rows_written_after_planning_are_not_read(directory: Path) -> None:
    found = reader(directory)
    partitions = list(found.partitions())
    with fjord.open(directory) as database:
        database.kv("events").set("late", 1)
    assert len(read(found, partitions)) == 30
    assert len(seqs(found)) == 31


def test_a_reader_that_is_left_early_closes_the_directory(directory: Path) -> None:
    found = reader(directory)
    partitions = found.partitions()
    batches = found.read(partitions[0])
    next(batches)
    del batches
    assert len(seqs(found)) == 30


def test_wanted_columns_are_read_in_their_order(directory: Path) -> None:
    found = reader(
        directory, columns=structs.struct({"key": "binary", "seq": "bigint"}), endingSeq="20"
    )
    assert list(read(found, list(found.partitions()))[0]) == ["key", "seq"]


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
        source.wanted_columns(wanted)


def test_a_missing_table_is_named(directory: Path) -> None:
    with pytest.raises(FjordError, match=f"no table 'tabel' in {directory}; check the option"):
        reader(directory, table="tabel").partitions()


def test_a_start_behind_the_end_is_refused(directory: Path) -> None:
    with pytest.raises(FjordError, match="startingSeq 999 lies behind the end"):
        reader(directory, startingSeq="999").partitions()


def test_other_refusals_are_passed_on(directory: Path) -> None:
    with pytest.raises(fjord.RefusedError, match="BAD_NAME"):
        reader(directory, table="no name").partitions()


@pytest.mark.parametrize(("start", "end", "count"), [(1, 1, 1), (1, 11, 3), (5, 1005, 32)])
def test_edges_are_even_and_meet(start: int, end: int, count: int) -> None:
    found = source.edges(start, end, count)
    lengths = [after - before for before, after in pairwise(found)]
    assert (found[0], found[-1], len(lengths)) == (start, end, count)
    assert max(lengths) - min(lengths) <= 1


def test_schema_is_what_spark_makes_of_the_columns() -> None:
    assert to_arrow_schema(structs.ALL, timezone="UTC") == rows.SCHEMA
