"""Group commit on a real engine: who is answered, when, and with how many syncs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fjord.clock import SystemClock
from fjord.columns import Strings
from fjord.commands import Command, Done, Entries, Get, Nop, Refusal, Reply, Scan, Scanned
from fjord.engine import Engine
from fjord.errors import Code, DurabilityError
from fjord.server.committer import Committer
from fjord.testing import SimClock
from tests.unit.engine.world import TABLE, open_at, set_command

NOW_US = SimClock().wall_us()


class Client:
    """Collects replies; notes how much was durable when each was sent."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.replies: list[Reply] = []
        self.sent = 0
        self.stalled = False

    def answer(self, reply: Reply) -> None:
        assert self._engine.durable_seq == self._engine.applied_seq
        self.replies.append(reply)

    def flush(self) -> None:
        self.sent = len(self.replies)

    def is_stalled(self) -> bool:
        return self.stalled


class World:
    """A committer on an engine whose syncs are counted."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine = engine
        self.failures: list[Exception] = []
        self.syncs = 0
        sync = engine.sync

        def counted() -> int:
            self.syncs += 1
            return sync()

        monkeypatch.setattr(engine, "sync", counted)

    @contextmanager
    def committer(self) -> Iterator[Committer]:
        loop = asyncio.get_running_loop()
        one = Committer(self.engine, loop, self.failures.append, clock=SystemClock(), awake_us=50)
        yield one
        one.close()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    engine = open_at(tmp_path)
    yield World(engine, monkeypatch)
    engine.abandon()


def set_one(number: int) -> Command:
    return set_command({b"key-%d" % number: b"value"}, timestamp_us=NOW_US + number)


async def until(condition: Callable[[], bool]) -> None:
    """Lets the loop run until something has happened; `run` bounds it."""
    while not condition():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)


def run(main: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), timeout=30))


def test_what_comes_together_shares_one_sync(world: World) -> None:
    async def main() -> None:
        clients = [Client(world.engine) for _ in range(100)]
        with world.committer() as committer:
            for number, client in enumerate(clients):
                committer.submit(client, set_one(number))
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
                committer.submit(client, set_one(number))
            await until(lambda: world.syncs > 0)  # the first group is being synced, or just was
            for number in range(3, 50):
                committer.submit(client, set_one(number))
            await committer.drain()
        assert len(client.replies) == 50

    run(main)
    assert world.syncs == 2


def test_reads_of_what_is_durable_need_no_sync(world: World) -> None:
    async def main() -> None:
        client = Client(world.engine)
        with world.committer() as committer:
            committer.submit(client, Get(table=TABLE, keys=Strings.of([b"key"])))
            committer.submit(client, Nop())
            await committer.drain()
        assert [type(reply) for reply in client.replies] == [Entries, Done]

    run(main)
    assert world.syncs == 0


def test_nothing_is_run_for_a_peer_that_does_not_take_its_replies(world: World) -> None:
    async def main() -> None:
        slow, quick = Client(world.engine), Client(world.engine)
        slow.stalled = True
        with world.committer() as committer:
            for number in range(3):
                committer.submit(slow, set_one(number))
                committer.submit(quick, set_one(10 + number))
            await until(lambda: len(quick.replies) == 3)
            assert slow.replies == []
            slow.stalled = False
            committer.release()
            await committer.drain()
        seqs = [reply.seq for reply in slow.replies if isinstance(reply, Done)]
        assert len(seqs) == 3
        assert seqs == sorted(seqs)

    run(main)


def test_a_failed_sync_answers_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise DurabilityError

    monkeypatch.setattr(world.engine, "sync", fail)

    async def main() -> None:
        client = Client(world.engine)
        with world.committer() as committer:
            for count in (1, 5):  # one is synced inline, several by the thread
                for number in range(count):
                    committer.submit(client, set_one(number))
                await until(lambda: bool(world.failures))
                assert isinstance(world.failures.pop(), DurabilityError)
        assert client.replies == []

    run(main)


def test_scans_are_answered_beside_the_groups(world: World) -> None:
    async def main() -> None:
        client = Client(world.engine)
        with world.committer() as committer:
            committer.submit(client, set_one(1))
            await committer.drain()
            committer.submit(client, Scan(table=TABLE, start_seq=1, end_seq=0))
            committer.submit(client, Scan(table="nothing", start_seq=1, end_seq=0))
            await committer.drain()
        _, scanned, refused = client.replies
        assert isinstance(scanned, Scanned)
        assert len(scanned.ops) == 2
        assert isinstance(refused, Refusal)
        assert refused.code is Code.NOT_FOUND

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
            committer.submit(client, Scan(table=TABLE, start_seq=1, end_seq=0))
            await committer.drain()
        (reply,) = client.replies
        assert isinstance(reply, Refusal)
        assert reply.code is Code.FAILED

    run(main)
    assert world.failures == []
