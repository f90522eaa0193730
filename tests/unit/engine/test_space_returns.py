"""A full disk comes back after any deletes, wherever in the journal they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fjord.commands import Acted, Done
from tests.unit.engine.small_disk import SmallDisk, SmallJobsDisk, crash, cut_power, nothing, stop

# In segments.
CAPACITIES = [5, 5.3, 5.9, 6.7, 7.1, 7.8, 8.6, 9.4, 12, 14.3]
# How long a full disk may take to come back.
SECONDS = 20


def delete(world: SmallDisk, keys: list[bytes]) -> None:
    """Deletes keys, which works on a full disk; upkeep has its share of the time."""
    for key in keys:
        reply = world.remove(key)
        assert isinstance(reply, Done | Acted), (reply, key)
        world.upkeep()
    gone = set(keys)
    world.keys = [key for key in world.keys if key not in gone]


def wait_for_room(world: SmallDisk) -> None:
    for _ in range(SECONDS):
        if not world.engine.stats()["disk_full"]:
            return
        world.clock.advance(1)
        world.upkeep()
    pytest.fail(f"it stays full: {world.engine.stats()}")


def write_again(world: SmallDisk, count: int) -> None:
    """Writes values; where one is refused, it is not again once there is said to be room."""
    for _ in range(count):
        if not world.add():
            wait_for_room(world)
            assert world.add(), world.engine.stats()
        world.upkeep()


EACH_END = pytest.mark.parametrize("end", [nothing, stop, crash, cut_power])
EACH_KIND = pytest.mark.parametrize("kind", [SmallDisk, SmallJobsDisk])


@EACH_KIND
@EACH_END
@pytest.mark.parametrize("every", [2, 6])
def test_what_scattered_deletes_free_is_written_again(
    every: int, end: Callable[[SmallDisk], None], kind: type[SmallDisk]
) -> None:
    is_plain = end is nothing and kind is SmallDisk
    for capacity in CAPACITIES if is_plain else CAPACITIES[::4]:
        world = kind(capacity)
        world.fill()
        gone = world.keys[::every]
        delete(world, gone)
        end(world)
        write_again(world, len(gone) // 2)
        world.check()


@EACH_KIND
@EACH_END
def test_a_disk_that_is_filled_again_and_again_comes_back_each_time(
    end: Callable[[SmallDisk], None], kind: type[SmallDisk]
) -> None:
    for capacity in CAPACITIES[::4]:
        world = kind(capacity)
        world.fill()
        delete(world, world.keys[::6])
        for _ in range(6):
            write_again(world, 1)
            world.fill()
            delete(world, world.keys[: len(world.keys) // 10])
            end(world)
        wait_for_room(world)
        world.check()


@pytest.mark.parametrize("end", [stop, crash, cut_power])
def test_a_stop_while_a_full_disk_is_packed_leaves_space_for_deletes(
    end: Callable[[SmallDisk], None],
) -> None:
    for steps in range(1, 60, 4):
        world = SmallDisk(7)
        world.fill()
        for key in world.keys[::6]:
            world.remove(key)
        del world.keys[::6]
        for _ in range(steps):
            world.engine.upkeep()
        end(world)
        delete(world, world.keys[:5])
        wait_for_room(world)
        world.check()


def test_deletes_that_use_up_their_share_wait_for_packing() -> None:
    """Nobody keeps house meanwhile."""
    for capacity in CAPACITIES[::4]:
        world = SmallDisk(capacity, 300)
        world.fill()
        for key in world.keys:
            assert isinstance(world.remove(key), Done), key
    assert world.engine.stats()["packed_segments"] > 0


def test_packing_rests_when_there_is_nothing_to_gain() -> None:
    for capacity in CAPACITIES[::4]:
        world = SmallDisk(capacity)
        world.fill()
        delete(world, world.keys[::10])
        world.fill()
        for _ in range(60):
            world.clock.advance(1)
            world.upkeep()
        packed, calls = world.engine.stats()["packed_segments"], world.disk.calls.count("write")
        for _ in range(60):
            world.clock.advance(1)
            world.upkeep()
        assert world.engine.stats()["packed_segments"] == packed
        assert world.disk.calls.count("write") == calls
        world.check()
