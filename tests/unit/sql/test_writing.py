"""Rows of the journal table as INSERT statements and CSV."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.errors import UsageError
from fjord.sql import shape, writing
from fjord.sql.dump import Dump
from fjord.sql.shape import Found, JournalRow
from fjord.sql.writing import Dialect
from tests.unit.sql.reading import bytewise

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
ODD_TEXT = st.text("\\'\"`;,()-#/*%_ \n\r\tn0", max_size=10)
NUMBERS = st.integers(0, 2**63 - 1)
ROWS = st.builds(
    JournalRow,
    TEXT | ODD_TEXT,
    st.integers(0, 255),
    NUMBERS,
    TEXT | ODD_TEXT,
    st.none() | NUMBERS,
    st.none() | (TEXT | ODD_TEXT).map(json.dumps),
)


def encoded(row: JournalRow) -> list[shape.Cell]:
    return [one.encode() if isinstance(one, str) else one for one in row]


@pytest.mark.req("FJ-17")
@pytest.mark.parametrize("dialect", [None, *Dialect])
@given(st.lists(ROWS, max_size=5), st.integers(1, 50), st.booleans())
def test_what_is_written_is_read_again(
    dialect: Dialect | None, rows: list[JournalRow], step: int, has_value: bool
) -> None:
    columns = (*shape.COLUMNS, "value") if has_value else shape.COLUMNS
    made = writing.create("journal", dialect, has_value=has_value) if dialect else ""
    text = "".join(writing.inserts(rows, "journal", creation=made, has_value=has_value))
    found = Dump(bytewise(text.encode(), step), columns=columns)
    cells = [one.cells for one in found.rows() if isinstance(one, Found)]
    assert cells == [encoded(row)[: len(columns)] for row in rows]
    assert found.left_out == []
    assert found.table == ("journal" if rows or dialect else "")


@given(st.lists(ROWS, max_size=5), st.booleans())
def test_csv_is_read_again(rows: list[JournalRow], has_value: bool) -> None:
    text = "".join(writing.lines(rows, has_value=has_value))
    head, *found = csv.reader(io.StringIO(text, newline=""), strict=True)
    assert head == [*shape.ORDER, *(["value"] if has_value else [])]
    assert found == [
        [str(number), *("" if one is None else str(one) for one in row[: 6 if has_value else 5])]
        for number, row in enumerate(rows, start=1)
    ]


def test_statements_have_an_end() -> None:
    rows = [JournalRow("d", 1, 2, "u" * 1000, None, None)] * 1201
    statements = [
        one
        for one in writing.inserts(rows, "db.journal")
        if one.startswith("INSERT INTO db.journal")
    ]
    assert max(map(len, statements)) < 300_000
    assert [one.count("\n(") for one in statements] == [256, 256, 256, 256, 177]
    short = [JournalRow("d", 1, 2, "u", None, None)] * 1201
    found = [one.count("\n(") for one in writing.inserts(short, "j") if one.startswith("INSERT")]
    assert found == [500, 500, 201]


@pytest.mark.parametrize("name", ["", "a b", "a;b", "1a", "a.b.c", "`a`", "a" * 64, "a\n", "\xe4"])
def test_a_name_that_needs_quotes_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="not a plain table name"):
        writing.check_name(name)
