"""What of an op still holds: rows that are held by it, with all that was noted of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fjord import limits, ops
from fjord.columns import Strings
from fjord.commands import DropTable, Get, Rename
from fjord.ops import TOMBSTONE, Opcode
from fjord.tables.catalog import Sweep
from fjord.tables.kv import layout
from fjord.tables.kv.keep import Expire
from fjord.tables.state import Tree
from tests.unit.tables.world import LEASE_US, MISSING, NOW_US, World, code_of, decoded

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


def test_a_mark_that_a_write_has_voided_goes_from_the_index(world: World) -> None:
    world.set({b"a": 1, b"b": 1})
    world.touch(b"a", b"b", worked=10)
    world.set({b"a": 2}, at=1)
    world.delete(b"b", at=1)
    assert len(world.tree(Tree.KV_MARKS)) == 2
    packed(world)
    assert world.tree(Tree.KV_MARKS) == {}


def test_rows_of_a_dropped_table_are_purged_and_not_moved(world: World) -> None:
    world.set({b"a": 1}, expires=10)
    world.touch(b"a", expires=50)
    world.set({b"x": 1}, table="u")
    world.run(DropTable(name="t"))
    packed(world)
    assert [key[3] for key in world.tree(Tree.KV)] == [2]
    assert world.tree(Tree.KV_EXPIRY) == world.tree(Tree.KV_MARKS) == {}


# -- upkeep ---------------------------------------------------------------------------------------


def opcodes(world: World, since: int) -> list[Opcode]:
    return [op.opcode for op in world.ops()[since:]]


# -- expiry ---------------------------------------------------------------------------------------


@pytest.mark.req("FJ-33")
def test_what_is_due_becomes_a_tombstone_right_behind_it(world: World) -> None:
    world.set({b"a": 1, b"b": 2}, at=-3, expires=10)
    world.set({b"c": 3}, expires=11)
    world.set({b"d": 4})
    world.now_us += 10
    world.lease_us += 7
    count = len(world.ops())
    world.run(Expire(limit=100))
    assert opcodes(world, count) == [Opcode.KV_EXPIRE]
    assert world.ops()[-1].column("key") == Strings.of([b"a", b"b"])
    assert list(world.ops()[-1].column("buried_us")) == [LEASE_US + 7] * 2
    entry = layout.decode(world.tree(Tree.KV)[b"\0\0\0\1a"])
    assert (entry.type, entry.timestamp_us) == (TOMBSTONE, NOW_US - 2)
    assert len(world.tree(Tree.KV_EXPIRY)) == 1
    assert world.get(b"a", b"b", b"c", b"d") == [MISSING, MISSING, 3, 4]
    world.check()


def test_a_step_has_a_bound_and_takes_the_oldest_first(world: World) -> None:
    for number in range(5):
        world.set({b"%d" % number: number}, expires=50 - number)
    world.now_us += 100
    world.run(Expire(limit=2))
    assert world.ops()[-1].column("key") == Strings.of([b"4", b"3"])
    world.run(Expire(limit=2))
    world.run(Expire(limit=2))
    assert world.ops()[-1].rows == 1
    assert world.tree(Tree.KV_EXPIRY) == {}


def test_an_expiry_that_no_row_has_is_dropped(world: World) -> None:
    """There should be none; if one is there all the same, it does no harm."""
    world.set({b"a": 1}, expires=100)
    items = [(layout.schedule_key(NOW_US + 5, b"\0\0\0\1a"), layout.ROW.pack(2))]
    world.put_many(Tree.KV_EXPIRY, items)
    items = [(layout.schedule_key(NOW_US + 6, b"\0\0\0\7gone"), layout.ROW.pack(9))]
    world.put_many(Tree.KV_EXPIRY, items)
    world.now_us += 50
    count = len(world.ops())
    world.run(Expire(limit=100))
    assert opcodes(world, count) == [Opcode.KV_UNSCHEDULE] * 2
    assert world.get(b"a") == [1]
    world.check()


# -- dropped tables -------------------------------------------------------------------------------


def drop(world: World, name: str) -> None:
    assert code_of(world.run(DropTable(name=name))) is None


def test_the_rows_of_a_dropped_table_go_bit_by_bit(world: World) -> None:
    world.set({b"%d" % number: number for number in range(5)}, expires=10)
    world.touch(b"3", expires=100)
    world.delete(b"gone")
    world.set({b"x": 1}, also=[b"y"])
    world.set({b"a": "stays"}, table="u")
    drop(world, "t")
    for left in (6, 4, 2, 0):
        world.run(Sweep(limit=2))
        assert len([key for key in world.tree(Tree.KV) if key[3] == 1]) == left
        world.check()
    assert world.tree(Tree.KV_EXPIRY) == world.tree(Tree.KV_MARKS) == {}
    world.run(Sweep(limit=2))
    assert world.ops()[-1].opcode is Opcode.FORGET_TABLE
    before = world.journal
    world.run(Sweep(limit=2))
    assert world.journal == before
    assert decoded(world.run(Get(table="u", keys=Strings.of([b"a"])))) == ["stays"]
    assert world.replayed().trees() == world.trees()


def test_ids_are_not_given_out_again_after_packing_either(world: World) -> None:
    for name in ("t", "u"):
        world.set({b"a": 1}, table=name)
    drop(world, "u")
    world.run(Sweep(limit=100))
    world.pack(len(world.ops()))
    world.pack(len(world.ops()))
    again = world.replayed()
    for found in (world, again):
        found.set({b"a": 1}, table="v")
        assert found.tables["v"].id == 3
