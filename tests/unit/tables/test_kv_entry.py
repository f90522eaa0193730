"""Entries, marks and schedules, byte by byte."""

from __future__ import annotations

import pytest

from fjord import limits, ops
from fjord.columns import Strings
from fjord.ops import Op, Opcode
from fjord.tables.kv import layout
from fjord.tables.kv.layout import BASE, FULL, NO_MARK, KvEntry, Mark
from fjord.tables.meaning import MEANING
from fjord.tables.state import Pointer, Tree
from tests.unit.tables.world import World

U64_MAX = 2**64 - 1


def test_what_a_base_does_not_say_follows_from_it() -> None:
    entry = layout.decode(BASE.pack(7, 100, 1, 2, 3, 4, 5))
    assert entry == KvEntry(7, 100, 1, 2, 3, 4, 5, 7, 100, 0, 0, 7)
    assert entry.pointer == Pointer(1, 2, 3, 4, 7)
    assert entry.is_value


@pytest.mark.parametrize("held", [7, 8, U64_MAX])
def test_a_tombstone_is_no_value_and_knows_who_holds_it(held: int) -> None:
    data = layout.encode_tombstone(7, 100, held, 55)
    assert len(data) == FULL.size
    entry = layout.decode(data)
    assert (entry.row, entry.timestamp_us, entry.held) == (7, 100, held)
    assert entry.created_us == 55  # when it was buried
    assert (entry.type, entry.size, entry.expires_at_us) == (ops.TOMBSTONE, 0, 0)
    assert not entry.is_value


@pytest.mark.parametrize("size", [1, 31, 32, 33, limits.KV_KEY_BYTES_MAX])
def test_an_alias_leads_to_its_target_however_long(size: int) -> None:
    """With 32 bytes it is as long as a full entry."""
    target = b"t" * size
    data = layout.encode_alias(7, 100, 9, target)
    entry = layout.decode(data)
    assert (entry.row, entry.timestamp_us, entry.held, entry.size) == (7, 100, 9, size)
    assert (entry.type, entry.expires_at_us, entry.is_value) == (ops.ALIAS, 0, False)
    assert layout.decode_target(data) == target


def test_a_mark_is_void_for_any_other_row() -> None:
    data = layout.encode_mark(7, 1, 2, 3)
    assert layout.decode_mark(data, 7) == Mark(7, 1, 2, 3)
    assert layout.decode_mark(data, 8) == NO_MARK
    assert layout.decode_mark(None, 7) == NO_MARK


@pytest.mark.parametrize(
    ("own", "noted", "expected"), [(0, 0, 0), (0, 9, 0), (5, 0, 5), (5, 9, 9), (9, 5, 9)]
)
def test_the_later_expiry_holds_and_never_stays_never(own: int, noted: int, expected: int) -> None:
    entry = KvEntry(7, 100, 1, 2, 3, 4, 5, 8, 9, own, 11, 12)
    assert layout.expiry_of(entry, Mark(7, 1, noted, 0)) == expected


def test_a_schedule_is_in_order_of_time() -> None:
    moments = [1, 255, 256, 2**32, 2**63, U64_MAX]
    keys = [layout.schedule_key(moment, b"\0\0\0\1key") for moment in moments]
    assert keys == sorted(keys)
    assert [layout.decode_schedule(key) for key in keys] == [
        (moment, b"\0\0\0\1key") for moment in moments
    ]


# -- what ops on key/value tables do to the index -------------------------------------------------

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


def test_applying_twice_is_applying_once(world: World) -> None:
    world.set({b"a": 1, b"b": 2}, expires=10)
    world.touch(b"a", expires=50)
    world.delete(b"b", at=1)
    before = world.trees()
    for op, place in world.placed()[1:]:
        MEANING[op.opcode].apply(world, op, place)
    assert world.trees() == before
