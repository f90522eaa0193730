"""A full disk comes back after any deletes, wherever in the journal they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fjord import commands
from fjord.columns import Strings
from fjord.commands import Acted, Command, Delete, Done, Refusal, Reply
from fjord.engine import Engine, EngineSettings, open_engine
from fjord.engine.memory import TREE_COUNT
from fjord.errors import Code
from fjord.index.memory import MemoryIndexes
from fjord.testing import SimClock, SimDisk
from tests.unit.engine.test_jobs import push
from tests.unit.engine.world import SEGMENT_BYTES, TABLE, read, set_command, settings

# In segments.
CAPACITIES = [5, 5.3, 5.5, 5.9, 6.2, 6.7, 7, 7.1, 7.5, 7.8, 8.25, 8.6, 9, 9.4, 9.9, 12, 12.5, 14.3]
# How long a full disk may take to come back.
SECONDS = 20


class World:
    """A directory on a small disk, and the keys that it holds."""

    def __init__(self, capacity: float, value_bytes: int = 2000) -> None:
        self.clock = SimClock()
        self.disk = SimDisk(1, capacity=int(capacity * SEGMENT_BYTES))
        self.settings: EngineSettings = replace(
            settings(self.clock), disk=self.disk, indexes=MemoryIndexes(TREE_COUNT)
        )
        self.engine: Engine = open_engine("/data", self.settings)
        self.value = b"x" * value_bytes
        self.keys: list[bytes] = []
        self.number = 0

    def run(self, command: Command) -> Reply:
        self.clock.advance(0.01)
        (reply,) = self.engine.run([command])
        self.engine.sync()
        return reply

    def add(self) -> bool:
        """Writes one more value; says whether the disk had space for it."""
        key = b"key-%06d" % self.number
        reply = self.run(self._addition(key))
        if isinstance(reply, Refusal):
            assert reply.code is Code.DISK_FULL
            return False
        self.keys.append(key)
        self.number += 1
        return True

    def delete(self, keys: list[bytes]) -> None:
        """Deletes keys, which works on a full disk; upkeep has its share of the time."""
        for key in keys:
            reply = self.run(self._removal(key))
            assert isinstance(reply, Done | Acted), (reply, key)
            self.upkeep()
        gone = set(keys)
        self.keys = [key for key in self.keys if key not in gone]

    def fill(self) -> int:
        """Writes until the disk is full; returns how much that was."""
        count = 0
        while self.add():
            count += 1
            self.upkeep()
        return count

    def upkeep(self) -> None:
        while self.engine.upkeep():
            pass
        self.engine.sync()

    def wait_for_room(self) -> None:
        for _ in range(SECONDS):
            if not self.engine.stats()["disk_full"]:
                return
            self.clock.advance(1)
            self.upkeep()
        pytest.fail(f"it stays full: {self.engine.stats()}")

    def write_again(self, count: int) -> None:
        """Writes values; where one is refused, it is not again once there is said to be room."""
        for _ in range(count):
            if not self.add():
                self.wait_for_room()
                assert self.add(), self.engine.stats()
            self.upkeep()

    def check(self) -> None:
        """Asserts that everything is there."""
        assert read(self.engine, *self.keys) == [self.value] * len(self.keys)

    def _addition(self, key: bytes) -> Command:
        return set_command({key: self.value}, timestamp_us=self.clock.wall_us())

    def _removal(self, key: bytes) -> Command:
        return Delete(table=TABLE, keys=Strings.of([key]), timestamp_us=self.clock.wall_us())


class Jobs(World):
    """The same with jobs that wait."""

    def check(self) -> None:
        assert self.engine.job_counts()["jobs"].waiting == len(self.keys)

    def _addition(self, key: bytes) -> Command:
        return replace(push(self.clock, key), values=Strings.of([self.value]))

    def _removal(self, key: bytes) -> Command:
        return commands.Cancel(table="jobs", keys=Strings.of([key]))


def nothing(world: World) -> None:
    """It goes on."""


def stop(world: World) -> None:
    world.engine.close()
    world.engine = open_engine("/data", world.settings)


def crash(world: World) -> None:
    world.disk.process_crash()
    world.engine = open_engine("/data", world.settings)


def cut_power(world: World) -> None:
    world.disk.power_cut()
    world.engine = open_engine("/data", world.settings)


EACH_END = pytest.mark.parametrize("end", [nothing, stop, crash, cut_power])
EACH_KIND = pytest.mark.parametrize("kind", [World, Jobs])


@EACH_KIND
@EACH_END
@pytest.mark.parametrize("every", [2, 3, 6])
def test_what_scattered_deletes_free_is_written_again(
    every: int, end: Callable[[World], None], kind: type[World]
) -> None:
    is_plain = end is nothing and kind is World
    for capacity in CAPACITIES if is_plain else CAPACITIES[::5]:
        world = kind(capacity)
        world.fill()
        gone = world.keys[::every]
        world.delete(gone)
        end(world)
        world.write_again(len(gone) // 2)
        world.check()


@pytest.mark.parametrize("value_bytes", [700, 9000])
@pytest.mark.parametrize("every", [2, 3, 6])
def test_values_of_any_size_make_room_for_others(every: int, value_bytes: int) -> None:
    for capacity in CAPACITIES[1::4]:
        world = World(capacity, value_bytes)
        world.fill()
        gone = world.keys[::every]
        world.delete(gone)
        world.write_again(len(gone) // 2)
        world.check()


@EACH_KIND
@EACH_END
def test_a_disk_that_is_filled_again_and_again_comes_back_each_time(
    end: Callable[[World], None], kind: type[World]
) -> None:
    for capacity in CAPACITIES[::5]:
        world = kind(capacity)
        world.fill()
        world.delete(world.keys[::6])
        for _ in range(6):
            world.write_again(1)
            world.fill()
            world.delete(world.keys[: len(world.keys) // 10])
            end(world)
        world.wait_for_room()
        world.check()


def test_what_is_deleted_at_the_end_of_the_journal_comes_back() -> None:
    for capacity in CAPACITIES[::2]:
        world = World(capacity)
        world.fill()
        gone = world.keys[-len(world.keys) // 4 :]
        world.delete(gone)
        world.write_again(len(gone) // 2)
        world.check()


@pytest.mark.parametrize("end", [stop, crash, cut_power])
def test_a_stop_while_a_full_disk_is_packed_leaves_space_for_deletes(
    end: Callable[[World], None],
) -> None:
    for steps in range(1, 60, 4):
        world = World(7)
        world.fill()
        for key in world.keys[::6]:
            world.run(world._removal(key))
        del world.keys[::6]
        for _ in range(steps):
            world.engine.upkeep()
        end(world)
        world.delete(world.keys[:5])
        world.wait_for_room()
        world.check()


def test_deletes_that_use_up_their_share_wait_for_packing() -> None:
    """Nobody keeps house meanwhile."""
    for capacity in CAPACITIES[::3]:
        world = World(capacity, 300)
        world.fill()
        for key in world.keys:
            assert isinstance(world.run(world._removal(key)), Done), key
    assert world.engine.stats()["packed_segments"] > 0


def test_packing_rests_when_there_is_nothing_to_gain() -> None:
    for capacity in CAPACITIES[::3]:
        world = World(capacity)
        world.fill()
        world.delete(world.keys[::10])
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
