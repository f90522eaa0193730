"""Snapshots: state as it was, while writers go on."""

from __future__ import annotations

import random

import pytest

from fjord import commands, limits
from fjord.columns import Strings
from fjord.commands import Opened
from fjord.errors import Code
from fjord.tables import snapshots
from fjord.tables.kv import keep
from fjord.tables.state import Tree
from tests.unit.tables.stream_world import Said, StreamWorld, said
from tests.unit.tables.world import NOW_US, code_of


@pytest.fixture
def world() -> StreamWorld:
    return StreamWorld.with_tables()


@pytest.mark.req("KY-10")
def test_all_tables_are_seen_at_one_moment(world: StreamWorld) -> None:
    world.set({b"k": b"old", b"gone": b"x"}, table="kv")
    world.put("latest", (b"p", b"old"))
    world.append("log", b"1")
    snapshot = world.open_snapshot()
    world.set({b"k": b"new", b"more": b"y"}, table="kv", at=1)
    world.delete(b"gone", table="kv", at=1)
    world.put("latest", (b"p", b"new"), (b"q", b"new"))
    world.append("log", b"2")
    assert world.map_as_of(snapshot, "kv") == {b"k": b"old", b"gone": b"x"}
    assert world.map_as_of(snapshot, "latest") == {b"p": b"old"}
    assert [value for _, _, value in world.said_as_of(snapshot, "log")] == [b"1"]
    assert [value for _, _, value in world.said_as_of(snapshot, "latest")] == [b"old"]
    world.check()


def test_a_value_that_expires_meanwhile_is_there(world: StreamWorld) -> None:
    world.set({b"k": b"old"}, table="kv", expires=10)
    snapshot = world.open_snapshot()
    world.now_us += 20
    assert world.map_as_of(snapshot, "kv") == {b"k": b"old"}
    world.run(keep.Expire(limit=10))
    assert world.get(b"k", table="kv") != [b"old"]
    assert world.map_as_of(snapshot, "kv") == {b"k": b"old"}


@pytest.mark.parametrize("seed", range(20))
def test_every_snapshot_is_the_fold_of_all_before_it(seed: int) -> None:
    """Random writers, snapshots opened and closed in any order, sweeping and packing between."""
    choose = random.Random(seed)
    world = StreamWorld.with_tables()
    world.run(commands.CreateTable(name="kv", kind=1))
    expected: dict[int, tuple[dict[bytes, bytes], dict[bytes, bytes], list[Said]]] = {}
    kv: dict[bytes, bytes] = {}
    latest: dict[bytes, bytes] = {}
    for number in range(120):
        key, value = b"k%d" % choose.randrange(6), b"%d" % number
        step = choose.randrange(10)
        if step < 3:
            world.set({key: value}, table="kv", at=number)
            kv[key] = value
        elif step == 3:
            world.delete(key, table="kv", at=number)
            kv.pop(key, None)
        elif step < 7:
            world.put("latest", (key, value), (b"also", value))
            latest |= {key: value, b"also": value}
        elif step == 7:
            world.erase("latest", key)
            latest.pop(key, None)
        elif len(expected) < 5:
            messages = said(world.read("latest"))
            expected[world.open_snapshot()] = (dict(kv), dict(latest), messages)
        else:
            gone = choose.choice(list(expected))
            del expected[gone]
            world.run(commands.CloseSnapshot(snapshot=gone))
            world.sweep(choose.randrange(1, 4))
        for snapshot, (then_kv, then_latest, messages) in expected.items():
            assert world.map_as_of(snapshot, "kv") == then_kv
            assert world.map_as_of(snapshot, "latest") == then_latest
            assert world.said_as_of(snapshot, "latest") == messages
    world.check()
    assert world.replayed().trees() == world.trees()
    for snapshot in list(expected):
        world.run(commands.CloseSnapshot(snapshot=snapshot))
    world.sweep()
    assert world.size_of(Tree.VERSIONS) == world.size_of(Tree.SNAPSHOTS) == 0


def test_how_long_a_value_lives_is_seen_as_it_was(world: StreamWorld) -> None:
    """What a touch has noted of a row goes with the row, and not with the next one."""
    world.set({b"k": b"old"}, table="kv", expires=10)
    touch = commands.Touch(
        table="kv", keys=Strings.of([b"k"]), expires_at_us=world.now_us + 1000, extend=True
    )
    world.run(touch)
    world.now_us += 100
    snapshot = world.open_snapshot()
    world.set({b"k": b"new"}, table="kv", expires=10, at=101)
    world.run(touch)
    assert world.map_as_of(snapshot, "kv") == {b"k": b"old"}


def test_tables_that_came_or_went_are_refused_by_name(world: StreamWorld) -> None:
    world.put("latest", (b"a", b"1"))
    snapshot = world.open_snapshot()
    world.run(commands.DropTable(name="latest"))
    read = commands.Read(table="latest", after=0)
    for _ in range(2):
        (reply,) = world.as_of_replies(snapshot, read)
        assert code_of(reply) is Code.NOT_FOUND
        world.create("latest", b'{"mode":"latest"}')


def test_what_is_asked_at_once_is_bounded(world: StreamWorld) -> None:
    for number in range(5):
        world.append("log", bytes(limits.VALUE_BYTES_MAX - number))
    read = commands.Read(table="log", after=0)
    as_of = commands.AsOf(snapshot=world.open_snapshot(), commands=[read] * 100)
    assert code_of(world.run(as_of)) is Code.TOO_LARGE


def test_readers_leave_room_for_snapshots_that_are_asked_for(world: StreamWorld) -> None:
    world.put("latest", (b"a", b"1"), (b"b", b"1"))
    mine = world.open_snapshot()
    for _ in range(limits.SNAPSHOTS_MAX):
        assert not world.read("latest", count=1).ended
    assert len(world.snapshots) == limits.SNAPSHOTS_MAX // 2 + 1
    assert world.map_as_of(world.open_snapshot(), "latest") == world.map_as_of(mine, "latest")


def test_a_reader_does_not_close_a_snapshot_that_is_not_its_own(world: StreamWorld) -> None:
    world.put("latest", (b"a", b"1"), (b"b", b"1"))
    mine = world.open_snapshot()
    assert world.read("latest", until=mine).ended
    assert mine in world.snapshots
    assert not world.read("latest", count=1).ended
    world.run(commands.Read(table="latest", after=0, count=1, once=True))
    assert len(world.snapshots) == 2


def test_packing_says_snapshots_and_versions_again(world: StreamWorld) -> None:
    world.set({b"k": b"old"}, table="kv")
    snapshot = world.open_snapshot()
    world.set({b"k": b"new"}, table="kv", at=1)
    before = {tree: world.tree(tree) for tree in (Tree.SNAPSHOTS, Tree.VERSIONS)}
    world.pack(len(world.ops()))
    assert world.tree(Tree.VERSIONS) == before[Tree.VERSIONS]
    assert world.tree(Tree.SNAPSHOTS).keys() == before[Tree.SNAPSHOTS].keys()
    assert world.replayed().trees() == world.trees()
    assert snapshot in world.snapshots


def test_a_snapshot_ends_by_itself(world: StreamWorld) -> None:
    reply = world.run(commands.OpenSnapshot(lifetime_us=1000))
    assert reply == Opened(snapshot=world.next_seq - 1, wall_us=NOW_US, until_us=NOW_US + 1000)
    world.lease_us += 999
    world.run(snapshots.EndSnapshots(limit=10))
    assert world.snapshots
    world.lease_us += 1
    world.run(snapshots.EndSnapshots(limit=10))
    assert not world.snapshots


def test_what_cannot_be_meant_is_refused(world: StreamWorld) -> None:
    too_long = commands.OpenSnapshot(lifetime_us=limits.SNAPSHOT_US_MAX + 1)
    assert code_of(world.run(too_long)) is Code.BAD_TIMEOUT
    get = commands.Get(table="kv", keys=Strings.of([b"k"]))
    assert code_of(world.run(commands.AsOf(snapshot=1, commands=[get]))) is Code.SNAPSHOT_GONE
    snapshot = world.open_snapshot()
    write = commands.Erase(table="latest", keys=Strings.of([b"k"]))
    as_of = commands.AsOf(snapshot=snapshot, commands=[write])
    assert code_of(world.run(as_of)) is Code.BAD_BATCH
    for _ in range(limits.SNAPSHOTS_MAX - 1):
        world.open_snapshot()
    assert code_of(world.run(commands.OpenSnapshot())) is Code.QUOTA
    assert code_of(world.run(commands.CloseSnapshot(snapshot=12345))) is None
