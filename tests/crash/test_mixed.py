"""Crashes of both kinds in a row, groups of many commands, and commits that were never synced."""

from __future__ import annotations

import contextlib
import errno
import random

import pytest

from fjord.commands import Done
from fjord.engine import Engine
from fjord.engine.opening import EngineSettings, open_engine
from fjord.errors import DurabilityError
from fjord.testing import SimCrash, SimDisk
from tests.crash.world import SEGMENT_BYTES, Model, World, make_script, read_all

SEEDS = range(40)


class Dice:
    """A world that a seed drives."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(SimDisk(seed))
        self.script = iter(make_script(seed, 400))
        # What may be there after a crash: the last state that was acknowledged or read, and
        # every one that later commits lead to.
        self.possible: list[Model] = [{}]
        self.engine = self.world.open()

    def run_group(self) -> None:
        """Runs one to five commands as a group; perhaps syncs them."""
        steps = [next(self.script) for _ in range(self.random.randint(1, 5))]
        self.world.clock.advance(0.001)
        now_us = self.world.clock.wall_us()
        state = self.possible[-1]
        for step in steps:  # a group may take several frames, and a crash may come between them
            state = step.change(state)
            self.possible.append(state)
        replies = self.engine.run([step.command(now_us + row) for row, step in enumerate(steps)])
        self.world.clock.advance(0.001)
        assert {type(reply) for reply in replies} == {Done}
        if self.random.random() < 0.7:
            self.engine.sync()
            self.settle(state)

    def settle(self, state: Model) -> None:
        self.possible = [state]

    def crash(self) -> None:
        self.world.disk.crash_after(self.random.randint(1, 12))
        with contextlib.suppress(SimCrash):
            self.run_group()
            self.run_group()
        self.end_of_life()

    def end_of_life(self) -> None:
        if self.random.random() < 0.5:
            self.world.disk.power_cut()
        else:
            self.world.disk.process_crash()
        if self.random.random() < 0.3:  # the recovery crashes as well
            self.world.disk.crash_after(self.random.randint(1, 15))
            with contextlib.suppress(SimCrash):
                self.world.open()
            self.end_of_life()

    def reopen(self) -> None:
        self.engine = self.world.open()
        found = read_all(self.engine)
        assert found in self.possible, "a state that no prefix of the commits leads to"
        self.settle(found)  # what was read must stay

    def stop(self) -> None:
        self.engine.close()
        if self.random.random() < 0.5:
            self.world.disk.power_cut()
        self.settle(self.possible[-1])  # a clean stop keeps everything that ran


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_was_acknowledged_or_read_stays(seed: int) -> None:
    dice = Dice(seed)
    for _ in range(8):
        for _ in range(dice.random.randint(1, 4)):
            dice.run_group()
        if dice.random.random() < 0.6:
            dice.crash()
        else:
            dice.stop()
        dice.reopen()


def nested(world: World) -> Engine:
    settings = EngineSettings(
        disk=world.disk, clock=world.clock, indexes=world.indexes, segment_bytes=SEGMENT_BYTES
    )
    return open_engine("/srv/fjord/data", settings)


def test_a_new_directory_several_levels_deep_survives_a_power_cut() -> None:
    for seed in SEEDS:
        world = World(SimDisk(seed))
        if seed % 2:  # a first start that crashed leaves directories that were never synced
            world.disk.crash_after(4)
            with pytest.raises(SimCrash):
                nested(world)
            world.disk.process_crash()
        engine = nested(world)
        world.play(engine, make_script(seed, 3))
        world.disk.power_cut()
        assert read_all(nested(world)) == world.acknowledged


def with_unsynced_commit(seed: int) -> tuple[World, Engine]:
    world = World(SimDisk(seed))
    engine = world.open()
    (step,) = make_script(seed, 1)
    world.clock.advance(0.001)
    engine.run([step.command(world.clock.wall_us())])
    return world, engine


def test_what_was_read_after_a_crash_outlives_a_clean_stop_and_a_power_cut() -> None:
    for seed in SEEDS:
        world, _ = with_unsynced_commit(seed)
        world.disk.process_crash()
        engine = world.open()
        seen = read_all(engine)
        engine.close()
        world.disk.power_cut()
        assert read_all(world.open()) == seen


def test_a_failed_sync_in_close_leaves_an_index_that_is_not_trusted() -> None:
    for seed in SEEDS:
        world, engine = with_unsynced_commit(seed)
        world.disk.errors[len(world.disk.calls) + 1] = errno.EIO
        with pytest.raises(DurabilityError):
            engine.close()
        world.disk.process_crash()
        engine = world.open()
        seen = read_all(engine)
        engine.close()
        world.disk.power_cut()
        assert read_all(world.open()) == seen


@pytest.mark.parametrize("where", ["append", "commit", "rotate"])
def test_a_call_that_is_interrupted_in_a_commit_counts_as_a_crash(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(SimDisk(1))
    engine = world.open()
    world.play(engine, make_script(1, 5))
    target, name = {
        "append": (engine.writer, "confirm"),
        "commit": (engine.writer, "append"),
        "rotate": (engine.journal, "add"),
    }[where]

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(target, name, interrupt)
    if where == "rotate":
        monkeypatch.setattr(engine.writer, "_capacity", 0)
    world.clock.advance(0.001)
    with pytest.raises(KeyboardInterrupt):
        engine.run([make_script(2, 1)[0].command(world.clock.wall_us())])
    with pytest.raises(DurabilityError, match="interrupted"):
        engine.run([make_script(3, 1)[0].command(world.clock.wall_us())])
    engine.abandon()
    world.attempted = make_script(2, 1)[0].change(world.acknowledged)
    world.check(world.open())
