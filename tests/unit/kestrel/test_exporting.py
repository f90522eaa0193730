"""Exporting: values become a queue, all of them or none, whatever happens meanwhile."""

from __future__ import annotations

import contextlib
import errno
import struct
from collections.abc import Iterator

import pytest

from fjord import limits
from fjord.errors import (
    DirectoryError,
    DirectoryInUseError,
    DurabilityError,
    FjordError,
    UnavailableError,
    UsageError,
)
from fjord.kestrel import codec, collection, exporter, inspect, reader
from fjord.kestrel.codec import Item
from fjord.testing import SimCrash, SimDisk
from fjord.values import Type
from tests.unit.kestrel.vectors import ADD_MS, encoded

FOLDER = "/spool/kestrel"
NEW = [b"%d" % number for number in range(20)]
NOW_MS = 904


def put(disk: SimDisk, name: str, data: bytes) -> None:
    with contextlib.closing(disk.open(f"{FOLDER}/{name}", writable=True, create=True)) as file:
        file.write(0, data)
        file.sync()
    disk.sync_directory(FOLDER)


def folder(*, seed: int = 0, capacity: int | None = None) -> SimDisk:
    disk = SimDisk(seed, capacity=capacity)
    for path in ("/spool", FOLDER):
        disk.make_directory(path)
        disk.sync_directory(path.rpartition("/")[0] or "/")
    return disk


def added(*data: bytes) -> bytes:
    return encoded(*(codec.addx(one, add_ms=ADD_MS) for one in data))


def chunks() -> Iterator[bytes]:
    for start in range(0, len(NEW), 3):
        part = NEW[start : start + 3]
        yield exporter.encoded(
            bytes((Type.BUFFER,)) * len(part), part, [ADD_MS * 1000] * len(part), [0] * len(part)
        )


def write(disk: SimDisk, *, appends: bool = False) -> int:
    return exporter.write(disk, FOLDER, "cars", chunks(), appends=appends, now_ms=lambda: NOW_MS)


def items(disk: SimDisk) -> list[Item]:
    with contextlib.closing(inspect.Contents(reader.survey(disk, FOLDER, "cars"))) as found:
        return list(found.items())


def data_of(disk: SimDisk) -> list[bytes]:
    return [bytes(one.data) for one in items(disk)]


def files(disk: SimDisk) -> list[str]:
    return sorted(name for name in disk.names(FOLDER) if name[0] != "~" and "~~sums" not in name)


@pytest.mark.parametrize(
    ("type_", "data", "expected"),
    [
        (Type.VOID, b"", b""),
        (Type.BUFFER, b"\0\xff", b"\0\xff"),
        (Type.STRING, "\u00e9".encode(), "\u00e9".encode()),
        (Type.INTEGER, (-7).to_bytes(8, "little", signed=True), b"-7"),
        (Type.FLOAT, struct.pack("<d", 1.5), b"1.5"),
        (Type.BOOLEAN, b"\1", b"True"),
    ],
)
def test_values_are_items_as_they_are_written(type_: Type, data: bytes, expected: bytes) -> None:
    assert exporter.item_data(type_, data) == expected


@pytest.mark.req("KJ-05")
def test_dates_are_carried_over_and_expiries_rounded_up() -> None:
    made = exporter.encoded(
        bytes((Type.BUFFER, Type.BUFFER)),
        [b"a", b"b"],
        [ADD_MS * 1000 + 999, ADD_MS * 1000],
        [0, ADD_MS * 1000 + 1],
    )
    assert made == encoded(
        codec.addx(b"a", add_ms=ADD_MS), codec.addx(b"b", add_ms=ADD_MS, expiry_ms=ADD_MS + 1)
    )


def test_new_queue_is_one_file_and_nothing_else() -> None:
    disk = SimDisk()
    disk.make_directory("/spool")
    size = write(disk)
    assert data_of(disk) == NEW
    assert size == len(added(*NEW))
    assert files(disk) == ["cars"]


def test_empty_table_is_an_empty_queue() -> None:
    disk = folder()
    size = exporter.write(disk, FOLDER, "cars", [], appends=False, now_ms=lambda: NOW_MS)
    assert (size, files(disk), data_of(disk)) == (0, ["cars"], [])


@pytest.mark.parametrize("current", [b"", added(b"gone") + encoded(codec.remove())])
def test_queue_that_is_empty_may_be_there(current: bytes) -> None:
    disk = folder()
    put(disk, "cars", current)
    put(disk, "cars~~7", b"left over")
    write(disk)
    assert data_of(disk) == NEW
    assert files(disk) == (["cars", f"cars.{NOW_MS}"] if current else ["cars"])


@pytest.mark.parametrize(
    "current", [added(b"waits"), added(b"open") + encoded(codec.remove_tentative(7))]
)
def test_queue_with_items_is_refused_unless_they_are_to_stay(current: bytes) -> None:
    disk = folder()
    put(disk, "cars", current)
    with pytest.raises(FjordError, match="with 1 items; --append"):
        write(disk)
    assert files(disk) == ["cars"]
    write(disk, appends=True)
    first, *others = items(disk)
    assert first.data in (b"waits", b"open")
    assert [one.data for one in others] == NEW
    assert {one.add_ms for one in others} == {ADD_MS}


@pytest.mark.req("KJ-14")
def test_appending_goes_on_behind_a_torn_tail_and_rotated_files() -> None:
    disk = folder()
    put(disk, "cars.5000", added(b"1"))
    put(disk, "cars", added(b"2") + b"\2\0")
    write(disk, appends=True)
    assert data_of(disk) == [b"1", b"2", *NEW]
    assert files(disk) == ["cars", "cars.5000", "cars.5001"]


def test_damaged_queue_is_refused_as_it_is() -> None:
    disk = folder()
    put(disk, "cars", added(b"1") + b"\x63damaged")
    with pytest.raises(FjordError, match="kestrel pack"):
        write(disk, appends=True)
    assert files(disk) == ["cars"]


def test_name_that_no_queue_has_is_refused() -> None:
    with pytest.raises(UsageError, match="another use"):
        exporter.write(folder(), FOLDER, "a.b", [], appends=False, now_ms=lambda: 0)


def test_directory_that_is_served_is_refused() -> None:
    disk = folder()
    with collection.locked(disk, FOLDER), pytest.raises(DirectoryInUseError):
        write(disk)
    assert files(disk) == []


def test_what_ends_in_the_middle_leaves_nothing() -> None:
    def broken() -> Iterator[bytes]:
        yield added(b"1")
        raise UnavailableError

    disk = folder()
    with pytest.raises(UnavailableError):
        exporter.write(disk, FOLDER, "cars", broken(), appends=False, now_ms=lambda: NOW_MS)
    assert files(disk) == []


def test_full_disk_leaves_nothing() -> None:
    disk = folder(capacity=limits.KIB)

    def large() -> Iterator[bytes]:
        yield bytes(2 * limits.KIB)

    with pytest.raises(DirectoryError, match="cars was not exported: No space"):
        exporter.write(disk, FOLDER, "cars", large(), appends=False, now_ms=lambda: NOW_MS)
    assert files(disk) == []


def test_names_that_cannot_be_synced_are_told() -> None:
    disk = folder()
    begun = len(disk.calls)
    write(disk)
    last = max(at for at, name in enumerate(disk.calls, 1) if name == "sync_directory")
    assert last > begun
    again = folder()
    again.errors[last] = errno.EIO
    with pytest.raises(DurabilityError, match="may be gone after a power cut"):
        write(again)


@pytest.mark.parametrize("before", [None, b"", added(b"old")], ids=["new", "empty", "append"])
def test_power_cut_anywhere_leaves_all_or_nothing(before: bytes | None) -> None:
    def begun(seed: int) -> SimDisk:
        disk = folder(seed=seed)
        if before is not None:
            put(disk, "cars", before)
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
