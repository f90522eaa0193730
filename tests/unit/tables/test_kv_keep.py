"""What of an op still holds: rows that are held by it, with all that was noted of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fjord import limits, ops
from fjord.columns import Strings
from fjord.commands import Change, DropTable, Modify, Rename
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


def test_values_are_moved_as_they_are(world: World) -> None:
    world.set({b"a": "one", b"b": b"", b"c": None})
    world.set({b"a": "two"}, at=1)
    entries = [world.entry(key) for key in (b"a", b"b", b"c")]
    packed(world)
    assert [world.entry(key) for key in (b"a", b"b", b"c")] == entries
    assert said(world) == [Opcode.CREATE_TABLE, Opcode.KV_MOVE]


def test_only_what_holds_is_moved(world: World) -> None:
    world.set({b"a": 1, b"b": 1})
    world.set({b"a": 2}, at=1)
    moved = world.pack(2)[-1]  # the creation, and the first set
    assert moved.column("key") == Strings.of([b"b"])
    assert list(moved.column("row")) == [3]
    assert list(moved.column("previous")) == [3]
    world.check()


def test_a_row_keeps_its_identity_however_often_it_moves(world: World) -> None:
    world.set({b"a": 1})
    packed(world)
    world.touch(b"a", worked=1000)
    packed(world)
    assert list(world.ops()[-1].column("row")) == [2]
    assert world.touch(b"a", worked=10) == [MISSING]


def test_tombstones_are_moved_for_a_week(world: World) -> None:
    world.set({b"a": 1})
    world.delete(b"a", at=5)
    wait(world, limits.TOMBSTONE_US - 1)
    packed(world)
    assert list(world.ops()[-1].column("type")) == [ops.TOMBSTONE]
    world.set({b"a": "late"}, at=4)
    assert world.get(b"a") == [MISSING]


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


def test_a_tombstone_that_is_buried_again_is_as_old_as_the_last_burial(world: World) -> None:
    world.delete(b"a", at=0)
    wait(world, limits.TOMBSTONE_US - 1)
    world.delete(b"a", at=1)
    wait(world, limits.TOMBSTONE_US - 1)
    packed(world)
    assert A in world.tree(Tree.KV)
    wait(world, 1)
    packed(world)
    assert A not in world.tree(Tree.KV)


def test_the_date_of_a_burial_is_not_the_creation_of_a_later_value(world: World) -> None:
    world.set({b"a": 1}, at=0)
    world.delete(b"a", at=1)
    world.set({b"a": 2}, at=2)
    assert world.entry(b"a").created_us == NOW_US + 2
    world.delete(b"a", at=3)
    packed(world)
    world.set({b"a": 2}, at=4, expires=50)
    world.set({b"b": 2}, at=4, persist=False)
    assert world.entry(b"a").created_us == NOW_US + 4
    world.delete(b"a", at=5)
    world.set({b"a": 2}, at=6, persist=False)
    assert world.entry(b"a").created_us == NOW_US + 6


def test_what_expires_is_moved_with_the_expiry_that_holds(world: World) -> None:
    world.set({b"a": 1, b"b": 1}, ttl=100)
    world.touch(b"a", expires=500)
    packed(world)
    assert [world.entry(key).expires_at_us for key in (b"a", b"b")] == [NOW_US + 500, NOW_US + 100]
    world.now_us += 100
    world.run(Expire(limit=9))
    assert world.get(b"a", b"b") == [1, MISSING]
    world.check()


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


def test_a_mark_of_a_newer_row_stays(world: World) -> None:
    world.set({b"a": 1})
    world.touch(b"a", worked=10)
    world.set({b"a": 2}, at=1)
    world.touch(b"a", worked=20)
    packed(world)
    assert world.touch(b"a", worked=10) == [MISSING]


def test_rows_of_a_dropped_table_are_purged_and_not_moved(world: World) -> None:
    world.set({b"a": 1}, expires=10)
    world.touch(b"a", expires=50)
    world.set({b"x": 1}, table="u")
    world.run(DropTable(name="t"))
    packed(world)
    assert [key[3] for key in world.tree(Tree.KV)] == [2]
    assert world.tree(Tree.KV_EXPIRY) == world.tree(Tree.KV_MARKS) == {}


def test_changes_and_renames_hold_after_packing(world: World) -> None:
    one = (1).to_bytes(8, "little")
    world.set({b"a": 1}, ttl=100)
    world.run(Modify(table="t", key=b"a", change=Change.ADD, operand=one, timestamp_us=NOW_US))
    world.run(Rename(table="t", key=b"a", to=b"b", timestamp_us=NOW_US))
    entry = world.entry(b"b")
    packed(world)
    assert world.get(b"a", b"b") == [MISSING, 2]
    assert world.entry(b"b") == entry


def test_a_part_of_the_journal_may_be_packed_at_any_point(world: World) -> None:
    for at in range(6):
        world.set({b"%d" % (at % 4): at, b"all": at}, at=at, expires=50 + at)
        world.touch(b"all", expires=200 + at)
    for _ in range(20):
        before = world.get(b"0", b"1", b"2", b"3", b"all")
        world.pack(1)
        assert world.get(b"0", b"1", b"2", b"3", b"all") == before
        world.check()
        assert world.replayed().trees() == world.trees()
