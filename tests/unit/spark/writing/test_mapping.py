"""Rows of Spark as rows of a table: every type, nulls, and what is refused."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from fjord import jobs, limits, streams
from fjord.errors import FjordError
from fjord.spark import mapping
from fjord.spark.mapping import Columns, Target

LOG = Target.of("stream")
LATEST = Target.of("stream", streams.Settings(mode=streams.Mode.LATEST).encode())
JOBS = Target.of("jobs")
QUEUE = Target.of("jobs", jobs.Settings(merge=False).encode())
KV = Target.of("kv")
ONE = struct.pack("<q", 1)
PLAIN = (
    "Binary Boolean Byte Date Double Float Integer Long Null Short String Timestamp TimestampNTZ"
)
TYPES: dict[str, types.DataType] = {
    **{one.simpleString(): one for one in (getattr(types, f"{n}Type")() for n in PLAIN.split())},
    "array": types.ArrayType(types.IntegerType()),
    "collated": types.StringType("UTF8_LCASE"),
    "decimal": types.DecimalType(10, 2),
    "map": types.MapType(types.StringType(), types.IntegerType()),
    "struct": StructType([StructField("a", types.IntegerType())]),
}


def schema_of(ddl: str) -> StructType:
    """Returns a schema; Spark's own reader of such texts needs a session."""
    pairs = [column.split() for column in ddl.split(", ")]
    return StructType([StructField(name, TYPES[type_]) for name, type_ in pairs])


def planned(target: Target, ddl: str) -> Columns:
    return mapping.plan(target, schema_of(ddl))


def batch_of(ddl: str, **columns: list[Any]) -> pa.RecordBatch:
    """Returns rows as Spark hands them over."""
    return pa.record_batch(columns, schema=to_arrow_schema(schema_of(ddl), timezone="UTC"))


def encoded(target: Target, ddl: str, **columns: list[Any]) -> dict[str, list[Any]]:
    found = planned(target, ddl).encode(batch_of(ddl, **columns))
    assert all(not column.null_count for column in found.columns)
    return dict(found.to_pydict())


# -- targets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "needed", "rows_max"),
    [
        pytest.param(LOG, ("value",), limits.BATCH_ROWS_MAX, id="log"),
        pytest.param(LATEST, ("key", "value"), limits.SLICE_ROWS_MAX, id="latest"),
        pytest.param(JOBS, ("key",), limits.SLICE_ROWS_MAX, id="jobs"),
        pytest.param(QUEUE, (), limits.SLICE_ROWS_MAX, id="jobs without merge"),
        pytest.param(KV, ("key", "value"), limits.SLICE_ROWS_MAX, id="kv"),
    ],
)
def test_a_table_says_what_it_needs(target: Target, needed: tuple[str, ...], rows_max: int) -> None:
    assert (target.needed, target.rows_max) == (needed, rows_max)


# -- schemas --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "ddl", "told"),
    [
        pytest.param(LOG, "value binary, colour string", "no column 'colour'", id="unknown"),
        pytest.param(LOG, "Value binary", "no column 'Value'", id="case"),
        pytest.param(LOG, "value binary, priority int", "no column 'priority'", id="stream"),
        pytest.param(KV, "key string, value int, expires_at timestamp", "'expires_at'", id="kv"),
        pytest.param(LOG, "key binary", "column value is missing", id="no value"),
        pytest.param(LATEST, "value binary", "column key is missing", id="latest without key"),
        pytest.param(JOBS, "value binary", "column key is missing", id="job without key"),
        pytest.param(KV, "value binary", "column key is missing", id="kv without key"),
        pytest.param(KV, "key binary", "column value is missing", id="kv without value"),
        pytest.param(LOG, "value decimal", r"value is a decimal\(10,2\)", id="decimal"),
        pytest.param(LOG, "value date", "value is a date", id="date"),
        pytest.param(LOG, "value timestamp", "value is a timestamp", id="timestamp"),
        pytest.param(LOG, "value array", "value is a array<int>", id="array"),
        pytest.param(LOG, "value struct", "value is a struct<a:int>", id="struct"),
        pytest.param(LOG, "value map", "value is a map<string,int>", id="map"),
        pytest.param(LOG, "value void", "value is a void", id="void"),
        pytest.param(LOG, "value binary, key int", "key is a int", id="number as key"),
        pytest.param(JOBS, "key string, priority string", "priority is a string", id="priority"),
        pytest.param(JOBS, "key string, priority double", "priority is a double", id="fraction"),
        pytest.param(
            JOBS, "key string, process_at timestamp_ntz", "process_at is a timestamp_ntz", id="ntz"
        ),
        pytest.param(JOBS, "key string, expires_at bigint", "expires_at is a bigint", id="expiry"),
        pytest.param(JOBS, "key string, delay timestamp", "delay is a timestamp", id="delay"),
        pytest.param(JOBS, "key string, domain int", "domain is a int", id="domain"),
        pytest.param(LOG, "value string, type tinyint", "value that is binary", id="type of text"),
        pytest.param(LOG, "value binary, type int", "type is a int", id="wide type"),
        pytest.param(JOBS, "key string, type tinyint", "value that is binary", id="type of none"),
        pytest.param(
            JOBS,
            "key string, delay int, process_at timestamp",
            "either delay or process_at",
            id="two dates",
        ),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(target: Target, ddl: str, told: str) -> None:
    with pytest.raises(FjordError, match=told):
        planned(target, ddl)


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "given", "number", "data"),
    [
        ("binary", b"\0\xff", 1, b"\0\xff"),
        ("string", "é", 2, b"\xc3\xa9"),
        ("collated", "é", 2, b"\xc3\xa9"),
        ("tinyint", -1, 3, b"\xff" * 8),
        ("smallint", 1, 3, ONE),
        ("int", 1, 3, ONE),
        ("bigint", -(2**63), 3, b"\0" * 7 + b"\x80"),
        ("float", 0.5, 4, struct.pack("<d", 0.5)),
        ("double", 0.1, 4, struct.pack("<d", 0.1)),
        ("boolean", True, 5, b"\1"),
        ("boolean", False, 5, b"\0"),
    ],
)
@pytest.mark.parametrize("target", [LOG, KV, JOBS], ids=lambda target: target.kind)
def test_each_type_has_its_number_and_bytes(
    target: Target, type_: str, given: object, number: int, data: bytes
) -> None:
    rows: dict[str, list[Any]] = {"key": ["a", "b", "c"], "value": [given, None, given]}
    found = encoded(target, f"key string, value {type_}", **rows)
    assert found["key"] == [b"a", b"b", b"c"]
    assert (found["type"], found["value"]) == ([number, 0, number], [data, b"", data])
    whole = encoded(target, f"value {type_}, key string", value=[given] * 2, key=["a", "b"])
    assert (whole["type"], whole["value"]) == ([number] * 2, [data] * 2)


def test_a_type_comes_with_the_bytes_of_history() -> None:
    rows: dict[str, list[Any]] = {
        "type": [0, 0, 1, 2, 3, 5],
        "value": [b"", None, b"", b"a", ONE, b"\1"],
    }
    found = encoded(LOG, "type tinyint, value binary", **rows)
    assert found["type"] == rows["type"]
    assert found["value"] == [b"", b"", b"", b"a", ONE, b"\1"]
    assert found["key"] == [b""] * 6


@pytest.mark.parametrize(
    ("type_", "value", "told"),
    [
        pytest.param(None, b"a", "type has a null", id="null"),
        pytest.param(None, None, "type has a null", id="a deletion"),
        pytest.param(6, b"a", "a row of declared columns, and this table has none", id="a row"),
        pytest.param(7, b"a", "outside of 0 to 5", id="too large"),
        pytest.param(-1, b"a", "outside of 0 to 5", id="negative"),
        pytest.param(2, None, "value has a null where", id="no value"),
    ],
)
def test_a_type_that_cannot_be_is_refused(
    type_: int | None, value: bytes | None, told: str
) -> None:
    with pytest.raises(FjordError, match=told):
        encoded(LOG, "type tinyint, value binary", type=[1, type_], value=[b"a", value])


# -- keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", ["string", "binary"])
def test_a_log_and_a_queue_take_rows_without_key(type_: str) -> None:
    key: list[Any] = [None, "" if type_ == "string" else b"", "a" if type_ == "string" else b"a"]
    for target in (LOG, QUEUE):
        found = encoded(target, f"key {type_}, value int", key=key, value=[1, 1, 1])
        assert found["key"] == [b"", b"", b"a"]


@pytest.mark.parametrize("key", [None, ""])
@pytest.mark.parametrize("target", [LATEST, JOBS, KV], ids=["latest", "jobs", "kv"])
def test_others_refuse_rows_without_key(target: Target, key: str | None) -> None:
    with pytest.raises(FjordError, match="key has a null, or an empty key"):
        encoded(target, "key string, value int", key=["a", key], value=[1, 2])


# -- jobs -----------------------------------------------------------------------------------------

MOMENT = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
MOMENT_US = 1_893_553_445_678_901


def test_a_job_is_its_key() -> None:
    assert encoded(JOBS, "key string", key=["a", "b"]) == {
        "key": [b"a", b"b"],
        "type": [0, 0],
        "value": [b"", b""],
        "domain": [b"", b""],
        "priority": [100, 100],
        "process_at": [0, 0],
        "expires_at": [0, 0],
        "inserted_at": [0, 0],
    }


def test_jobs_have_dates_domains_and_priorities() -> None:
    found = encoded(
        JOBS,
        "key binary, priority int, process_at timestamp, expires_at timestamp, "
        "inserted_at timestamp, domain string",
        key=[b"a", b"b", b"c"],
        priority=[0, 255, None],
        process_at=[MOMENT, None, MOMENT],
        expires_at=[None, MOMENT, MOMENT],
        inserted_at=[MOMENT, MOMENT, None],
        domain=["example.com", None, ""],
    )
    assert found["priority"] == [0, 255, 100]
    assert found["process_at"] == [MOMENT_US, 0, MOMENT_US]
    assert found["expires_at"] == [0, MOMENT_US, MOMENT_US]
    assert found["inserted_at"] == [MOMENT_US, MOMENT_US, 0]
    assert found["domain"] == [b"example.com", b"", b""]


@pytest.mark.parametrize(
    ("type_", "given", "found_us"),
    [
        ("int", 5, 5_000_000),
        ("bigint", 31_622_400, 31_622_400_000_000),
        ("double", 0.25, 250_000),
        ("float", 0.5, 500_000),
        ("decimal", Decimal("1.25"), 1_250_000),
    ],
)
def test_a_delay_is_seconds(type_: str, given: object, found_us: int) -> None:
    ddl = f"key string, delay {type_}"
    found = encoded(JOBS, ddl, key=["a", "b"], delay=[given, None])
    assert found["process_at"] == [found_us, 0]
    assert planned(JOBS, ddl).is_relative
    assert not planned(JOBS, "key string, process_at timestamp").is_relative


@pytest.mark.parametrize(
    ("column", "type_", "given", "told"),
    [
        ("priority", "int", 256, "priority must have numbers from 0 to 255"),
        ("priority", "smallint", -1, "priority must have numbers from 0 to 255"),
        ("delay", "int", -1, "delay has a negative number"),
        ("delay", "double", float("nan"), "delay must have seconds"),
        ("delay", "double", float("inf"), "delay must have seconds"),
        ("process_at", "timestamp", datetime(1969, 1, 1, tzinfo=UTC), "process_at has a date"),
        ("expires_at", "timestamp", datetime(1970, 1, 1, tzinfo=UTC), "expires_at has a date"),
    ],
)
def test_what_no_job_can_have_is_refused(column: str, type_: str, given: object, told: str) -> None:
    with pytest.raises(FjordError, match=told):
        encoded(JOBS, f"key string, {column} {type_}", key=["a", "b"], **{column: [None, given]})


def test_large_columns_of_arrow_are_taken_too() -> None:
    large = pa.record_batch({"key": pa.array(["a"], pa.large_string()), "value": pa.array([b"b"])})
    found = planned(KV, "key string, value binary").encode(large)
    assert found.to_pydict() == {"key": [b"a"], "type": [1], "value": [b"b"]}
    assert found.schema.field("key").type == pa.binary()
