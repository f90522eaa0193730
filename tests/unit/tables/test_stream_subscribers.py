"""Subscribers: where they begin, how their marks move, and how far behind they are."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from fjord import commands, limits
from fjord.columns import Strings
from fjord.commands import InBlock, Numbers, Position, Subscribers
from fjord.errors import Code
from fjord.streams import Start
from fjord.tables.kv import keep
from fjord.tables.state import Tree
from tests.unit.tables.stream_world import Said, StreamWorld, said
from tests.unit.tables.world import NOW_US, code_of


@pytest.fixture
def world() -> StreamWorld:
    return StreamWorld.with_tables()


@pytest.mark.req("JQ-02", "KY-14")
def test_a_subscriber_is_one_row_and_stays_where_it_is(world: StreamWorld) -> None:
    last = world.append("log", b"1", b"2")
    made = world.subscribe("log", "s", Start.BEGINNING)
    assert made == Position(seq=0, epoch=last + 1, asleep=False, created=True)
    assert isinstance(world.acknowledge("log", last), Position)
    again = world.subscribe("log", "s", Start.BEGINNING)
    assert again == Position(seq=last, epoch=made.epoch, asleep=False, created=False)
    assert world.size_of(Tree.SUBSCRIBERS) == 1


@pytest.mark.req("JQ-02")
def test_a_subscriber_begins_where_it_is_told(world: StreamWorld) -> None:
    moments = []
    for number in range(5):
        world.now_us = NOW_US + 1000 * number
        moments.append((world.now_us, world.append("log", b"x", b"y")))
    last = world.next_seq - 1
    assert world.subscribe("log", "a", Start.END).seq == last
    assert world.subscribe("log", "b", Start.SEQ, 4).seq == 3
    assert world.subscribe("log", "c", Start.SEQ, 0).seq == 0
    for number, (moment, seq) in enumerate(moments):
        at = world.subscribe("log", f"at{number}", Start.TIME, moment).seq
        assert said(world.read("log", at))[0][0] == seq - 1
        behind = world.subscribe("log", f"after{number}", Start.TIME, moment + 1).seq
        assert [found for found, _, _ in said(world.read("log", behind))][:1] == (
            [] if number == 4 else [seq + 1]
        )
    assert world.subscribe("log", "z", Start.TIME, NOW_US - 10**9).seq < moments[0][1]


def test_a_seek_begins_an_epoch_and_late_acks_are_refused(world: StreamWorld) -> None:
    last = world.append("log", b"1", b"2")
    made = world.subscribe("log", "s", Start.BEGINNING)
    world.acknowledge("log", last)
    reply = world.run(commands.Seek(table="log", name="s", start=Start.BEGINNING))
    assert reply == Position(seq=0, epoch=made.epoch + 1, asleep=False, created=False)
    assert code_of(world.acknowledge("log", last, later=-1)) is Code.STALE_EPOCH
    assert isinstance(world.acknowledge("log", last), Position)


def test_a_subscriber_that_is_made_again_is_not_moved_by_who_knew_the_old_one(
    world: StreamWorld,
) -> None:
    last = world.append("log", b"1", b"2")
    old = world.subscribe("log", "s", Start.BEGINNING)
    world.run(commands.Unsubscribe(table="log", name="s"))
    assert world.subscribe("log", "s", Start.BEGINNING).epoch > old.epoch
    late = commands.Acknowledge(table="log", name="s", seq=last, epoch=old.epoch)
    assert code_of(world.run(late)) is Code.STALE_EPOCH


def test_sleep_is_remembered_and_costs_nothing_twice(world: StreamWorld) -> None:
    made = world.subscribe("log", "s", Start.BEGINNING)
    rest = commands.Rest(table="log", name="s", asleep=True)
    assert world.run(rest) == replace(made, asleep=True, created=False)
    before = world.next_seq
    world.run(rest)
    assert world.next_seq == before


def test_subscribers_are_listed_in_pages(world: StreamWorld) -> None:
    for number in range(5):
        world.subscribe("log", f"s{number}", Start.BEGINNING)
    names, start = [], ""
    while True:
        page = world.run(commands.ListSubscribers(table="log", start=start, count=2))
        assert isinstance(page, Subscribers)
        names += [name.decode() for name in page.names]
        start = page.next_name
        if not start:
            break
    assert names == [f"s{number}" for number in range(5)]
    world.run(commands.Unsubscribe(table="log", name="s3"))
    page = world.run(commands.ListSubscribers(table="log"))
    assert isinstance(page, Subscribers)
    assert list(page.names) == [b"s0", b"s1", b"s2", b"s4"]


def lag(world: StreamWorld, table: str, after: int = -1) -> commands.Reply:
    return world.run(commands.Lag(table=table, name="s", after=after))


def messages_of(reply: commands.Reply) -> int:
    assert isinstance(reply, Numbers), reply
    return dict(zip(reply.names, reply.values, strict=True))[b"messages"]


@pytest.mark.parametrize("table", ["log", "latest"])
def test_lag_counts_messages(world: StreamWorld, table: str) -> None:
    world.subscribe(table, "s", Start.BEGINNING)
    world.put(table, *((b"%d" % number, b"x") for number in range(10)))
    last = world.put(table, (b"more", b"x"))
    assert messages_of(lag(world, table)) == 11
    world.acknowledge(table, last - 5)
    assert messages_of(lag(world, table)) == 5


def test_lag_counts_what_is_in_blocks(world: StreamWorld) -> None:
    world.subscribe("log", "s", Start.BEGINNING)
    middle = world.append("log", b"1", b"2", b"3")
    world.append("log", b"4")
    sealed = world.next_seq - 1
    world.seal("log", sealed, (1, middle), (middle + 1, sealed))
    world.append("log", b"5", b"6")
    assert messages_of(lag(world, "log")) == 6
    world.sweep()
    assert messages_of(lag(world, "log")) == 1 + 1 + 2  # blocks of the tests have one row each
    inside = lag(world, "log", after=middle - 1)
    assert isinstance(inside, InBlock)
    assert (inside.last, inside.after) == (middle, middle - 1)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (commands.Subscribe(table="log", name="", start=1), Code.BAD_NAME),
        (commands.Subscribe(table="log", name="a/b", start=1), Code.BAD_NAME),
        (commands.Subscribe(table="log", name="new", start=9), Code.BAD_RANGE),
        (commands.Subscribe(table="log", name="new", start=3, at=10**6), Code.BAD_RANGE),
        (commands.Subscribe(table="log", name="new", start=4, at=5), Code.BAD_TIMESTAMP),
        (commands.Subscribe(table="t", name="new", start=1), Code.WRONG_KIND),
        (commands.Acknowledge(table="log", name="x", seq=1, epoch=0), Code.NOT_FOUND),
        (commands.Acknowledge(table="none", name="x", seq=1, epoch=0), Code.NOT_FOUND),
        (commands.Seek(table="log", name="x", start=1), Code.NOT_FOUND),
        (commands.Rest(table="log", name="x", asleep=True), Code.NOT_FOUND),
        (commands.Unsubscribe(table="log", name="x"), Code.NOT_FOUND),
        (commands.Lag(table="log", name="x"), Code.NOT_FOUND),
        (commands.ListSubscribers(table="none"), Code.NOT_FOUND),
    ],
)
def test_what_cannot_be_meant_is_refused(
    world: StreamWorld, command: commands.Command, code: Code
) -> None:
    world.set({b"k": 1})
    before = world.trees()
    assert code_of(world.run(command)) is code
    assert world.trees() == before


@pytest.mark.parametrize(
    "settings",
    [
        *(b"[]", b"{", b'{"mode":"other"}', b'{"history":false}', b'{"history":1}'),
        *(b'{"block_rows":0}', b'{"block_age_us":0}', b'{"retention_us":-1}', b'{"unknown":1}'),
    ],
)
def test_settings_that_cannot_be_are_refused(world: StreamWorld, settings: bytes) -> None:
    create = commands.CreateTable(name="new", kind=3, settings=settings)
    assert code_of(world.run(create)) is Code.BAD_SETTINGS


# -- snapshots ------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("seed", range(8))
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


def test_a_snapshot_that_cannot_be_meant_is_refused(world: StreamWorld) -> None:
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


@pytest.mark.req("KY-14")
def test_marks_only_go_forward(world: StreamWorld) -> None:
    last = world.append("log", b"1", b"2", b"3")
    world.subscribe("log", "s", Start.BEGINNING)
    world.acknowledge("log", last)
    before = world.next_seq
    reply = world.acknowledge("log", last - 1)
    assert isinstance(reply, Position)
    assert (reply.seq, world.next_seq) == (last, before)
    assert code_of(world.acknowledge("log", world.next_seq)) is Code.BAD_RANGE


def test_a_key_that_is_taken_away_and_comes_back_is_seen_as_it_was(world: StreamWorld) -> None:
    world.set({b"k": b"old"}, table="kv")
    snapshot = world.open_snapshot()
    world.delete(b"k", table="kv", at=1)
    later = world.open_snapshot()
    world.set({b"k": b"new"}, table="kv", at=2)
    assert world.map_as_of(snapshot, "kv") == {b"k": b"old"}
    assert world.map_as_of(later, "kv") == {}
