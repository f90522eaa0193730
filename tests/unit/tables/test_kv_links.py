"""One value under several keys: all of them lead to it, and nothing is left of it twice (FJ-31)."""

from __future__ import annotations

import pytest

from fjord import limits
from fjord.commands import Rename
from fjord.errors import Code
from fjord.ops import Opcode
from fjord.tables.state import Tree
from tests.unit.tables.world import MISSING, NOW_US, World, code_of


@pytest.fixture
def world() -> World:
    """A world in which `a` has the further keys `b` and `c`."""
    made = World()
    made.set({b"a": 1}, also=[b"b", b"c"])
    return made


@pytest.mark.req("FJ-31")
def test_a_value_is_found_under_all_of_its_keys(world: World) -> None:
    assert world.get(b"a", b"b", b"c", b"d") == [1, 1, 1, MISSING]
    assert [op.opcode for op in world.ops()[-2:]] == [Opcode.KV_SET, Opcode.KV_LINK]
    world.check()


@pytest.mark.req("FJ-31")
def test_a_value_that_is_set_through_any_key_is_set_for_all(world: World) -> None:
    world.set({b"b": 2}, at=1)
    assert world.get(b"a", b"b", b"c") == [2, 2, 2]
    world.set({b"a": 3}, at=2)
    assert world.get(b"a", b"b", b"c") == [3, 3, 3]
    world.check()


@pytest.mark.req("FJ-31")
def test_all_that_is_known_of_a_value_is_known_under_all_keys(world: World) -> None:
    world.set({b"a": 2}, at=1, expires=100, ttl=50)
    world.touch(b"c", expires=200, worked=10)
    entries = [world.entry(key) for key in (b"a", b"b", b"c")]
    assert entries[0] == entries[1] == entries[2]
    assert entries[0].expires_at_us == NOW_US + 200
    assert world.touch(b"a", worked=10) == [MISSING]


@pytest.mark.req("FJ-31", "FJ-42")
def test_the_largest_timestamp_wins_over_all_keys_of_a_value(world: World) -> None:
    world.set({b"b": "newer"}, at=5)
    world.set({b"a": "late", b"c": "late"}, at=4)
    assert world.get(b"a", b"c") == ["newer", "newer"]


@pytest.mark.req("FJ-31")
@pytest.mark.parametrize("purge", [False, True])
def test_a_value_that_is_deleted_through_any_key_is_gone(world: World, purge: bool) -> None:
    world.delete(b"b", at=1, purge=purge)
    assert world.get(b"a", b"b", b"c") == [MISSING] * 3
    world.check()


@pytest.mark.req("FJ-31")
def test_a_new_list_replaces_the_old_one(world: World) -> None:
    world.set({b"a": 2}, at=1, also=[b"c", b"d"])
    assert world.get(b"a", b"b", b"c", b"d") == [2, MISSING, 2, 2]
    world.set({b"a": 3}, at=2, also=[])
    assert world.get(b"a", b"b", b"c", b"d") == [3, MISSING, MISSING, MISSING]
    world.check()


@pytest.mark.req("FJ-31")
def test_a_further_key_that_has_a_value_of_its_own_is_refused(world: World) -> None:
    world.set({b"d": "own"})
    before = world.journal
    assert code_of(world.set({b"a": 2}, at=1, also=[b"b", b"d"])) is Code.EXISTS
    assert code_of(world.set({b"new": 2}, at=1, also=[b"a"])) is Code.EXISTS
    assert world.journal == before


@pytest.mark.req("FJ-42")
def test_a_key_that_was_deleted_later_is_not_linked_by_an_older_write() -> None:
    world = World()
    world.delete(b"b", at=5)
    world.set({b"a": 1}, at=4, also=[b"b", b"c"])
    assert world.get(b"a", b"b", b"c") == [1, MISSING, 1]


def test_further_keys_have_the_bounds_of_keys(world: World) -> None:
    most = [b"%d" % number for number in range(limits.ALSO_MAX)]
    assert code_of(world.set({b"x": 1}, also=most)) is None
    assert code_of(world.set({b"x": 1}, also=[*most, b"one more"])) is Code.BAD_COUNT
    assert code_of(world.set({b"x": 1}, also=[b""])) is Code.EMPTY_KEY
    assert code_of(world.set({b"x": 1}, also=[b"k" * 481])) is Code.KEY_TOO_LONG
    assert code_of(world.set({b"x": 1, b"y": 1}, also=[b"z"])) is Code.BAD_BATCH


# -- renaming -------------------------------------------------------------------------------------


def rename(world: World, key: bytes, to: bytes, *, at: int = 1, overwrite: bool = False) -> object:
    stamp = NOW_US + at
    command = Rename(table="t", key=key, to=to, timestamp_us=stamp, overwrite=overwrite)
    return code_of(world.run(command))


@pytest.mark.req("FJ-31", "FJ-35")
def test_renaming_a_further_key_moves_that_key_only(world: World) -> None:
    assert rename(world, b"b", b"d") is None
    assert world.get(b"a", b"b", b"c", b"d") == [1, MISSING, 1, 1]
    world.set({b"a": 2}, at=2)
    assert world.get(b"d") == [2]
    world.check()


@pytest.mark.req("FJ-31", "FJ-35")
def test_renaming_a_value_keeps_its_further_keys(world: World) -> None:
    """As a sort key changes while its URI stays."""
    assert rename(world, b"a", b"z") is None
    assert world.get(b"a", b"b", b"c", b"z") == [MISSING, 1, 1, 1]
    assert rename(world, b"b", b"y", at=2) is None
    assert rename(world, b"z", b"a", at=3) is None
    assert world.get(b"a", b"b", b"c", b"y", b"z") == [1, MISSING, 1, 1, MISSING]
    world.pack(len(world.ops()))
    assert world.replayed().trees() == world.trees()
    world.set({b"c": 2}, at=4)
    assert world.get(b"a", b"b", b"c", b"y", b"z") == [2, MISSING, 2, 2, MISSING]
    world.check()


# -- packing --------------------------------------------------------------------------------------


def test_a_value_in_memory_has_one_key(world: World) -> None:
    assert code_of(world.set({b"b": 2}, at=1, persist=False)) is Code.EXISTS
    assert code_of(world.set({b"new": 2}, also=[b"other"], persist=False)) is Code.BAD_BATCH
    world.set({b"a": 2}, at=1, persist=False)
    assert world.get(b"a", b"b", b"c") == [2, MISSING, MISSING]
    assert world.replayed().get(b"a", b"b") == [MISSING, MISSING]
    world.check()


def test_renaming_a_further_key_onto_its_value_drops_the_key(world: World) -> None:
    assert rename(world, b"b", b"a") is Code.EXISTS
    assert rename(world, b"b", b"a", overwrite=True) is None
    assert world.get(b"a", b"b", b"c") == [1, MISSING, 1]
    world.check()


def test_its_own_key_among_the_further_ones_does_no_harm(world: World) -> None:
    world.set({b"x": 1}, also=[b"x", b"y", b"y"])
    assert world.get(b"x", b"y") == [1, 1]
    assert world.ops()[-1].rows == 1
    world.set({b"y": 2}, at=1, also=[b"x"])
    assert world.get(b"x", b"y") == [2, MISSING]


def test_links_that_lead_nowhere_are_packed_away_after_a_while(world: World) -> None:
    world.set({b"a": 2}, at=1, also=[])
    world.pack(len(world.ops()))
    assert len(world.tree(Tree.KV)) == 3
    world.now_us += limits.TOMBSTONE_US + 1
    world.pack(len(world.ops()))
    assert list(world.tree(Tree.KV)) == [b"\0\0\0\1a"]
    world.check()


@pytest.mark.req("FJ-31", "FJ-33")
def test_the_keys_of_an_expired_value_do_not_lead_to_the_next_one() -> None:
    world = World()
    world.set({b"a": 1}, also=[b"b"], expires=10)
    world.now_us += 10
    assert world.get(b"a", b"b") == [MISSING, MISSING]
    world.set({b"a": 2}, at=10)
    assert world.get(b"a", b"b") == [2, MISSING]
