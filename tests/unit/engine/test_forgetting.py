"""What is staged and left behind: dropped, finished or forgotten by upkeep, each in its time."""

from __future__ import annotations

import pytest

from fjord import limits
from fjord.columns import Strings
from fjord.commands import AskWriter, CommitStages, Committed, CountJobs, Lock, Numbers, Refusal
from fjord.testing import SimDisk
from tests.crash.stream_world import KV, LOG
from tests.crash.test_staging import JOBS, StagingWorld

HOUR = 3600.0


@pytest.fixture
def world() -> StagingWorld:
    found = StagingWorld(SimDisk(1))
    found.open()
    found.create()
    return found


def wait(world: StagingWorld, seconds: float) -> None:
    world.clock.advance(seconds)
    world.upkeep()


def last_batch(world: StagingWorld, writer: str = "w") -> int:
    reply = world.ask(AskWriter(table=LOG, writer=writer))
    assert isinstance(reply, Committed)
    return reply.batch


def waiting(world: StagingWorld) -> int:
    reply = world.ask(CountJobs(table=JOBS))
    assert isinstance(reply, Numbers)
    return dict(zip(reply.names.rows(), reply.values, strict=True))[b"waiting"]


def test_a_stage_that_nobody_commits_goes_after_hours(world: StagingWorld) -> None:
    world.stage(LOG, [(b"", b"lost")])
    wait(world, limits.STAGE_US_MAX / 1_000_000 - HOUR)
    assert world.left() == 1
    wait(world, 2.5 * HOUR)
    assert world.left() == 0
    world.check_index()


def test_a_batch_that_was_begun_is_finished_within_hours(world: StagingWorld) -> None:
    stages = [world.stage(JOBS, [(b"", b"job %d" % number)]) for number in range(3)]
    world.commit(CommitStages(table=JOBS, writer="w", batch=0, stages=stages))
    assert waiting(world) == 0
    wait(world, 2.5 * HOUR)
    assert (waiting(world), world.left()) == (3, 0)
    world.check_index()


def test_a_batch_that_is_refused_does_not_hold_up_others(world: StagingWorld) -> None:
    for writer, key in (("a", b"locked"), ("b", b"free")):
        stage = world.stage(KV, [(key, b"value")])
        world.commit(CommitStages(table=KV, writer=writer, batch=0, stages=[stage]))
    (reply,) = world.engine.run([Lock(table=KV, keys=Strings.of([b"locked"]))], (7,))
    assert not isinstance(reply, Refusal)
    wait(world, 2.5 * HOUR)
    assert world.left() == 1
    world.engine.release(7)
    wait(world, 2.5 * HOUR)
    assert world.left() == 0


def test_who_writes_once_is_forgotten_after_a_day(world: StagingWorld) -> None:
    for writer in ("once:this", "w"):
        world.commit(CommitStages(table=LOG, writer=writer, batch=0, stages=[]))
    wait(world, 23 * HOUR)
    assert last_batch(world, "once:this") == 0
    wait(world, 2.5 * HOUR)
    assert (last_batch(world, "once:this"), last_batch(world)) == (-1, 0)
