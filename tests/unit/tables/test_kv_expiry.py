"""Upkeep: what has expired becomes a tombstone, and dropped tables go bit by bit."""

from __future__ import annotations

import pytest

from fjord.columns import Strings
from fjord.commands import DropTable, Get
from fjord.errors import Code
from fjord.ops import TOMBSTONE, Op, Opcode
from fjord.tables.catalog import Sweep
from fjord.tables.kv import keep, layout
from fjord.tables.kv.keep import Expire
from fjord.tables.state import Tree
from tests.unit.tables.world import LEASE_US, MISSING, NOW_US, World, code_of, decoded


@pytest.fixture
def world() -> World:
    return World()


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


@pytest.mark.req("FJ-33", "FJ-47")
def test_what_was_touched_expires_when_the_touch_says(world: World) -> None:
    world.set({b"a": 1}, expires=10)
    world.touch(b"a", expires=100)
    world.now_us += 10
    world.run(Expire(limit=100))
    assert world.get(b"a") == [1]
    world.now_us += 90
    world.run(Expire(limit=100))
    assert world.ops()[-1].opcode is Opcode.KV_EXPIRE
    assert list(world.ops()[-1].column("expires_at_us")) == [NOW_US + 100]
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


def test_tables_expire_together_each_with_its_op(world: World) -> None:
    for table in ("t", "u"):
        world.set({b"a": 1}, expires=10, table=table)
    world.now_us += 10
    count = len(world.ops())
    world.run(Expire(limit=100))
    assert opcodes(world, count) == [Opcode.KV_EXPIRE] * 2
    assert [op.table for op in world.ops()[-2:]] == [1, 2]
    world.check()


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


@pytest.mark.req("FJ-33")
def test_the_next_moment_is_the_first_of_the_schedule(world: World) -> None:
    assert keep.due_us(world) is None
    world.set({b"a": 1}, expires=70)
    world.set({b"b": 1}, expires=50)
    assert keep.due_us(world) == NOW_US + 50
    world.touch(b"b", expires=90)
    assert keep.due_us(world) == NOW_US + 70


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


def test_a_dropped_table_is_not_there(world: World) -> None:
    world.set({b"a": 1})
    world.set({b"m": 1}, persist=False)
    drop(world, "t")
    assert world.get(b"a", b"m") == [MISSING, MISSING]
    assert world.volatile == {}
    assert code_of(world.run(DropTable(name="t"))) is Code.NOT_FOUND
    world.set({b"b": 2})
    assert world.get(b"a", b"b", b"m") == [MISSING, 2, MISSING]


def test_an_op_on_a_table_that_is_gone_is_applied_like_any_other(world: World) -> None:
    world.set({b"a": 1})
    columns = ([NOW_US], [LEASE_US], [0], [0], Strings.of([b"zz"]))
    world.apply(Op(Opcode.KV_DELETE, 77, 1, columns))
    assert layout.decode(world.tree(Tree.KV)[b"\0\0\0\x4dzz"]).type == TOMBSTONE
