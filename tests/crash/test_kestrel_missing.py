"""A file of Kestrel's that is missing behind an older one is told, whatever was cut short."""

from __future__ import annotations

import pytest

from fjord.kestrel import codec
from fjord.testing import SimDisk
from fjord.testing.disk import SimCrash
from tests.crash.test_kestrel_sums import FOLDER, QUEUE, adds, closed, made_disk, make, told
from tests.unit.kestrel.vectors import ADD_MS


def older(disk: SimDisk) -> list[str]:
    """Returns the names of older files, the oldest first."""
    return sorted(name for name in disk.names(FOLDER) if "." in name)


def without(disk: SimDisk, at: int) -> str:
    """Makes a queue of four older files, and removes one of them; returns its name."""
    closed(disk)
    closed(disk)
    lost = older(disk)[at]
    disk.remove(f"{FOLDER}/{lost}")
    return lost


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_missing_file_is_told_again_until_others_take_its_place(at: int) -> None:
    disk = made_disk()
    lost = without(disk, at)
    for _ in range(2):
        queue = make(disk)
        (alert,) = queue.alerts
        assert alert.startswith(f"{FOLDER}/{lost} is missing: it had ")
        adds(queue, 1)
        queue._rotate()
        adds(queue, 1)
        queue.close()
        assert told(disk) == [lost]
    make(disk).pack()
    assert told(disk) == []
    assert make(disk).alerts == []


def test_a_pack_of_later_files_takes_the_place_of_a_missing_one() -> None:
    disk = made_disk()
    lost = without(disk, 1)
    queue = make(disk)
    assert queue._journal is not None
    queue._journal.pack(queue._journal.segments[0], ())
    assert told(disk) == [lost]  # it stood behind that one
    queue._journal.pack(queue._journal.segments[1], [codec.addx(b"packed", add_ms=ADD_MS)])
    queue.close()
    assert lost < older(disk)[0]
    assert told(disk) == []


def test_the_current_file_is_missing_if_an_older_one_is_there() -> None:
    disk = made_disk()
    closed(disk)
    disk.remove(f"{FOLDER}/{QUEUE}")
    assert told(disk) == [QUEUE]
    queue = make(disk)
    assert len(queue.alerts) == 1
    adds(queue, 1)
    queue.close()
    assert told(disk) == []  # there is another one now


@pytest.mark.parametrize("at", [1, 3])
def test_no_crash_takes_a_missing_file_for_another(at: int) -> None:
    for call in range(1, 500):
        disk = made_disk(call)
        lost = without(disk, at)
        disk.crash_after(call)
        try:
            queue = make(disk)
            adds(queue, 1)
            queue._rotate()
            queue.close()
        except SimCrash:
            disk.power_cut()
            assert told(disk) == [lost]
            (alert,) = make(disk).alerts
            assert f"{FOLDER}/{lost} is missing" in alert
        else:
            assert call > 10
            return
    raise AssertionError("it never ends")
