"""One contract, two implementations: what every index promises, in memory and on LMDB."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from fjord import limits
from fjord.index import Index, Indexes, IndexFullError, Transaction
from fjord.index.lmdb import LmdbIndexes
from fjord.index.memory import MemoryIndexes

TREES = 3


def memory_indexes(directory: Path) -> Indexes:
    return MemoryIndexes(TREES)


def lmdb_indexes(directory: Path) -> Indexes:
    return LmdbIndexes(str(directory), TREES, step_bytes=limits.MIB)


@pytest.fixture(params=[memory_indexes, lmdb_indexes], ids=["memory", "lmdb"])
def indexes(request: pytest.FixtureRequest, tmp_path: Path) -> Indexes:
    make: Callable[[Path], Indexes] = request.param
    return make(tmp_path)


@pytest.fixture
def index(indexes: Indexes) -> Iterator[Index]:
    indexes.create()
    with closing(indexes.open()) as opened:
        yield opened


@contextmanager
def writing(index: Index) -> Iterator[Transaction]:
    transaction = index.begin()
    yield transaction
    transaction.commit()


@contextmanager
def viewing(index: Index) -> Iterator[Transaction]:
    transaction = index.view()
    try:
        yield transaction
    finally:
        transaction.abort()


def put(index: Index, items: dict[bytes, bytes], tree: int = 0) -> None:
    with writing(index) as transaction:
        transaction.put_many(tree, list(items.items()))


def content(index: Index, tree: int = 0) -> dict[bytes, bytes]:
    with viewing(index) as view:
        return dict(view.scan(tree, b"", None, 1_000_000))


# -- reading and writing --------------------------------------------------------------------------


def test_get_many_is_aligned_with_the_keys_asked_for(index: Index) -> None:
    put(index, {b"a": b"1", b"b": b"2", b"c": b"3"})
    asked = [b"c", b"none", b"a", b"c", b"zzz", b"b", b"none"]
    with viewing(index) as view:
        assert view.get_many(0, asked) == [b"3", None, b"1", b"3", None, b"2", None]
        assert view.get_many(0, [b"b"]) == [b"2"]
        assert view.get_many(0, [b"none"]) == [None]
        assert view.get_many(0, [b"none", b"none"]) == [None, None]
        assert view.get_many(0, []) == []


# -- scanning -------------------------------------------------------------------------------------


KEYS = [b"\0", b"a", b"aa", b"b", b"b\0", b"b\xff", b"c", b"\xff", b"\xff\xff"]


@pytest.fixture
def filled(index: Index) -> Index:
    put(index, {key: b"<" + key for key in reversed(KEYS)})
    return index


def scan(index: Index, start: bytes, stop: bytes | None, limit: int = 100) -> list[bytes]:
    with viewing(index) as view:
        items = view.scan(0, start, stop, limit)
    assert all(value == b"<" + key for key, value in items)
    return [key for key, _ in items]


def test_a_scan_goes_in_the_order_of_bytes(filled: Index) -> None:
    assert scan(filled, b"", None) == KEYS == sorted(KEYS)


def test_a_scan_begins_at_start_and_ends_before_stop(filled: Index) -> None:
    for start in [b"", *KEYS, b"ab", b"\xff\xff\xff"]:
        for stop in [*KEYS, b"ab", b"bb", None]:
            expected = [key for key in KEYS if key >= start and (stop is None or key < stop)]
            assert scan(filled, start, stop) == expected


@pytest.mark.parametrize("limit", range(len(KEYS) + 2))
def test_a_scan_ends_at_its_limit(filled: Index, limit: int) -> None:
    assert scan(filled, b"", None, limit) == KEYS[:limit]
    assert scan(filled, b"b", None, limit) == KEYS[3:][:limit]


# -- transactions ---------------------------------------------------------------------------------


def test_what_is_aborted_never_was(index: Index) -> None:
    put(index, {b"a": b"1", b"b": b"2"})
    put(index, {b"a": b"1"}, tree=1)
    transaction = index.begin()
    transaction.put_many(0, [(b"a", b"x"), (b"c", b"x"), (b"c", b"y")])
    transaction.delete_many(0, [b"a", b"b", b"none"])
    transaction.put_many(0, [(b"b", b"z"), (b"b", b"zz")])
    transaction.delete_many(1, [b"a"])
    transaction.abort()
    assert content(index) == {b"a": b"1", b"b": b"2"}
    assert content(index, 1) == {b"a": b"1"}


# -- growing --------------------------------------------------------------------------------------


def fill(index: Index, items: dict[bytes, bytes]) -> int:
    """Puts items in one transaction, growing as often as needed; returns how often that was."""
    grown = 0
    while True:
        transaction = index.begin()
        try:
            transaction.put_many(0, list(items.items()))
            transaction.commit()
        except IndexFullError:
            transaction.abort()
            index.grow()
            grown += 1
        else:
            return grown


def test_an_index_that_is_full_grows_and_keeps_everything(index: Index) -> None:
    expected: dict[bytes, bytes] = {}
    for batch in range(5):
        items = {b"%d-%d" % (batch, row): bytes([batch]) * 1000 for row in range(800)}
        fill(index, items)
        expected |= items
        assert content(index) == expected


def test_a_transaction_that_found_the_index_full_has_changed_nothing(index: Index) -> None:
    put(index, {b"a": b"1"})
    transaction = index.begin()
    try:
        transaction.put_many(0, [(b"%d" % row, bytes(1000)) for row in range(2000)])
    except IndexFullError:
        transaction.abort()
        assert content(index) == {b"a": b"1"}
        index.grow()
    else:
        transaction.abort()  # memory is never full
    put(index, {b"b": b"2"})
    assert content(index) == {b"a": b"1", b"b": b"2"}


# -- closing, opening, dropping -------------------------------------------------------------------


def test_a_reopened_index_has_everything_that_was_committed(indexes: Indexes) -> None:
    indexes.create()
    identity = indexes.identity()
    for number in range(3):
        with closing(indexes.open()) as index:
            assert content(index) == {b"%d" % earlier: b"x" for earlier in range(number)}
            put(index, {b"%d" % number: b"x"})
            index.sync()
    assert indexes.identity() == identity


def test_there_is_an_identity_once_there_is_an_index(indexes: Indexes) -> None:
    assert indexes.identity() is None
    indexes.create()
    identity = indexes.identity()
    assert identity is not None
    indexes.create()
    assert indexes.identity() == identity


def test_a_dropped_index_is_gone_and_can_be_made_anew(indexes: Indexes) -> None:
    indexes.drop()
    indexes.create()
    with closing(indexes.open()) as index:
        put(index, {b"a": b"1"})
    indexes.drop()
    indexes.drop()
    assert indexes.identity() is None
    indexes.create()
    with closing(indexes.open()) as index:
        assert content(index) == {}


def test_a_copied_lmdb_index_has_another_identity(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    indexes = lmdb_indexes(here)
    indexes.create()
    shutil.copytree(here, there)
    assert lmdb_indexes(there).identity() not in (None, indexes.identity())


# -- what only the memory index promises ----------------------------------------------------------


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


def test_deleted_keys_are_gone_and_missing_ones_are_no_error(index: Index) -> None:
    put(index, {b"a": b"1", b"b": b"2"})
    with writing(index) as transaction:
        transaction.delete_many(0, [b"a", b"none", b"a"])
        assert transaction.get(0, b"a") is None
    assert content(index) == {b"b": b"2"}
