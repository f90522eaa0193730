"""The status of a server: when it is enforced, and how a file keeps it."""

from __future__ import annotations

import contextlib
import errno

import pytest

from fjord import disk as disks
from fjord.kestrel import config
from fjord.kestrel.config import Standing, Status
from fjord.testing import SimClock, SimDisk

PATH = "/run/kestrel/status"


def test_a_change_holds_at_once_without_a_grace_period() -> None:
    standing = Standing(SimClock())
    for one in (Status.QUIESCENT, Status.READONLY, Status.UP, Status.UP):
        standing.change(one)
        assert (standing.told, standing.enforced) == (one, one)


def test_a_stricter_status_is_told_at_once_and_enforced_after_the_grace_period() -> None:
    clock = SimClock()
    standing = Standing(clock, grace_us=5_000_000)
    standing.change(Status.READONLY)
    clock.advance(4)
    assert (standing.told, standing.enforced) == (Status.READONLY, Status.UP)
    clock.advance(1)
    assert (standing.told, standing.enforced) == (Status.READONLY, Status.READONLY)
    standing.change(Status.UP)
    assert (standing.told, standing.enforced) == (Status.UP, Status.UP)


def test_a_later_change_replaces_one_that_is_not_enforced_yet() -> None:
    clock = SimClock()
    standing = Standing(clock, grace_us=5_000_000)
    standing.change(Status.QUIESCENT)
    clock.advance(4)
    standing.change(Status.READONLY)
    clock.advance(4)
    assert standing.enforced is Status.UP
    standing.change(Status.UP)
    clock.advance(10)
    assert standing.enforced is Status.UP


def test_what_could_not_be_kept_has_not_changed() -> None:
    kept: list[Status] = []

    def keep(wanted: Status) -> None:
        if wanted is Status.QUIESCENT:
            raise OSError(errno.ENOSPC, "No space left")
        kept.append(wanted)

    standing = Standing(SimClock(), keep=keep)
    standing.change(Status.READONLY)
    with pytest.raises(OSError, match="No space"):
        standing.change(Status.QUIESCENT)
    assert (standing.told, standing.enforced, kept) == (Status.READONLY,) * 2 + ([Status.READONLY],)


@pytest.mark.parametrize("one", Status)
def test_a_file_keeps_a_status_through_a_power_cut(one: Status) -> None:
    disk = SimDisk()
    disk.make_directory("/run/kestrel")
    disk.sync_directory("/")
    disk.sync_directory("/run")
    assert config.read_status(disk, PATH) == (None, "")
    config.write_status(disk, PATH, one)
    disk.power_cut()
    found, word = config.read_status(disk, PATH)
    assert found is one
    assert word in ("Up", "ReadOnly", "Quiescent")  # as Kestrel writes them


def test_what_is_no_status_is_shown() -> None:
    disk = SimDisk()
    disk.make_directory("/run/kestrel")
    with contextlib.closing(disk.open(PATH, writable=True, create=True)) as file:
        file.write(0, b"Down\n" + bytes(1000))
    found, word = config.read_status(disk, PATH)
    assert found is None
    assert word.startswith("Down")
    disks.replace_whole(disk, PATH, b" READONLY \n")
    assert config.read_status(disk, PATH)[0] is Status.READONLY
