"""What is told of queues: counts, bytes, and where files are torn or damaged."""

from __future__ import annotations

from pathlib import Path

from fjord import limits
from fjord.disk import LocalDisk
from fjord.kestrel import inspect, ops, reading, sums
from fjord.kestrel.inspect import Ending, FileReport, QueueReport
from fjord.kestrel.sums import Sum
from tests.unit.kestrel.vectors import ADD_MS, encoded


def verify(directory: Path) -> list[QueueReport]:
    disk = LocalDisk()
    found = [
        reading.survey(disk, str(directory), queue)
        for queue in reading.queues(disk, str(directory))
    ]
    return list(inspect.verify(found))


def items(*data: bytes) -> bytes:
    return encoded(*(ops.addx(one, add_ms=ADD_MS) for one in data))


def test_a_queue_is_counted_over_its_files(tmp_path: Path) -> None:
    first = items(b"1", b"22", b"333") + encoded(ops.remove_tentative(7))
    (tmp_path / "cars.5").write_bytes(first)
    (tmp_path / "cars").write_bytes(encoded(ops.remove(), ops.remove(), ops.remove()))
    (tmp_path / "cars~~9").write_bytes(b"")
    (one,) = verify(tmp_path)
    assert one == QueueReport(
        queue="cars",
        files=[
            FileReport(
                path=str(tmp_path / "cars.5"),
                bytes=len(first),
                ops=4,
                ending=Ending.WHOLE,
                offset=len(first),
                skipped_bytes=0,
                reason="",
            ),
            FileReport(
                path=str(tmp_path / "cars"),
                bytes=3,
                ops=3,
                ending=Ending.WHOLE,
                offset=3,
                skipped_bytes=0,
                reason="",
            ),
        ],
        items=0,
        bytes=0,
        open_items=1,
        open_bytes=1,
        last_xid=7,
        missed=1,
        displaced=0,
        dead=[],
        temporary=["cars~~9"],
    )
    assert (one.ops, one.is_damaged) == (7, False)


def test_torn_and_damaged_files_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "a.1").write_bytes(items(b"1") + b"\x63\x01")
    (tmp_path / "a").write_bytes(items(b"2") + b"\x04")
    (tmp_path / "b").write_bytes(items(b"3"))
    first, second = verify(tmp_path)
    assert [(file.ending, file.offset, file.skipped_bytes) for file in first.files] == [
        (Ending.DAMAGED, 22, 2),
        (Ending.TORN, 22, 1),
    ]
    assert (first.items, first.is_damaged) == (2, True)
    assert (second.items, second.is_damaged) == (1, False)


def test_progress_goes_to_the_end(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(items(*[bytes(limits.MIB)] * 10))
    (tmp_path / "b").write_bytes(b"\x63" * 1000)
    disk = LocalDisk()
    found = [reading.survey(disk, str(tmp_path), queue) for queue in "ab"]
    told: list[tuple[int, int]] = []
    list(inspect.verify(found, lambda done, total: told.append((done, total))))
    total = sum(one.size for one in found)
    assert told == sorted(told)
    assert len(told) >= 4
    assert told[-1] == (total, total)


def test_a_changed_file_is_told_and_its_items_count(tmp_path: Path) -> None:
    (tmp_path / "cars.5").write_bytes(items(b"1", b"2"))
    sums.put(LocalDisk(), str(tmp_path), "cars", {5: Sum(44, 1)})
    (one,) = verify(tmp_path)
    assert (one.items, one.is_damaged, one.temporary) == (2, True, [])
    (file,) = one.files
    assert (file.ending, file.offset, file.skipped_bytes) == (Ending.CHANGED, 44, 0)
    assert file.reason == "its first 44 bytes are not those that were written"


def test_what_cannot_be_read_of_a_changed_file_is_damage(tmp_path: Path) -> None:
    (tmp_path / "cars.5").write_bytes(items(b"1", b"2") + b"\x63")
    sums.put(LocalDisk(), str(tmp_path), "cars", {5: Sum(22, 1)})
    (one,) = verify(tmp_path)
    assert (one.files[0].ending, one.files[0].offset) == (Ending.DAMAGED, 44)
    assert "99" in one.files[0].reason
