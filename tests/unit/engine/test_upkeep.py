from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fjord import commands, limits
from fjord.columns import Strings
from fjord.engine import Engine
from fjord.tables.state import Tree
from fjord.testing import SimClock, SimDisk
from tests.crash.stream_world import KV, LOG
from tests.crash.test_staging import JOBS, StagingWorld
from tests.unit.engine.world import TABLE, open_at, read, set_command, write


def set_until(key: bytes, expires_at_us: int, clock: SimClock) -> commands.Set:
    command = set_command({key: b"v"}, timestamp_us=clock.wall_us())
    return replace(command, expires_at_us=expires_at_us)


def settle(engine: Engine) -> None:
    while engine.upkeep():
        pass


@pytest.mark.req("FJ-33")
def test_upkeep_is_due_when_the_next_value_expires(engine: Engine, clock: SimClock) -> None:
    settle(engine)
    later_us, sooner_us = clock.wall_us() + 20_000_000, clock.wall_us() + 10_000_000
    engine.run([set_until(b"a", later_us, clock)])
    assert engine.upkeep_due_us() == later_us
    engine.run([set_until(b"b", sooner_us, clock)])
    assert engine.upkeep_due_us() == sooner_us
    assert not engine.upkeep()
    clock.advance(10)
    before = engine.applied_seq
    settle(engine)
    assert engine.applied_seq == before + 1
    assert engine.upkeep_due_us() == later_us
    assert read(engine, b"a", b"b") == [b"v", None]


def test_many_expiries_are_worked_off_in_bounded_steps(engine: Engine, clock: SimClock) -> None:
    count = 2 * limits.UPKEEP_ROWS + 1
    due_us = clock.wall_us() + 1_000_000
    command = set_command({b"%05d" % n: b"v" for n in range(count)}, timestamp_us=clock.wall_us())
    command.expires_at_us = due_us
    engine.run([command])
    clock.advance(2)
    before = engine.applied_seq
    assert engine.upkeep()
    assert engine.applied_seq - before <= limits.UPKEEP_ROWS
    settle(engine)
    assert engine.applied_seq - before == count
    assert not engine.scan_index(Tree.KV_EXPIRY, b"", None, 1)


def test_a_dropped_table_is_swept_also_after_a_restart(
    engine: Engine, clock: SimClock, tmp_path: Path
) -> None:
    count = 2 * limits.UPKEEP_ROWS
    write(engine, clock, {b"%05d" % number: b"v" for number in range(count)})
    engine.run([set_command({b"k": b"v"}, timestamp_us=clock.wall_us(), table="other")])
    live_bytes = engine.stats()["live_bytes"]
    engine.run([commands.DropTable(name=TABLE)])
    assert read(engine, b"00001") == [None]
    engine.upkeep()
    engine.close()
    engine = open_at(tmp_path, clock)
    settle(engine)
    assert engine.stats()["live_bytes"] < live_bytes / 100
    assert len(engine.scan_index(Tree.KV, b"", None, 10)) == 1


class SlowClock(SimClock):
    """A clock on which every look takes a while, so that steps take time."""

    def monotonic_us(self) -> int:
        self.advance(0.01)
        return super().monotonic_us()


def test_after_a_step_commands_have_the_engine_for_longer_than_it_took(tmp_path: Path) -> None:
    clock = SlowClock()
    engine = open_at(tmp_path, clock)
    command = set_command({b"%05d" % n: b"v" for n in range(5000)}, timestamp_us=clock.wall_us())
    command.expires_at_us = clock.wall_us() + 1
    engine.run([command])
    clock.advance(1)
    before_us = clock.wall_us()
    assert not engine.upkeep()  # there is more to do, but not at once
    due_us = engine.upkeep_due_us()
    assert due_us > clock.wall_us() > before_us
    assert not engine.upkeep()


# -- what is staged and left behind ---------------------------------------------------------------

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
    reply = world.ask(commands.AskWriter(table=LOG, writer=writer))
    assert isinstance(reply, commands.Committed)
    return reply.batch


def waiting(world: StagingWorld) -> int:
    reply = world.ask(commands.CountJobs(table=JOBS))
    assert isinstance(reply, commands.Numbers)
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
    world.commit(commands.CommitStages(table=JOBS, writer="w", batch=0, stages=stages))
    assert waiting(world) == 0
    wait(world, 2.5 * HOUR)
    assert (waiting(world), world.left()) == (3, 0)
    world.check_index()


def test_a_batch_that_is_refused_does_not_hold_up_others(world: StagingWorld) -> None:
    for writer, key in (("a", b"locked"), ("b", b"free")):
        stage = world.stage(KV, [(key, b"value")])
        world.commit(commands.CommitStages(table=KV, writer=writer, batch=0, stages=[stage]))
    (reply,) = world.engine.run([commands.Lock(table=KV, keys=Strings.of([b"locked"]))], (7,))
    assert not isinstance(reply, commands.Refusal)
    wait(world, 2.5 * HOUR)
    assert world.left() == 1
    world.engine.release(7)
    wait(world, 2.5 * HOUR)
    assert world.left() == 0


def test_who_writes_once_is_forgotten_after_a_day(world: StagingWorld) -> None:
    for writer in ("once:this", "w"):
        world.commit(commands.CommitStages(table=LOG, writer=writer, batch=0, stages=[]))
    wait(world, 23 * HOUR)
    assert last_batch(world, "once:this") == 0
    wait(world, 2.5 * HOUR)
    assert (last_batch(world, "once:this"), last_batch(world)) == (-1, 0)
