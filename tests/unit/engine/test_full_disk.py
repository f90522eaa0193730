from __future__ import annotations

from dataclasses import replace

import pytest

from fjord.columns import Strings
from fjord.commands import (
    Batch,
    Cancel,
    Command,
    Delete,
    Done,
    Get,
    Lock,
    Numbered,
    Refusal,
    Replies,
    Reply,
)
from fjord.engine import Engine, EngineSettings, open_engine
from fjord.engine.memory import TREE_COUNT
from fjord.errors import Code
from fjord.index.memory import MemoryIndexes
from fjord.testing import SimClock, SimDisk
from tests.unit.engine.test_jobs import push
from tests.unit.engine.world import SEGMENT_BYTES, TABLE, read, set_command, settings

CAPACITY = 8 * SEGMENT_BYTES
VALUE = b"x" * 2000


class World:
    """A directory on a small disk."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.clock = SimClock()
        self.disk = SimDisk(1, capacity=capacity)
        self.settings: EngineSettings = replace(
            settings(self.clock), disk=self.disk, indexes=MemoryIndexes(TREE_COUNT)
        )
        self.engine: Engine = open_engine("/data", self.settings)
        self.written = 0

    def set(self, key: bytes) -> Reply:
        self.clock.advance(0.001)
        command = set_command({key: VALUE}, timestamp_us=self.clock.wall_us())
        (reply,) = self.engine.run([command])
        self.engine.sync()
        return reply

    def delete(self, *keys: bytes) -> Reply:
        self.clock.advance(0.001)
        command = Delete(table=TABLE, keys=Strings.of(keys), timestamp_us=self.clock.wall_us())
        (reply,) = self.engine.run([command])
        self.engine.sync()
        return reply

    def fill(self) -> None:
        """Writes until the disk is full."""
        while isinstance(self.set(b"key-%d" % self.written), Done):
            self.written += 1
            self.upkeep()

    def upkeep(self) -> None:
        while self.engine.upkeep():
            pass
        self.engine.sync()

    def names(self) -> list[bytes]:
        return [b"key-%d" % number for number in range(self.written)]


@pytest.fixture
def full() -> World:
    world = World()
    world.fill()
    assert world.written > 50
    return world


def test_a_full_disk_refuses_what_grows_and_says_so(full: World) -> None:
    reply = full.set(b"more")
    assert isinstance(reply, Refusal)
    assert reply.code is Code.DISK_FULL
    assert full.engine.stats()["disk_full"] == 1
    assert read(full.engine, *full.names()) == [VALUE] * full.written


def test_what_is_refused_with_a_group_leaves_nothing_in_memory(full: World) -> None:
    """What is in no frame is taken back with it; a lock takes no space, so it is run again."""
    now_us = full.clock.wall_us()
    wanted: list[Command] = [
        replace(set_command({b"memory": b"1"}, timestamp_us=now_us), persist=False),
        Lock(table=TABLE, keys=Strings.of([b"locked"])),
        set_command({b"more": VALUE}, timestamp_us=now_us),
    ]
    replies = full.engine.run(wanted, (1, 1, 1))
    assert isinstance(replies[1], Done)
    codes = [reply.code for reply in replies if isinstance(reply, Refusal)]
    assert codes == [Code.DISK_FULL] * 2
    stats = full.engine.stats()
    assert (stats["volatile_values"], stats["volatile_bytes"], stats["locks"]) == (0, 0, 1)
    assert read(full.engine, b"memory") == [None]


def test_every_value_can_be_deleted_on_a_full_disk(full: World) -> None:
    for key in full.names():
        assert isinstance(full.delete(key), Done)
    assert read(full.engine, *full.names()) == [None] * full.written


def test_what_deletes_free_can_be_written_again(full: World) -> None:
    for key in full.names()[::2]:
        full.delete(key)
        full.upkeep()
    full.clock.advance(2)  # a refused step of upkeep is tried again after a second
    full.upkeep()
    assert isinstance(full.set(b"more"), Done)
    assert full.engine.stats()["disk_full"] == 0
    assert read(full.engine, full.names()[1], b"more") == [VALUE, VALUE]


def test_writing_goes_on_when_there_is_space_again(full: World) -> None:
    full.disk.capacity = 2 * CAPACITY
    assert isinstance(full.set(b"more"), Done)


@pytest.mark.parametrize("stop", ["close", "crash", "power_cut"])
def test_a_restart_on_a_full_disk_serves_and_deletes(full: World, stop: str) -> None:
    if stop == "close":
        full.engine.close()
    elif stop == "crash":
        full.disk.process_crash()
    else:
        full.disk.power_cut()
    full.engine = open_engine("/data", full.settings)
    assert read(full.engine, *full.names()) == [VALUE] * full.written
    assert isinstance(full.delete(full.names()[0]), Done)
    assert read(full.engine, full.names()[0]) == [None]


def test_many_restarts_on_a_full_disk_do_not_use_up_what_is_reserved(full: World) -> None:
    for _ in range(20):
        full.disk.process_crash()
        full.engine = open_engine("/data", full.settings)
    assert isinstance(full.delete(full.names()[0]), Done)


def test_a_start_on_a_disk_without_a_byte_left_throws_out_ballast(full: World) -> None:
    full.disk.remove("/data/journal/spare")
    full.disk.process_crash()
    # What the open segment has left for deletes is what the start has first.
    full.disk.capacity = full.disk.used_bytes() - SEGMENT_BYTES
    full.engine = open_engine("/data", full.settings)
    assert not full.disk.exists("/data/ballast")
    assert read(full.engine, full.names()[0]) == [VALUE]
    full.disk.capacity = 2 * CAPACITY
    full.engine.close()
    full.engine = open_engine("/data", full.settings)
    assert full.disk.exists("/data/ballast")


def test_a_batch_of_reads_and_deletes_is_run(full: World) -> None:
    full.clock.advance(1)
    key = Strings.of(full.names()[:1])
    batch = Batch(
        commands=[
            Get(table=TABLE, keys=key),
            Delete(table=TABLE, keys=key, timestamp_us=full.clock.wall_us()),
        ]
    )
    (reply,) = full.engine.run([batch])
    assert isinstance(reply, Replies)


def test_what_is_packed_leaves_room_for_deletes() -> None:
    """Rows that are small take more space when they are moved than they took before."""
    world = World(capacity=40 * SEGMENT_BYTES)
    for start in range(0, 20_000, 500):
        world.clock.advance(0.001)
        items = {b"%06d" % number: b"v" for number in range(start, start + 500)}
        world.engine.run([set_command(items, timestamp_us=world.clock.wall_us())])
    world.disk.capacity = world.disk.used_bytes() + 4 * SEGMENT_BYTES
    while isinstance(world.set(b"hot"), Done):
        pass  # no upkeep: all of the garbage is behind rows that live
    world.upkeep()
    for number in range(100):
        assert isinstance(world.delete(b"%06d" % number), Done)
        world.clock.advance(1)
        world.upkeep()


def test_a_delete_beside_writes_that_are_refused_is_run(full: World) -> None:
    full.clock.advance(1)
    now_us = full.clock.wall_us()
    wanted: list[Command] = [
        set_command({b"a": VALUE}, timestamp_us=now_us),
        Delete(table=TABLE, keys=Strings.of(full.names()[:1]), timestamp_us=now_us),
        set_command({b"b": VALUE}, timestamp_us=now_us),
    ]
    kinds = [type(reply) for reply in full.engine.run(wanted)]
    assert kinds == [Refusal, Done, Refusal]
    assert read(full.engine, full.names()[0]) == [None]


def test_a_small_write_that_fits_does_not_end_a_full_disk() -> None:
    world = World()
    items = {b"large": bytes(SEGMENT_BYTES // 2)}
    reply: Reply = Done(master=b"", seq=0)
    while isinstance(reply, Done):
        world.clock.advance(0.001)
        command = set_command(items, timestamp_us=world.clock.wall_us())
        (reply,) = world.engine.run([command])
    assert isinstance(reply, Refusal)
    assert reply.code is Code.DISK_FULL
    assert isinstance(world.set(b"small"), Done)
    assert world.engine.stats()["disk_full"] == 1


def test_kept_answers_that_are_forgotten_give_their_space_back() -> None:
    """They never counted as live, so nothing else says that packing would gain by it."""
    world = World()
    world.engine.run([push(world.clock, b"a")])
    number, reply = 0, None
    while not isinstance(reply, Refusal):
        number += 1
        keys = Strings.of([b"%d-%d" % (number, one) for one in range(6000)])
        cancel = Numbered(command=Cancel(table="jobs", keys=keys), client=b"c" * 16, number=number)
        world.clock.advance(0.01)
        (reply,) = world.engine.run([cancel])
        world.engine.sync()
        world.upkeep()
    assert reply.code is Code.DISK_FULL
    world.clock.advance(26 * 3600)
    for _ in range(300):
        world.clock.advance(30)
        world.upkeep()
    assert isinstance(world.set(b"again"), Done)


def test_a_full_disk_ends_by_itself_when_there_is_space(full: World) -> None:
    assert full.engine.stats()["free_bytes"] < SEGMENT_BYTES
    full.disk.capacity = 2 * CAPACITY
    assert full.engine.upkeep_due_us() <= full.clock.wall_us() + 1_000_000
    full.clock.advance(1)
    full.upkeep()
    assert full.engine.stats()["disk_full"] == 0
    assert full.engine.stats()["free_bytes"] > CAPACITY - SEGMENT_BYTES


def test_a_start_on_a_full_disk_knows_that_it_is_full(full: World) -> None:
    full.disk.remove("/data/journal/spare")
    full.engine.close()
    full.disk.capacity = full.disk.used_bytes() + SEGMENT_BYTES // 8
    full.engine = open_engine("/data", full.settings)
    assert full.engine.stats()["disk_full"] == 1


def test_what_is_dead_is_packed_before_writes_are_refused() -> None:
    world = World()
    for number in range(2000):
        world.clock.advance(1)
        assert isinstance(world.set(b"key-%d" % (number % 40)), Done)
        world.upkeep()
