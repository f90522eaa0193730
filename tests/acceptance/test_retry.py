"""Connections that break, and daemons that die: what a client asked for is applied once."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

import fjord
import fjord.aio
from fjord.client.blocking.database import Database
from fjord.errors import UnavailableError
from tests.acceptance.cutting import CuttingProxy, Way
from tests.acceptance.daemon import Daemon

ADDS: Final = 80
KILLS_AT: Final = (20, 60)


@pytest.fixture
def proxy(daemon: Daemon) -> Iterator[CuttingProxy]:
    with CuttingProxy(daemon.port) as one:
        yield one


def cut_everywhere(proxy: CuttingProxy, call: Callable[[], object]) -> int:
    """Runs a call once whole, then cut at each byte of its request and of its reply.

    Returns how often it was run.
    """
    before = dict(proxy.passed)
    call()
    places = [(way, place) for way in Way for place in range(proxy.passed[way] - before[way] + 1)]
    for way, place in places:
        proxy.arm(way, place)
        call()
    assert proxy.cuts == len(places)
    return 1 + len(places)


@pytest.mark.req("FJ-35")
def test_an_add_that_is_cut_anywhere_is_applied_once(daemon: Daemon, proxy: CuttingProxy) -> None:
    with fjord.connect(proxy.url) as db, fjord.connect(daemon.url) as other:
        kv = db.kv("cut")
        kv.set("count", 0)
        expected = itertools.count(1)

        def add() -> None:
            number = next(expected)
            assert kv.add("count", 1) == number
            assert other.kv("cut").get("count") == number

        assert cut_everywhere(proxy, add) > 100


def test_a_transaction_that_is_cut_anywhere_is_applied_once(
    daemon: Daemon, proxy: CuttingProxy
) -> None:
    with fjord.connect(proxy.url) as db, fjord.connect(daemon.url) as other:
        db.kv("first").set("count", 0)
        db.kv("second").set("count", 0)
        expected = itertools.count(1)

        def transfer() -> None:
            number = next(expected)
            with db.transaction() as tx:
                tx.kv("first").add("count", 1)
                tx.kv("second").add("count", -1)
                tx.kv("second").set("last", "x")
            assert tx.results == [number, -number, None]
            assert other.kv("first").get("count") == number
            assert other.kv("second").get("count") == -number

        assert cut_everywhere(proxy, transfer) > 200


@pytest.mark.req("FJ-35")
def test_a_push_that_is_cut_anywhere_is_applied_once(daemon: Daemon, proxy: CuttingProxy) -> None:
    with fjord.connect(proxy.url) as db, fjord.connect(daemon.url) as other:
        pages, seen = db.create_jobs("cut-push", merge=False), other.jobs("cut-push")
        expected = itertools.count(1)

        def push() -> None:
            pages.push("http://example.com/a", b"value")
            assert seen.count().waiting == next(expected)

        assert cut_everywhere(proxy, push) > 100


@pytest.mark.req("FJ-35")
def test_a_job_that_is_done_while_it_is_cut_anywhere_is_not_stale(
    daemon: Daemon, proxy: CuttingProxy
) -> None:
    """A second try that was applied again would be told that the lease is over."""
    with fjord.connect(proxy.url) as db, fjord.connect(daemon.url) as other:
        pages, giver = db.create_jobs("cut-done", merge=False), other.jobs("cut-done")
        giver.push_many([{"key": "http://example.com/a", "value": b"value"}] * 1000)

        def done() -> None:
            (job,) = giver.next(lease=3600)
            assert pages.done_many([job]) == []
            assert giver.count().taken == 0

        assert cut_everywhere(proxy, done) > 100


def test_many_tasks_on_a_connection_that_is_cut_all_over_count_right(proxy: CuttingProxy) -> None:
    async def main() -> None:
        async with await fjord.aio.connect(proxy.url) as db:
            kv = db.kv("tasks")
            await kv.set("count", 0)
            for place in range(0, 600, 7):
                proxy.arm(Way.REQUEST if place % 2 else Way.REPLY, place)
                found = await asyncio.gather(*(kv.add("count", 1) for _ in range(8)))
                first = 8 * (place // 7)
                assert found == list(range(first + 1, first + 9))

    asyncio.run(main())
    assert proxy.cuts > 50


def test_what_belongs_to_a_connection_is_not_carried_to_the_next_one(
    proxy: CuttingProxy, daemon: Daemon
) -> None:
    with fjord.connect(proxy.url) as db, fjord.connect(daemon.url) as other:
        kv = db.kv("locks")
        kv.lock("key")
        proxy.arm(Way.REQUEST, 0)
        with pytest.raises(UnavailableError, match="its locks are lost"):
            kv.set("key", 1)
        wait_until_free(other, "locks", "key")
        other.kv("locks").set("key", 2)
        assert kv.get("key") == 2


def wait_until_free(db: Database, table: str, key: str) -> None:
    """Returns when nobody holds the lock; the server hears of a cut a moment later."""
    for _ in range(1000):
        try:
            with db.kv(table).locked(key):
                return
        except fjord.LockedError:
            db.ping()
    raise AssertionError("the lock is still held")


# -- daemons that are killed ----------------------------------------------------------------------


class Progress:
    """Counts what is done, and tells when certain numbers are reached."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0

    def add(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._count >= count, timeout=60)


@contextlib.contextmanager
def killed(daemon: Daemon) -> Iterator[Progress]:
    """Kills and restarts a daemon at certain numbers."""

    def kill() -> None:
        for count in KILLS_AT:
            progress.wait(count)
            port = daemon.port
            daemon.kill()
            daemon.start(port)

    progress = Progress()
    killer = threading.Thread(target=kill)
    killer.start()
    yield progress
    killer.join(timeout=60)


def test_a_loop_of_adds_over_a_daemon_that_is_killed_counts_right(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as daemon, fjord.connect(daemon.url) as db:
        kv = db.kv("loop")
        with killed(daemon) as progress:
            kv.set("count", 0)
            for number in range(1, ADDS + 1):
                assert kv.add("count", 1) == number
                progress.add()
        assert kv.get("count") == ADDS


def test_many_tasks_over_a_daemon_that_is_killed_count_right(tmp_path: Path) -> None:
    async def main() -> None:
        async with await fjord.aio.connect(daemon.url) as db:
            kv = db.kv("loop")
            await kv.set("count", 0)

            async def add_many() -> None:
                for _ in range(ADDS // 10):
                    await kv.add("count", 1)
                    progress.add()

            await asyncio.gather(*(add_many() for _ in range(10)))
            assert await kv.get("count") == ADDS

    with Daemon(tmp_path / "data") as daemon, killed(daemon) as progress:
        asyncio.run(main())
