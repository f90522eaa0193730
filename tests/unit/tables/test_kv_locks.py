"""LOCK and UNLOCK: nobody else may write a key until its holder lets go (FJ-35)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fjord import limits
from fjord.columns import Strings
from fjord.commands import Change, Delete, Entries, Lock, Modify, Rename, Reply, Touch, Unlock
from fjord.errors import Code
from tests.unit.tables.world import NOW_US, World, code_of, set_command

ONE = (1).to_bytes(8, "little")


@pytest.fixture
def world() -> World:
    made = World()
    made.set({b"a": 1, b"b": 2})
    return made


def lock(world: World, *keys: bytes, client: int = 1) -> Code | None:
    return code_of(world.run(Lock(table="t", keys=Strings.of(keys)), client))


def unlock(world: World, *keys: bytes, client: int = 1) -> Code | None:
    return code_of(world.run(Unlock(table="t", keys=Strings.of(keys)), client))


WRITES: dict[str, Callable[[bytes], object]] = {
    "set": lambda key: set_command([(b"other", 1), (key, 5)], at=1),
    "set-plain": lambda key: set_command([(key, 5)], at=1),
    "set-older": lambda key: set_command([(key, 5)], at=-1),
    "set-in-memory": lambda key: set_command([(key, 5)], at=1, persist=False),
    "delete": lambda key: Delete(
        table="t", keys=Strings.of([b"other", key]), timestamp_us=NOW_US + 1
    ),
    "purge": lambda key: Delete(
        table="t", keys=Strings.of([key]), timestamp_us=NOW_US + 1, purge=True
    ),
    "touch": lambda key: Touch(table="t", keys=Strings.of([key])),
    "add": lambda key: Modify(
        table="t", key=key, change=Change.ADD, operand=ONE, timestamp_us=NOW_US
    ),
    "rename": lambda key: Rename(table="t", key=key, to=b"c", timestamp_us=NOW_US),
    "rename-onto": lambda key: Rename(
        table="t", key=b"b", to=key, timestamp_us=NOW_US, overwrite=True
    ),
}


@pytest.mark.req("FJ-35")
@pytest.mark.parametrize("name", WRITES)
def test_another_client_cannot_write_a_locked_key(world: World, name: str) -> None:
    command = WRITES[name](b"a")
    assert lock(world, b"a") is None
    before = world.journal
    assert code_of(world.run(command, client=2)) is Code.LOCKED
    assert world.journal == before
    assert unlock(world, b"a") is None
    assert code_of(world.run(command, client=2)) is None


@pytest.mark.req("FJ-35")
@pytest.mark.parametrize("name", WRITES)
def test_the_holder_of_a_lock_writes_as_ever(world: World, name: str) -> None:
    lock(world, b"a")
    assert code_of(world.run(WRITES[name](b"a"))) is None


@pytest.mark.req("FJ-35")
def test_get_works_and_says_that_a_value_is_locked(world: World) -> None:
    lock(world, b"a", client=2)
    assert world.get(b"a", b"b") == [1, 2]
    assert (world.entry(b"a").state, world.entry(b"b").state) == (Entries.LOCKED, 0)
    unlock(world, b"a", client=2)
    assert world.entry(b"a").state == 0


@pytest.mark.req("FJ-35")
@pytest.mark.parametrize("client", [1, 2])
def test_a_locked_key_cannot_be_locked_again(world: World, client: int) -> None:
    lock(world, b"a")
    assert lock(world, b"b", b"a", client=client) is Code.LOCKED
    assert list(world.locks) == [b"\0\0\0\1a"]


@pytest.mark.req("FJ-35")
def test_only_the_holder_unlocks(world: World) -> None:
    lock(world, b"a")
    assert unlock(world, b"a", client=2) is Code.NOT_OWNER
    assert unlock(world, b"b") is Code.NOT_OWNER
    assert unlock(world, b"a", b"b") is Code.NOT_OWNER  # all of them or none
    assert unlock(world, b"none") is Code.NOT_OWNER
    assert list(world.locks) == [b"\0\0\0\1a"]


def test_a_key_that_is_not_there_may_be_locked(world: World) -> None:
    assert lock(world, b"new") is None
    assert code_of(world.set({b"new": 1}, client=2)) is Code.LOCKED
    assert code_of(world.set({b"new": 1}, overwrite=False)) is None
    assert world.get(b"new") == [1]


def test_a_key_twice_in_a_batch_is_locked_once(world: World) -> None:
    assert lock(world, b"a", b"a") is None
    assert unlock(world, b"a", b"a") is None
    assert world.locks == {}


def test_a_value_is_locked_through_any_of_its_keys(world: World) -> None:
    world.set({b"x": 1}, also=[b"y"])
    assert lock(world, b"y") is None
    for key in (b"x", b"y"):
        assert code_of(world.set({key: 2}, at=1, client=2)) is Code.LOCKED
        assert lock(world, key, client=2) is Code.LOCKED
        assert world.entry(key).state == Entries.LOCKED
    assert unlock(world, b"x") is None
    assert world.locks == {}


def test_a_locked_key_cannot_become_a_further_key_for_another(world: World) -> None:
    lock(world, b"new")
    assert code_of(world.set({b"x": 1}, also=[b"new"], client=2)) is Code.LOCKED
    assert code_of(world.set({b"x": 1}, also=[b"new"])) is None
    assert code_of(world.set({b"new": 2}, at=1, client=2)) is Code.LOCKED  # still locked itself
    assert lock(world, b"new", client=2) is Code.LOCKED
    assert unlock(world, b"new") is None
    assert world.locks == {}


def test_the_number_of_locks_is_bounded(world: World) -> None:
    world.locks = {b"%d" % number: 9 for number in range(limits.LOCKS_MAX - 1)}
    assert lock(world, b"a", b"b") is Code.QUOTA
    assert lock(world, b"a") is None


@pytest.mark.parametrize("kind", [Lock, Unlock])
def test_locks_have_keys_like_any_command(world: World, kind: type) -> None:
    def run(*keys: bytes) -> Reply:
        return world.run(kind(table="t", keys=Strings.of(keys)))

    assert code_of(run()) is Code.BAD_BATCH
    assert code_of(run(b"")) is Code.EMPTY_KEY
    assert code_of(run(b"k" * 481)) is Code.KEY_TOO_LONG
    assert code_of(world.run(kind(table="-", keys=Strings.of([b"a"])))) is Code.BAD_NAME
