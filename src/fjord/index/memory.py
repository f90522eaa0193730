"""The index contract in memory: dicts, and key lists that are sorted when a scan needs them."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence

from fjord.layouts import Items


class _Tree:
    """One ordered map."""

    def __init__(self) -> None:
        self.items: dict[bytes, bytes] = {}
        self._sorted: list[bytes] | None = []

    def change(self, key: bytes, value: bytes | None) -> bytes | None:
        """Sets a key, or deletes it if there is no value; returns the previous value."""
        old = self.items.get(key)
        if value is None:
            self.items.pop(key, None)
        else:
            self.items[key] = value
        if (old is None) != (value is None):
            self._sorted = None
        return old

    def scan(self, start: bytes, stop: bytes | None, limit: int) -> Items:
        if self._sorted is None:
            self._sorted = sorted(self.items)
        keys = self._sorted
        first = bisect.bisect_left(keys, start)
        last = len(keys) if stop is None else bisect.bisect_left(keys, stop)
        return [(key, self.items[key]) for key in keys[first : min(last, first + limit)]]


class MemoryTransaction:
    """Writes go straight to the trees; abort undoes them, last first."""

    def __init__(self, trees: list[_Tree]) -> None:
        self._trees = trees
        self._undo: list[tuple[_Tree, bytes, bytes | None]] = []

    def get(self, tree: int, key: bytes) -> bytes | None:
        return self._trees[tree].items.get(key)

    def get_many(self, tree: int, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self._trees[tree].items.get, keys))

    def put_many(self, tree: int, items: Sequence[tuple[bytes, bytes]]) -> None:
        target = self._trees[tree]
        for key, value in items:
            self._undo.append((target, key, target.change(key, value)))

    def delete_many(self, tree: int, keys: Iterable[bytes]) -> None:
        target = self._trees[tree]
        for key in keys:
            self._undo.append((target, key, target.change(key, None)))

    def scan(self, tree: int, start: bytes, stop: bytes | None, limit: int) -> Items:
        return self._trees[tree].scan(start, stop, limit)

    def count(self, tree: int) -> int:
        return len(self._trees[tree].items)

    def commit(self) -> None:
        self._undo.clear()

    def abort(self) -> None:
        while self._undo:
            target, key, old = self._undo.pop()
            target.change(key, old)


class MemoryIndex:
    """Trees that live as long as this object."""

    def __init__(self, tree_count: int) -> None:
        self._trees = [_Tree() for _ in range(tree_count)]

    def begin(self) -> MemoryTransaction:
        return MemoryTransaction(self._trees)

    def view(self) -> MemoryTransaction:
        return MemoryTransaction(self._trees)

    def has_reserve(self) -> bool:
        return True

    def grow(self) -> None:
        """Memory grows on its own."""

    def sync(self) -> None:
        """Nothing survives a restart."""

    def close(self) -> None:
        """The trees stay, so that a simulated restart can find them again."""


class MemoryIndexes:
    """Keeps a memory index over simulated restarts, as a page cache keeps an LMDB file."""

    def __init__(self, tree_count: int) -> None:
        self._tree_count = tree_count
        self._index: MemoryIndex | None = None
        self._made = 0

    def identity(self) -> str | None:
        return f"memory:{self._made}" if self._index else None

    def create(self) -> None:
        if self._index is None:
            self._index = MemoryIndex(self._tree_count)
            self._made += 1

    def open(self, *, read_only: bool = False) -> MemoryIndex:
        assert self._index is not None
        return self._index

    def drop(self) -> None:
        self._index = None
