"""A committer on a real engine, clients that wait and listen, and virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fjord import wire
from fjord.commands import Command, Done, Next, Nop, Reply, Taken
from fjord.engine import Engine
from fjord.server.committer import Committer
from fjord.server.counters import Counters
from fjord.server.wakeups import Sender, Wakeups
from fjord.testing import SimClock
from tests.unit.engine.job_records import TABLE, push
from tests.unit.engine.world import open_at
from tests.unit.server.asking import Asker
from tests.unit.server.sim_loop import SimLoop

SECOND_US = 1_000_000
YEAR = 365 * 24 * 3600.0


class Client(Asker):
    """Collects replies and changes; whatever it is told must be durable."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.told: list[tuple[bytes, int]] = []

    def push(self, messages: Sequence[bytes]) -> None:
        self.check_durable()
        decoder = wire.ReplyDecoder()
        decoder.feed(b"".join(messages))
        while (message := decoder.next()) is not None:
            assert isinstance(message, wire.RawChange)
            assert message.key == b""
            self.told.append((message.value, message.timestamp_us))

    @property
    def jobs(self) -> list[bytes]:
        """Keys of all jobs that it got."""
        assert self.sent == self.replies
        return [
            key for reply in self.replies if isinstance(reply, Taken) for key in reply.keys.rows()
        ]


class World:
    """A committer on an engine; what it runs and syncs is counted."""

    def __init__(
        self,
        engine: Engine,
        clock: SimClock,
        monkeypatch: pytest.MonkeyPatch,
        sender: Sender | None = None,
    ) -> None:
        self.engine = engine
        self.clock = clock
        self.loop = SimLoop(clock)
        self.counters = Counters()
        self.failures: list[Exception] = []
        self.ran: Counter[type] = Counter()
        self.syncs = 0
        self._count(monkeypatch)
        self.committer = Committer(
            engine, self.loop.as_loop, clock, self.counters, on_failure=self.failures.append
        )
        self.listeners = self.committer.listeners
        if sender is not None:
            self.committer.send_wakeups(Wakeups(sender, self.loop.as_loop, clock))
        self.loop.pass_time(2)  # whatever a start has to do

    def _count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        run_some, sync = self.engine.run_some, self.engine.sync

        def counted_run(wanted: Sequence[Command], clients: Sequence[int] = ()) -> list[Reply]:
            self.ran.update(map(type, wanted))
            return run_some(wanted, clients)

        def counted_sync() -> int:
            self.syncs += 1
            return sync()

        monkeypatch.setattr(self.engine, "run_some", counted_run)
        monkeypatch.setattr(self.engine, "sync", counted_sync)

    def client(self) -> Client:
        return Client(self.engine)

    def do(self, *commands: Command) -> list[Reply]:
        """Runs commands as one group, and all that comes of it at once."""
        client = self.client()
        for command in commands:
            self.committer.submit(client, None, command)
        self.loop.until(lambda: len(client.sent) == len(commands))
        self.loop.run()
        return client.replies

    def push(self, *keys: bytes, delay: float = 0, domain: bytes = b"") -> None:
        delay_us = round(delay * SECOND_US)
        now_us = self.clock.wall_us()
        (reply,) = self.do(push(*keys, now_us=now_us, delay_us=delay_us, domain=domain))
        assert isinstance(reply, Done), reply

    def next(self, client: Client, *, wait: float = 60, lease: float = 60, **options: Any) -> None:
        command = Next(
            table=TABLE,
            wait_us=round(wait * SECOND_US),
            lease_us=round(lease * SECOND_US),
            **options,
        )
        self.committer.waits.begin(client, None, command)
        self.loop.run()

    def workers(self, count: int, **options: Any) -> list[Client]:
        """Returns clients that wait."""
        clients = [self.client() for _ in range(count)]
        for client in clients:
            self.next(client, **options)
        self.loop.until(lambda: self.counters.parked_waits == count)
        return clients

    def hang_up(self, client: Client) -> None:
        """Closes the connection of a client."""
        client.close()
        self.committer.waits.drop(client)
        self.committer.release()

    def settle(self, *clients: Client) -> None:
        """Runs everything until these are answered."""
        self.loop.until(lambda: all(client.sent for client in clients))

    def listen(self, client: Client, identifier: int = 7) -> None:
        def begin(reply: Reply) -> Reply:
            self.listeners.add(client, identifier, TABLE, [b""])
            self.committer.look_at_dates(TABLE)
            return reply

        self.committer.submit(client, None, Nop(), begin)
        self.loop.until(lambda: len(client.sent) == 1)


@contextmanager
def job_world(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    clock = SimClock()
    engine = open_at(path, clock)
    world = World(engine, clock, monkeypatch)
    yield world
    world.committer.close()
    engine.abandon()
    assert world.failures == []


def xids(reply: Reply) -> list[int]:
    assert isinstance(reply, Taken)
    return list(range(reply.first_xid, reply.first_xid + len(reply.rows)))
