"""Cursors: taken back by the server that gave them out, and by no other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import limits
from fjord.commands import Nop, Range, Refusal
from fjord.errors import Code
from tests.unit.wire.samples import PAGES, TOKEN
from tests.unit.wire.streams import CURSORS

PAGE = Range(table="t", start=b"a", stop=b"m", count=5, regex=b"^a", with_data=False)


def code_of(found: Range | Refusal) -> Code | None:
    return found.code if isinstance(found, Refusal) else None


@pytest.mark.req("FJ-45")
@given(
    st.builds(
        Range,
        table=st.text("abc_-09", min_size=1, max_size=limits.NAME_BYTES_MAX),
        start=st.just(b""),
        stop=st.binary(max_size=limits.KV_KEY_BYTES_MAX),
        count=st.integers(0, 0xFFFF),
        regex=st.binary(max_size=limits.REGEX_BYTES_MAX),
        with_data=st.booleans(),
        skip_worked=st.booleans(),
    ),
    st.binary(min_size=1, max_size=limits.KV_KEY_BYTES_MAX),
)
def test_a_cursor_is_the_same_query_from_the_next_key_on(page: Range, next_key: bytes) -> None:
    cursor = CURSORS.encode(page, next_key)
    page.start = next_key
    assert CURSORS.decode(cursor) == page
    page.count = 77
    assert CURSORS.decode(cursor, 77) == page


def test_the_longest_cursor_fits_a_key_of_a_reply() -> None:
    longest = Range(
        table="t" * limits.NAME_BYTES_MAX,
        stop=b"s" * limits.KV_KEY_BYTES_MAX,
        count=0xFFFF,
        regex=b"r" * limits.REGEX_BYTES_MAX,
    )
    assert len(CURSORS.encode(longest, b"k" * limits.KV_KEY_BYTES_MAX)) < 0xFFFF


def test_only_a_page_that_goes_on_has_a_cursor() -> None:
    last, goes_on = PAGES[0], PAGES[1]
    assert CURSORS.after(PAGE, goes_on) == CURSORS.encode(PAGE, goes_on.next_key)
    assert CURSORS.after(PAGE, last) == b""
    assert CURSORS.after(PAGE, TOKEN) == b""
    assert CURSORS.after(Nop(), goes_on) == b""


def test_every_changed_bit_is_found_out() -> None:
    cursor = CURSORS.encode(PAGE, b"k")
    for position in range(len(cursor)):
        for bit in range(8):
            changed = bytearray(cursor)
            changed[position] ^= 1 << bit
            assert code_of(CURSORS.decode(bytes(changed))) in (Code.BAD_CURSOR, Code.CURSOR_EXPIRED)
