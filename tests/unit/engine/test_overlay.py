from __future__ import annotations

import pytest

from fjord.engine.memory import TREE_COUNT, Gathered, Overlay
from fjord.index.memory import MemoryIndex

TREE = 2


@pytest.fixture
def index() -> MemoryIndex:
    index = MemoryIndex(TREE_COUNT)
    transaction = index.begin()
    transaction.put_many(TREE, [(b"a", b"1"), (b"b", b"2"), (b"d", b"4")])
    transaction.commit()
    return index


def test_gathered_writes_come_out_as_the_last_of_each_key(index: MemoryIndex) -> None:
    gathered = Gathered()
    gathered.put_many(TREE, [(b"c", b"3"), (b"a", b"9")])
    gathered.delete_many(TREE, [b"a", b"d"])
    gathered.put_many(TREE, [(b"d", b"8")])
    assert gathered.rows == 3
    transaction = index.begin()
    gathered.write(transaction)
    transaction.commit()
    assert index.view().scan(TREE, b"", None, 10) == [(b"b", b"2"), (b"c", b"3"), (b"d", b"8")]


def test_an_overlay_shows_its_own_writes_over_what_is_below(index: MemoryIndex) -> None:
    overlay = Overlay(index.begin())
    assert overlay.get_many(TREE, [b"a", b"x"]) == [b"1", None]
    overlay.put_many(TREE, [(b"a", b"9"), (b"c", b"3")])
    overlay.delete_many(TREE, [b"b"])
    assert overlay.get_many(TREE, [b"a", b"b", b"c", b"d"]) == [b"9", None, b"3", b"4"]


def test_a_scan_merges_both_in_order(index: MemoryIndex) -> None:
    overlay = Overlay(index.begin())
    overlay.put_many(TREE, [(b"c", b"3"), (b"0", b"0")])
    overlay.delete_many(TREE, [b"a"])
    assert overlay.scan(TREE, b"", None, 3) == [(b"0", b"0"), (b"b", b"2"), (b"c", b"3")]
    assert overlay.scan(TREE, b"b", b"d", 10) == [(b"b", b"2"), (b"c", b"3")]
