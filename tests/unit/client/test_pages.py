"""Walking through a table a page at a time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import limits
from fjord.client.pages import Span, Walk, successor
from fjord.commands import Range
from fjord.errors import Code, LocalProtocolError, RemoteProtocolError
from tests.unit.client.scripted import TOKEN
from tests.unit.client.shell_calls import page


def walk(span: Span[Any]) -> Walk[Any]:
    return Walk("t", span, lambda page: span.decode_keys(page.keys.rows()), with_data=False)


def asked(one: Walk[Any]) -> Range:
    call = one.next_call()
    assert call is not None
    assert isinstance(call.command, Range)
    return call.command


@given(st.binary(min_size=1, max_size=4), st.binary(max_size=4))
def test_the_successor_of_a_prefix_is_behind_all_keys_that_begin_so(
    prefix: bytes, rest: bytes
) -> None:
    end = successor(prefix)
    assert not end or prefix + rest < end
    assert not end or not end.startswith(prefix)


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (Span[str](), (b"", b"")),
        (Span(start="b", stop="d"), (b"b", b"d")),
        (Span(prefix="b"), (b"b", b"c")),
        (Span(prefix="b", start="a", stop="z"), (b"b", b"c")),
        (Span(prefix="b", start="b5", stop="b7"), (b"b5", b"b7")),
        (Span(prefix=b"\xff", stop=b"\xff5"), (b"\xff", b"\xff5")),
        (Span(prefix=b"\xff"), (b"\xff", b"")),
    ],
)
def test_bounds_and_prefix_are_taken_together(
    span: Span[Any], expected: tuple[bytes, bytes]
) -> None:
    assert span.bounds() == expected


@pytest.mark.req("FJ-43")
def test_a_limit_bounds_the_whole_walk() -> None:
    one = walk(Span[str](limit=limits.PAGE_ENTRIES_MAX + 5))
    call = one.next_call()
    assert call is not None
    assert asked(one).count == limits.PAGE_ENTRIES_MAX
    call.result(page(*[b"k%d" % row for row in range(limits.PAGE_ENTRIES_MAX)], next_key=b"l"))
    assert asked(one).count == 5


def test_a_limit_is_at_least_one() -> None:
    for limit in (0, -1):
        with pytest.raises(LocalProtocolError) as caught:
            walk(Span[str](limit=limit))
        assert caught.value.code is Code.BAD_COUNT


def test_a_prefix_outside_of_the_bounds_needs_no_question() -> None:
    assert walk(Span(prefix="a", start="b")).next_call() is None


def test_more_than_was_asked_for_or_something_else_is_the_peers_mistake() -> None:
    call = walk(Span[str](limit=1)).next_call()
    assert call is not None
    with pytest.raises(RemoteProtocolError, match="2 rows, not 1 at most"):
        call.result(page(b"a", b"b"))
    with pytest.raises(RemoteProtocolError, match="kind Done"):
        call.result(TOKEN)
