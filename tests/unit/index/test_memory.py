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
