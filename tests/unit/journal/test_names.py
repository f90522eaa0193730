"""File names of the journal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.journal import frame


@given(st.integers(0, 10**10 - 1))
def test_a_number_is_found_in_the_name_that_was_made_of_it(segment: int) -> None:
    name = frame.segment_path("/data", segment).removeprefix("/data/")
    assert frame.segment_number(name) == segment


@given(st.lists(st.integers(0, 10**10 - 1)))
def test_names_sort_as_their_numbers_do(numbers: list[int]) -> None:
    made = sorted(frame.segment_path("", number) for number in numbers)
    assert [frame.segment_number(name) for name in made] == sorted(numbers)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "lock",
        "spare",
        "0000000001",
        "1.seg",
        "000000001.seg",
        "00000000001.seg",
        "0000000001.seg" + frame.UNFINISHED,
        "0000000001.seg\n",
        "x0000000001.seg",
        "000000000a.seg",
        "0000000001.SEG",
        "0000000001xseg",
        "-000000001.seg",
    ],
)
def test_other_files_are_no_segments(name: str) -> None:
    assert frame.segment_number(name) is None
