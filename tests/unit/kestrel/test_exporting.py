"""Exporting: values become a queue, all of them or none, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from fjord import limits
from fjord.errors import (
    CorruptionError,
    DirectoryError,
    DirectoryInUseError,
    FjordError,
    UnavailableError,
    UsageError,
)
from fjord.kestrel import codec, collection, exporter
from fjord.testing import SimCrash, SimDisk
from fjord.values import Type
from tests.unit.kestrel.directory import FOLDER, QUEUE, at_ms, files, made_disk, on_disk, put
from tests.unit.kestrel.vectors import ADD_MS, encoded, item

NEW = [b"%d" % number for number in range(20)]
NOW_MS = 904


def chunks() -> Iterator[bytes]:
    for start in range(0, len(NEW), 3):
        part = NEW[start : start + 3]
        count = len(part)
        types, dates = bytes((Type.BUFFER,)) * count, [ADD_MS * 1000] * count
        yield exporter.encoded(types, part, dates, [0] * count)


def write(
    disk: SimDisk,
    *,
    appends: bool = False,
    given: Iterable[bytes] | None = None,
    queue: str = QUEUE,
) -> int:
    made = chunks() if given is None else given
    return exporter.write(disk, FOLDER, queue, made, at_ms(NOW_MS), appends=appends)


def synced(disk: SimDisk, name: str, data: bytes) -> SimDisk:
    put(disk, name, data)
    disk.sync_directory(FOLDER)
    return disk


def data_of(disk: SimDisk) -> list[bytes]:
    waiting, open_items = on_disk(disk)
    return [*open_items.values(), *waiting]


def queue_files(disk: SimDisk) -> list[str]:
    return [name for name in files(disk) if "~~" not in name]


@pytest.mark.req("KJ-05")
def test_dates_are_carried_over_and_expiries_rounded_up() -> None:
    dates, expiries = [ADD_MS * 1000 + 999, ADD_MS * 1000], [0, ADD_MS * 1000 + 1]
    made = exporter.encoded(bytes((Type.BUFFER,)) * 2, [b"a", b"b"], dates, expiries)
    assert made == encoded(item(b"a"), item(b"b", expiry_ms=ADD_MS + 1))


@pytest.mark.parametrize("given", [NEW, []])
def test_new_queue_is_one_file_and_nothing_else(given: list[bytes]) -> None:
    disk = SimDisk()
    size = write(disk, given=chunks() if given else [])
    assert (data_of(disk), queue_files(disk)) == (given, [QUEUE])
    assert size == len(encoded(*map(item, given)))


@pytest.mark.req("KJ-14")
@pytest.mark.parametrize("current", [[item(b"w")], [item(b"w"), codec.remove_tentative(7)]])
def test_queue_with_items_is_refused_unless_they_are_to_stay(current: list[codec.Op]) -> None:
    disk = synced(made_disk(), "cars.5000", encoded(*current))
    put(disk, QUEUE, b"\2\0")  # a torn tail
    with pytest.raises(FjordError, match="with 1 items; --append"):
        write(disk)
    assert queue_files(disk) == ["cars", "cars.5000"]
    write(disk, appends=True)
    assert data_of(disk) == [b"w", *NEW]
    assert queue_files(disk)[:2] == ["cars", "cars.5000"]


def test_what_cannot_be_written_is_refused_and_leaves_all_as_it_is() -> None:
    def broken() -> Iterator[bytes]:
        yield encoded(item(b"1"))
        raise UnavailableError

    disk = made_disk()
    with pytest.raises(UsageError, match="another use"):
        write(disk, queue="a.b")
    with collection.locked(disk, FOLDER), pytest.raises(DirectoryInUseError):
        write(disk)
    with pytest.raises(UnavailableError):
        write(disk, given=broken())
    disk.capacity = disk.used_bytes() + limits.KIB
    with pytest.raises(DirectoryError, match="cars was not exported: No space"):
        write(disk, given=[bytes(2 * limits.KIB)])
    assert queue_files(disk) == []
    disk.capacity = None
    put(disk, QUEUE, encoded(item(b"1")) + b"\x63damaged")
    with pytest.raises(CorruptionError, match="damaged at byte 22"):
        write(disk, appends=True)
    assert queue_files(disk) == [QUEUE]


@pytest.mark.parametrize("before", [None, b"", encoded(item(b"old"))])
def test_power_cut_anywhere_leaves_all_or_nothing(before: bytes | None) -> None:
    def begun(seed: int) -> SimDisk:
        disk = made_disk(seed)
        if before is not None:
            synced(disk, QUEUE, before)
        return disk

    whole = begun(0)
    calls_before = len(whole.calls)
    write(whole, appends=True)
    calls = len(whole.calls) - calls_before
    old = [b"old"] if before else []
    seen = set()
    for seed in range(8):
        for cut in range(1, calls + 1):
            disk = begun(seed)
            disk.crash_after(cut)
            with pytest.raises(SimCrash):
                write(disk, appends=True)
            disk.power_cut()
            found = data_of(disk)
            assert found in (old, old + NEW), (seed, cut)
            seen.add(len(found))
            if found == old:
                write(disk, appends=True)
                assert data_of(disk) == old + NEW, (seed, cut)
    assert len(seen) == 2
