"""Space that is kept back: taken, given once, taken again."""

from __future__ import annotations

import errno

import pytest

from fjord.kestrel import reader
from fjord.kestrel.collection import Reserve
from fjord.testing import SimDisk

FOLDER, SIZE = "/kestrel", 1000


def made(disk: SimDisk, size: int = SIZE) -> Reserve:
    disk.make_directory(FOLDER)
    return Reserve(disk, FOLDER, size)


def test_space_is_kept_back_and_given_once() -> None:
    disk = SimDisk(capacity=SIZE)
    reserve = made(disk)
    assert not reserve.give()  # there is none yet
    reserve.take()
    assert disk.used_bytes() == SIZE
    assert reader.queues(disk, FOLDER) == []
    assert reserve.give()
    assert disk.used_bytes() == 0
    assert not reserve.give()
    reserve.take()
    reserve.take()
    assert disk.used_bytes() == SIZE
    reserve.close()
    assert disk.names(FOLDER) == []


def test_a_disk_without_that_space_says_so() -> None:
    disk = SimDisk(capacity=SIZE - 1)
    reserve = made(disk)
    with pytest.raises(OSError, match="no 1000 bytes left to keep back") as caught:
        reserve.take()
    assert caught.value.errno == errno.ENOSPC
    disk.capacity = SIZE
    reserve.take()
    assert disk.used_bytes() == SIZE


def test_a_broken_disk_is_not_a_full_one() -> None:
    disk = SimDisk()
    reserve = made(disk)
    disk.errors[len(disk.calls) + 1] = errno.EIO
    with pytest.raises(OSError) as caught:  # noqa: PT011
        reserve.take()
    assert caught.value.errno == errno.EIO


def test_what_a_process_that_died_has_kept_back_is_given() -> None:
    disk = SimDisk()
    made(disk).take()
    disk.process_crash()
    assert made(disk).give()
    assert disk.used_bytes() == 0


def test_nothing_may_be_kept_back() -> None:
    disk = SimDisk()
    reserve = made(disk, 0)
    reserve.take()
    assert not reserve.give()
    reserve.close()
    assert disk.names(FOLDER) == []
