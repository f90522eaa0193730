"""A full disk refuses what grows, and serves, deletes and finishes work all the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fjord import commands
from fjord.columns import Strings
from fjord.errors import Code
from tests.unit.engine.small_disk import SmallDisk, SmallJobsDisk, crash, cut_power, stop
from tests.unit.engine.test_jobs import CLIENT, push
from tests.unit.engine.world import SEGMENT_BYTES, TABLE, read, set_command
from tests.unit.tables.world import code_of


@pytest.fixture
def full() -> SmallDisk:
    world = SmallDisk()
    world.fill()
    assert world.number > 50
    return world


def test_a_full_disk_refuses_what_grows_and_says_so(full: SmallDisk) -> None:
    reply = full.set(b"more")
    assert code_of(reply) is Code.DISK_FULL
    assert full.engine.stats()["disk_full"] == 1
    full.check()


def test_what_is_refused_with_a_group_leaves_nothing_in_memory(full: SmallDisk) -> None:
    """What is in no frame is taken back with it; a lock takes no space, so it is run again."""
    now_us = full.clock.wall_us()
    wanted: list[commands.Command] = [
        replace(set_command({b"memory": b"1"}, timestamp_us=now_us), persist=False),
        commands.Lock(table=TABLE, keys=Strings.of([b"locked"])),
        set_command({b"more": full.value}, timestamp_us=now_us),
    ]
    replies = full.engine.run(wanted, (1, 1, 1))
    assert isinstance(replies[1], commands.Done)
    codes = [reply.code for reply in replies if isinstance(reply, commands.Refusal)]
    assert codes == [Code.DISK_FULL] * 2
    stats = full.engine.stats()
    assert (stats["volatile_values"], stats["volatile_bytes"], stats["locks"]) == (0, 0, 1)
    assert read(full.engine, b"memory") == [None]


def test_what_deletes_free_can_be_written_again(full: SmallDisk) -> None:
    for key in full.keys[::2]:
        full.remove(key)
        full.upkeep()
    full.clock.advance(2)  # a refused step of upkeep is tried again after a second
    full.upkeep()
    assert isinstance(full.set(b"more"), commands.Done)
    assert full.engine.stats()["disk_full"] == 0
    assert read(full.engine, full.keys[1], b"more") == [full.value, full.value]


@pytest.mark.parametrize("end", [stop, crash, cut_power])
def test_a_restart_on_a_full_disk_serves_and_deletes(
    full: SmallDisk, end: Callable[[SmallDisk], None]
) -> None:
    end(full)
    full.check()
    assert isinstance(full.remove(full.keys[0]), commands.Done)
    assert read(full.engine, full.keys[0]) == [None]


def test_a_start_on_a_disk_without_a_byte_left_throws_out_ballast(full: SmallDisk) -> None:
    full.disk.remove("/data/journal/spare")
    full.disk.process_crash()
    # What the open segment has left for deletes is what the start has first.
    full.disk.capacity = full.disk.used_bytes() - SEGMENT_BYTES
    full.restart()
    assert not full.disk.exists("/data/ballast")
    assert read(full.engine, full.keys[0]) == [full.value]
    full.disk.capacity = 16 * SEGMENT_BYTES
    full.engine.close()
    full.restart()
    assert full.disk.exists("/data/ballast")


def test_what_is_packed_leaves_room_for_deletes() -> None:
    """Rows that are small take more space when they are moved than they took before."""
    world = SmallDisk(40)
    for start in range(0, 20_000, 500):
        world.clock.advance(0.001)
        items = {b"%06d" % number: b"v" for number in range(start, start + 500)}
        world.engine.run([set_command(items, timestamp_us=world.clock.wall_us())])
    world.disk.capacity = world.disk.used_bytes() + 4 * SEGMENT_BYTES
    while isinstance(world.set(b"hot"), commands.Done):
        pass  # no upkeep: all of the garbage is behind rows that live
    world.upkeep()
    for number in range(100):
        assert isinstance(world.remove(b"%06d" % number), commands.Done)
        world.clock.advance(1)
        world.upkeep()


def test_a_delete_beside_writes_that_are_refused_is_run(full: SmallDisk) -> None:
    full.clock.advance(1)
    now_us = full.clock.wall_us()
    wanted: list[commands.Command] = [
        set_command({b"a": full.value}, timestamp_us=now_us),
        commands.Delete(table=TABLE, keys=Strings.of(full.keys[:1]), timestamp_us=now_us),
        set_command({b"b": full.value}, timestamp_us=now_us),
    ]
    kinds = [type(reply) for reply in full.engine.run(wanted)]
    assert kinds == [commands.Refusal, commands.Done, commands.Refusal]
    assert read(full.engine, full.keys[0]) == [None]


def test_kept_answers_that_are_forgotten_give_their_space_back() -> None:
    """They never counted as live, so nothing else says that packing would gain by it."""
    world = SmallDisk()
    world.engine.run([push(world.clock, b"a")])
    number, reply = 0, None
    while not isinstance(reply, commands.Refusal):
        number += 1
        keys = Strings.of([b"%d-%d" % (number, one) for one in range(6000)])
        cancel = commands.Numbered(
            command=commands.Cancel(table="jobs", keys=keys), client=b"c" * 16, number=number
        )
        world.clock.advance(0.01)
        (reply,) = world.engine.run([cancel])
        world.engine.sync()
        world.upkeep()
    assert reply.code is Code.DISK_FULL
    world.clock.advance(26 * 3600)
    for _ in range(300):
        world.clock.advance(30)
        world.upkeep()
    assert isinstance(world.set(b"again"), commands.Done)


# -- jobs -----------------------------------------------------------------------------------------


@pytest.fixture
def full_jobs() -> SmallJobsDisk:
    world = SmallJobsDisk()
    world.fill()
    return world


def numbered(world: SmallDisk, command: commands.Command) -> commands.Reply:
    """Runs a command as clients send it."""
    world.number += 1
    return world.run(commands.Numbered(command=command, client=CLIENT, number=world.number))


@pytest.mark.parametrize("count", [1, 10])
def test_all_jobs_are_taken_and_done_on_a_full_disk(full_jobs: SmallJobsDisk, count: int) -> None:
    done = 0
    while True:
        taken = full_jobs.run(commands.Next(table="jobs", count=count))
        assert isinstance(taken, commands.Taken), taken
        if not taken.rows:
            break
        xids = range(taken.first_xid, taken.first_xid + len(taken.rows))
        reply = numbered(full_jobs, commands.Finish(table="jobs", xids=xids))
        assert isinstance(reply, commands.Acted)
        assert not reply.missing
        done += len(xids)
        full_jobs.clock.advance(2)
        full_jobs.upkeep()
    assert done == len(full_jobs.keys)
    assert isinstance(full_jobs.set(b"more"), commands.Done)


@pytest.mark.parametrize("verb", [commands.Extend, commands.Fail])
def test_what_could_be_repeated_without_end_leaves_the_reserve_to_those_who_are_done(
    full_jobs: SmallJobsDisk, verb: type[commands.Extend | commands.Fail]
) -> None:
    taken = full_jobs.run(commands.Next(table="jobs", count=5))
    assert isinstance(taken, commands.Taken)
    xids = range(taken.first_xid, taken.first_xid + 5)
    for _ in range(300):
        full_jobs.run(verb(table="jobs", xids=xids[:1]))
    reply = numbered(full_jobs, commands.Finish(table="jobs", xids=xids[1:]))
    assert isinstance(reply, commands.Acted)
    assert not reply.missing
