"""Numbers as clients write them."""

from __future__ import annotations

import pytest

from fjord.kestrel import protocols


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("007", 7),
        (str(protocols.NUMBER_MAX), protocols.NUMBER_MAX),
        (str(protocols.NUMBER_MAX + 1), None),
        ("9" * 5000, None),
        ("-1", None),
        ("", None),
        ("-", None),
        ("--1", None),
        ("+1", None),
        ("1_0", None),
        (" 1", None),
        ("\u0661", None),
    ],
)
def test_number_is_decimal_digits_within_bounds(text: str, expected: int | None) -> None:
    assert protocols.number(text) == expected


def test_number_may_be_below_zero_where_that_means_something() -> None:
    assert protocols.number("-5", low=-10) == -5
    assert protocols.number("-11", low=-10) is None
