"""What the bodies of all replies share."""

from __future__ import annotations

import pytest

from fjord import limits
from fjord.wire.reply_body import PAGE, ROWS, check_end, check_rows


def test_rows_are_bounded() -> None:
    check_rows(limits.BATCH_ROWS_MAX)
    with pytest.raises(ValueError, match=f"at most {limits.BATCH_ROWS_MAX} rows"):
        check_rows(limits.BATCH_ROWS_MAX + 1)


def test_a_body_ends_with_its_columns() -> None:
    check_end(8, memoryview(bytes(8)))
    for position in (7, 9):
        with pytest.raises(ValueError, match="longer than its columns"):
            check_end(position, memoryview(bytes(8)))


def test_heads_are_aligned() -> None:
    assert (ROWS.pack(3), PAGE.pack(3, 4)) == (b"\0\0\0\3\0\0\0\0", b"\0\0\0\3\0\0\0\4")
