from __future__ import annotations

import math
import struct
from collections import defaultdict
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.columns import Strings
from fjord.declared import rows, schema
from fjord.declared.rows import Rows
from fjord.declared.schema import TYPES, Column, Schema
from fjord.errors import LocalProtocolError, RemoteProtocolError

PAGES = schema.read(
    {"uri": ("string", True), "depth": "uint8", "seen": "time_milliseconds", "body": "binary"},
    "uri",
)
MOMENT = datetime(2026, 11, 16, 12, 30, 1, 250_000, tzinfo=UTC)


def test_row_is_what_the_page_says() -> None:
    row = {"uri": "ab", "depth": 3, "seen": None, "body": b"xyz"}
    (found,), keys = Rows(PAGES).encode([row])
    assert found == b"".join(
        [
            (1).to_bytes(2, "little"),  # schema
            b"\x04",  # the third column has no value
            b"\x03",
            bytes(8),
            (2).to_bytes(4, "little"),
            (5).to_bytes(4, "little"),
            b"abxyz",
        ]
    )
    assert keys == [b"ab"]
    assert Rows(PAGES).decode([found]) == [row]
    assert rows.number_of(found) == 1
    assert rows.number_of(b"\x01") == 0


def test_columns_give_the_same_rows() -> None:
    listed = [{"uri": f"u{at}", "depth": at} for at in range(3)]
    columns: dict[str, list[Any]] = {"uri": ["u0", "u1", "u2"], "depth": [0, 1, 2]}
    assert Rows(PAGES).encode_columns(columns) == Rows(PAGES).encode(listed)
    assert Rows(PAGES).encode([]) == ([], [])
    free = Rows(schema.read({"a": "int8", "b": "string"}))
    assert free.decode(free.encode([{}, {}])[0]) == [{"a": None, "b": None}] * 2
    with pytest.raises(LocalProtocolError, match="columns have 1 and 2 values"):
        Rows(PAGES).encode_columns({"uri": ["a"], "depth": [1, 2]})


def test_dicts_are_columns_whatever_they_are() -> None:
    whole: list[Any] = [{"a": 1, "b": 2}, {"b": 4, "a": 3}]
    assert rows.as_columns(whole) == {"a": [1, 3], "b": [2, 4]}
    assert rows.as_columns([*whole, {"a": 5, "c": 6}]) == {
        "a": [1, 3, 5],
        "b": [2, 4, None],
        "c": [None, None, 6],
    }
    assert rows.as_columns([{"a": 1}, {"a": 2, "b": 3}]) == {"a": [1, 2], "b": [None, 3]}
    # One that makes up what it does not have is asked for nothing.
    generous = defaultdict(int, {"a": 1, "c": 2})
    assert rows.as_columns([whole[0], generous]) == {"a": [1, 1], "b": [2, None], "c": [None, 2]}
    assert "b" not in generous
    assert rows.as_columns([]) == {}


def test_columns_are_read_one_by_one() -> None:
    made = Rows(PAGES)
    listed = [
        {"uri": f"u{at}", "depth": at, "seen": MOMENT, "body": None if at % 2 else b"x"}
        for at in range(10)
    ]
    encoded, _ = made.encode(listed)
    heads = made.heads(Strings.of(encoded))
    for name in PAGES.names:
        found = made.decode_column(heads, made.place_of(name))
        assert list(found) == [row[name] for row in listed]
    with pytest.raises(LocalProtocolError, match="no column 'url'; there are uri, depth, seen"):
        made.place_of("url")
    with pytest.raises(RemoteProtocolError, match="too short"):
        made.heads(Strings.of([*encoded, b""]))
    with pytest.raises(RemoteProtocolError, match="schema 2"):
        made.heads(Strings.of([*encoded, b"\x02" + encoded[0][1:]]))
    late = encoded[0][:4] + struct.pack("<q", 2**62) + encoded[0][12:]
    with pytest.raises(RemoteProtocolError, match="column seen of a row"):
        made.decode_column(made.heads(Strings.of([late])), 2)


def test_moments_lose_what_their_unit_does_not_have() -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    row = {"uri": "a", "seen": (MOMENT + timedelta(microseconds=999)).astimezone(east)}
    (found,), _ = Rows(PAGES).encode([row])
    assert Rows(PAGES).decode([found])[0]["seen"] == MOMENT


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({}, "row 2 of 2: column uri is required"),
        ({"uri": None}, "column uri is required"),
        ({"uri": b"a"}, r"row 2 of 2: column uri is string \(text\), not b'a', bytes"),
        ({"uri": 1}, r"column uri is string \(text\), not 1, a whole number"),
        ({"uri": True}, r"column uri is string \(text\), not true, a boolean"),
        ({"uri": ["a"]}, r"column uri is string \(text\), not \['a'\], a value of type list"),
        ({"uri": "\ud800"}, r"column uri is string \(text\), not '.ud800'$"),
        (
            {"uri": "a", "depth": 256},
            r"row 2 of 2: column depth is uint8 \(a whole number from 0 to",
        ),
        ({"uri": "a", "depth": -1}, r"depth is uint8 \(a whole number from 0 to 255\), not -1$"),
        ({"uri": "a", "depth": True}, r"depth is uint8 \(.*\), not true, a boolean"),
        ({"uri": "a", "depth": 1.0}, r"depth is uint8 \(.*\), not 1.0, a float"),
        (
            {"uri": "a", "seen": 5},
            r"column seen is time_milliseconds \(a datetime with a time zone",
        ),
        ({"uri": "a", "seen": datetime(2026, 1, 1)}, "a datetime with a time zone"),  # noqa: DTZ001
        ({"uri": "a", "body": "text"}, r"column body is binary \(bytes\), not 'text', text"),
        ({"uri": "a", "size": 1}, "there is no column 'size'; there are uri, depth, seen, body"),
    ],
)
def test_row_that_is_none_is_refused_with_its_place(row: dict[str, Any], said: str) -> None:
    with pytest.raises(LocalProtocolError, match=said):
        Rows(PAGES).encode([{"uri": "fine"}, row])


@pytest.mark.parametrize(("type_", "largest"), [("uint128", 2**128 - 1), ("int256", 2**255 - 1)])
def test_large_numbers_have_bounds(type_: str, largest: int) -> None:
    made = Rows(schema.read({"n": type_}))
    encoded, _ = made.encode([{"n": largest}])
    assert made.decode(encoded) == [{"n": largest}]
    with pytest.raises(LocalProtocolError, match="a whole number of"):
        made.encode([{"n": largest + 1}])


def test_float_that_does_not_fit_is_refused() -> None:
    made = Rows(schema.read({"x": "float32"}))
    with pytest.raises(LocalProtocolError, match=r"column x is float32 \(a number\), not 1e"):
        made.encode([{"x": 1e300}])


def test_keys_tell_values_apart() -> None:
    both = schema.read([("a", "string", True), ("b", "string", True)], ["a", "b"])
    pairs = [("a|b", "c"), ("a", "b|c"), ("a%7Cb", "c"), ("a", "b%7Cc"), ("", "a"), ("a", "")]
    _, keys = Rows(both).encode([{"a": a, "b": b} for a, b in pairs])
    assert len(set(keys)) == len(pairs)
    assert keys[0] == b"a%7Cb|c"


def test_keys_of_numbers_are_text() -> None:
    made = schema.read(
        [("n", "int64", True), ("ok", "boolean", True), ("at", "time_seconds", True)],
        ["n", "ok", "at"],
    )
    _, keys = Rows(made).encode([{"n": -5, "ok": True, "at": MOMENT}])
    assert keys == [b"-5|true|1794832201"]


def test_rows_of_others_are_refused() -> None:
    made = Rows(PAGES)
    (fine,), _ = made.encode([{"uri": "ab", "body": b"xyz"}])
    assert made.problem(Strings.of([fine])) is None
    wrong = {
        "too short": fine[:5],
        "schema 2": b"\x02" + fine[1:],
        "more columns": fine[:2] + b"\x14" + fine[3:],
        "required": fine[:2] + b"\x07" + fine[3:],
        "another length": fine + b"x",
        "before it begins": fine[:12] + struct.pack("<II", 9, 5) + fine[20:],
        "not UTF-8": fine[:20] + b"\xff" + fine[21:],
        "years 1 to 9999": fine[:2] + b"\0" + fine[3:4] + struct.pack("<q", 2**62) + fine[12:],
    }
    for said, row in wrong.items():
        assert said in str(made.problem(Strings.of([fine, row]))), said
    with pytest.raises(RemoteProtocolError, match="too short"):
        made.decode([fine[:5]])
    with pytest.raises(RemoteProtocolError, match="schema 2"):
        made.decode([fine, wrong["schema 2"]])


# -- any schema, any rows -------------------------------------------------------------------------


def _integers(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    return (
        st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if signed
        else st.integers(0, 2**bits - 1)
    )


def values_of(type_: str) -> st.SearchStrategy[Any]:
    if "int" in type_:
        return _integers(int(type_.rpartition("int")[2]), signed=type_.startswith("int"))
    moments = st.datetimes(timezones=st.just(UTC))
    known: dict[str, st.SearchStrategy[Any]] = {
        "boolean": st.booleans(),
        "oid": _integers(64, signed=False),
        "float32": st.floats(width=32),
        "float64": st.floats(),
        "string": st.text(),
        "binary": st.binary(),
        "time_seconds": moments.map(lambda moment: moment.replace(microsecond=0)),
        "time_milliseconds": moments.map(
            lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
        ),
        "time_microseconds": moments,
    }
    return known[type_]


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    types = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=12))
    columns = [Column(f"c{at}", type_, draw(st.booleans())) for at, type_ in enumerate(types)]
    keys = [one.name for one in columns if one.required and one.kind.can_be_key]
    has_key = bool(keys) and draw(st.booleans())
    key = draw(st.permutations(keys)) if has_key else []
    return schema.read(columns, key[:3], draw(st.integers(1, 65535)))


@st.composite
def filled(draw: st.DrawFn) -> tuple[Schema, list[dict[str, Any]]]:
    made = draw(schemas())
    row = st.fixed_dictionaries(
        {
            one.name: values_of(one.type) if one.required else st.none() | values_of(one.type)
            for one in made.columns
        }
    )
    return made, draw(st.lists(row, max_size=5))


def _same(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    return left == right and type(left) is type(right)


@pytest.mark.req("SJ-17", "SJ-30")
@given(filled())
def test_any_row_comes_back_as_it_was(sample: tuple[Schema, list[dict[str, Any]]]) -> None:
    made, listed = sample
    encoded, keys = Rows(made).encode(listed)
    assert Rows(made).problem(Strings.of(encoded)) is None
    decoded = Rows(made).decode(encoded)
    assert len(decoded) == len(listed)
    for before, after in zip(listed, decoded, strict=True):
        assert set(before) == set(after)
        assert all(_same(before[name], after[name]) for name in before)
    assert len(keys) == (len(listed) if made.key else 0)
    tuples = [tuple(row[name] for name in made.key) for row in listed]
    for first, first_key in zip(tuples, keys, strict=False):
        for second, second_key in zip(tuples, keys, strict=False):
            assert (first == second) == (first_key == second_key)


@given(filled(), st.binary(max_size=80), st.integers(0, 80))
def test_whatever_bytes_are_either_a_row_or_refused(
    sample: tuple[Schema, list[dict[str, Any]]], garbage: bytes, at: int
) -> None:
    made, listed = sample
    encoded, _ = Rows(made).encode(listed)
    mixed = [row[:at] + garbage + row[at + len(garbage) :] for row in encoded] or [garbage]
    if Rows(made).problem(Strings.of(mixed)) is None:
        assert len(Rows(made).decode(mixed)) == len(mixed)
