from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types

from fjord import jobs, streams
from fjord.declared import schema
from fjord.declared.rows import Rows
from fjord.declared.schema import TYPES, Schema
from fjord.errors import FjordError
from fjord.spark import declared_rows as fitting
from fjord.spark import mapping
from fjord.spark.declared import SPARK_TYPES
from fjord.spark.mapping import Target
from tests.unit.declared import test_rows as samples

PAGES = samples.PAGES
TRIPLES = tuple((one.name, one.type, one.required) for one in PAGES.columns)
JOBS = Target.of("jobs", jobs.Settings(columns=TRIPLES, key=("uri",)).encode())
LOG = Target.of("stream", streams.Settings(columns=TRIPLES).encode())
NAMES = {
    **{one.simpleString(): one for one in SPARK_TYPES.values()},
    "decimal(10,2)": types.DecimalType(10, 2),
    "void": types.NullType(),
    "timestamp_ntz": types.TimestampNTZType(),
}


def struct(text: str) -> types.StructType:
    parts = [part.rsplit(" ", 1) for part in text.split(", ")]
    return types.StructType([types.StructField(name, NAMES[type_]) for name, type_ in parts])


def column_of(values: list[Any], type_: str) -> pa.Array:
    """Returns values as Spark has them."""
    target = fitting.ARROW[type_]
    if pa.types.is_decimal(target):
        values = [None if value is None else Decimal(value) for value in values]
    elif pa.types.is_string(target):
        values = [None if value is None else str(value) for value in values]
    return pa.array(values, target)


def encoded(made: Schema, columns: dict[str, pa.Array], count: int) -> tuple[list[bytes], Any]:
    rows, keys = fitting.encode(made, columns, count)
    return rows.to_pylist(), None if keys is None else keys.to_pylist()


@pytest.mark.req("SJ-17", "SJ-30")
@given(samples.filled())
def test_any_rows_are_those_that_python_makes(sample: tuple[Schema, list[dict[str, Any]]]) -> None:
    made, listed = sample
    if not listed:
        return
    columns = {
        one.name: column_of([row[one.name] for row in listed], one.type) for one in made.columns
    }
    rows, keys = Rows(made).encode(listed)
    assert encoded(made, columns, len(listed)) == (rows, keys or None)


@pytest.mark.parametrize(
    ("type_", "values", "told"),
    [
        ("uint8", pa.array([1, 256]), r"c is uint8 \(a whole number from 0 to 255\), not 256"),
        (
            "uint64",
            pa.array([Decimal(-1)], pa.decimal128(20, 0)),
            r"to 18446744073709551615\), not",
        ),
        ("int128", pa.array(["1", "1_0"]), r"whole number of 128 bits\), not '1_0'"),
        ("uint256", pa.array(["-1"]), r"0 or larger\), not -1"),
        ("float32", pa.array([0.5, 1e300]), r"column c is float32 \(a number\), not 1e.300"),
        (
            "time_seconds",
            pa.array([2**60], fitting.ARROW["time_microseconds"]),
            "not '1152921504606846976 micro",
        ),
        ("string", pa.array(["a", None]), "column c is required; in the row {'c': None}"),
    ],
)
def test_a_value_that_cannot_be_is_told_with_its_row(type_: str, values: Any, told: str) -> None:
    made = schema.read({"c": (type_, True)})
    with pytest.raises(FjordError, match=told):
        fitting.encode(made, {"c": values}, len(values))


# -- plans ----------------------------------------------------------------------------------------


@pytest.mark.req("SJ-30")
@pytest.mark.parametrize(
    "text",
    [
        "uri string",
        "uri string, depth int, seen timestamp, body binary",
        "priority int, depth decimal(20,0), uri string, process_at timestamp, domain string",
        "key binary, type tinyint, value binary",
    ],
)
def test_declared_columns_are_planned(text: str) -> None:
    found = mapping.plan(JOBS, struct(text))
    assert ", ".join(found.names) == ", ".join(part.split()[0] for part in text.split(", "))


@pytest.mark.req("SJ-30")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("depth int", "uri is missing, and it is required. This table has the columns uri string"),
        ("uri binary", "uri is a binary, and may be string, since it is declared as string"),
        ("uri void", "uri is a void"),
        ("uri string, depth decimal(10,2)", "may be tinyint, smallint, int, bigint, decimal"),
        ("uri string, depth double", "depth is a double"),
        ("uri string, seen timestamp_ntz", "seen is a timestamp_ntz, and may be timestamp"),
        ("uri string, uri string", "uri occurs 2 times"),
        ("uri string, size int", "there is no column 'size': this table takes the columns uri, de"),
        ("uri string, key string", "there is no column 'key'"),
        ("uri string, priority string", "priority is a string, and may be tinyint"),
        ("key string, value string", "has declared columns, uri string .required., depth uint8"),
    ],
)
def test_what_is_not_declared_is_refused_before_anything_is_written(text: str, told: str) -> None:
    with pytest.raises(FjordError, match=told):
        mapping.plan(JOBS, struct(text))


def test_a_key_that_is_not_declared_is_said_apart() -> None:
    apart = Target.of("jobs", jobs.Settings(columns=TRIPLES).encode())
    with pytest.raises(FjordError, match="the column key is missing: no declared column is"):
        mapping.plan(apart, struct("uri string"))
    plan = mapping.plan(apart, struct("key string, uri string"))
    batch = pa.RecordBatch.from_arrays([pa.array(["k"]), pa.array(["a"])], names=["key", "uri"])
    assert plan.encode(batch)["key"].to_pylist() == [b"k"]
    assert mapping.plan(LOG, struct("uri string")).encode(batch.select(["uri"]))[
        "key"
    ].to_pylist() == [b""]


def test_rows_have_what_else_jobs_have() -> None:
    plan = mapping.plan(JOBS, struct("uri string, priority int"))
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["a", "b"]), pa.array([7, None], pa.int32())], names=["uri", "priority"]
    )
    rows, keys = Rows(PAGES).encode([{"uri": "a"}, {"uri": "b"}])
    found = plan.encode(batch)
    assert found["value"].to_pylist() == rows
    assert found["key"].to_pylist() == keys
    assert found["type"].to_pylist() == [6, 6]
    assert found["priority"].to_pylist() == [7, 100]
    with pytest.raises(FjordError, match="the key, of uri, has a null, or an empty key"):
        plan.encode(
            pa.RecordBatch.from_arrays(
                [pa.array([""]), pa.array([7], pa.int32())], names=["uri", "priority"]
            )
        )


def test_rows_of_history_are_written_as_they_are() -> None:
    plan = mapping.plan(JOBS, struct("key binary, type tinyint, value binary"))
    rows, keys = Rows(PAGES).encode([{"uri": "a"}])

    def batch(type_: int | None) -> pa.RecordBatch:
        columns = [pa.array(keys), pa.array([type_], pa.int8()), pa.array(rows)]
        return pa.RecordBatch.from_arrays(columns, names=["key", "type", "value"])

    assert plan.encode(batch(6))["value"].to_pylist() == rows
    for other in (1, None):
        with pytest.raises(FjordError, match="takes only rows of them, whose type is 6"):
            plan.encode(batch(other))


@given(st.lists(st.sampled_from(["a", "|", "%", "%7C"])).map("".join), st.text())
def test_keys_of_several_columns_tell_them_apart(first: str, second: str) -> None:
    made = schema.read([("a", "string", True), ("b", "string", True)], ["a", "b"])
    _, keys = Rows(made).encode([{"a": first, "b": second}])
    columns = {"a": pa.array([first]), "b": pa.array([second])}
    assert encoded(made, columns, 1)[1] == keys


@pytest.mark.parametrize("type_", [name for name in TYPES if "int" in name or name == "oid"])
@pytest.mark.parametrize(
    "given_type", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.decimal128(38, 0)]
)
def test_whole_numbers_may_be_of_any_size(type_: str, given_type: Any) -> None:
    made = schema.read({"n": type_})
    numbers = [1, None, 127]
    values = [one if one is None or pa.types.is_integer(given_type) else Decimal(one)
              for one in numbers]  # fmt: skip
    rows, _ = Rows(made).encode([{"n": one} for one in numbers])
    assert encoded(made, {"n": pa.array(values, given_type)}, 3) == (rows, None)


def test_moments_lose_what_their_unit_does_not_have() -> None:
    moments = [datetime(1969, 12, 31, 23, 59, 58, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)]
    made = schema.read({"at": ("time_seconds", True)}, "at")
    rows, keys = Rows(made).encode([{"at": one} for one in moments])
    assert encoded(made, {"at": pa.array(moments, fitting.ARROW["time_microseconds"])}, 2) == (
        rows,
        keys,
    )
