from __future__ import annotations

from typing import Any

import pytest

from fjord.declared import schema
from fjord.declared.schema import TYPES, Column, Schema


@pytest.mark.req("SJ-30")
def test_columns_are_given_in_several_ways() -> None:
    expected = Schema((Column("uri", "string", True), Column("depth", "uint8")), ("uri",))
    assert schema.read({"uri": ("string", True), "depth": "uint8"}, "uri") == expected
    assert schema.read([("uri", "string", True), ["depth", "uint8"]], ["uri"]) == expected
    assert schema.read(expected.columns, expected.key, 1) == expected
    assert expected.names == ["uri", "depth"]


@pytest.mark.req("SJ-30")
def test_all_promised_types_are_there() -> None:
    sizes = (8, 16, 32, 64, 128, 256, 512)
    integers = {f"{sign}int{size}" for sign in ("", "u") for size in sizes}
    times = {f"time_{unit}" for unit in ("seconds", "milliseconds", "microseconds")}
    others = {"string", "binary", "boolean", "float32", "float64", "oid"}
    assert set(TYPES) == integers | times | others


@pytest.mark.parametrize(
    ("columns", "key", "said"),
    [
        ({"1st": "string"}, (), "is not a column name"),
        ({"": "string"}, (), "is not a column name"),
        ({"Key": "string"}, (), "every table has a built-in column key"),
        ({"a": "text"}, (), "there is no type 'text'; there are boolean, int8"),
        ([("a",)], (), "a column is a name, a type and whether it is required"),
        ([("a", "string", 1)], (), "is true or false"),
        ([("a", "string"), ("A", "int8")], (), "there are two columns A"),
        ("a", (), "columns are a dict or a list"),
        ({f"c{at}": "int8" for at in range(257)}, (), "at most 256 columns, not 257"),
        ({"a": "string"}, "b", "the key has a column 'b', which is not declared"),
        ({"a": "string"}, [["a"]], "the key has a column .'a'., which is not declared"),
        ({"a": "string"}, "a", "so it must be required"),
        ({"a": ("float64", True)}, "a", "is a float64, which cannot be a key"),
        ({"a": ("string", True)}, ("a", "a"), "each once"),
        ({"a": ("string", True)}, 7, "a key is a list of columns"),
    ],
)
def test_what_is_no_schema_is_explained(columns: Any, key: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        schema.read(columns, key)


@pytest.mark.parametrize("number", [0, 65536, "1", True])
def test_number_is_checked(number: object) -> None:
    with pytest.raises(ValueError, match="the number of a schema is 1 to 65535"):
        schema.read({"a": "int8"}, (), number)
