"""Requests that read streams: who waits, who is woken, who asks a block, and what they get."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from fjord import commands
from fjord.columns import Strings
from fjord.engine.cold import LazyCold
from fjord.engine.news import NO_NEWS
from fjord.errors import Code
from fjord.server import waits
from fjord.streams import Start
from tests.unit.engine.test_cold import Blocks, messages
from tests.unit.server.asking import Asker, Waiting

SECOND_US = 1_000_000
NOTHING = messages(500, 0)
SOME = messages(510, 10, until=510)
WHERE = commands.InBlock(table=7, first=1, last=100, name="t-7/one", after=0, until=500, crc=5)
DONE = commands.Done(master=bytes(16), seq=1)


class World(Waiting):
    """Reads, and a committer that runs what the test says."""

    def __init__(self) -> None:
        super().__init__(threads=1, cold=LazyCold(lambda: self.blocks))
        self.appended: set[str] = set()
        self.blocks = Blocks()
        self.reads = self.waiting

    def read(self, client: Asker, *, table: str = "t", wait: float = 60, until: int = 0) -> None:
        wait_us = round(wait * SECOND_US)
        command = commands.Read(table=table, after=0, until=until, wait_us=wait_us, subscriber="s")
        self.reads.begin(client, object(), command)

    def run(self, reply: commands.Reply) -> list[commands.Command]:
        """Answers all that was submitted, as a group; returns what it was."""
        group, self.submitted[:] = list(self.submitted), []
        appended, self.appended = self.appended, set()
        for *_, wait in group:
            assert wait is not None
            self.reads.settle(wait, reply)
        for origin, *_ in group:
            origin.flush()
        self.reads.news.append(NO_NEWS._replace(appended=appended))
        self.reads.go_on()
        return [command for _, _, command, *_ in group]

    def readers(self, count: int, **options: Any) -> list[Asker]:
        """Returns clients that wait."""
        clients = [Asker() for _ in range(count)]
        for client in clients:
            self.read(client, **options)
        self.run(NOTHING)
        assert not any(client.replies for client in clients)
        return clients


@pytest.fixture
def world() -> Iterator[World]:
    one = World()
    yield one
    one.pool.close()


# -- waiting --------------------------------------------------------------------------------------


@pytest.mark.req("JQ-09", "KY-13")
def test_all_who_wait_are_woken_by_what_comes_to_their_table(world: World) -> None:
    clients, others = world.readers(3), world.readers(2, table="other")
    assert world.counters.parked_waits == 5
    world.appended = {"t"}
    world.run(DONE)
    asked = world.run(SOME)
    assert [command.table for command in asked if isinstance(command, commands.Read)] == ["t"] * 3
    assert [client.replies for client in clients] == [[SOME]] * 3
    assert [client.replies for client in others] == [[]] * 2
    assert world.counters.parked_waits == 2


def test_a_wait_ends_in_time_and_says_where_to_read_on(world: World) -> None:
    (first,), (second,) = world.readers(1, wait=5), world.readers(1, wait=7)
    world.loop.pass_time(4.9)
    assert first.replies == []
    world.loop.pass_time(0.1)
    assert (first.replies, len(first.sent), second.replies) == ([NOTHING], 1, [])
    world.loop.pass_time(2)
    assert second.replies == [NOTHING]
    assert world.loop.waits() == []
    assert world.loop.rings == 2
    assert world.counters.parked_waits == 0


# -- blocks ---------------------------------------------------------------------------------------


def test_a_block_is_read_beside_the_loop(world: World) -> None:
    client, found = Asker(), messages(60, 20)
    world.blocks = Blocks(found)
    world.read(client)
    world.run(WHERE)
    assert client.replies == []
    world.loop.until(lambda: len(client.sent) == 1)
    assert client.replies == [found]


def test_who_finds_nothing_in_a_block_goes_on_behind_it(world: World) -> None:
    client = Asker()
    world.blocks = Blocks(messages(100, 0))
    world.read(client)
    world.run(WHERE)
    world.loop.until(lambda: bool(world.submitted))
    (command,) = world.run(NOTHING)
    assert isinstance(command, commands.Read)
    assert command.after == 100
    assert client.replies == []  # it waits there
    world.appended = {"t"}
    world.run(DONE)
    world.run(SOME)
    assert client.replies == [SOME]


def test_a_moment_in_a_block_becomes_a_seq(world: World) -> None:
    client = Asker()
    world.blocks = Blocks(41)
    command = commands.Subscribe(table="t", name="s", start=Start.TIME, at=5)
    world.reads.begin(client, object(), command)
    world.run(WHERE)
    world.loop.until(lambda: bool(world.submitted))
    position = commands.Position(seq=41, epoch=0, asleep=False, created=True)
    assert world.run(position) == [dataclasses.replace(command, start=Start.SEQ, at=42)]
    assert client.replies == [position]


def test_a_bug_of_the_reader_is_a_refusal_and_others_go_on(world: World) -> None:
    client = Asker()
    world.blocks = Blocks(ZeroDivisionError(), SOME)
    for _ in range(2):
        world.read(client)
    world.run(WHERE)
    world.loop.until(lambda: len(client.sent) == 2)
    refusal, found = client.replies
    assert isinstance(refusal, commands.Refusal)
    assert refusal.code is Code.FAILED
    assert found == SOME


def test_what_is_in_memory_for_a_connection_goes_with_it(world: World) -> None:
    clients = [Asker(), Asker()]
    world.blocks = Blocks(*[SOME] * 4)
    for client, subscriber in zip([*clients, clients[0]], ["a", "b", "c"], strict=True):
        world.reads.begin(
            client, object(), commands.Read(table="t", after=0, subscriber=subscriber)
        )
    world.reads.begin(clients[0], object(), commands.Read(table="t", after=0))
    world.run(WHERE)
    world.loop.until(lambda: [len(client.sent) for client in clients] == [3, 1])
    assert world.blocks.rested == []
    world.reads.drop(clients[0])
    assert world.blocks.rested == [("t", "a"), ("t", "c")]
    world.reads.drop(clients[0])
    assert len(world.blocks.rested) == 2


def test_a_bounded_number_of_subscribers_is_known_of_a_connection(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "_INSIDE_MAX", 2)
    client = Asker()
    world.blocks = Blocks(*[SOME] * 5)
    for number, subscriber in enumerate("abaca", start=1):
        world.reads.begin(
            client, object(), commands.Read(table="t", after=0, subscriber=subscriber)
        )
        world.run(WHERE)
        world.loop.until(lambda number=number: len(client.sent) == number)  # type: ignore[misc] # bound now
    world.reads.drop(client)
    assert world.blocks.rested == [("t", "c"), ("t", "a")]


def test_a_subscriber_that_sleeps_or_left_the_blocks_keeps_nothing_in_memory(world: World) -> None:
    client = Asker()
    world.blocks = Blocks(SOME)
    world.read(client)
    world.run(WHERE)
    world.loop.until(lambda: len(client.sent) == 1)
    world.read(client)
    world.run(SOME)
    assert world.blocks.rested == [("t", "s")]
    world.reads.begin(client, object(), commands.Rest(table="t", name="s", asleep=True))
    world.run(DONE)
    assert world.blocks.rested == [("t", "s"), ("t", "s")]
    assert isinstance(client.replies[1], commands.Messages)
    assert client.replies[1].ops == Strings.of([])
