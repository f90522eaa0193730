"""Subscribers: where they begin, how their marks move, and how far behind they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fjord import commands
from fjord.commands import InBlock, Numbers, Position, Subscribers
from fjord.errors import Code
from fjord.streams import Start
from fjord.tables.state import Tree
from tests.unit.tables.stream_world import StreamWorld, said
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


def test_a_moment_of_the_latest_is_found_by_the_messages_that_are_left(world: StreamWorld) -> None:
    seqs = []
    for number, key in enumerate([b"a", b"b", b"c", b"b"]):
        world.now_us = NOW_US + 1000 * number
        seqs.append(world.put("latest", (key, b"x")))
    begin = world.subscribe("latest", "c", Start.TIME, NOW_US + 1000).seq
    assert [seq for seq, _, _ in said(world.read("latest", begin))] == seqs[2:]
    begin = world.subscribe("latest", "e", Start.TIME, NOW_US + 9000).seq
    assert said(world.read("latest", begin)) == []


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
        b"[]",
        b"{",
        b'{"mode":"other"}',
        b'{"history":false}',
        b'{"history":1}',
        b'{"block_rows":0}',
        b'{"block_age_us":0}',
        b'{"retention_us":-1}',
        b'{"unknown":1}',
    ],
)
def test_settings_that_cannot_be_are_refused(world: StreamWorld, settings: bytes) -> None:
    create = commands.CreateTable(name="new", kind=3, settings=settings)
    assert code_of(world.run(create)) is Code.BAD_SETTINGS
