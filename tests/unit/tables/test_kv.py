"""What ops on key/value tables do to the index: they only write, each in its own way."""

from __future__ import annotations

import pytest

from fjord import ops
from fjord.columns import Strings
from fjord.ops import Op, Opcode
from fjord.tables.kv import layout
from fjord.tables.meaning import MEANING
from fjord.tables.state import Tree
from tests.unit.tables.world import World

A = b"\0\0\0\7a"
B = b"\0\0\0\7b"


@pytest.fixture
def world() -> World:
    return World()


def apply(world: World, opcode: Opcode, *columns: object) -> None:
    """Applies an op of two rows, on the keys `a` and `b`, at the next seq."""
    world.apply(Op(opcode, 7, 2, columns))


def entries(world: World) -> dict[bytes, layout.KvEntry]:
    return {key: layout.decode(data) for key, data in world.tree(Tree.KV).items()}


KEYS = Strings.of([b"a", b"b"])
VALUES = Strings.of([b"first", b"second!"])
ROW = ops.ROW_BYTES


def test_an_insert_leaves_lean_entries_that_point_to_their_values(world: World) -> None:
    apply(world, Opcode.KV_INSERT, [10, 20], b"\1\2", KEYS, VALUES)
    assert [len(data) for data in world.tree(Tree.KV).values()] == [33, 33]
    found = entries(world)
    assert (found[A].row, found[A].timestamp_us, found[A].type) == (1, 10, 1)
    assert (found[B].row, found[B].timestamp_us, found[B].type) == (2, 20, 2)
    assert world.payloads([found[A].pointer, found[B].pointer]) == [b"first", b"second!"]
    assert world.live == {1: 2 * ROW + 2 + 12}


def test_a_set_says_of_each_row_only_what_is_special(world: World) -> None:
    apply(
        world, Opcode.KV_SET,
        [10, 20], [0, 50], [0, 5], [10, 15], [0, 0], [0, 0], [0, 0], b"\1\2", KEYS, VALUES,
    )  # fmt: skip
    assert [len(data) for data in world.tree(Tree.KV).values()] == [33, 73]
    entry = entries(world)[B]
    assert (entry.row, entry.held, entry.created_us, entry.links) == (2, 2, 15, 2)
    assert (entry.expires_at_us, entry.ttl_us) == (50, 5)
    assert world.payloads([entry.pointer]) == [b"second!"]
    assert world.tree(Tree.KV_EXPIRY) == {layout.schedule_key(50, B): layout.ROW.pack(2)}


@pytest.mark.parametrize(
    ("created", "expires", "ttl", "links"),
    [(9, 0, 0, 0), (10, 9, 0, 0), (10, 0, 9, 0), (10, 0, 0, 1)],
)
def test_whatever_is_special_takes_a_full_entry(
    world: World, created: int, expires: int, ttl: int, links: int
) -> None:
    columns = ([10, 10], [expires] * 2, [ttl] * 2, [created] * 2, [links] * 2, [0, 0], [0, 0])
    apply(world, Opcode.KV_SET, *columns, b"\1\1", KEYS, VALUES)
    entry = entries(world)[B]
    assert (entry.created_us, entry.expires_at_us, entry.ttl_us) == (created, expires, ttl)
    assert entry.links == (links or 2)


def test_a_row_that_replaces_another_takes_its_live_bytes(world: World) -> None:
    apply(world, Opcode.KV_INSERT, [10, 20], b"\1\2", KEYS, VALUES)
    freed = [ROW + 1 + 5, ROW + 1 + 7]
    apply(world, Opcode.KV_DELETE, [30, 30], [8, 9], [1, 2], freed, KEYS)
    assert world.live == {1: 0, 3: 2 * (ROW + 1)}
    apply(world, Opcode.KV_PURGE, [3, 4], [ROW + 1] * 2, KEYS)
    assert set(world.live.values()) == {0}
    assert world.tree(Tree.KV) == {}


def test_a_move_keeps_the_identity_of_rows_and_all_that_is_known(world: World) -> None:
    apply(world, Opcode.KV_INSERT, [10, 20], b"\1\2", KEYS, VALUES)
    apply(
        world, Opcode.KV_MOVE,
        [1, 2], [10, 20], [0, 50], [0, 5], [9, 15], [1, 1], [0, 6], [0, 7], [1, 2], b"\1\2",
        KEYS, VALUES,
    )  # fmt: skip
    found = entries(world)
    assert [entry.row for entry in found.values()] == [1, 2]
    assert [entry.held for entry in found.values()] == [3, 4]
    assert found[B][8:] == (15, 50, 5, 1)
    assert world.payloads([entry.pointer for entry in found.values()]) == [b"first", b"second!"]
    assert world.tree(Tree.KV_MARKS) == {B: layout.encode_mark(2, 6, 50, 7)}
    assert world.tree(Tree.KV_EXPIRY) == {layout.schedule_key(50, B): layout.ROW.pack(2)}
    assert world.live == {1: 0, 3: 2 * ROW + 2 + 12}


def test_a_move_says_tombstones_and_aliases_again(world: World) -> None:
    none = [0, 0]
    apply(
        world, Opcode.KV_MOVE,
        [100, 101], [10, 20], none, none, [9, 0], none, none, none, none,
        bytes([ops.TOMBSTONE, ops.ALIAS]), KEYS, Strings.of([b"", b"target"]),
    )  # fmt: skip
    assert world.tree(Tree.KV) == {
        A: layout.encode_tombstone(100, 10, 1, 9),
        B: layout.encode_alias(101, 20, 2, b"target"),
    }
    assert world.live == {1: 2 * ROW + 2 + 6}


def test_applying_never_looks_at_what_is_there(world: World) -> None:
    """Ops are resolved: applied out of any context they only write."""
    world.set({b"a": "newer"}, at=10)
    other = World()
    other.set({b"a": "older"}, at=1)
    world.apply(other.ops()[-1])
    assert world.get(b"a") == ["older"]


def test_applying_twice_is_applying_once(world: World) -> None:
    world.set({b"a": 1, b"b": 2}, expires=10)
    world.touch(b"a", expires=50)
    world.delete(b"b", at=1)
    before = world.trees()
    for op, place in world.placed()[1:]:
        MEANING[op.opcode].apply(world, op, place)
    assert world.trees() == before
