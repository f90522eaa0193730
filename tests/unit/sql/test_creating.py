"""What makes the journal table."""

from __future__ import annotations

import pytest

from fjord.sql import shape, writing
from fjord.sql.dump import Dump
from fjord.sql.writing import Dialect
from tests.unit.sql.reading import whole


@pytest.mark.req("FJ-17")
@pytest.mark.parametrize("dialect", Dialect)
def test_a_table_is_made_with_its_columns(dialect: Dialect) -> None:
    found = Dump(whole(writing.create("s.journal", dialect).encode()))
    assert (list(found.rows()), found.table) == ([], "s.journal")
    columns = (*shape.COLUMNS, "value")
    without = Dump(whole(writing.create("journal", dialect).encode()), columns=columns)
    assert (list(without.rows()), without.table) == ([], "")
    made = writing.create("journal", dialect, has_value=True)
    with_value = Dump(whole(made.encode()), columns=columns)
    assert (list(with_value.rows()), with_value.table) == ([], "journal")
