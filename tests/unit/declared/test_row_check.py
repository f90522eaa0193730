"""Many rows are checked all together, and come to what each of them comes to alone."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.columns import Strings
from fjord.declared import schema
from fjord.declared.rows import Layout, Rows
from fjord.declared.schema import Schema
from tests.unit.declared.test_rows import filled

PAGES = schema.read(
    {"uri": ("string", True), "depth": "uint8", "seen": "time_milliseconds", "body": "binary"},
    "uri",
)
MOMENT = datetime(2026, 11, 16, 12, 30, tzinfo=UTC)
COUNT = 40
CHECK = Layout(PAGES)


def pages(count: int = COUNT, **given: Any) -> list[bytes]:
    listed = [
        {"uri": f"http://a/{at}", "depth": at, "seen": MOMENT, "body": b"x" * (at % 5), **given}
        for at in range(count)
    ]
    return Rows(PAGES).encode(listed)[0]


def problem(rows: list[bytes]) -> str | None:
    return CHECK.problem(Strings.of(rows))


def with_ends(row: bytes, first: int, second: int) -> bytes:
    return row[:12] + struct.pack("<II", first, second) + row[20:]


@pytest.mark.parametrize("count", [0, 1, 2, 8, 9, COUNT])
def test_rows_are_fine(count: int) -> None:
    assert problem(pages(count)) is None
    assert problem(pages(count, depth=None, seen=None, body=None)) is None
    assert problem(pages(count, uri="gr\u00fc\u00df \u20ac")) is None
    assert problem(pages(count, body=b"\xff\xfe")) is None


ROW = pages(1)[0]
WRONG = {
    "a row is too short": ROW[:5],
    "a row has schema 2, and the table has 1 now": b"\x02" + ROW[1:],
    "a row has schema 257, and": ROW[:1] + b"\x01" + ROW[2:],
    "a row has more columns than the table": ROW[:2] + b"\x10" + ROW[3:],
    "a row lacks a required value": ROW[:2] + b"\x01" + ROW[3:],
    "the length of a row does not match its columns": ROW + b"x",
    "a column of a row ends before it begins": with_ends(ROW, len(ROW), len(ROW) - 20),
    "column uri is not UTF-8": ROW[:20] + b"\xff" + ROW[21:],
    "column seen has a time beyond the years": ROW[:4] + struct.pack("<q", 2**62) + ROW[12:],
}


@pytest.mark.parametrize("place", [0, 17, COUNT])
@pytest.mark.parametrize("said", WRONG)
def test_one_wrong_row_among_many_is_found(said: str, place: int) -> None:
    fine = pages()
    assert said in str(problem([*fine[:place], WRONG[said], *fine[place:]]))
    assert said in str(problem([WRONG[said]]))


@pytest.mark.parametrize("place", [0, 17, COUNT - 1])
@pytest.mark.parametrize("end", [0, 1, 2**30, 2**31 - 1, 2**31, 2**32 - 1])
def test_no_end_of_a_row_is_made_up_for_by_another(place: int, end: int) -> None:
    fine = pages()
    first, second = struct.unpack_from("<II", fine[place], 12)
    for wrong in ((first, end), (end, end), (second + 1, second), (first, second - 1)):
        rows = [*fine[:place], with_ends(fine[place], *wrong), *fine[place + 1 :]]
        assert problem(rows) is not None
    # One row is shorter than it says, and the next one longer by as much.
    if place + 1 < COUNT:
        cut, next_ = fine[place][:-1], fine[place][-1:] + fine[place + 1]
        assert problem([*fine[:place], cut, next_, *fine[place + 2 :]]) is not None


@given(filled(), st.integers(1, 12), st.binary(max_size=80), st.integers(0, 80), st.data())
def test_many_are_fine_if_each_of_them_is(
    sample: tuple[Schema, list[dict[str, Any]]],
    times: int,
    garbage: bytes,
    at: int,
    data: st.DataObject,
) -> None:
    made, listed = sample
    rows = Rows(made).encode(listed * times)[0] or [garbage]
    place = data.draw(st.integers(0, len(rows) - 1))
    rows[place] = rows[place][:at] + garbage + rows[place][at + len(garbage) :]
    check = Layout(made)
    alone = [check.problem(Strings.of([row])) for row in rows]
    together = check.problem(Strings.of(rows))
    assert (together is None) == (alone.count(None) == len(rows))
    if together is not None:
        assert together in alone
