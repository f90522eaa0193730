"""SimDisk keeps the contract of LocalDisk while nothing goes wrong, and forgets as it says."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fjord import disk as disks
from fjord.disk import Disk, LocalDisk
from fjord.errors import DirectoryInUseError
from fjord.testing import SimCrash, SimDisk

SEEDS = range(200)


@pytest.fixture(params=["local", "simulated"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    """A disk and an empty directory on it."""
    if request.param == "local":
        return LocalDisk(), str(tmp_path)
    disk = SimDisk()
    disk.make_directory("/data")
    return disk, "/data"


def test_what_was_written_is_read(world: tuple[Disk, str]) -> None:
    disk, root = world
    file = disk.open(f"{root}/file", writable=True, create=True)
    file.write(3, b"abc")
    file.write(4, b"X")
    assert file.read(0, 100) == b"\0\0\0aXc"
    assert file.read(4, 1) == b"X"
    assert file.read(100, 1) == b""
    assert file.size() == 6
    file.sync()
    file.close()


def test_a_missing_file_is_an_error(world: tuple[Disk, str]) -> None:
    disk, root = world
    actions: list[Callable[[], object]] = [
        lambda: disk.open(f"{root}/nothing"),
        lambda: disk.rename(f"{root}/nothing", f"{root}/other"),
        lambda: disk.remove(f"{root}/nothing"),
        lambda: disk.open(f"{root}/no/directory", writable=True, create=True),
    ]
    for action in actions:
        with pytest.raises(OSError, match="No such file") as caught:
            action()
        assert caught.value.errno == errno.ENOENT


def test_a_file_may_have_two_names(world: tuple[Disk, str]) -> None:
    disk, root = world
    disks.replace_whole(disk, f"{root}/one", b"data")
    disk.link(f"{root}/one", f"{root}/two")
    assert disk.identity(f"{root}/one") == disk.identity(f"{root}/two")
    with pytest.raises(FileExistsError):
        disk.link(f"{root}/one", f"{root}/two")
    disk.remove(f"{root}/one")
    assert disks.read_whole(disk, f"{root}/two") == b"data"
    with pytest.raises(FileNotFoundError):
        disk.link(f"{root}/one", f"{root}/three")


def test_a_lock_is_held_once(world: tuple[Disk, str]) -> None:
    disk, root = world
    assert not disk.is_locked(f"{root}/lock")
    lock = disk.lock(f"{root}/lock")
    assert disk.is_locked(f"{root}/lock")
    with pytest.raises(DirectoryInUseError):
        disk.lock(f"{root}/lock")
    lock.release()
    assert not disk.is_locked(f"{root}/lock")
    disk.lock(f"{root}/lock").release()


def test_a_page_is_shared(world: tuple[Disk, str]) -> None:
    disk, root = world
    page = disk.open_page(f"{root}/page", writable=True)
    page.write(b"hello")
    with contextlib.closing(disk.open_page(f"{root}/page")) as other:
        assert other.read()[:6] == b"hello\0"
        page.write(b"H")
        assert other.read()[:5] == b"Hello"
    page.close()


def test_a_replaced_file_is_read_whole(world: tuple[Disk, str]) -> None:
    disk, root = world
    assert disks.read_whole(disk, f"{root}/file") is None
    disks.replace_whole(disk, f"{root}/file", b"a long first version")
    disks.replace_whole(disk, f"{root}/file", b"short")
    assert disks.read_whole(disk, f"{root}/file") == b"short"
    assert disk.names(root) == ["file"]


def durable_directory(seed: int) -> SimDisk:
    disk = SimDisk(seed)
    disk.make_directory("/data")
    disk.sync_directory("/")
    return disk


def test_synced_bytes_under_a_synced_name_survive_a_power_cut() -> None:
    for seed in SEEDS:
        disk = durable_directory(seed)
        disks.replace_whole(disk, "/data/file", b"kept")
        disk.power_cut()
        assert disks.read_whole(disk, "/data/file") == b"kept"


def test_unsynced_bytes_are_kept_dropped_and_torn() -> None:
    found = set()
    for seed in SEEDS:
        disk = durable_directory(seed)
        disks.replace_whole(disk, "/data/file", b"old" * 1000)
        disk.open("/data/file", writable=True).write(0, b"new" * 1000)
        disk.power_cut()
        data = disks.read_whole(disk, "/data/file")
        found.add({b"old" * 1000: "dropped", b"new" * 1000: "kept"}.get(data or b"", "torn"))
    assert found == {"dropped", "kept", "torn"}


def test_unsynced_writes_are_reordered() -> None:
    found = set()
    for seed in SEEDS:
        disk = durable_directory(seed)
        disks.replace_whole(disk, "/data/file", b"....")
        file = disk.open("/data/file", writable=True)
        file.write(0, b"1")
        file.write(1, b"2")
        disk.power_cut()
        found.add(disks.read_whole(disk, "/data/file"))
    assert b".2.." in found, "the later write alone"


def test_a_name_that_was_not_synced_may_be_lost() -> None:
    found = set()
    for seed in SEEDS:
        disk = durable_directory(seed)
        file = disk.open("/data/file", writable=True, create=True)
        file.write(0, b"synced")
        file.sync()
        disk.power_cut()
        found.add(disk.exists("/data/file"))
    assert found == {True, False}


def test_a_name_that_a_power_cut_has_dropped_does_not_come_back() -> None:
    found = set()
    for seed in SEEDS:
        disk = durable_directory(seed)
        disks.replace_whole(disk, "/data/old", b"kept")
        disk.rename("/data/old", "/data/new")
        disk.power_cut()
        left = disk.names("/data")
        found.add(tuple(left))
        disk.power_cut()
        assert disk.names("/data") == left
        disk.sync_directory("/data")
        assert disk.names("/data") == left
    assert found == {("old",), ("new",)}


def test_a_process_crash_keeps_the_page_cache_and_frees_the_lock() -> None:
    disk = durable_directory(1)
    boot = disk.boot_id()
    disk.open("/data/file", writable=True, create=True).write(0, b"cached")
    disk.lock("/data/lock")
    disk.process_crash()
    assert disks.read_whole(disk, "/data/file") == b"cached"
    assert disk.boot_id() == boot
    assert not disk.is_locked("/data/lock")
    disk.power_cut()
    assert disk.boot_id() != boot


def test_a_failed_sync_loses_the_data_although_the_next_one_succeeds() -> None:
    disk = durable_directory(1)
    disks.replace_whole(disk, "/data/file", b"old")
    disk.errors[len(disk.calls) + 2] = errno.EIO
    file = disk.open("/data/file", writable=True)
    file.write(0, b"new")
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.sync()
    file.sync()
    assert file.read(0, 3) == b"new"
    disk.power_cut()
    assert disks.read_whole(disk, "/data/file") == b"old"


def test_after_the_crash_nothing_works_until_the_restart() -> None:
    disk = SimDisk(crash_at=2)
    disk.make_directory("/data")
    with pytest.raises(SimCrash):
        disk.make_directory("/data/deeper")
    with pytest.raises(SimCrash):
        disk.exists("/data")
    disk.process_crash()
    assert disk.exists("/data")


# -- a disk that is full --------------------------------------------------------------------------


def test_a_full_disk_takes_what_fits_and_refuses_the_rest() -> None:
    disk = SimDisk(capacity=1000)
    file = disk.open("/file", writable=True, create=True)
    file.allocate(900)
    for resize in (file.allocate, file.truncate):
        with pytest.raises(OSError, match="No space") as caught:
            resize(1001)
        assert disks.is_full(caught.value)
        assert file.size() == 900
    with pytest.raises(OSError, match="No space"):
        file.write(890, b"x" * 111)
    assert file.size() == disk.used_bytes() == 1000
    assert file.read(890, 200) == b"x" * 110
    file.write(0, b"y" * 1000)


def test_space_comes_back_with_the_last_name_of_a_file() -> None:
    disk = SimDisk(capacity=1000)
    disk.open("/one", writable=True, create=True).allocate(1000)
    disk.link("/one", "/two")
    other = disk.open("/other", writable=True, create=True)
    disk.remove("/one")
    with pytest.raises(OSError, match="No space"):
        other.write(0, b"x")
    disk.remove("/two")
    other.write(0, b"x")
    assert disk.used_bytes() == 1
    disk.capacity = None
    other.allocate(5000)


def test_a_file_says_when_it_was_written_to_last() -> None:
    disk = SimDisk()
    assert disk.modified_s("/file") == 0
    file = disk.open("/file", writable=True, create=True)
    disk.now_s = 5
    file.write(0, b"x")
    disk.now_s = 6
    file.sync()
    disk.rename("/file", "/moved")
    assert disk.modified_s("/moved") == 5
    file.truncate(0)
    assert disk.modified_s("/moved") == 6
