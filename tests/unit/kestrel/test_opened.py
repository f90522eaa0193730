"""Since when items are open."""

from __future__ import annotations

from fjord.kestrel.queue import Opened
from fjord.testing import SimClock


def test_what_is_open_for_longer_is_told_the_first_opened_first() -> None:
    clock = SimClock()
    opened = Opened(clock)
    opened.note(2)
    opened.note(1)
    clock.advance(1)
    opened.note(3)
    clock.advance(1)
    assert opened.too_long(2000, {1, 2, 3}) == []
    clock.advance(1)
    assert opened.too_long(2000, {1, 2, 3}) == [2, 1]
    opened.forget(2)
    opened.forget(2)
    assert opened.too_long(1000, {1, 3}) == [1, 3]


def test_what_was_opened_without_a_timeout_begins_when_it_is_first_looked_at() -> None:
    clock = SimClock()
    opened = Opened(clock)
    opened.note(2)
    clock.advance(5)
    assert opened.too_long(1000, {1, 2}) == [2]
    clock.advance(2)
    assert opened.too_long(1000, {1, 2}) == [1, 2]
