"""Declared columns in the source, without Spark: schemas, batches, streams, current values."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructField, StructType

import fjord
from fjord.blocks import schema
from fjord.errors import FjordError
from fjord.spark.declared import SPARK_TYPES
from fjord.spark.source import ColdPartition, FjordSource
from tests.unit.spark import structs

OLD: dict[str, str | tuple[str, bool]] = {
    "uri": ("string", True),
    "depth": "uint8",
    "size": "int64",
}
NEW: dict[str, str | tuple[str, bool]] = {
    "uri": ("string", True),
    "depth": "int16",
    "title": "string",
}
ADDED = [
    {"uri": "a", "depth": 1, "title": None},
    {"uri": "b", "depth": 2, "title": None},
    {"uri": "c", "depth": None, "title": "C"},
]


def make(database: fjord.Database) -> None:
    database.create_jobs("pages", columns=OLD, key="uri", period="hour")


def change(database: fjord.Database) -> None:
    database.create_jobs("pages", columns=NEW, key="uri", period="hour", change=True)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Jobs of two generations, with other columns each; the older ones are in a block."""
    with fjord.open(tmp_path) as database:
        make(database)
        pages = database.jobs("pages")
        pages.push_many([{"uri": "a", "depth": 1, "size": 5}, {"uri": "b", "depth": 2}])
        database.seal("pages")
        change(database)
        pages.push({"uri": "c", "title": "C"})
        pages.next(count=1)
    return tmp_path


def struct(text: str) -> StructType:
    """Returns the schema that Spark makes of a text of the source."""
    types = {one.simpleString(): one for one in SPARK_TYPES.values()}
    pairs = [part.replace("`", "").split() for part in text.split(", ")]
    return StructType([StructField(name, types[type_]) for name, type_ in pairs])


def read(found: Any, partitions: list[InputPartition]) -> list[dict[str, Any]]:
    return [
        row
        for partition in partitions
        for batch in found.read(pickle.loads(pickle.dumps(partition)))
        for row in batch.to_pylist()
    ]


def frame(path: Path, table: str = "pages", **given: str) -> list[dict[str, Any]]:
    """Returns the rows that a frame would have."""
    source = FjordSource({"path": str(path), "table": table, **given})
    reader = pickle.loads(pickle.dumps(source.reader(struct(source.schema()))))
    return read(reader, list(reader.partitions()))


def typed(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in schema.COLUMNS}


@pytest.mark.req("SJ-17", "SJ-30")
def test_declared_columns_stand_behind_those_of_every_table(directory: Path) -> None:
    source = FjordSource({"path": str(directory), "table": "pages"})
    more = ", `uri` string, `depth` smallint, `title` string"
    assert source.schema() == schema.DDL + more
    assert FjordSource({**source.options, "columns": "typed"}).schema() == schema.DDL + more
    assert FjordSource({**source.options, "columns": "plain"}).schema() == schema.DDL


@pytest.mark.req("SJ-04", "SJ-30")
def test_rows_of_two_schemas_from_a_block_and_the_journal(directory: Path) -> None:
    found = frame(directory)
    assert [typed(row) for row in found if row["op"] == "ADD"] == ADDED
    (take,) = [row for row in found if row["op"] == "TAKE"]
    assert typed(take) == {"uri": None, "depth": None, "title": None}
    assert list(frame(directory, columns="plain")[0]) == list(schema.COLUMNS)
    reader = FjordSource({"path": str(directory), "table": "pages"}).reader(structs.ALL)
    assert isinstance(reader.partitions()[0], ColdPartition)


def test_columns_are_chosen_by_name_with_values_or_without(directory: Path) -> None:
    found = frame(directory, columns="title, op, uri", ops="ADD", keyPrefix="c")
    assert found == [{"title": "C", "op": "ADD", "uri": "c"}]
    assert frame(directory, columns="uri", endingSeq="6")[0] == {"uri": "a"}
    source = FjordSource({"path": str(directory), "table": "pages", "columns": "uri,nothing"})
    with pytest.raises(FjordError, match=r"'nothing' does not exist; .*value, uri, depth, title$"):
        source.schema()
    with pytest.raises(FjordError, match=r"no column `depth` string; .*, `depth` smallint"):
        source.reader(struct("depth string"))


@pytest.mark.req("SJ-17", "SJ-30")
def test_the_latest_messages_have_declared_columns(tmp_path: Path) -> None:
    columns: dict[str, str | tuple[str, bool]] = {"who": ("string", True), "city": "string"}
    with fjord.open(tmp_path) as database:
        people = database.create_stream("people", mode="latest", columns=columns, key="who")
        people.append({"who": "7", "city": "Oslo"})
        people.append({"who": "8"})
        people.append({"who": "7", "city": "Rome"})
    found = frame(tmp_path, "people", view="latest")
    assert sorted((row["who"], row["city"]) for row in found) == [("7", "Rome"), ("8", None)]
