"""What only the memory index promises: it stands for a page cache over simulated restarts."""

from __future__ import annotations

from fjord.index.memory import MemoryIndexes


def test_closing_keeps_the_trees_for_a_simulated_restart() -> None:
    indexes = MemoryIndexes(1)
    indexes.create()
    index = indexes.open()
    transaction = index.begin()
    transaction.put_many(0, [(b"a", b"1")])
    transaction.commit()
    index.grow()
    index.sync()
    index.close()
    assert indexes.open(read_only=True).view().get(0, b"a") == b"1"


def test_an_index_made_anew_has_another_identity() -> None:
    indexes = MemoryIndexes(1)
    found = []
    for _ in range(3):
        indexes.create()
        found.append(indexes.identity())
        indexes.drop()
        assert indexes.identity() is None
    assert len(set(found)) == 3
    assert None not in found


def test_a_scan_after_each_kind_of_change_is_in_order() -> None:
    indexes = MemoryIndexes(1)
    indexes.create()
    transaction = indexes.open().begin()
    transaction.put_many(0, [(b"b", b"1"), (b"a", b"1")])
    assert transaction.scan(0, b"", None, 9) == [(b"a", b"1"), (b"b", b"1")]
    transaction.put_many(0, [(b"a", b"2")])  # the keys stay as they were
    assert transaction.scan(0, b"", None, 9) == [(b"a", b"2"), (b"b", b"1")]
    transaction.delete_many(0, [b"a", b"none"])
    assert transaction.scan(0, b"", None, 9) == [(b"b", b"1")]
    transaction.abort()
    assert transaction.scan(0, b"", None, 9) == []
