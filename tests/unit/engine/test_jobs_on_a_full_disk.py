"""A full disk refuses new jobs, and blocks nobody who finishes work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fjord import commands
from fjord.columns import Strings
from fjord.commands import Acted, Done, Numbered, Refusal, Taken
from fjord.engine import open_engine
from fjord.engine.memory import TREE_COUNT
from fjord.errors import Code
from fjord.index.memory import MemoryIndexes
from fjord.testing import SimClock, SimDisk
from tests.unit.engine.test_jobs import CLIENT, push
from tests.unit.engine.world import SEGMENT_BYTES, settings


class World:
    """A directory on a small disk that is full of jobs."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.disk = SimDisk(1, capacity=8 * SEGMENT_BYTES)
        self.settings = replace(
            settings(self.clock), disk=self.disk, indexes=MemoryIndexes(TREE_COUNT)
        )
        self.engine = open_engine("/data", self.settings)
        self.pushed = self.number = 0
        while isinstance(self.push(), Done):
            self.pushed += 1
            self.upkeep()

    def push(self) -> commands.Reply:
        command = push(self.clock, b"key-%d" % self.pushed)
        values = Strings.of([b"x" * 2000])
        return self.run(replace(command, values=values))

    def run(self, command: commands.Command) -> commands.Reply:
        self.clock.advance(0.001)
        (reply,) = self.engine.run([command])
        self.engine.sync()
        return reply

    def numbered(self, command: commands.Command) -> commands.Reply:
        """Runs a command as clients send it."""
        self.number += 1
        return self.run(Numbered(command=command, client=CLIENT, number=self.number))

    def upkeep(self) -> None:
        while self.engine.upkeep():
            pass
        self.engine.sync()


@pytest.fixture
def full() -> World:
    world = World()
    assert world.pushed > 50
    return world


def test_a_full_disk_refuses_a_push(full: World) -> None:
    reply = full.push()
    assert isinstance(reply, Refusal)
    assert reply.code is Code.DISK_FULL
    assert full.engine.job_counts()["jobs"].waiting == full.pushed


@pytest.mark.parametrize("count", [1, 10])
def test_all_jobs_are_taken_and_done_on_a_full_disk(full: World, count: int) -> None:
    done = 0
    while True:
        taken = full.run(commands.Next(table="jobs", count=count))
        assert isinstance(taken, Taken), taken
        if not taken.rows:
            break
        xids = range(taken.first_xid, taken.first_xid + len(taken.rows))
        reply = full.numbered(commands.Finish(table="jobs", xids=xids))
        assert isinstance(reply, Acted)
        assert not reply.missing
        done += len(xids)
        full.clock.advance(2)
        full.upkeep()
    assert done == full.pushed
    assert isinstance(full.push(), Done)


def test_jobs_time_out_on_a_full_disk(full: World) -> None:
    taken = full.run(commands.Next(table="jobs", count=5, lease_us=1_000_000))
    assert isinstance(taken, Taken)
    full.clock.advance(2)
    full.upkeep()
    assert full.engine.job_counts()["jobs"].taken == 0
    assert full.engine.job_counts()["jobs"].waiting == full.pushed


@pytest.mark.parametrize("verb", [commands.Extend, commands.Fail])
def test_what_could_be_repeated_without_end_leaves_the_reserve_to_those_who_are_done(
    full: World, verb: type[commands.Extend | commands.Fail]
) -> None:
    taken = full.run(commands.Next(table="jobs", count=5))
    assert isinstance(taken, Taken)
    xids = range(taken.first_xid, taken.first_xid + 5)
    for _ in range(300):
        full.run(verb(table="jobs", xids=xids[:1]))
    reply = full.numbered(commands.Finish(table="jobs", xids=xids[1:]))
    assert isinstance(reply, Acted)
    assert not reply.missing
