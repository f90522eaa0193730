"""Engines on a small simulated disk, which a few writes fill."""

from __future__ import annotations

from dataclasses import replace

from fjord import commands
from fjord.columns import Strings
from fjord.commands import Refusal, Reply
from fjord.engine import Engine, open_engine
from fjord.engine.memory import TREE_COUNT
from fjord.errors import Code
from fjord.index.memory import MemoryIndexes
from fjord.testing import SimClock, SimDisk
from tests.unit.engine.test_jobs import push
from tests.unit.engine.world import SEGMENT_BYTES, TABLE, read, set_command, settings


class SmallDisk:
    """A directory on a disk of so many segments, and the keys that it holds."""

    def __init__(self, capacity: float = 8, value_bytes: int = 2000) -> None:
        self.clock = SimClock()
        self.disk = SimDisk(1, capacity=int(capacity * SEGMENT_BYTES))
        self.settings = replace(
            settings(self.clock), disk=self.disk, indexes=MemoryIndexes(TREE_COUNT)
        )
        self.engine: Engine = open_engine("/data", self.settings)
        self.value = b"x" * value_bytes
        self.keys: list[bytes] = []
        self.number = 0

    def run(self, command: commands.Command) -> Reply:
        self.clock.advance(0.01)
        (reply,) = self.engine.run([command])
        self.engine.sync()
        return reply

    def set(self, key: bytes) -> Reply:
        return self.run(set_command({key: self.value}, timestamp_us=self.clock.wall_us()))

    def remove(self, *keys: bytes) -> Reply:
        stamp = self.clock.wall_us()
        return self.run(commands.Delete(table=TABLE, keys=Strings.of(keys), timestamp_us=stamp))

    def add(self) -> bool:
        """Writes one more value; says whether the disk had space for it."""
        key = b"key-%06d" % self.number
        reply = self.set(key)
        if isinstance(reply, Refusal):
            assert reply.code is Code.DISK_FULL
            return False
        self.keys.append(key)
        self.number += 1
        return True

    def fill(self) -> None:
        """Writes until the disk is full."""
        while self.add():
            self.upkeep()

    def upkeep(self) -> None:
        while self.engine.upkeep():
            pass
        self.engine.sync()

    def restart(self) -> None:
        self.engine = open_engine("/data", self.settings)

    def check(self) -> None:
        """Asserts that everything is there."""
        assert read(self.engine, *self.keys) == [self.value] * len(self.keys)


class SmallJobsDisk(SmallDisk):
    """The same with jobs that wait."""

    def set(self, key: bytes) -> Reply:
        return self.run(replace(push(self.clock, key), values=Strings.of([self.value])))

    def remove(self, *keys: bytes) -> Reply:
        return self.run(commands.Cancel(table="jobs", keys=Strings.of(keys)))

    def check(self) -> None:
        assert self.engine.job_counts()["jobs"].waiting == len(self.keys)


def nothing(world: SmallDisk) -> None:
    """It goes on."""


def stop(world: SmallDisk) -> None:
    world.engine.close()
    world.restart()


def crash(world: SmallDisk) -> None:
    world.disk.process_crash()
    world.restart()


def cut_power(world: SmallDisk) -> None:
    world.disk.power_cut()
    world.restart()
