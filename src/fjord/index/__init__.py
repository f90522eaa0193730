"""The index: ordered trees of keys, committed together, rebuildable from the journal at any time.

Two implementations keep one contract (tests/unit/index/test_contract.py): `lmdb` on disk and
`memory` for simulations and for read-only processes whose directory has no usable index.

    index.begin() -> Transaction    the writer's; commit or abort ends it
    index.view()  -> Transaction    the committed state; abort ends it.  On LMDB it is a snapshot;
                                    the memory index has one version, so there it is not opened
                                    while a transaction is open
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from fjord.errors import FjordError
from fjord.layouts import Items


class IndexFullError(FjordError):
    """The index needs more space: abort the transaction, call `grow`, and run it again."""


class IndexDamagedError(FjordError):
    """The stored index cannot be read: drop it, and rebuild it from the journal."""


class Transaction(Protocol):
    """A consistent view of all trees, and the changes of the writer."""

    def get(self, tree: int, key: bytes) -> bytes | None: ...

    def get_many(self, tree: int, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def put_many(self, tree: int, items: Sequence[tuple[bytes, bytes]]) -> None: ...

    def delete_many(self, tree: int, keys: Iterable[bytes]) -> None: ...

    def scan(self, tree: int, start: bytes, stop: bytes | None, limit: int) -> Items:
        """Returns up to `limit` items in key order from `start` to before `stop`."""

    def count(self, tree: int) -> int:
        """Returns the number of items of a tree."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...


class Index(Protocol):
    """An open index of a fixed number of trees, numbered from 0."""

    def begin(self) -> Transaction: ...

    def view(self) -> Transaction: ...

    def has_reserve(self) -> bool:
        """Returns whether there is room for what must work on a full disk: deletes."""

    def grow(self) -> None:
        """Enlarges the index.

        Raises:
            OSError: if the disk is full.
        """

    def sync(self) -> None:
        """Ensures that committed changes survive a power cut."""

    def close(self) -> None: ...


class Indexes(Protocol):
    """The storage of an index: opened, told from a copy of itself, or dropped."""

    def identity(self) -> str | None:
        """Returns the identity of the stored index, which no copy shares; None if there is none."""

    def create(self) -> None:
        """Creates an empty index, so that it has an identity, if there is none."""

    def open(self, *, read_only: bool = False) -> Index: ...

    def drop(self) -> None: ...


@contextlib.contextmanager
def viewed(index: Index) -> Iterator[Transaction]:
    """Opens a view of the committed state."""
    transaction = index.view()
    try:
        yield transaction
    finally:
        transaction.abort()
