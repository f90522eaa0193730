"""Packing of jobs: what is left of the journal is all that a next start has."""

from __future__ import annotations

from pathlib import Path

import pytest

from fjord import commands
from fjord.commands import Acted
from fjord.disk import LocalDisk
from fjord.engine import Engine, doctor
from fjord.engine.packing import Moving
from fjord.jobs import State
from fjord.journal.reader import Journal
from fjord.tables.state import Tree
from fjord.testing import SimClock
from tests.unit.engine.job_life import TABLES, Life
from tests.unit.engine.world import open_at, settings


def settle(engine: Engine, clock: SimClock) -> None:
    """Does all upkeep that is due, rests included."""
    for _ in range(10_000):
        if not engine.upkeep() and engine.upkeep_due_us() > clock.wall_us():
            break
        clock.advance(0.01)
    engine.sync()


@pytest.mark.parametrize("seed", range(2))
def test_jobs_outlive_the_segments_that_they_were_pushed_in(tmp_path: Path, seed: int) -> None:
    clock = SimClock()
    life = Life(open_at(tmp_path, clock), clock, seed)
    for step in range(1000):
        life.step()
        if step % 3 == 0:
            life.engine.upkeep()
            life.engine.sync()
        if step % 200 == 199:
            if step % 400 == 399:
                life.engine.abandon()
            else:
                life.engine.close()
            life.engine = open_at(tmp_path, clock)
    settle(life.engine, clock)
    assert life.engine.stats()["packed_segments"] > 0 or life.engine.stats()["first_seq"] > 1
    counts = life.engine.job_counts()
    before = life.all()
    for table in TABLES:
        assert list(counts[table]) == [len(before[table, state]) for state in State]
    life.engine.close()
    found = doctor.examine(str(tmp_path), settings(clock))
    assert not found.difference_count, found.differences
    (tmp_path / "index" / "data.mdb").unlink()
    life.engine = open_at(tmp_path, clock)
    assert life.all() == before
    assert life.engine.job_counts() == counts
    life.engine.close()


def test_jobs_that_are_taken_while_others_are_moved_are_moved_too(tmp_path: Path) -> None:
    """A pass looks at waiting jobs first; what is given back then waits where it has looked."""
    clock = SimClock()
    life = Life(open_at(tmp_path, clock), clock, 1)
    for _ in range(60):
        life.push("plain")
    clock.advance(60)
    for _ in range(10):
        life.next("plain")
    assert life.engine.stats()["segments"] > 2
    before_seq = life.engine.journal.segments[-1].first_seq
    moving = Moving(life.engine, before_seq)
    steps = moving.commands()
    moved = [next(steps)]
    while moved[-1].tree is Tree.JOBS_READY:
        life.engine.run_internal(moved[-1])
        moved.append(next(steps))
    first_seq = life.engine.applied_seq + 1
    reply = life.run(commands.Fail(table="plain", xids=life.taken["plain"]))
    assert isinstance(reply, Acted)
    assert [step for step in Moving(life.engine, before_seq).commands() if step.keys]
    journal = Journal(LocalDisk(), str(tmp_path / "journal"))
    for located in journal.frames(first_seq, durable_seq=0):
        for op, place in located.ops():
            moving.note(op, place)
    journal.close()
    for step in steps:
        life.engine.run_internal(step)
    assert not [step for step in Moving(life.engine, before_seq).commands() if step.keys]
    life.engine.close()
