"""A full disk comes back: what tables gave up can be written again within seconds.

The real daemon, with its usual segments of 64 MiB, on a disk of 260 MiB: two segments, the spare
and the index fill it.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

import fjord
from fjord import limits
from fjord.cli.output import EXIT_ERROR
from fjord.client.blocking.database import Database
from fjord.errors import DiskFullError
from tests.acceptance.daemon import FJORD, Daemon
from tests.crash.ext4 import tmpfs

pytestmark = pytest.mark.root

VALUE: Final = b"fjord" * 100_000  # of blocks it takes next to nothing
DEADLINE_SECONDS: Final = 30.0


class Kv:
    """A table of large values."""

    @staticmethod
    def put(db: Database, table: str, number: int) -> None:
        db.kv(table).set(b"%d" % number, VALUE)

    @staticmethod
    def drop(db: Database, count: int) -> None:
        db.drop("large")


class Dropped(Kv):
    """Large jobs, in a table that is dropped."""

    @staticmethod
    def put(db: Database, table: str, number: int) -> None:
        db.jobs(table).push(b"%d" % number, VALUE)


class Cancelled(Dropped):
    """Large jobs that are cancelled: what became of them goes to blocks before."""

    @staticmethod
    def drop(db: Database, count: int) -> None:
        keys = [b"%d" % number for number in range(count)]
        assert db.jobs("large").cancel_many(keys) == keys


class Stream(Kv):
    """Large messages, in a table that is dropped."""

    @staticmethod
    def put(db: Database, table: str, number: int) -> None:
        db.stream(table).append(VALUE)


class Outdated(Stream):
    """Large messages that are kept for a moment only."""

    @staticmethod
    def put(db: Database, table: str, number: int) -> None:
        db.stream(table, retention=0.001).append(VALUE)

    @staticmethod
    def drop(db: Database, count: int) -> None:
        """They go by themselves."""


def nothing(daemon: Daemon) -> None:
    """It goes on."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with tmpfs(tmp_path, kib=260 * limits.KIB) as path:
        yield path


def take_all(disk: Path) -> None:
    """Takes what is left, as others may."""
    with (disk / "others").open("wb", buffering=0) as others, contextlib.suppress(OSError):
        while others.write(bytes(100_000)):
            pass


def fill(db: Database, kind: type[Kv]) -> int:
    """Writes until it is refused; returns how often it was not."""
    count = 0
    with contextlib.suppress(DiskFullError):
        while True:
            kind.put(db, "large", count)
            count += 1
    return count


def wait_for_room(db: Database) -> None:
    """Each look waits a moment for a job that never comes."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while db.stats()["disk_full"]:
        assert time.monotonic() < deadline, "it stays full"
        db.jobs("none").next(wait=0.05)


def write_again(db: Database, kind: type[Kv], number: int) -> None:
    """Writes; where it is refused, it is not refused again once there is said to be room."""
    try:
        kind.put(db, "again", number)
    except DiskFullError:
        wait_for_room(db)
        kind.put(db, "again", number)


def get(daemon: Daemon, page: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(daemon.http).netloc, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", page)
        answer = connection.getresponse()
        return answer.status, answer.read()


def health(daemon: Daemon) -> int:
    return get(daemon, "/healthz")[0]


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        *((kind, nothing) for kind in (Kv, Dropped, Cancelled, Stream, Outdated)),
        *((kind, Daemon.kill) for kind in (Kv, Dropped, Stream)),
        (Kv, Daemon.stop),
    ],
)
def test_what_a_table_gave_up_is_written_again(
    small_disk: Path, kind: type[Kv], end: Callable[[Daemon], None]
) -> None:
    with Daemon(small_disk / "data") as daemon:
        with fjord.connect(daemon.url) as db:
            count = fill(db, kind)
            db.kv("small").set("a", b"fits")
            kind.drop(db, count)
        end(daemon)
        if end is not nothing:
            daemon.start()
        with fjord.connect(daemon.url) as db:
            assert db.kv("small").get("a") == b"fits"
            for number in range(count * 2 // 3):
                write_again(db, kind, number)
            assert db.kv("small").get("a") == b"fits"


def test_what_scattered_deletes_free_is_written_again(tmp_path: Path) -> None:
    """Nothing of the journal is dead as a whole, and it is filled and thinned out again."""
    with (
        tmpfs(tmp_path, kib=480 * limits.KIB) as disk,
        Daemon(disk / "data") as daemon,
        fjord.connect(daemon.url) as db,
    ):
        table, numbers = db.kv("large"), itertools.count()
        value = VALUE[:250_000]

        def write(count: int | None = None) -> list[bytes]:
            """Writes so many values, waiting for room if need be, or all until one is refused."""
            written: list[bytes] = []
            while count is None or len(written) < count:
                key = b"%d" % next(numbers)
                try:
                    table.set(key, value)
                except DiskFullError:
                    if count is None:
                        break
                    wait_for_room(db)
                    table.set(key, value)
                written.append(key)
            return written

        keys = write()
        gone = keys[::6]
        del keys[::6]
        for _ in range(3):
            table.delete_many(gone)
            keys += write(len(gone) * 2 // 3)
            keys += write()
            gone = keys[: len(keys) // 10]
            del keys[: len(gone)]
        assert len(keys) > 800
        for start in range(0, len(keys), 20):
            some = keys[start : start + 20]
            assert table.get_many(some) == dict.fromkeys(some, value)


def test_a_full_disk_is_told_until_what_was_refused_would_fit(small_disk: Path) -> None:
    with (
        Daemon(small_disk / "data", "--http", "127.0.0.1:0") as daemon,
        fjord.connect(daemon.url) as db,
    ):
        assert health(daemon) == 200
        free = db.stats()["free_bytes"]
        fill(db, Kv)
        assert db.stats()["free_bytes"] < free
        for number in range(50):  # these fit, and change nothing
            db.kv("small").set(b"%d" % number, b"fits")
            assert (db.stats()["disk_full"], health(daemon)) == (1, 503)
        db.drop("large")
        # Nobody writes: it comes back by itself.
        wait_for_room(db)
        assert health(daemon) == 200
        Kv.put(db, "again", 0)
        assert b"\nfjord_free_bytes " in get(daemon, "/metrics")[1]
    assert daemon.log().count("the disk is full") == 1
    assert daemon.log().count("the disk has room again") == 1


def test_a_start_on_a_full_disk_says_that_it_is_full(small_disk: Path) -> None:
    with Daemon(small_disk / "data", "--http", "127.0.0.1:0") as daemon:
        with fjord.connect(daemon.url) as db:
            fill(db, Kv)
            with contextlib.suppress(DiskFullError):
                for number in range(100_000):
                    db.kv("small").set(b"%d" % number, bytes(10_000))
        daemon.stop()
        take_all(small_disk)
        daemon.start()
        assert health(daemon) == 503


NEEDED: Final = limits.SEGMENT_BYTES + limits.INDEX_STEP_BYTES + limits.MIB


@pytest.mark.parametrize("mib", [1, 40, 70, 127])
def test_a_first_start_with_too_little_space_leaves_nothing(tmp_path: Path, mib: int) -> None:
    with tmpfs(tmp_path, kib=mib * limits.KIB) as disk:
        data = disk / "srv" / "data"
        command = [*FJORD, "serve", "--data", str(data), "--listen", "127.0.0.1:0"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == EXIT_ERROR
        assert f"not enough space to start in {data}; {NEEDED} bytes are needed" in done.stderr
        with pytest.raises(DiskFullError, match=f"{NEEDED} bytes are needed"):
            fjord.open(data)
        assert list(disk.iterdir()) == []


def test_a_first_start_with_as_much_space_as_it_takes_serves(tmp_path: Path) -> None:
    with tmpfs(tmp_path, kib=NEEDED // limits.KIB) as disk, fjord.open(disk / "data") as db:
        db.kv().set("a", b"fits")
        assert db.kv().get("a") == b"fits"
