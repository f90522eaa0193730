"""DELETE with a purge: removed at once, and everywhere (FJ-48)."""

from __future__ import annotations

import pytest

from fjord.columns import Strings
from fjord.commands import Delete
from fjord.ops import Opcode
from fjord.tables.state import Tree
from tests.unit.tables.world import MISSING, NOW_US, World, code_of


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.req("FJ-48")
def test_a_delete_leaves_a_tombstone_and_a_purge_leaves_nothing(world: World) -> None:
    world.set({b"a": 1, b"b": 1})
    world.delete(b"a", at=1)
    world.delete(b"b", at=1, purge=True)
    assert list(world.tree(Tree.KV)) == [b"\0\0\0\1a"]
    assert world.ops()[-1].opcode is Opcode.KV_PURGE
    world.check()
    world.set({b"a": "late", b"b": "late"}, at=0)
    assert world.get(b"a", b"b") == [MISSING, "late"]


@pytest.mark.req("FJ-42", "FJ-48")
def test_a_purge_that_is_older_than_the_value_changes_nothing(world: World) -> None:
    world.set({b"a": 1}, at=5)
    assert code_of(world.delete(b"a", at=4, purge=True)) is None
    assert world.get(b"a") == [1]


@pytest.mark.req("FJ-42")
@pytest.mark.parametrize("is_purge", [False, True])
def test_each_key_is_deleted_as_of_its_own_date(world: World, *, is_purge: bool) -> None:
    world.set({b"a": 1, b"b": 2, b"c": 3}, at=5)
    dates = [NOW_US + 4, NOW_US + 5, NOW_US + 6]
    keys = Strings.of([b"a", b"b", b"c"])
    # The date of the whole command counts for nothing: it would take all of them, or none.
    for at in (0, 9):
        world.run(
            Delete(
                table="t", keys=keys, timestamp_us=NOW_US + at, timestamps_us=dates, purge=is_purge
            )
        )
    assert world.get(b"a", b"b", b"c") == [1, MISSING, MISSING]
    world.set({b"b": "late", b"c": "late"}, at=5)
    assert world.get(b"b", b"c") == (["late", "late"] if is_purge else ["late", MISSING])
