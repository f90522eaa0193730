"""Values with persist=0: in memory only, and never in the way of what is durable."""

from __future__ import annotations

import pytest

from fjord import limits
from fjord.columns import Strings
from fjord.commands import Get
from fjord.errors import Code
from fjord.ops import Opcode
from fjord.values import Value
from tests.unit.tables.world import MISSING, NOW_US, World, code_of, done, set_command


@pytest.fixture
def world() -> World:
    """A world with the table `t`, so that nothing durable is left to be done for it."""
    made = World()
    made.set({b"durable": "value"})
    return made


@pytest.mark.req("FJ-44")
def test_nothing_durable_comes_of_a_volatile_value(world: World) -> None:
    before, trees = world.journal, world.trees()
    assert world.set({b"a": 1, b"b": "two"}, persist=False) == done(2)
    assert world.get(b"a", b"b", b"durable") == [1, "two", "value"]
    assert (world.journal, world.trees()) == (before, trees)


@pytest.mark.req("FJ-44")
def test_a_volatile_value_is_gone_with_its_process(world: World) -> None:
    world.set({b"a": 1}, persist=False)
    assert world.replayed().get(b"a", b"durable") == [MISSING, "value"]


def test_a_stored_value_is_first_deleted_durably(world: World) -> None:
    world.set({b"b": 2}, at=0)
    assert world.set({b"durable": "in memory", b"c": 3}, at=1, persist=False) == done(4)
    op = world.ops()[-1]
    assert op.opcode is Opcode.KV_DELETE
    assert op.column("key") == Strings.of([b"durable"])
    assert list(op.column("timestamp_us")) == [NOW_US + 1]
    assert world.get(b"durable", b"b", b"c") == ["in memory", 2, 3]
    # After a restart the old value does not come back.
    assert world.replayed().get(b"durable", b"b", b"c") == [MISSING, 2, MISSING]


@pytest.mark.req("FJ-42")
def test_the_largest_timestamp_wins_between_memory_and_disk(world: World) -> None:
    world.set({b"a": "memory"}, at=10, persist=False)
    for persist in (True, False):
        before = world.journal
        assert world.set({b"a": "late"}, at=9, persist=persist) == done(2)
        assert world.journal == before
        assert world.get(b"a") == ["memory"]
    world.delete(b"a", at=9)
    assert world.get(b"a") == ["memory"]
    world.set({b"durable": "late"}, at=-1, persist=False)
    assert world.get(b"durable") == ["value"]
    assert b"\0\0\0\1durable" not in world.volatile


def test_of_a_key_that_is_twice_in_a_batch_the_last_row_is_kept(world: World) -> None:
    items: list[tuple[bytes, Value]] = [(b"durable", 1), (b"a", 2), (b"durable", 3)]
    world.run(set_command(items, at=1, persist=False))
    assert world.get(b"durable", b"a") == [3, 2]
    assert world.ops()[-1].rows == 1


@pytest.mark.parametrize("persist", [True, False])
def test_without_overwrite_a_live_value_in_memory_refuses_all(
    *, world: World, persist: bool
) -> None:
    world.set({b"a": 1}, expires=1000, persist=False)
    refused = world.set({b"b": 2, b"a": 2}, at=1, overwrite=False, persist=persist)
    assert code_of(refused) is Code.EXISTS
    assert world.get(b"a", b"b") == [1, MISSING]
    world.now_us += 1000
    taken = world.set({b"b": 2, b"a": 2}, at=1, overwrite=False, persist=persist)
    assert code_of(taken) is None
    assert world.get(b"a", b"b") == [2, 2]


def test_values_in_memory_have_a_quota(world: World) -> None:
    world.volatile_bytes = limits.VOLATILE_BYTES_MAX - 10
    assert code_of(world.set({b"a": b"x" * 11}, persist=False)) is Code.QUOTA
    assert world.get(b"a") == [MISSING]
    assert code_of(world.set({b"a": b"x" * 11})) is None  # the disk has room


def test_an_answer_that_is_too_large_is_refused_from_memory_too(world: World) -> None:
    """One value in memory, asked for again and again in one GET, must not fill the server's."""
    world.set({b"a": bytes(limits.VALUE_BYTES_MAX)}, persist=False)
    count = limits.ANSWER_BYTES_MAX // limits.VALUE_BYTES_MAX + 1
    reply = world.run(Get(table="t", keys=Strings.of([b"a"] * count)))
    assert code_of(reply) is Code.TOO_LARGE


def test_what_has_expired_makes_room_when_the_quota_is_reached(world: World) -> None:
    world.set({b"old": b"x" * 1000, b"kept": b"y"}, persist=False, expires=1000)
    world.set({b"kept": b"z"}, at=1, persist=False)
    world.now_us += 1000
    world.volatile_bytes = limits.VOLATILE_BYTES_MAX - 500
    assert code_of(world.set({b"new": b"x" * 900}, at=1, persist=False)) is None
    assert world.get(b"old", b"kept", b"new") == [MISSING, b"z", b"x" * 900]
    assert b"\0\0\0\1old" not in world.volatile


def test_values_in_memory_count_with_what_python_needs_for_them(world: World) -> None:
    world.set({b"key": b"value"}, persist=False)
    assert world.volatile_bytes == limits.VOLATILE_ENTRY_BYTES + 4 + 3 + 5
    world.delete(b"key")
    assert world.volatile_bytes == 0
