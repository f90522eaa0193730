"""Sealing and retention, cut or failing at every call: no message is lost, and none is there twice.

Journal and blocks are on one simulated disk, so that a crash comes at each step of a round: plan,
sync, data, metadata, the block before, finish, forget, removal of segments and of old blocks.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from fjord.testing import SimCrash, SimDisk
from tests.crash import stream_world

ROUNDS = 2


class SealingWorld(stream_world.World):
    """Three streams that are written to and sealed by turns, and what there has to be of them."""

    def __init__(self, disk: SimDisk, seed: int, blocks_disk: SimDisk | None = None) -> None:
        super().__init__(disk, blocks_disk)
        self.numbers = stream_world.Numbers(seed)
        self.values: dict[str, list[bytes]] = {
            name: [] for name in stream_world.STREAMS
        }  # acknowledged
        self.attempted: tuple[str, list[bytes]] = (
            stream_world.LOG,
            [],
        )  # written, and not answered yet
        self.newest: dict[bytes, bytes] = {}  # of the stream that keeps the latest
        self.walls_us: dict[bytes, int] = {}

    def write(self) -> None:
        for table in stream_world.STREAMS:
            for _ in range(2):
                self.write_once(table)

    def write_once(self, table: str) -> None:
        rows = self.numbers.rows()
        values = [value for _, value in rows]
        self.walls_us |= dict.fromkeys(values, self.clock.wall_us() + 1000)
        self.attempted = (table, values)
        self.append(table, rows)
        self.values[table] += values
        self.attempted = (table, [])
        if table == stream_world.LATEST:
            self.newest |= dict(rows)

    def live(self) -> None:
        """Lives to the end, or to a crash."""
        for _ in range(ROUNDS):
            for step in STEPS:
                step(self)

    def retire(self) -> None:
        self.shore.retire(self.engine)

    def wait(self) -> None:
        self.clock.advance(4000)

    def settle(self) -> None:
        """Goes on until there is nothing left to do."""
        for _ in range(3):
            self.round()
            self.upkeep()
            self.pack()
            self.retire()

    # -- what must hold ---------------------------------------------------------------------------

    def find_out(self) -> None:
        """Takes note of whether the write that was not answered counts."""
        table, values = self.attempted
        found = {value for _, _, value in self.read_all(table)}
        is_there = [value in found for value in values]
        if table == stream_world.LATEST:
            if any(is_there):
                self.newest |= {key: value for _, key, value in self.read_all(table)}
        elif values:
            assert len(set(is_there)) == 1  # all of a transaction, or nothing
            self.values[table] += values if is_there[0] else []
        self.attempted = (table, [])

    def check(self) -> None:
        """Every message is there once, in order; but for old ones where they may go."""
        assert _values(self.read_all(stream_world.LOG, 4)) == self.values[stream_world.LOG]
        found = _values(self.read_all(stream_world.AGED, 3))
        gone = self.values[stream_world.AGED][: len(self.values[stream_world.AGED]) - len(found)]
        assert found == self.values[stream_world.AGED][len(gone) :]
        limit_us = self.clock.wall_us() - stream_world.HOUR_US
        assert all(self.walls_us[value] < limit_us for value in gone)
        latest = {key: value for _, key, value in self.read_all(stream_world.LATEST)}
        assert latest == self.newest
        self.check_index()


STEPS: list[Callable[[SealingWorld], None]] = [
    SealingWorld.write,
    SealingWorld.round,
    SealingWorld.upkeep,
    SealingWorld.pack,
    SealingWorld.wait,
    SealingWorld.retire,
]


def _values(messages: list[stream_world.Row]) -> list[bytes]:
    assert messages == sorted(messages, key=lambda row: row[0])
    return [value for _, _, value in messages]


def begun(seed: int, disk: SimDisk, blocks_disk: SimDisk | None = None) -> SealingWorld:
    world = SealingWorld(disk, seed, blocks_disk)
    world.open()
    world.create()
    return world


def test_a_life_without_a_crash_seals_packs_and_retires() -> None:
    world = begun(1, SimDisk(1))
    first_seq = world.engine.stats()["first_seq"]
    world.live()
    world.check()
    assert world.engine.stats()["first_seq"] > first_seq
    assert len(_values(world.read_all(stream_world.AGED))) < len(world.values[stream_world.AGED])
    world.settle()
    assert world.store.names() == world.block_names()


@pytest.mark.req("JQ-01", "KY-30")
@pytest.mark.parametrize(("seed", "kind"), [(1, "power_cut"), (2, "process_crash")])
def test_a_third_of_all_calls_may_be_the_last(seed: int, kind: str) -> None:
    for point in range(seed, calls_of(seed), 3):
        cut(seed, kind, point)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["power_cut", "process_crash"])
def test_every_call_may_be_the_last(kind: str, soak_seconds: float) -> None:
    assert stream_world.every_point(calls_of, cut, kind, soak_seconds) > 0


def calls_of(seed: int) -> int:
    """Returns how many calls of a life change the disk."""
    world = begun(seed, SimDisk(seed))
    began = len(world.disk.calls)
    world.live()
    return len(world.disk.calls) - began


def cut(seed: int, kind: str, point: int) -> None:
    """Ends a life at one of its calls, and asserts that all goes on as if it had not."""
    world = begun(seed, SimDisk(seed))
    world.disk.crash_after(point)
    with pytest.raises(SimCrash):
        world.live()
    world.crash(kind)
    world.find_out()
    world.check()
    world.settle()
    world.check()
    assert world.store.names() == world.block_names()
    world.write()
    world.engine.close()
    world.indexes.drop()
    world.open()
    world.check()


@pytest.mark.req("JQ-01")
def test_a_store_that_fails_at_any_call_is_tried_again() -> None:
    healthy = SimDisk(33)
    begun(3, SimDisk(3), healthy).live()
    for call in range(1, len(healthy.calls) + 1, 3):
        blocks_disk = SimDisk(33, errors={call: [errno.EIO, errno.ENOSPC][call % 2]})
        world = begun(3, SimDisk(3), blocks_disk)
        failures = 0
        for step in STEPS * ROUNDS:
            try:
                step(world)
            except OSError:
                failures += 1
                world.check()
                step(world)
        assert failures == 1
        world.settle()
        world.check()
        assert world.store.names() == world.block_names()


@pytest.mark.req("JQ-01", "KY-30")
@pytest.mark.parametrize("kind", ["power_cut", "process_crash"])
@pytest.mark.parametrize("last", ["plan", "sync", "write", "finish", "told", "forget", "all"])
def test_a_round_that_ends_after_a_step_is_made_again(last: str, kind: str) -> None:
    world = begun(5, SimDisk(5))
    world.live()
    world.write()
    do_round(world, last)
    world.crash(kind)
    world.check()
    world.settle()
    world.check()
    assert world.store.names() == world.block_names()
    world.crash("power_cut")
    world.check()


def do_round(world: SealingWorld, last: str) -> None:
    """Makes the steps of a round up to one of them."""
    plan = world.engine.sealing.plan_seal(now=True)
    assert plan is not None
    if last == "plan":
        return
    world.engine.sync()
    if last == "sync":
        return
    blocks = world.shore.write(world.engine, plan)
    assert blocks
    if last == "write":
        return
    world.engine.sealing.finish_seal(plan, blocks)
    if last == "finish":
        return
    world.engine.sync()
    if last == "told":
        return
    world.upkeep()
    if last == "forget":
        return
    world.pack()


@pytest.mark.parametrize("seed", [1, 2])
def test_blocks_that_are_written_twice_are_the_same(seed: int) -> None:
    """The range is fixed first: whoever writes it again comes to the same names and bytes."""
    world = begun(seed, SimDisk(seed))
    world.write()
    plan = world.engine.sealing.plan_seal(now=True)
    assert plan is not None
    world.engine.sync()
    first = world.shore.write(world.engine, plan)
    for block in first[::2]:
        world.store.remove(block.name)
    world.crash("process_crash")
    again = world.engine.sealing.plan_seal(now=True)
    assert again == plan
    assert world.shore.write(world.engine, again) == first
    # A crash between the two: what is taken note of twice is there once.
    world.engine.sealing.finish_seal(plan, first)
    world.engine.sealing.finish_seal(plan, first)
    assert world.block_names() == sorted(block.name for block in first)
    world.check()


def test_a_segment_stays_until_all_of_it_is_in_blocks() -> None:
    world = begun(7, SimDisk(7))
    world.write()
    first_seq = world.engine.stats()["first_seq"]
    world.pack()
    world.upkeep()
    assert world.engine.stats()["first_seq"] == first_seq
    world.round()
    world.upkeep()
    world.pack()
    assert world.engine.stats()["first_seq"] > first_seq
    world.check()
