"""A full disk, met by the real daemon: writes are refused, and nothing else is.

A disk gets full in two places: the journal needs another segment, or the index has to grow.  The
disks here are small ones of their own, with a ballast that is all but the room that is wanted;
space returns when the ballast goes.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pytest

from fjord import disk as disks
from fjord import limits
from fjord.cli.output import EXIT_DISK, EXIT_ERROR
from fjord.client.blocking.database import Database
from fjord.disk import LocalFile
from fjord.errors import DiskFullError
from tests.crash import world
from tests.crash.ext4 import small_disk, tmpfs
from tests.crash.tracing import (
    DEADLINE_SECONDS,
    GONE,
    INDEX_STEP_BYTES,
    Life,
    Player,
    Point,
    TracedDaemon,
    connected,
    noted,
)
from tests.crash.world import SEGMENT_BYTES, Step, make_script

TABLE = "full"
# Calls of a rotation, and of packing, that may find no space.
RARE = ("fallocate", "ftruncate", "rename")
Values = dict[bytes, bytes]


# -- disks ----------------------------------------------------------------------------------------


ON_EACH_DISK = [
    pytest.mark.root,
    pytest.mark.parametrize(
        "disk", ["tmpfs", pytest.param("ext4", marks=pytest.mark.loop)], indirect=True
    ),
]


def on_each_disk(test: Callable[..., None]) -> Callable[..., None]:
    for mark in ON_EACH_DISK:
        test = mark(test)
    return test


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """How a disk gets full."""

    room_bytes: int  # what is free before the daemon starts
    key_bytes: int
    value_bytes: int
    journal_bytes: tuple[int, int]  # what the journal then has, at least and at most

    def items(self, start: int, count: int) -> Values:
        """Returns entries that fill the disk in this way."""
        dice = random.Random(start)
        tail = b"k" * (self.key_bytes - 6)
        return {
            b"%06d" % number + tail: dice.randbytes(self.value_bytes)
            for number in range(start, start + count)
        }


FILLINGS: Final = {
    # Few keys with large values: the index stays as it was, and segments fill the disk.
    "journal": Filling(
        room_bytes=INDEX_STEP_BYTES + 14 * SEGMENT_BYTES,
        key_bytes=10,
        value_bytes=3000,
        journal_bytes=(8 * SEGMENT_BYTES, 14 * SEGMENT_BYTES),
    ),
    # Large keys with small values: the index is the first that needs more than there is, and the
    # journal could go on.
    "index": Filling(
        room_bytes=INDEX_STEP_BYTES + 24 * SEGMENT_BYTES,
        key_bytes=limits.KV_KEY_BYTES_MAX,
        value_bytes=1,
        journal_bytes=(4 * SEGMENT_BYTES, 20 * SEGMENT_BYTES),
    ),
}
EACH_FILLING = pytest.mark.parametrize("filling", FILLINGS.values(), ids=FILLINGS)


@pytest.fixture
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with small_disk(request.param, tmp_path, kib=8 * limits.KIB) as path:
        yield path


# -- a daemon on a full disk ----------------------------------------------------------------------


@dataclass
class FullDisk:
    """A directory on a disk that gets full, and what was acknowledged there."""

    path: Path
    life: Life
    values: Values = field(default_factory=dict)

    @classmethod
    def prepared(cls, path: Path, folder: Path, filling: Filling) -> FullDisk:
        free = free_bytes(path) - filling.room_bytes
        with (path / "ballast").open("wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, free)
        return cls(path, Life(data=path / "data", log=folder / "log"))

    def fill(self, db: Database, filling: Filling) -> None:
        """Writes until it is refused; then less at a time, until that is refused as well."""
        for smaller, count in ((filling, 20), (filling, 1), (replace(filling, value_bytes=1), 1)):
            with contextlib.suppress(DiskFullError):
                while True:
                    items = smaller.items(len(self.values), count)
                    db.kv(TABLE).set_many(items)
                    self.values |= items
        least, most = filling.journal_bytes
        assert least <= journal_bytes(self.life.data / "journal") <= most

    def delete(self, db: Database, keys: list[bytes]) -> None:
        db.kv(TABLE).delete_many(keys)
        for key in keys:
            del self.values[key]

    def check(self, db: Database) -> None:
        """Asserts that everything is there that was acknowledged, and nothing else."""
        table = db.kv(TABLE)
        keys = sorted(self.values)
        for start in range(0, len(keys), 500):
            some = keys[start : start + 500]
            assert table.get_many(some) == {key: self.values[key] for key in some}

    def free_space(self) -> None:
        (self.path / "ballast").unlink()


def journal_bytes(path: Path) -> int:
    """Returns the size of all files of a journal; some may be packed meanwhile."""
    size = 0
    for file in path.iterdir():
        with contextlib.suppress(FileNotFoundError):
            size += file.stat().st_size
    return size


def free_bytes(path: Path) -> int:
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def check_refused(db: Database, filling: Filling) -> None:
    """Asserts that nothing more can be written: neither one entry nor many."""
    for count in (1, 100):
        with pytest.raises(DiskFullError):
            db.kv(TABLE).set_many(filling.items(900_000, count))
    assert db.kv(TABLE).get_many(filling.items(900_000, 100)) == {}


def write_again(full: FullDisk, db: Database) -> None:
    """Writes as soon as there is space again; each try is a round trip to the daemon."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    items = {b"again %d" % number: bytes(4000) for number in range(10)}
    while True:
        try:
            db.kv(TABLE).set_many(items)
        except DiskFullError:
            assert time.monotonic() < deadline, "there is space, and it is not used"
        else:
            full.values |= items
            return


@pytest.mark.req("FJ-18")
@on_each_disk
@EACH_FILLING
def test_a_full_disk_refuses_writes_serves_reads_and_deletes(
    disk: Path, filling: Filling, tmp_path: Path
) -> None:
    full = FullDisk.prepared(disk, tmp_path, filling)
    with TracedDaemon(full.life) as traced, connected(traced) as db:
        full.fill(db, filling)
        check_refused(db, filling)
        full.check(db)
        keys = sorted(full.values)
        for key in keys[:20]:
            full.delete(db, [key])
        full.delete(db, keys[-50:])
        full.check(db)
        assert db.kv(TABLE).get_many(keys[:20] + keys[-50:]) == {}
        assert traced.stop() == 0
    assert "Traceback" not in traced.log()


@on_each_disk
def test_an_index_that_is_refused_more_space_takes_none(disk: Path, tmp_path: Path) -> None:
    filling = FILLINGS["index"]
    full = FullDisk.prepared(disk, tmp_path, filling)
    with TracedDaemon(full.life) as traced, connected(traced) as db:
        full.fill(db, filling)
        assert free_bytes(disk) >= 3 * SEGMENT_BYTES  # others have it, and so has the journal


@on_each_disk
@EACH_FILLING
def test_writing_goes_on_when_space_returns(disk: Path, filling: Filling, tmp_path: Path) -> None:
    full = FullDisk.prepared(disk, tmp_path, filling)
    with TracedDaemon(full.life) as traced, connected(traced) as db:
        full.fill(db, filling)
        full.free_space()
        write_again(full, db)
        full.check(db)
        traced.kill()
    with TracedDaemon(full.life) as traced, connected(traced) as db:
        full.check(db)


@on_each_disk
@EACH_FILLING
@pytest.mark.parametrize("end", [TracedDaemon.kill, TracedDaemon.stop], ids=["killed", "stopped"])
def test_everything_acknowledged_survives_restarts_on_the_full_disk(
    disk: Path, filling: Filling, end: Callable[[TracedDaemon], int], tmp_path: Path
) -> None:
    full = FullDisk.prepared(disk, tmp_path, filling)
    with TracedDaemon(full.life) as traced, connected(traced) as db:
        full.fill(db, filling)
        end(traced)
    for _ in range(3):
        with TracedDaemon(full.life) as traced:
            assert traced.is_ready, traced.log()
            with connected(traced) as db:
                full.check(db)
                full.delete(db, sorted(full.values)[:10])
                full.check(db)
            end(traced)
    full.free_space()
    with TracedDaemon(full.life) as traced, connected(traced) as db:
        full.check(db)
        write_again(full, db)


@on_each_disk
@EACH_FILLING
def test_every_value_can_be_deleted_on_the_full_disk(
    disk: Path, filling: Filling, tmp_path: Path
) -> None:
    full = FullDisk.prepared(disk, tmp_path, filling)
    with TracedDaemon(full.life) as traced, connected(traced) as db:
        full.fill(db, filling)
        for number, key in enumerate(sorted(full.values)):
            with noted(f"at the delete number {number}"):
                full.delete(db, [key])


@on_each_disk
def test_the_space_of_deleted_values_comes_back(disk: Path, tmp_path: Path) -> None:
    filling = FILLINGS["journal"]
    full = FullDisk.prepared(disk, tmp_path, filling)
    with TracedDaemon(full.life) as traced, connected(traced) as db:
        full.fill(db, filling)
        keys = sorted(full.values)
        full.delete(db, keys[: len(keys) // 2])
        write_again(full, db)
        full.check(db)


# -- limits on the size of files ------------------------------------------------------------------


def test_an_index_that_may_not_grow_refuses_writes_and_nothing_else(tmp_path: Path) -> None:
    bounded = Life(
        data=tmp_path / "data", log=tmp_path / "log", file_bytes_max=INDEX_STEP_BYTES * 3 // 2
    )
    full = FullDisk(tmp_path, bounded)
    with TracedDaemon(full.life) as traced, connected(traced) as db:
        with pytest.raises(DiskFullError):
            while True:
                items = FILLINGS["index"].items(len(full.values), 20)
                db.kv(TABLE).set_many(items)
                full.values |= items
        full.check(db)
        full.delete(db, sorted(full.values)[:50])
        full.check(db)
        traced.kill()
    with TracedDaemon(Life(data=bounded.data, log=bounded.log)) as traced, connected(traced) as db:
        full.check(db)
        write_again(full, db)


def test_a_value_larger_than_files_may_be_is_refused(tmp_path: Path) -> None:
    life = Life(data=tmp_path / "data", log=tmp_path / "log", file_bytes_max=INDEX_STEP_BYTES)
    with TracedDaemon(life) as traced, connected(traced) as db:
        table = db.kv(TABLE)
        table.set("small", b"value")
        with pytest.raises(DiskFullError):
            table.set("large", bytes(limits.VALUE_BYTES_MAX))
        table.set("small", b"later value")
        assert table.get_many(["small", "large"]) == {"small": b"later value"}
        assert traced.stop() == 0


@pytest.mark.parametrize("kib", [1, 8, 32, 100])
def test_where_files_may_not_be_large_enough_the_start_is_refused(kib: int, tmp_path: Path) -> None:
    life = Life(data=tmp_path / "data", log=tmp_path / "log", file_bytes_max=kib * limits.KIB)
    with TracedDaemon(life) as traced:
        assert not traced.is_ready
        assert traced.wait() == EXIT_ERROR
    assert "fjord: DISK_FULL: there is not enough space" in traced.log()
    assert "Traceback" not in traced.log()
    with TracedDaemon(Life(data=life.data, log=life.log)) as traced:
        assert traced.is_ready, traced.log()
        assert traced.stop() == 0


@pytest.mark.root
def test_a_write_that_is_cut_short_is_finished_or_fails(tmp_path: Path) -> None:
    with tmpfs(tmp_path, kib=64) as path, contextlib.ExitStack() as closing:
        file = LocalFile(str(path / "file"), writable=True, create=True)
        closing.callback(file.close)
        file.write(0, bytes(range(256)) * 64)
        with pytest.raises(OSError, match="No space left") as full:
            file.write(0, b"x" * 256 * limits.KIB)
        assert disks.is_full(full.value)
        assert 0 < file.size() <= 64 * limits.KIB  # it was short first, and then it failed
        assert full.value.errno == errno.ENOSPC


# -- a disk that is full for one call -------------------------------------------------------------


@pytest.mark.strace
@pytest.mark.parametrize(("name", "step"), [("pwrite64", 11), *((name, 1) for name in RARE)])
def test_a_call_that_finds_no_space_changes_nothing_and_the_next_one_works(
    name: str, step: int, tmp_path: Path
) -> None:
    for number in itertools.count(1, step):
        folder = tmp_path / str(number)
        folder.mkdir()
        life, player = Life(data=folder / "data", log=folder / "log"), Player()
        with noted(f"no space at {name} number {number}"):
            with TracedDaemon(life) as traced:
                traced.attach(*Point(name, number).inject("error=ENOSPC"))
                goes_on = play_refused(traced, player, make_script(4, 120))
                code = traced.stop() if goes_on else traced.wait()
            # A name that cannot be given may be the end; then it is a clean one.
            assert goes_on or name == "rename"
            assert code == (0 if goes_on else EXIT_DISK), traced.log()
            assert "Traceback" not in traced.log(), traced.log()
            player.check(life)
        if not any(call.is_injected for call in traced.calls()):
            break  # that was all there is
    assert number > step


@pytest.mark.strace
@pytest.mark.parametrize("name", ["pwrite64", "fallocate"])
def test_a_start_that_finds_no_space_throws_out_ballast_or_is_refused(
    name: str, tmp_path: Path
) -> None:
    life, player = Life(data=tmp_path / "data", log=tmp_path / "log"), Player()
    with TracedDaemon(life) as traced:
        player.play(traced, make_script(4, 60))
        traced.kill()
    for number in itertools.count(1):
        with noted(f"no space at {name} number {number}"):
            with TracedDaemon(life, *Point(name, number).inject("error=ENOSPC")) as traced:
                assert traced.is_ready or traced.wait() == EXIT_ERROR, traced.log()
                traced.kill()
            player.check(life)
        if not any(call.is_injected for call in traced.calls()):
            break  # that was all there is
    assert number > 2
    assert "Traceback" not in traced.log()
    words = re.findall("^fjord: .*$", traced.log(), flags=re.MULTILINE)
    # Once there is ballast to throw out, the start finds the space that it missed.
    assert all("DISK_FULL" in line for line in words), words


def play_refused(traced: TracedDaemon, player: Player, script: list[Step]) -> bool:
    """Plays a script of which one step may be refused; says whether the daemon goes on."""
    refused = 0
    try:
        with connected(traced) as db:
            for step in script:
                try:
                    player.take(db, step)
                except DiskFullError:
                    player.attempted = player.acknowledged  # nothing of it may be seen
                    refused += 1
            assert db.kv(world.TABLE).get_many(world.KEYS) == player.acknowledged
            assert list(db.scan(world.TABLE))  # the journal can be read from end to end
    except GONE:
        return False
    assert refused <= 1
    return True
