"""Group commit on a real engine: who is answered, when, and with how many syncs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fjord import limits, wire
from fjord.columns import Strings
from fjord.commands import Command, Done, Entries, Get, Nop, Refusal, Reply, Scan, Set
from fjord.engine import Engine
from fjord.errors import Code, DurabilityError
from fjord.server.committer import Committer
from fjord.server.counters import Counters
from fjord.testing import SimClock
from tests.unit.engine.world import TABLE, open_at, set_command

NOW_US = SimClock().wall_us()


class Client:
    """Collects replies and changes; notes how much was durable when each was sent."""

    def __init__(self, engine: Engine, client: int = 1) -> None:
        self._engine = engine
        self.client = client
        self.replies: list[Reply] = []
        self.pushed: list[bytes] = []
        self.forgotten: list[Any] = []
        self.sent = 0
        self.is_stalled = False
        self.is_open = True
        self.is_ending = False

    def answer(self, request: Any, reply: Reply) -> None:
        assert self._engine.durable_seq == self._engine.applied_seq
        self.replies.append(reply)

    def flush(self) -> None:
        self.sent = len(self.replies)

    def forget(self, request: Any) -> None:
        self.forgotten.append(request)

    def push(self, messages: Sequence[bytes]) -> None:
        assert self._engine.durable_seq == self._engine.applied_seq
        self.pushed += messages


class World:
    """A committer on an engine whose syncs are counted."""

    def __init__(self, engine: Engine, clock: SimClock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine = engine
        self.clock = clock
        self.counters = Counters()
        self.failures: list[Exception] = []
        self.syncs = 0
        sync = engine.sync

        def counted() -> int:
            self.syncs += 1
            return sync()

        monkeypatch.setattr(engine, "sync", counted)

    @contextmanager
    def committer(self) -> Iterator[Committer]:
        one = Committer(
            self.engine,
            asyncio.get_running_loop(),
            self.clock,
            self.counters,
            on_failure=self.failures.append,
        )
        yield one
        one.close()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    clock = SimClock()
    engine = open_at(tmp_path, clock)
    yield World(engine, clock, monkeypatch)
    engine.abandon()


def set_one(number: int) -> Command:
    return set_command({b"key-%d" % number: b"value"}, timestamp_us=NOW_US + number)


async def until(condition: Callable[[], bool]) -> None:
    """Lets the loop run until something has happened; `run` bounds it."""
    while not condition():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)


async def answered(client: Client, count: int) -> None:
    await until(lambda: len(client.replies) == count)


def run(main: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), timeout=30))


def test_what_comes_together_shares_one_sync(world: World) -> None:
    async def main() -> None:
        clients = [Client(world.engine) for _ in range(100)]
        with world.committer() as committer:
            for number, client in enumerate(clients):
                committer.submit(client, None, set_one(number))
            await committer.drain()
        assert [type(client.replies[0]) for client in clients] == [Done] * 100
        assert {client.sent for client in clients} == {1}

    run(main)
    assert world.syncs == 1
    assert world.failures == []


def test_what_comes_during_a_sync_is_the_next_group(world: World) -> None:
    async def main() -> None:
        client = Client(world.engine)
        with world.committer() as committer:
            for number in range(3):
                committer.submit(client, None, set_one(number))
            await until(lambda: world.syncs > 0)  # the first group is being synced, or just was
            for number in range(3, 50):
                committer.submit(client, None, set_one(number))
            await committer.drain()
        assert len(client.replies) == 50

    run(main)
    assert world.syncs == 2


def test_reads_of_what_is_durable_need_no_sync(world: World) -> None:
    async def main() -> None:
        client = Client(world.engine)
        with world.committer() as committer:
            committer.submit(client, None, Get(table=TABLE, keys=Strings.of([b"key"])))
            committer.submit(client, None, Nop())
            await committer.drain()
        assert [type(reply) for reply in client.replies] == [Entries, Done]

    run(main)
    assert world.syncs == 0


def test_nothing_is_run_for_a_peer_that_does_not_take_its_replies(world: World) -> None:
    async def main() -> None:
        slow, quick = Client(world.engine), Client(world.engine)
        slow.is_stalled = True
        with world.committer() as committer:
            for number in range(3):
                committer.submit(slow, None, set_one(number))
                committer.submit(quick, None, set_one(10 + number))
            await until(lambda: len(quick.replies) == 3)
            assert slow.replies == []
            slow.is_stalled = False
            committer.release()
            await committer.drain()
        seqs = [reply.seq for reply in slow.replies if isinstance(reply, Done)]
        assert len(seqs) == 3
        assert seqs == sorted(seqs)

    run(main)


def test_nothing_more_is_run_for_a_peer_that_is_gone(world: World) -> None:
    async def main() -> None:
        gone = Client(world.engine)
        gone.is_stalled = True
        with world.committer() as committer:
            for number in range(3):
                committer.submit(gone, number, set_one(number))
            committer.scan(gone, 3, Scan(table=TABLE, start_seq=1, end_seq=0))
            gone.is_open = False
            committer.release()
            await committer.drain()
        assert gone.replies == []
        assert sorted(gone.forgotten) == [0, 1, 2, 3]

    before = world.engine.applied_seq
    run(main)
    assert world.engine.applied_seq == before


def test_a_failed_sync_answers_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise DurabilityError

    monkeypatch.setattr(world.engine, "sync", fail)

    async def main() -> None:
        client = Client(world.engine)
        with world.committer() as committer:
            for count in (1, 5):  # one is synced inline, several by the thread
                for number in range(count):
                    committer.submit(client, None, set_one(number))
                await until(lambda: bool(world.failures))
                assert isinstance(world.failures.pop(), DurabilityError)
        assert client.replies == []

    run(main)


def test_a_scan_that_breaks_is_refused_and_nothing_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(command: Scan) -> Reply:
        raise OSError("no file to open")

    monkeypatch.setattr(world.engine, "scan", broken)

    async def main() -> None:
        client = Client(world.engine)
        with world.committer() as committer:
            committer.scan(client, None, Scan(table=TABLE, start_seq=1, end_seq=0))
            await committer.drain()
        (reply,) = client.replies
        assert isinstance(reply, Refusal)
        assert reply.code is Code.FAILED

    run(main)
    assert world.failures == []


def test_what_comes_after_a_command_is_done_before_the_next_one(world: World) -> None:
    async def main() -> None:
        client = Client(world.engine)
        seen: list[int] = []

        def after(reply: Reply) -> Reply:
            seen.append(world.engine.applied_seq)
            return Refusal(code=Code.QUOTA, text="instead")

        with world.committer() as committer:
            committer.submit(client, None, set_one(1))
            committer.submit(client, None, Nop(), after)
            committer.submit(client, None, set_one(2))
            await committer.drain()
        assert [type(reply) for reply in client.replies] == [Done, Refusal, Done]
        first, _, second = client.replies
        assert isinstance(first, Done)
        assert isinstance(second, Done)
        assert seen == [first.seq]
        assert second.seq > first.seq

    run(main)


def test_listeners_are_told_when_it_is_durable_and_only_of_what_came_later(world: World) -> None:
    async def main() -> None:
        client, ear = Client(world.engine), Client(world.engine, 2)

        def listen(reply: Reply) -> Reply:
            committer.listeners.add(ear, 7, TABLE, [b"key-1"])
            return reply

        with world.committer() as committer:
            committer.submit(client, None, set_one(1))
            committer.submit(ear, None, Nop(), listen)
            await committer.drain()
            assert ear.pushed == []
            later = set_command({b"key-1": b"later", b"other": b""}, timestamp_us=NOW_US + 9)
            committer.submit(client, None, later)
            committer.submit(client, None, set_one(2))
            await committer.drain()
        (message,) = ear.pushed
        decoder = wire.ReplyDecoder()
        decoder.feed(message)
        change = decoder.next()
        assert isinstance(change, wire.RawChange)
        assert (change.identifier, change.key, change.value) == (7, b"key-1", b"later")
        assert world.counters.changes == 1

    run(main)


@pytest.mark.req("FJ-33")
def test_what_expires_is_removed_and_told_without_being_asked_for(world: World) -> None:
    async def main() -> None:
        client, ear = Client(world.engine), Client(world.engine, 2)
        short = Set(
            table=TABLE,
            keys=Strings.of([b"key"]),
            types=b"\1",
            values=Strings.of([b"value"]),
            timestamps_us=[NOW_US],
            expires_at_us=NOW_US + 50_000,
        )
        with world.committer() as committer:
            committer.listeners.add(ear, 7, TABLE, [b"key"])
            committer.submit(client, None, short)
            await until(lambda: len(ear.pushed) == 1)
            before = world.engine.applied_seq
            world.clock.advance(1)
            await until(lambda: len(ear.pushed) == 2)
            assert world.engine.applied_seq > before
            assert world.counters.upkeep.count >= 1
            await committer.drain()
        assert world.failures == []

    run(main)


def test_upkeep_that_breaks_stops_the_node(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> bool:
        raise DurabilityError

    monkeypatch.setattr(world.engine, "upkeep", broken)
    monkeypatch.setattr(world.engine, "upkeep_due_us", lambda: NOW_US)

    async def main() -> None:
        with world.committer():
            await until(lambda: bool(world.failures))

    run(main)
    assert isinstance(world.failures[0], DurabilityError)


def test_requests_are_served_while_upkeep_has_no_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.engine, "upkeep", lambda: True)
    monkeypatch.setattr(world.engine, "upkeep_due_us", lambda: NOW_US)

    async def main() -> None:
        client = Client(world.engine)
        with world.committer() as committer:
            for number in range(20):
                committer.submit(client, None, set_one(number))
                await answered(client, number + 1)
            steps = world.counters.upkeep.count
            await until(lambda: world.counters.upkeep.count > steps + 20)

    run(main)
    assert world.counters.groups.count == 20


def test_a_disk_that_is_full_and_then_is_not_is_said_once(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    space = world.engine.space
    space.refuse()
    monkeypatch.setattr(space, "look", lambda: None)

    async def main() -> None:
        client = Client(world.engine)
        with world.committer() as committer:
            for _ in range(3):
                committer.note_refusal(Code.DISK_FULL)
                committer.submit(client, None, Nop())
                await committer.drain()
            space.is_full = False
            for _ in range(3):
                committer.submit(client, None, Nop())
                await committer.drain()

    with caplog.at_level("INFO"):
        run(main)
    said = [record.message for record in caplog.records if "disk" in record.message]
    assert said == ["the disk is full: writes are refused", "the disk has room again"]
    assert world.counters.refusals == {Code.DISK_FULL: 3}


def test_a_slow_sync_is_worth_a_line(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sync = world.engine.sync

    def slow() -> int:
        world.clock.advance(1.5)
        return sync()

    monkeypatch.setattr(world.engine, "sync", slow)

    async def main() -> None:
        with world.committer() as committer:
            committer.submit(Client(world.engine), None, set_one(1))
            await committer.drain()

    with caplog.at_level("INFO"):
        run(main)
    assert [record.message for record in caplog.records] == ["a sync was slow"]
    assert world.counters.syncs.sum_us == 1_500_000


def test_whoever_asks_for_little_is_in_the_next_group(world: World) -> None:
    count = 3 * limits.GROUP_COMMANDS_MAX
    many = [Client(world.engine, number) for number in range(1, 4)]
    few = Client(world.engine, 4)

    async def main() -> None:
        with world.committer() as committer:
            for client in many:
                for _ in range(count // 3):
                    committer.submit(client, None, Nop())
            committer.submit(few, None, Nop())
            await answered(few, 1)
            assert max(len(client.replies) for client in many) < count // 6
            await committer.drain()

    run(main)
    assert [len(client.replies) for client in many] == [count // 3] * 3
