"""Streams through the client and a real daemon: waiting, restarts, many subscribers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

import fjord
import fjord.aio
from fjord.client.connection import Connection
from fjord.commands import Batch, Command, Replies, Subscribe
from fjord.streams import Start
from fjord.values import Value
from tests.acceptance.daemon import Daemon

SECONDS_MAX = 60.0
Result = TypeVar("Result")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "data") as one:
        yield one


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as one:
        yield one


def parked(db: fjord.Database, count: int) -> None:
    """Returns when so many requests wait in the daemon; each look is a round trip."""
    begun = time.monotonic()
    while db.stats()["parked_waits"] != count:
        assert time.monotonic() - begun < SECONDS_MAX


def values_of(messages: fjord.MessageBatch) -> list[Value]:
    return [message.value for message in messages]


def read_end(url: str, name: str, wait: float) -> list[Value]:
    """Reads what comes to the end of `events`, over a connection of its own."""
    with fjord.connect(url) as db:
        subscriber = db.stream("events").subscriber(name, start="end")
        return values_of(subscriber.read(100, wait=wait))


def wait_all(futures: list[Future[Result]]) -> list[Result]:
    return [future.result(SECONDS_MAX) for future in futures]


# -- waiting --------------------------------------------------------------------------------------


@pytest.mark.req("JQ-09", "KY-13")
def test_all_who_wait_at_the_end_get_what_is_appended(
    daemon: Daemon, db: fjord.Database, pool: ThreadPoolExecutor
) -> None:
    events = db.create_stream("events")
    db.create_stream("other")
    waiting = [
        pool.submit(read_end, daemon.url, f"reader-{number}", SECONDS_MAX) for number in range(8)
    ]
    parked(db, 8)
    db.stream("other").append("nobody waits for this")
    assert db.stats()["parked_waits"] == 8
    events.append_many([b"a", b"b", b"c"])
    assert wait_all(waiting) == [[b"a", b"b", b"c"]] * 8
    stats = db.stats()
    assert (stats["parked_waits"], stats["subscribers"]) == (0, 8)


# -- restarts -------------------------------------------------------------------------------------


@pytest.mark.req("KY-16", "JQ-04", "JQ-13")
@pytest.mark.parametrize("end", [Daemon.kill, Daemon.stop])
def test_consumption_goes_on_where_it_stopped(
    daemon: Daemon, end: Callable[[Daemon], object]
) -> None:
    with fjord.connect(daemon.url) as db:
        events = db.create_stream("events")
        events.append_many([f"message {number}" for number in range(100)])
        subscriber = events.subscriber("reader")
        first = subscriber.read(30)
        subscriber.ack(first)
        unacknowledged = subscriber.read(30)
        assert values_of(unacknowledged)[0] == "message 30"
    end(daemon)
    daemon.start()
    with fjord.connect(daemon.url) as db:
        subscriber = db.stream("events").subscriber("reader")
        assert subscriber.lag == 70
        rest = subscriber.read(1000)
        assert values_of(rest) == [f"message {number}" for number in range(30, 100)]
        assert rest.end_of_snapshot
        subscriber.ack(rest)
        assert subscriber.lag == 0


def test_a_reader_that_waits_while_the_daemon_is_killed_finds_what_comes_later(
    daemon: Daemon, db: fjord.Database, pool: ThreadPoolExecutor
) -> None:
    db.create_stream("events")
    waiting = pool.submit(read_end, daemon.url, "reader", SECONDS_MAX)
    parked(db, 1)
    port = daemon.port
    daemon.kill()
    daemon.start(port)
    parked(db, 1)
    db.stream("events").append(b"after the restart")
    assert waiting.result(SECONDS_MAX) == [b"after the restart"]


# -- many of them ---------------------------------------------------------------------------------


@pytest.mark.req("KY-13")
def test_ten_thousand_idle_subscribers_cost_their_rows_and_nothing_else(
    daemon: Daemon, db: fjord.Database
) -> None:
    count = 10_000
    events = db.create_stream("events")
    events.append(b"first")
    before = memory_bytes(daemon)
    connection = Connection(daemon.url, timeout=SECONDS_MAX)
    for start in range(0, count, 1000):
        commands: list[Command] = [
            Subscribe(table="events", name=f"reader-{number:05}", start=Start.BEGINNING)
            for number in range(start, start + 1000)
        ]
        replies = connection.execute(Batch(commands=commands))
        assert isinstance(replies, Replies), replies
    connection.close()
    assert db.stats()["subscribers"] == count
    events.append_many([b"second"] * 1000)
    assert memory_bytes(daemon) - before < 32 * 1024 * 1024
    assert db.stats()["parked_waits"] == 0
    last = events.subscriber(f"reader-{count - 1:05}")
    assert len(last.read(10_000)) == 1001


def memory_bytes(daemon: Daemon) -> int:
    """Returns the memory of a daemon that is its own, without what is mapped from files."""
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(line.split()[1]) * 1024
