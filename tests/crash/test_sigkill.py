"""The real daemon, killed with SIGKILL again and again under load: nothing acknowledged is lost."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import fjord
from fjord.errors import ClosedError, UnavailableError
from tests.acceptance.daemon import Daemon

KILLS = 20
WRITERS = 4
# The kill comes when this many writes were acknowledged in the daemon's present life.
WRITES_PER_LIFE = 30


class Load:
    """Writers that note what was acknowledged and what was only attempted."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, int] = {}
        self.attempted: dict[str, int] = {}
        self.progress = threading.Semaphore(0)
        self._open: list[fjord.Database] = []
        self._guard = threading.Lock()

    def write(self, url: str, writer: int, start: int) -> None:
        """Writes rising numbers under few keys, and batches, until it is told to hang up."""
        number = start
        try:
            with fjord.connect(url) as db:
                self._open.append(db)
                kv = db.kv("load")
                while True:
                    number += 1
                    items = {f"{writer}:{number % 7}": number}
                    if number % 5 == 0:
                        items |= {f"{writer}:batch:{row}": number for row in range(20)}
                    self._note(self.attempted, items)
                    kv.set_many(items)
                    self._note(self.acknowledged, items)
                    self.progress.release()
        except (ClosedError, UnavailableError):
            return

    def hang_up(self) -> None:
        """Ends the writers, which would try for a while to reach the daemon again."""
        while self._open:
            self._open.pop().close()

    def _note(self, where: dict[str, int], items: dict[str, int]) -> None:
        with self._guard:
            where.update(items)

    def check(self, url: str) -> None:
        """Asserts that every key holds its last acknowledged number, or the one attempted."""
        with fjord.connect(url) as db:
            found = db.kv("load").get_many(self.attempted)
        for key, attempted in self.attempted.items():
            assert found.get(key) in (self.acknowledged.get(key), attempted), key
        for writer in range(WRITERS):
            batch = {found.get(f"{writer}:batch:{row}") for row in range(20)}
            assert len(batch) == 1, "a batch is all or nothing"
        self.acknowledged |= {key: n for key, n in found.items() if isinstance(n, int)}  # it stays


@pytest.mark.req("FJ-18")
def test_twenty_kills_under_load_lose_nothing(tmp_path: Path) -> None:
    load, daemon = Load(), Daemon(tmp_path / "data")
    for life in range(KILLS):
        daemon.start()
        if life:
            load.check(daemon.url)
        threads = [
            threading.Thread(target=load.write, args=(daemon.url, writer, life * 100_000))
            for writer in range(WRITERS)
        ]
        for thread in threads:
            thread.start()
        for _ in range(WRITES_PER_LIFE):
            assert load.progress.acquire(timeout=60)
        daemon.kill()
        load.hang_up()
        for thread in threads:
            thread.join(timeout=60)
    with daemon:
        load.check(daemon.url)
    assert len(load.acknowledged) >= WRITERS * 20
