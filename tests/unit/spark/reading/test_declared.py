from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type

from fjord.columns import Strings
from fjord.declared import schema
from fjord.declared.rows import Rows
from fjord.declared.schema import TYPES, Column, Schema
from fjord.errors import FjordError
from fjord.spark import declared_rows
from fjord.spark.declared import SPARK_TYPES
from fjord.spark.options import Typed
from tests.unit.declared import test_rows as samples

ROW = 6
PAGES = samples.PAGES


def batch_of(values: list[bytes | None], types: list[int | None] | None = None) -> pa.RecordBatch:
    types = [ROW] * len(values) if types is None else types
    columns = [
        pa.array(range(10, 10 + len(values)), pa.int64()),
        pa.array(types, pa.int8()),
        pa.array(values, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["seq", "type", "value"])


def decoded(batch: pa.RecordBatch, made: Schema, *others: Schema) -> list[dict[str, Any]]:
    """Returns the rows of a batch with the columns of the first schema."""
    typed = Typed(made.columns, (made, *others))
    found = declared_rows.with_declared(batch, typed, "pages").drop_columns(batch.schema.names)
    found.validate(full=True)
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def as_spark(value: Any, type_: str) -> Any:
    """Returns what Spark has in the place of a value."""
    if value is None:
        return None
    if type_ in ("uint64", "oid"):
        return Decimal(value)
    return str(value) if declared_rows.ARROW[type_] == pa.string() else value


def same(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return left == right and type(left) is type(right)


def test_every_type_has_one_of_spark_and_the_same_of_arrow() -> None:
    assert SPARK_TYPES.keys() == declared_rows.ARROW.keys() == TYPES.keys()
    for name, spark in SPARK_TYPES.items():
        assert to_arrow_type(spark, timezone="UTC") == declared_rows.ARROW[name], name


@pytest.mark.req("SJ-17", "SJ-30")
@given(samples.filled(), st.integers(0, 3))
def test_any_rows_are_what_python_reads(
    sample: tuple[Schema, list[dict[str, Any]]], skipped: int
) -> None:
    made, listed = sample
    encoded, _ = Rows(made).encode(listed)
    expected = Rows(made).decode(encoded)[skipped:]
    found = decoded(batch_of([*encoded]).slice(skipped), made)
    assert len(found) == len(expected)
    for before, after in zip(expected, found, strict=True):
        for column in made.columns:
            value = as_spark(before[column.name], column.type)
            assert same(value, after[column.name]), column


@given(samples.filled(), st.binary(max_size=80), st.integers(0, 80), st.data())
def test_whatever_bytes_are_read_alike_or_refused_with_their_seq(
    sample: tuple[Schema, list[dict[str, Any]]], garbage: bytes, at: int, data: st.DataObject
) -> None:
    made, listed = sample
    encoded, _ = Rows(made).encode(listed)
    place = data.draw(st.integers(0, len(encoded)))
    fine = encoded[place] if place < len(encoded) else b""
    mixed = [*encoded[:place], fine[:at] + garbage + fine[at + len(garbage) :], *encoded[place:]]
    if Rows(made).problem(Strings.of(mixed)) is None:
        assert len(decoded(batch_of([*mixed]), made)) == len(mixed)
    else:
        with pytest.raises(FjordError, match=f"the row with seq {10 + place} of table pages"):
            decoded(batch_of([*mixed]), made)


def test_what_is_no_row_has_nulls() -> None:
    rows, _ = Rows(PAGES).encode([{"uri": "a", "depth": 1}, {"uri": "b", "body": b"x"}])
    nothing = dict.fromkeys(PAGES.names)
    found = decoded(batch_of([rows[0], None, b"why", rows[1], b""], [ROW, None, 2, ROW, 0]), PAGES)
    first, last = {**nothing, "uri": "a", "depth": 1}, {**nothing, "uri": "b", "body": b"x"}
    assert found == [first, nothing, nothing, last, nothing]
    assert decoded(batch_of([None, b""], [None, 0]), PAGES) == [nothing, nothing]
    assert decoded(batch_of([]), PAGES) == []
    assert decoded(batch_of([None], [ROW]), PAGES) == [nothing]


@pytest.mark.req("SJ-04", "SJ-30")
def test_rows_of_several_schemas_are_in_order_with_the_columns_of_one() -> None:
    old = schema.read({"uri": "string", "depth": "uint8", "gone": "int8"}, (), 1)
    new = schema.read({"depth": "int32", "uri": ("string", True), "more": "float64"}, (), 2)
    (first, third), _ = Rows(old).encode([{"uri": "a", "depth": 1, "gone": 1}, {"depth": 3}])
    (second, fourth), _ = Rows(new).encode([{"uri": "b", "more": 0.5}, {"uri": "d", "depth": -4}])
    batch = batch_of([first, second, b"", third, fourth], [ROW, ROW, 1, ROW, ROW])
    assert decoded(batch, new, old) == [
        {"depth": 1, "uri": "a", "more": None},
        {"depth": None, "uri": "b", "more": 0.5},
        {"depth": None, "uri": None, "more": None},
        {"depth": 3, "uri": None, "more": None},
        {"depth": -4, "uri": "d", "more": None},
    ]
    with pytest.raises(FjordError, match=r"seq 10 of table pages .* it has schema 1, and only 2 "):
        decoded(batch, new)


# -- another type ---------------------------------------------------------------------------------


def fits(value: Any, was: str, now: str) -> Any:
    """Returns what a value becomes, or None."""
    if "int" in was.replace("oid", "int") and "int" in now.replace("oid", "int"):
        low, high = declared_rows.bounds(now)
        return value if low <= value <= high else None
    if was == now or (was.startswith("time") and now.startswith("time")):
        return value
    return value.encode() if (was, now) == ("string", "binary") else None


@pytest.mark.req("SJ-04", "SJ-30")
@given(st.sampled_from(sorted(TYPES)), st.sampled_from(sorted(TYPES)), st.data())
def test_a_column_of_another_type_has_what_fits(was: str, now: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | samples.values_of(was), max_size=3))
    old, new = schema.read({"c": was}, (), 1), Schema((Column("c", now),), (), 2)
    encoded, _ = Rows(old).encode([{"c": value} for value in values])
    found = [row["c"] for row in decoded(batch_of([*encoded]), new, old)]
    if now.startswith("float") and was not in ("boolean", "string", "binary") and "time" not in was:
        assert [one is None for one in found] == [one is None for one in values]
        expected = pa.array(map(_float, values), pa.float64()).cast(
            declared_rows.ARROW[now], safe=False
        )
        assert all(map(same, found, expected.to_pylist()))
        return
    expected = [None if one is None else as_spark(fits(one, was, now), now) for one in values]
    assert all(map(same, found, expected)), (found, expected)


def _float(value: Any) -> float | None:
    return None if value is None else float(value)
