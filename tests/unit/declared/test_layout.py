from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.columns import Strings
from fjord.declared import schema
from fjord.declared.rows import Heads, Layout, Rows
from fjord.declared.schema import Schema
from tests.unit.declared.test_rows import filled

PAGES = schema.read(
    {"uri": ("string", True), "depth": "uint8", "size": "int128", "body": "binary"}, "uri", 258
)
ROWS: list[dict[str, Any]] = [
    {"uri": f"http://a/{at}", "depth": at % 7, "size": -(2**100) - at, "body": bytes(at)}
    for at in range(20)
]


def heads_of(made: Schema, rows: list[dict[str, Any]]) -> Heads:
    return Heads(Layout(made), Strings.of(Rows(made).encode(rows)[0]))


def test_columns_without_a_value_are_told() -> None:
    assert heads_of(PAGES, ROWS).nulls() == {0}
    lacking = [*ROWS, {"uri": "a"}, {"uri": "b", "depth": 1}]
    heads = heads_of(PAGES, lacking)
    assert heads.nulls() == {0, 0b1100, 0b1110}
    assert heads.null_plane(1) == bytes(20) + b"\x0e\x0c"
    wide = schema.read({f"c{at}": "int8" for at in range(10)})
    assert heads_of(wide, [{"c9": 1}, {"c0": 1}]).nulls() == {0x1FF, 0x3FE}


@pytest.mark.parametrize("filler", [b"", b"x" * 1000], ids=["short", "long"])
def test_what_follows_the_heads_is_ascii_or_not(filler: bytes) -> None:
    # The numbers in the heads are none, so it is not enough to look at all bytes.
    fine: Any = [{"uri": f"u{at}", "size": -1, "body": filler} for at in range(20)]
    assert heads_of(PAGES, fine).are_followed_by_ascii()
    for at in (0, 10, 19):
        other = [*fine[:at], {**fine[at], "body": filler + b"\x80"}, *fine[at + 1 :]]
        assert not heads_of(PAGES, other).are_followed_by_ascii()
    assert heads_of(PAGES, [{"uri": "a", "size": 0, "body": filler}]).are_followed_by_ascii()


@given(filled(), st.integers(1, 4))
def test_any_column_is_that_of_the_dicts(
    sample: tuple[Schema, list[dict[str, Any]]], times: int
) -> None:
    made, listed = sample
    encoded, _ = Rows(made).encode(listed * times)
    heads = Rows(made).heads(Strings.of(encoded))
    dicts = Rows(made).decode(encoded)
    for at, name in enumerate(made.names):
        wanted = [row[name] for row in dicts]
        assert repr(list(Rows(made).decode_column(heads, at))) == repr(wanted)
