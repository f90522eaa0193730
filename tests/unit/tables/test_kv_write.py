"""SET, GET and DELETE: the largest timestamp wins, batches are all or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fjord import limits, ops
from fjord.columns import Strings
from fjord.commands import Delete
from fjord.errors import Code
from fjord.ops import Opcode
from fjord.tables.kv import layout
from fjord.tables.state import Tree
from fjord.values import Value
from tests.unit.tables.world import MISSING, NOW_US, World, code_of, done, set_command

ROW = ops.ROW_BYTES
ONE_OF_EACH: dict[bytes, Value] = {
    b"void": None,
    b"buffer": b"\0\xff",
    b"empty": b"",
    b"string": "text \u00e9",
    b"integer": -(2**63),
    b"float": 2.5,
    b"yes": True,
    b"no": False,
}


@pytest.fixture
def world() -> World:
    return World()


# -- SET, GET, DELETE -----------------------------------------------------------------------------


@pytest.mark.req("FJ-41")
def test_get_returns_what_set_gave_with_its_type(world: World) -> None:
    world.set(ONE_OF_EACH)
    found = world.get(*ONE_OF_EACH)
    assert found == list(ONE_OF_EACH.values())
    assert [type(value) for value in found] == [type(value) for value in ONE_OF_EACH.values()]


def test_nothing_is_read_from_the_journal_for_what_has_no_bytes(world: World) -> None:
    world.set({b"void": None, b"empty": b""})
    assert world.get(b"void", b"empty", b"none") == [None, b"", MISSING]
    assert world.payload_reads == 0


# -- the last write wins --------------------------------------------------------------------------


@pytest.mark.req("FJ-42")
@pytest.mark.parametrize("later", [1, 1000, 60_000_000])
def test_the_largest_timestamp_wins_whatever_the_order(later: int) -> None:
    for first, second in ((0, later), (later, 0)):
        world = World()
        world.set({b"a": first}, at=first)
        assert code_of(world.set({b"a": second}, at=second)) is None
        assert world.get(b"a") == [later]


@pytest.mark.req("FJ-42")
def test_an_older_write_succeeds_and_changes_nothing(world: World) -> None:
    world.set({b"a": "new"}, at=10)
    before, trees = world.journal, world.trees()
    assert world.set({b"a": "old"}, at=9) == done(2)
    assert world.delete(b"a", at=9) == done(2)
    assert (world.journal, world.trees()) == (before, trees)
    assert world.get(b"a") == ["new"]


@pytest.mark.req("FJ-42")
def test_a_deletion_beats_an_older_set_that_comes_late(world: World) -> None:
    world.set({b"a": 1}, at=0)
    world.delete(b"a", at=10)
    world.set({b"a": "late"}, at=9)
    assert world.get(b"a") == [MISSING]
    world.set({b"a": "newer"}, at=11)
    assert world.get(b"a") == ["newer"]


def test_of_a_key_that_is_twice_in_a_batch_the_last_row_counts(world: World) -> None:
    items: list[tuple[bytes, Value]] = [(b"a", 1), (b"b", 2), (b"a", 3), (b"a", 4)]
    world.run(set_command(items))
    assert world.get(b"a", b"b") == [4, 2]
    assert world.ops()[-1].rows == 2
    world.delete(b"a", b"a", b"a", at=1)
    assert world.ops()[-1].rows == 1


def test_every_row_names_the_one_that_it_replaces(world: World) -> None:
    world.set({b"a": 1, b"b": 2})  # seqs 2 and 3
    world.set({b"b": 3, b"new": 4}, at=1)  # 4 and 5
    assert list(world.ops()[-1].column("previous")) == [3, 0]
    world.delete(b"a", b"b", b"none", at=2)  # 6, 7 and 8
    assert list(world.ops()[-1].column("previous")) == [2, 4, 0]
    world.set({b"a": 5}, at=3)
    assert list(world.ops()[-1].column("previous")) == [6]


# -- overwrite=False ------------------------------------------------------------------------------


@pytest.mark.req("FJ-44")
def test_without_overwrite_any_live_key_refuses_all(world: World) -> None:
    world.set({b"b": 1})
    before = world.journal
    refused = world.set({b"a": 1, b"b": 2, b"c": 3}, at=1, overwrite=False)
    assert code_of(refused) is Code.EXISTS
    assert world.journal == before
    assert world.get(b"a", b"b", b"c") == [MISSING, 1, MISSING]


# -- what is said of a row ------------------------------------------------------------------------


def test_keys_without_an_entry_are_written_by_the_lean_op(world: World) -> None:
    world.set({b"a": 1, b"b": 2})
    op = world.ops()[-1]
    assert op.opcode is Opcode.KV_INSERT
    assert [len(data) for data in world.tree(Tree.KV).values()] == [layout.BASE.size] * 2


@pytest.mark.parametrize(
    "more",
    [{"expires": 5}, {"ttl": 5}, {"also": []}, {"also": [b"k"]}],
    ids=lambda more: "-".join(more),
)
def test_anything_to_say_of_a_new_key_takes_the_full_op(world: World, more: dict[str, Any]) -> None:
    world.set({b"a": 1}, **more)
    assert Opcode.KV_SET in {op.opcode for op in world.ops()}
    assert Opcode.KV_INSERT not in {op.opcode for op in world.ops()}


@pytest.mark.req("FJ-30")
def test_a_value_keeps_the_date_of_its_creation(world: World) -> None:
    world.set({b"a": 1}, at=0)
    world.set({b"a": 2, b"b": 1}, at=5)
    assert world.entry(b"a").created_us == NOW_US
    assert world.entry(b"b").created_us == NOW_US + 5
    world.delete(b"a", at=6)
    world.set({b"a": 3}, at=7)
    assert world.entry(b"a").created_us == NOW_US + 7


@pytest.mark.req("FJ-30")
def test_a_ttl_without_an_expiry_counts_from_the_servers_now(world: World) -> None:
    world.now_us += 1000
    world.set({b"a": 1}, ttl=50, at=-7)
    entry = world.entry(b"a")
    assert (entry.expires_at_us, entry.ttl_us) == (NOW_US + 1050, 50)


def test_every_row_tells_what_it_frees(world: World) -> None:
    world.set({b"a": b"x" * 10, b"bb": b"y" * 20})
    world.set({b"a": b"z", b"bb": b""}, at=1)
    assert list(world.ops()[-1].column("freed")) == [ROW + 1 + 10, ROW + 2 + 20]
    world.delete(b"a", b"none", at=2)
    assert list(world.ops()[-1].column("freed")) == [ROW + 1 + 1, 0]
    world.set({b"a": b""}, at=3)
    assert list(world.ops()[-1].column("freed")) == [ROW + 1]
    world.check()


@pytest.mark.req("FJ-33")
def test_a_replaced_expiry_is_taken_out_of_the_schedule_first(world: World) -> None:
    world.set({b"a": 1, b"b": 1}, expires=10)
    world.set({b"a": 2}, at=1, expires=20)
    unschedule, written = world.ops()[-2:]
    assert (unschedule.opcode, written.opcode) == (Opcode.KV_UNSCHEDULE, Opcode.KV_SET)
    assert list(unschedule.column("expires_at_us")) == [NOW_US + 10]
    assert unschedule.column("key") == Strings.of([b"a"])
    world.check()
    world.delete(b"b", at=1)
    assert [op.opcode for op in world.ops()[-2:]] == [Opcode.KV_UNSCHEDULE, Opcode.KV_DELETE]
    world.check()


def test_a_batch_of_plain_and_special_rows_is_written_whole(world: World) -> None:
    world.set({b"plain": 1}, at=0)
    world.set({b"twice": 1}, at=0)
    world.set({b"twice": 2}, at=1)
    world.set({b"expires": 1}, expires=10)
    world.set({b"linked": 1}, also=[b"alias"])
    world.delete(b"deleted")
    items = {b"plain": 11, b"twice": 12, b"expires": 13, b"alias": 14, b"deleted": 15, b"new": 16}
    world.set(items, at=2)
    assert world.get(*items, b"linked") == [*items.values(), 14]
    world.check()
    assert world.replayed().trees() == world.trees()


entries_st = st.lists(
    st.tuples(
        st.sampled_from(["none", "plain", "twice", "expires", "deleted", "moved"]),
        st.integers(-1, 1),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(entries_st, st.integers(0, 2))
def test_rows_of_a_batch_come_to_the_same_as_one_by_one(
    rows: list[tuple[str, int]], at: int
) -> None:
    """Batches of plain rows are decided column by column, and it makes no difference.

    Where a key is locked they are decided row by row, also for who has locked it.
    """
    together, apart, locked = World(), World(), World()
    keys = [b"%d" % row for row in range(len(rows))]
    for world in (together, apart, locked):
        for key, (kind, offset) in zip(keys, rows, strict=True):
            _prepare(world, key, kind, offset)
    written: list[tuple[bytes, Value]] = [(key, "new") for key in keys]
    together.run(set_command(written, at=at))
    for item in written:
        apart.run(set_command([item], at=at))
    locked.locks = {b"\0\0\0\1" + keys[0]: 1}
    locked.run(set_command(written, at=at))
    locked.locks = {}
    assert together.trees() == locked.trees()
    assert together.journal == locked.journal
    assert [together.entry(key) for key in keys] == [apart.entry(key) for key in keys]
    for world in (together, apart):
        world.check()


def _prepare(world: World, key: bytes, kind: str, at: int) -> None:
    if kind == "none":
        return
    world.set({key: "old"}, at=at, expires=100 if kind == "expires" else 0)
    if kind == "twice":
        world.set({key: "old again"}, at=at)
    if kind == "deleted":
        world.delete(key, at=at)
    if kind == "moved":
        world.pack(len(world.ops()))


# -- DELETE with a purge --------------------------------------------------------------------------


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


# -- values with persist=0 ------------------------------------------------------------------------


@pytest.fixture
def filled() -> World:
    """A world with the table `t`, so that nothing durable is left to be done for it."""
    made = World()
    made.set({b"durable": "value"})
    return made


@pytest.mark.req("FJ-44")
def test_a_volatile_value_is_gone_with_its_process(filled: World) -> None:
    filled.set({b"a": 1}, persist=False)
    assert filled.replayed().get(b"a", b"durable") == [MISSING, "value"]


def test_a_stored_value_is_first_deleted_durably(filled: World) -> None:
    filled.set({b"b": 2}, at=0)
    assert filled.set({b"durable": "in memory", b"c": 3}, at=1, persist=False) == done(4)
    op = filled.ops()[-1]
    assert op.opcode is Opcode.KV_DELETE
    assert op.column("key") == Strings.of([b"durable"])
    assert list(op.column("timestamp_us")) == [NOW_US + 1]
    assert filled.get(b"durable", b"b", b"c") == ["in memory", 2, 3]
    # After a restart the old value does not come back.
    assert filled.replayed().get(b"durable", b"b", b"c") == [MISSING, 2, MISSING]


@pytest.mark.req("FJ-42")
def test_the_largest_timestamp_wins_between_memory_and_disk(filled: World) -> None:
    filled.set({b"a": "memory"}, at=10, persist=False)
    for persist in (True, False):
        before = filled.journal
        assert filled.set({b"a": "late"}, at=9, persist=persist) == done(2)
        assert filled.journal == before
        assert filled.get(b"a") == ["memory"]
    filled.delete(b"a", at=9)
    assert filled.get(b"a") == ["memory"]
    filled.set({b"durable": "late"}, at=-1, persist=False)
    assert filled.get(b"durable") == ["value"]
    assert b"\0\0\0\1durable" not in filled.volatile


def test_values_in_memory_have_a_quota(filled: World) -> None:
    filled.volatile_bytes = limits.VOLATILE_BYTES_MAX - 10
    assert code_of(filled.set({b"a": b"x" * 11}, persist=False)) is Code.QUOTA
    assert filled.get(b"a") == [MISSING]
    assert code_of(filled.set({b"a": b"x" * 11})) is None  # the disk has room


def test_what_has_expired_makes_room_when_the_quota_is_reached(filled: World) -> None:
    filled.set({b"old": b"x" * 1000, b"kept": b"y"}, persist=False, expires=1000)
    filled.set({b"kept": b"z"}, at=1, persist=False)
    filled.now_us += 1000
    filled.volatile_bytes = limits.VOLATILE_BYTES_MAX - 500
    assert code_of(filled.set({b"new": b"x" * 900}, at=1, persist=False)) is None
    assert filled.get(b"old", b"kept", b"new") == [MISSING, b"z", b"x" * 900]
    assert b"\0\0\0\1old" not in filled.volatile


def test_values_in_memory_count_with_what_python_needs_for_them(filled: World) -> None:
    filled.set({b"key": b"value"}, persist=False)
    assert filled.volatile_bytes == limits.VOLATILE_ENTRY_BYTES + 4 + 3 + 5
    filled.delete(b"key")
    assert filled.volatile_bytes == 0


def test_a_purge_of_nothing_writes_nothing_and_makes_no_table(world: World) -> None:
    assert world.delete(b"a", purge=True) == done(0)
    assert world.tables == {}
    world.set({b"b": 1})
    before = world.journal
    assert code_of(world.delete(b"a", purge=True)) is None
    assert world.journal == before
