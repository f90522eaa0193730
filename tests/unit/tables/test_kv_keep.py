"""What of an op still holds: rows that are held by it, with all that was noted of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fjord import limits, ops
from fjord.columns import Strings
from fjord.commands import DropTable, Rename
from fjord.ops import Opcode
from fjord.tables.kv import layout
from fjord.tables.kv.keep import Expire
from fjord.tables.state import Tree
from tests.unit.tables.world import MISSING, NOW_US, World

A = b"\0\0\0\1a"


@pytest.fixture
def world() -> World:
    return World()


def packed(world: World) -> World:
    """Packs all that there is, twice, and checks that nothing can be told from before."""
    for _ in range(2):
        world.pack(len(world.ops()))
        world.check()
        assert world.replayed().trees() == world.trees()
    return world


def wait(world: World, passed_us: int) -> None:
    world.now_us += passed_us
    world.lease_us += passed_us


def said(world: World) -> list[Opcode]:
    return [op.opcode for op in world.ops()]


def test_only_what_holds_is_moved(world: World) -> None:
    world.set({b"a": 1, b"b": 1})
    world.set({b"a": 2}, at=1)
    moved = world.pack(2)[-1]  # the creation, and the first set
    assert moved.column("key") == Strings.of([b"b"])
    assert list(moved.column("row")) == [3]
    assert list(moved.column("previous")) == [3]
    world.check()


@pytest.mark.req("FJ-48")
def test_tombstones_are_purged_after_a_week(world: World) -> None:
    world.delete(b"a", b"b", at=0)
    wait(world, limits.TOMBSTONE_US)
    packed(world)
    assert world.tree(Tree.KV) == {}
    world.set({b"a": "late"}, at=-1)
    assert world.get(b"a") == ["late"]


def bury_by_delete(world: World) -> None:
    world.set({b"a": 1}, at=-OLD_US)
    world.delete(b"a", at=5 - OLD_US)


def bury_by_expiry(world: World) -> None:
    world.set({b"a": 1}, at=4 - OLD_US, expires=10)
    world.now_us += 10
    world.run(Expire(limit=9))


def bury_by_rename(world: World) -> None:
    world.set({b"a": 1}, at=4 - OLD_US)
    world.run(Rename(table="t", key=b"a", to=b"z", timestamp_us=NOW_US - 2 * OLD_US))


def bury_by_memory(world: World) -> None:
    """A value that is stored is deleted durably before one in memory takes its place."""
    world.set({b"a": 1}, at=-OLD_US)
    world.set({b"a": 2}, at=5 - OLD_US, persist=False, expires=10)
    world.now_us += 10
    world.volatile.clear()  # as after a restart


OLD_US = 3 * limits.TOMBSTONE_US
BURIALS = pytest.mark.parametrize(
    "bury", [bury_by_delete, bury_by_expiry, bury_by_rename, bury_by_memory]
)


@pytest.mark.req("FJ-42", "FJ-48")
@BURIALS
@pytest.mark.parametrize("moves", [0, 1, 2])
def test_a_tombstone_is_as_old_as_it_has_been_here(
    world: World, bury: Callable[[World], None], moves: int
) -> None:
    """A client whose clock is weeks behind is protected from late writes as any other is."""
    bury(world)
    buried_us = world.lease_us
    for _ in range(moves):
        wait(world, 1)
        packed(world)
    wait(world, limits.TOMBSTONE_US - 1 - moves)
    packed(world)
    entry = layout.decode(world.tree(Tree.KV)[A])
    assert (entry.type, entry.timestamp_us) == (ops.TOMBSTONE, NOW_US + 5 - OLD_US)
    assert entry.created_us == buried_us
    world.set({b"a": "late"}, at=4 - OLD_US)
    assert world.get(b"a") == [MISSING]
    wait(world, 1)
    packed(world)
    assert A not in world.tree(Tree.KV)
    world.set({b"a": "very late"}, at=4 - OLD_US)
    assert world.get(b"a") == ["very late"]


@BURIALS
def test_a_clock_that_jumps_ahead_does_not_purge_tombstones(
    world: World, bury: Callable[[World], None]
) -> None:
    bury(world)
    world.now_us += 100 * limits.TOMBSTONE_US
    packed(world)
    assert layout.decode(world.tree(Tree.KV)[A]).type == ops.TOMBSTONE
    world.now_us = NOW_US
    world.lease_us += limits.TOMBSTONE_US
    packed(world)
    assert A not in world.tree(Tree.KV)


def test_what_has_expired_and_is_not_swept_yet_is_moved_too(world: World) -> None:
    """The clock may go back; only upkeep decides that a value is gone."""
    world.set({b"a": 1}, expires=10)
    world.now_us += 10
    packed(world)
    world.now_us -= 5
    assert world.get(b"a") == [1]


def test_a_mark_that_a_write_has_voided_goes_from_the_index(world: World) -> None:
    world.set({b"a": 1, b"b": 1})
    world.touch(b"a", b"b", worked=10)
    world.set({b"a": 2}, at=1)
    world.delete(b"b", at=1)
    assert len(world.tree(Tree.KV_MARKS)) == 2
    packed(world)
    assert world.tree(Tree.KV_MARKS) == {}


def test_a_mark_that_a_move_has_said_goes_the_same_way(world: World) -> None:
    world.set({b"a": 1})
    world.touch(b"a", worked=10)
    world.pack(len(world.ops()))
    world.set({b"a": 2}, at=1)
    world.pack(2)  # what the packing said, and no more
    assert world.tree(Tree.KV_MARKS) == {}
    world.check()
    assert world.replayed().trees() == world.trees()


def test_rows_of_a_dropped_table_are_purged_and_not_moved(world: World) -> None:
    world.set({b"a": 1}, expires=10)
    world.touch(b"a", expires=50)
    world.set({b"x": 1}, table="u")
    world.run(DropTable(name="t"))
    packed(world)
    assert [key[3] for key in world.tree(Tree.KV)] == [2]
    assert world.tree(Tree.KV_EXPIRY) == world.tree(Tree.KV_MARKS) == {}
