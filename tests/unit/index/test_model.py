"""Both indexes, step by step, against a plain dict."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fjord import limits
from fjord.index import Index, Indexes, IndexFullError, Transaction
from fjord.index.lmdb import LmdbIndexes
from fjord.index.memory import MemoryIndexes

TREES = 2
# Few keys, so that they meet; some are prefixes of others.
keys = st.binary(min_size=1, max_size=2)
values = st.binary(max_size=3)
trees = st.integers(0, TREES - 1)
Model = list[dict[bytes, bytes]]


class IndexMachine(RuleBasedStateMachine):
    """Two indexes and the dicts that they should be."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="fjord-index-"))
        self.both: list[Indexes] = [
            MemoryIndexes(TREES),
            LmdbIndexes(str(self.directory), TREES, step_bytes=limits.MIB),
        ]
        self.committed: Model = [{} for _ in range(TREES)]
        self.current: Model = [{} for _ in range(TREES)]
        self.opened: list[Index] = []
        self.writing: list[Transaction] = []

    @initialize()
    def open_first(self) -> None:
        for indexes in self.both:
            indexes.create()
        self.open()

    def open(self) -> None:
        self.opened = [indexes.open() for indexes in self.both]

    def teardown(self) -> None:
        for transaction in self.writing:
            transaction.abort()
        for index in self.opened:
            index.close()
        shutil.rmtree(self.directory)

    def views(self) -> list[Transaction]:
        return self.writing or [index.view() for index in self.opened]

    def end_views(self, views: list[Transaction]) -> None:
        if views is not self.writing:
            for view in views:
                view.abort()

    @precondition(lambda self: not self.writing)
    @rule()
    def begin(self) -> None:
        self.writing = [index.begin() for index in self.opened]

    @precondition(lambda self: self.writing)
    @rule(tree=trees, items=st.lists(st.tuples(keys, values), max_size=5))
    def put(self, tree: int, items: list[tuple[bytes, bytes]]) -> None:
        for transaction in self.writing:
            transaction.put_many(tree, items)
        self.current[tree].update(items)

    @precondition(lambda self: self.writing)
    @rule(tree=trees, gone=st.lists(keys, max_size=3))
    def delete(self, tree: int, gone: list[bytes]) -> None:
        for transaction in self.writing:
            transaction.delete_many(tree, gone)
        for key in gone:
            self.current[tree].pop(key, None)

    @precondition(lambda self: self.writing)
    @rule()
    def commit(self) -> None:
        for transaction in self.writing:
            transaction.commit()
        self.writing = []
        self.committed = [dict(tree) for tree in self.current]

    @precondition(lambda self: self.writing)
    @rule()
    def abort(self) -> None:
        for transaction in self.writing:
            transaction.abort()
        self.writing = []
        self.current = [dict(tree) for tree in self.committed]

    @precondition(lambda self: not self.writing)
    @rule()
    def grow(self) -> None:
        for index in self.opened:
            index.grow()

    @precondition(lambda self: not self.writing)
    @rule()
    def overflow(self) -> None:
        """A transaction that is too large for one of them, and therefore for both."""
        for index in self.opened:
            transaction = index.begin()
            try:
                transaction.put_many(0, [(b"%d" % row, bytes(4000)) for row in range(500)])
            except IndexFullError:
                pass  # abort follows, as the contract asks
            finally:
                transaction.abort()

    @precondition(lambda self: not self.writing)
    @rule()
    def reopen(self) -> None:
        for index in self.opened:
            index.close()
        self.open()

    @rule(tree=trees, asked=st.lists(keys, max_size=6))
    def get(self, tree: int, asked: list[bytes]) -> None:
        expected = [self.current[tree].get(key) for key in asked]
        views = self.views()
        for view in views:
            assert view.get_many(tree, asked) == expected
            assert [view.get(tree, key) for key in asked] == expected
        self.end_views(views)

    @rule(tree=trees, start=st.binary(max_size=2), stop=st.none() | keys, limit=st.integers(0, 20))
    def scan(self, tree: int, start: bytes, stop: bytes | None, limit: int) -> None:
        items = sorted(self.current[tree].items())
        expected = [
            (key, value) for key, value in items if key >= start and (stop is None or key < stop)
        ][:limit]
        views = self.views()
        for view in views:
            assert view.scan(tree, start, stop, limit) == expected
        self.end_views(views)

    @invariant()
    def both_hold_what_the_model_holds(self) -> None:
        if not self.opened:
            return
        views = self.views()
        for view in views:
            for tree in range(TREES):
                assert dict(view.scan(tree, b"", None, 10_000)) == self.current[tree]
        self.end_views(views)


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(
    max_examples=30,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
