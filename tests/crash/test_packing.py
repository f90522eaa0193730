"""Packing crashed at every one of its steps: the state is that of before, or of after."""

from __future__ import annotations

import random

import pytest

from fjord.engine import Engine, doctor
from fjord.journal.reader import Journal
from fjord.testing import SimCrash, SimDisk
from tests.crash.world import KEYS, Step, World

STEPS = 160


def make_churn(seed: int) -> list[Step]:
    """Returns steps that overwrite and delete much, so that most of the journal is dead."""
    dice = random.Random(seed)
    steps = [Step(tuple(KEYS), tuple(dice.randbytes(200) for _ in KEYS))]
    for _ in range(STEPS):
        # The first keys stay as they are: they are what packing has to take along.
        keys = tuple(dice.sample(KEYS[4:], dice.choice([1, 2, 6])))
        values = None if dice.random() < 0.1 else tuple(dice.randbytes(900) for _ in keys)
        steps.append(Step(keys, values))
    return steps


class PackingWorld(World):
    """A world whose engine does its upkeep after every step, and whose calls in it are noted."""

    def __init__(self, disk: SimDisk) -> None:
        super().__init__(disk)
        self.upkeep_calls: list[int] = []

    def settle(self, engine: Engine) -> None:
        before = len(self.disk.calls)
        while engine.upkeep():
            pass
        engine.sync()
        self.upkeep_calls += range(before + 1, len(self.disk.calls) + 1)

    def check_index(self) -> None:
        """Asserts that the index is what a replay of the journal comes to."""
        settings = self.settings()
        journal = Journal(self.disk, "/data/journal")
        found = doctor.diagnose(journal, self.indexes.open(), settings, shown=5)
        assert not found.difference_count, found.differences

    def live(self, script: list[Step]) -> Engine:
        engine = self.open()
        for step in script:
            self.play(engine, [step])
            self.settle(engine)
        return engine


def upkeep_calls(seed: int) -> list[int]:
    world = PackingWorld(SimDisk(seed))
    engine = world.live(make_churn(seed))
    assert engine.stats()["packed_segments"] >= 3
    world.check(engine)
    return world.upkeep_calls


@pytest.mark.req("FJ-18")
@pytest.mark.parametrize("kind", ["power_cut", "process_crash"])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_step_of_packing_may_be_the_last(seed: int, kind: str) -> None:
    for call in upkeep_calls(seed):
        disk = SimDisk(seed, crash_at=call)
        world = PackingWorld(disk)
        with pytest.raises(SimCrash):
            world.live(make_churn(seed))
        getattr(disk, kind)()
        if kind == "power_cut":
            world.indexes.drop()
        engine = world.open()
        world.check(engine)
        world.check_index()
        world.settle(engine)
        world.check(engine)
        engine.close()
        world.check(world.open())


def test_packing_keeps_the_journal_small() -> None:
    world = PackingWorld(SimDisk(7))
    engine = world.open()
    script = make_churn(7)
    for _ in range(5):
        world.play(engine, script)
        world.settle(engine)
    stats = engine.stats()
    assert stats["journal_bytes"] <= 2.5 * stats["live_bytes"] + 2 * 64 * 1024
    world.check(engine)
