"""A life of jobs, cut at every call that changes the disk: it goes on from a whole step.

Steps are commands, and steps of upkeep: leases that end, jobs that expire, packing.  The same seed
makes the same life, so the states after each step of a life without a crash are what may be found
after one with it.
"""

from __future__ import annotations

from typing import Any

import pytest

from fjord.engine import Engine, EngineSettings, doctor, open_engine
from fjord.engine.memory import TREE_COUNT
from fjord.index.memory import MemoryIndexes
from fjord.journal.reader import Journal
from fjord.tables.jobs import keep, layout
from fjord.tables.state import Tree
from fjord.testing import SimClock, SimCrash, SimDisk
from tests.unit.engine.job_life import Life

STEPS = 420
Seen = dict[Tree, list[tuple[Any, ...]]]


def seen(engine: Engine) -> Seen:
    """Returns all that is known of jobs, but where their values rest."""
    found: Seen = {}
    for tree in layout.STATES:
        rows = found[tree] = []
        for key, data in engine.scan_index(tree, b"", None, 10_000):
            head, image = keep.parts(tree, key, data)
            row = layout.decode(image)
            rows.append((key, head, row._replace(held=0, segment=0, offset=0)))
    return found


class World:
    """A machine, and the life of jobs on it up to a crash."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.clock = SimClock()
        self.indexes = MemoryIndexes(TREE_COUNT)
        self.states: list[Seen] = []
        self.packed_segments = 0

    def settings(self) -> EngineSettings:
        return EngineSettings(
            disk=self.disk,
            clock=self.clock,
            indexes=self.indexes,
            segment_bytes=64 * 1024,
            rebuild_rows=50,
        )

    def open(self) -> Engine:
        return open_engine("/data", self.settings())

    def live(self, seed: int, *, sees: bool) -> int:
        """Lives to the end or to a crash; returns the number of whole steps."""
        steps = 0
        try:
            life = Life(self.open(), self.clock, seed, value_bytes=7000)
            self.note(life, sees=sees)
            for number in range(STEPS):
                if number % 3 == 0:
                    life.step()
                else:
                    life.engine.upkeep()
                    life.engine.sync()
                steps += 1
                self.note(life, sees=sees)
            self.packed_segments = life.engine.stats()["packed_segments"]
            life.engine.close()
        except SimCrash:
            return steps
        return steps

    def note(self, life: Life, *, sees: bool) -> None:
        if sees:
            self.states.append(seen(life.engine))

    def check_index(self) -> None:
        """Asserts that the index is what a replay of the journal comes to."""
        journal = Journal(self.disk, "/data/journal")
        found = doctor.diagnose(journal, self.indexes.open(), self.settings(), shown=5)
        assert not found.difference_count, found.differences


@pytest.mark.req("FJ-16", "SJ-12")
@pytest.mark.parametrize(("seed", "kind"), [(1, "power_cut"), (2, "process_crash")])
def test_a_crash_at_any_call_keeps_whole_steps(seed: int, kind: str) -> None:
    whole = World(SimDisk(seed))
    assert whole.live(seed, sees=True) == STEPS
    calls = len(whole.disk.calls)
    assert whole.packed_segments > 0
    for point in range(20 + seed, calls, 5):
        disk = SimDisk(seed * 1_000_003 + point, crash_at=point)
        world = World(disk)
        steps = world.live(seed, sees=False)
        getattr(disk, kind)()
        if kind == "power_cut":
            world.indexes.drop()
        engine = world.open()
        # Before the first step tables are made: there is nothing to see yet.
        found = seen(engine)
        assert found in whole.states[steps : steps + 2]
        world.check_index()
        engine.close()
        assert seen(world.open()) == found
