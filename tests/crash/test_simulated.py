"""The engine on a simulated disk, cut or failed at every call that changes anything."""

from __future__ import annotations

import errno

import pytest

from fjord.commands import Done, Refusal
from fjord.engine import Engine
from fjord.errors import ClosedError, Code, DurabilityError, FjordError
from fjord.journal.writer import Writer
from fjord.testing import SimCrash, SimDisk
from tests.crash.world import Step, World, count_calls, make_script, read_all

SCRIPT_LENGTH = 200
POWER = pytest.mark.parametrize("power", [True, False], ids=["power-cut", "process-crash"])


def crash(world: World, *, power: bool) -> None:
    if power:
        world.disk.power_cut()
    else:
        world.disk.process_crash()


def survive_every_crash(seed: int, *, power: bool, step: int = 1) -> int:
    """Crashes a script at every `step`-th call; returns the number of crash points."""
    script = make_script(seed, SCRIPT_LENGTH)
    points = range(1, count_calls(script) + 1, step)
    for point in points:
        world = World(SimDisk(seed * 1_000_003 + point, crash_at=point))
        assert not world.play_until_crash(script), f"seed {seed}: no crash at {point}"
        for _ in range(2):  # the second restart sees what the first one left
            crash(world, power=power)
            world.check(world.open())
        engine = reopened(world, power=power)
        world.play(engine, script[:5])
        engine.close()
    return len(points)


def reopened(world: World, *, power: bool) -> Engine:
    crash(world, power=power)
    engine = world.open()
    world.check(engine)
    return engine


@pytest.mark.req("FJ-18")
@pytest.mark.parametrize(("seed", "power"), [(1, True), (2, False)])
def test_a_crash_at_any_call_keeps_exactly_what_was_acknowledged(seed: int, power: bool) -> None:
    assert survive_every_crash(seed, power=power, step=2) > SCRIPT_LENGTH


@POWER
def test_a_crash_at_any_call_of_a_recovery_loses_nothing(power: bool) -> None:
    script = make_script(3, 60)
    calls = count_calls(script)
    for point in range(calls // 2, calls, 7):
        recovery_call = 0
        while True:
            recovery_call += 1
            world = World(SimDisk(point, crash_at=point))
            world.play_until_crash(script)
            crash(world, power=power)
            world.disk.crash_after(recovery_call)
            try:
                world.check(world.open())
                break  # the recovery was over before that call
            except SimCrash:
                crash(world, power=power)
                world.check(world.open())
        assert recovery_call > 3


def test_the_search_finds_an_engine_that_acknowledges_before_it_syncs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def pretend(self: Writer) -> int:
        self.durable_seq = self.committed_seq
        return self.durable_seq

    monkeypatch.setattr(Writer, "sync", pretend)
    with pytest.raises((AssertionError, FjordError)):
        survive_every_crash(1, power=True, step=5)


def test_the_search_finds_a_segment_whose_name_was_not_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SimDisk, "sync_directory", lambda self, path: None)
    with pytest.raises((AssertionError, FjordError)):
        survive_every_crash(1, power=True, step=5)


def test_a_full_disk_at_any_call_refuses_and_goes_on() -> None:
    script = make_script(4, 80)
    opening = len(opened().disk.calls)
    for point in range(opening + 1, count_calls(script)):
        world = World(SimDisk(point, errors={point: errno.ENOSPC}))
        engine = world.open()
        refused = 0
        for step in script:
            world.clock.advance(0.001)
            try:
                (reply,) = engine.run([step.command(world.clock.wall_us())])
                engine.sync()
            except DurabilityError:
                break  # the full disk met an fsync, and that is final
            if isinstance(reply, Done):
                world.acknowledged = world.attempted = step.change(world.acknowledged)
            else:
                assert isinstance(reply, Refusal)
                assert reply.code is Code.DISK_FULL
                refused += 1
        else:
            assert read_all(engine) == world.acknowledged
            assert refused <= 1
        world.disk.power_cut()
        assert read_all(world.open()) == world.acknowledged


def test_a_failed_sync_is_final_and_the_restart_serves_only_what_is_durable() -> None:
    script = make_script(5, 60)
    calls = recorded_calls(script)
    syncs = [number for number, name in enumerate(calls, 1) if name == "sync"]
    opening = len(opened().disk.calls)
    for point in [number for number in syncs if number > opening]:
        world = World(SimDisk(point, errors={point: errno.EIO}))
        engine = world.open()
        with pytest.raises(DurabilityError):
            world.play(engine, script)
            engine.close()
        with pytest.raises((DurabilityError, ClosedError)):
            engine.run([script[0].command(world.clock.wall_us())])
        engine.abandon()
        world.disk.power_cut()
        world.check(world.open())


def opened() -> World:
    world = World(SimDisk())
    world.open()
    return world


def recorded_calls(script: list[Step]) -> list[str]:
    world = World(SimDisk())
    assert world.play_until_crash(script)
    return world.disk.calls
