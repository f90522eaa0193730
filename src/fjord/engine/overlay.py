"""Index writes that are gathered in memory, to be written later in one go, or not at all.

Replay gathers the writes of many frames, since apply never reads: only the last write of a key
counts.  A batch gathers those of its commands, and each command sees what those before it did.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from fjord.index import Transaction
from fjord.tables.state import Tree

TREE_COUNT = len(Tree)


class Gathered:
    """What is to be put into the trees, and taken from them."""

    def __init__(self) -> None:
        self._trees: list[dict[bytes, bytes | None]] = [{} for _ in range(TREE_COUNT)]

    @property
    def rows(self) -> int:
        return sum(map(len, self._trees))

    def put_many(self, tree: int, items: Sequence[tuple[bytes, bytes]]) -> None:
        self._trees[tree].update(items)

    def delete_many(self, tree: int, keys: Iterable[bytes]) -> None:
        self._trees[tree].update(dict.fromkeys(keys))

    def write(self, transaction: Transaction) -> None:
        """Writes all of it, in the order of the keys."""
        for tree, items in enumerate(self._trees):
            if items:
                gone = sorted(key for key, value in items.items() if value is None)
                kept = sorted((key, value) for key, value in items.items() if value is not None)
                transaction.delete_many(tree, gone)
                transaction.put_many(tree, kept)


class Overlay(Gathered):
    """Gathered writes that can be read, over the transaction that they may end in."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__()
        self._transaction = transaction

    def get_many(self, tree: int, keys: Sequence[bytes]) -> list[bytes | None]:
        items = self._trees[tree]
        if not items:
            return self._transaction.get_many(tree, keys)
        found = self._transaction.get_many(tree, keys)
        return [items.get(key, below) for key, below in zip(keys, found, strict=True)]

    def scan(
        self, tree: int, start: bytes, stop: bytes | None, limit: int
    ) -> list[tuple[bytes, bytes]]:
        items = self._trees[tree]
        # Whatever is deleted here may hide as many of the entries below.
        below = self._transaction.scan(tree, start, stop, limit + len(items))
        over = sorted(
            (key, value)
            for key, value in items.items()
            if value is not None and key >= start and (stop is None or key < stop)
        )
        kept = (item for item in below if item[0] not in items)
        return list(heapq.merge(kept, over))[:limit]
