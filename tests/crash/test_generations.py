"""Generations begin, drain and are packed away, cut at every call that changes the disk."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fjord.engine import Engine, open_engine
from fjord.engine.memory import TREE_COUNT
from fjord.index.memory import MemoryIndexes
from fjord.jobs import Drained, Period
from fjord.journal import frame
from fjord.testing import SimClock, SimCrash, SimDisk
from tests.unit.engine import test_generations
from tests.unit.engine.test_job_packing import settle
from tests.unit.engine.world import settings


@pytest.mark.req("SJ-18", "SJ-19")
@pytest.mark.parametrize("kind", ["power_cut", "process_crash"])
def test_a_crash_at_any_call_of_a_turn_loses_nothing(kind: str) -> None:
    """Nothing of a secret is left either, once its segment is gone."""
    whole = Watched(1)
    assert live(whole, MemoryIndexes(TREE_COUNT)) == [True, True, True]
    calls = len(whole.calls)
    for point in range(20, calls):
        disk, indexes = Watched(point, crash_at=point), MemoryIndexes(TREE_COUNT)
        steps = live(disk, indexes)
        getattr(disk, kind)()
        if kind == "power_cut":
            indexes.drop()
        clock = SimClock()
        clock.advance(2 * test_generations.HOUR)
        engine = open_on(disk, indexes, clock)
        if steps:
            found = test_generations.listed(engine)
            assert found, point
            counted = engine.job_counts()[test_generations.TABLE]
            assert sum(found.values()) == sum(counted), (point, found, counted)
            test_generations.take_all(engine)
            settle(engine, clock)
            assert list(test_generations.listed(engine).values()) == [0]
            assert len(test_generations.listed(engine)) == 1
        engine.close()
        found_again = open_on(disk, indexes, clock)
        if steps:
            assert list(test_generations.listed(found_again).values()) == [0]
        found_again.close()
        assert disk.unwiped == [], point
    assert whole.wiped > 0
    assert whole.unwiped == []


class Watched(SimDisk):
    """A disk that looks into files which are removed, or become the spare."""

    def __init__(self, seed: int, *, crash_at: int | None = None) -> None:
        super().__init__(seed, crash_at=crash_at)
        self.wiped = 0
        self.unwiped: list[str] = []  # with a secret in them

    def remove(self, path: str) -> None:
        self._look(path)
        super().remove(path)

    def rename(self, old: str, new: str) -> None:
        if not new.endswith(frame.UNWIPED) and not old.endswith(frame.UNFINISHED):
            self._look(old)
        super().rename(old, new)

    def _look(self, path: str) -> None:
        file = self.open(path)
        self.wiped += path.endswith(frame.UNWIPED)
        if test_generations.SECRET in file.read(0, file.size()):
            self.unwiped.append(path)


def open_on(disk: SimDisk, indexes: MemoryIndexes, clock: SimClock) -> Engine:
    return open_engine("/data", replace(settings(clock), disk=disk, indexes=indexes))


def live(disk: SimDisk, indexes: MemoryIndexes) -> list[bool]:
    clock = SimClock()
    steps: list[bool] = []
    try:
        engine = open_on(disk, indexes, clock)
        test_generations.create(engine, period=Period.HOUR, drained=Drained.TRUNCATE, secure=True)
        steps.append(True)
        test_generations.push_some(engine, clock, 100, test_generations.SECRET * 50)
        clock.advance(test_generations.HOUR)
        settle(engine, clock)
        steps.append(True)
        test_generations.take_all(engine)
        test_generations.push(engine, clock, 2)
        settle(engine, clock)
        steps.append(engine.stats()["packed_segments"] > 0)
        engine.close()
    except SimCrash:
        pass
    return steps
