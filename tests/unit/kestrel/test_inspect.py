"""What is told of queues: counts, bytes, and where files are torn or damaged."""

from __future__ import annotations

import errno
import os
from collections import Counter
from pathlib import Path

from fjord import limits
from fjord.disk import LocalDisk, LocalFile
from fjord.kestrel import codec, inspect, reader
from fjord.kestrel.config import QueueConfig
from fjord.kestrel.inspect import Ending, FileReport, QueueReport
from fjord.kestrel.journal import Journal
from fjord.kestrel.queue import PersistentQueue
from fjord.kestrel.reader import Sum
from fjord.testing import SimClock
from tests.unit.kestrel.vectors import ADD_MS, encoded


class FailingFile(LocalFile):
    def read(self, offset: int, size: int) -> bytes:
        if offset >= 2 * limits.MIB:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(offset, size)


class FailingDisk(LocalDisk):
    def open(self, path: str, *, writable: bool = False, create: bool = False) -> LocalFile:
        return FailingFile(path, writable=writable, create=create)


def verify(directory: Path) -> list[QueueReport]:
    disk = LocalDisk()
    found = [
        reader.survey(disk, str(directory), queue, passes_unreadable=True)
        for queue in reader.queues(disk, str(directory))
    ]
    return list(inspect.verify(found))


def items(*data: bytes) -> bytes:
    return encoded(*(codec.addx(one, add_ms=ADD_MS) for one in data))


def test_a_queue_is_counted_over_its_files(tmp_path: Path) -> None:
    first = items(b"1", b"22", b"333") + encoded(codec.remove_tentative(7))
    (tmp_path / "cars.5").write_bytes(first)
    (tmp_path / "cars").write_bytes(encoded(codec.remove(), codec.remove(), codec.remove()))
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
    found = [reader.survey(disk, str(tmp_path), queue) for queue in "ab"]
    told: list[tuple[int, int]] = []
    list(inspect.verify(found, lambda done, total: told.append((done, total))))
    total = sum(one.size for one in found)
    assert told == sorted(told)
    assert len(told) >= 4
    assert told[-1] == (total, total)


def test_a_changed_file_is_told_and_its_items_count(tmp_path: Path) -> None:
    (tmp_path / "cars.5").write_bytes(items(b"1", b"2"))
    reader.put_sums(LocalDisk(), str(tmp_path), "cars", {5: Sum(44, 1)})
    (one,) = verify(tmp_path)
    assert (one.items, one.is_damaged, one.temporary) == (2, True, [])
    (file,) = one.files
    assert (file.ending, file.offset, file.skipped_bytes) == (Ending.CHANGED, 44, 0)
    assert file.reason == "its first 44 bytes are not those that were written"


def test_what_cannot_be_read_of_a_changed_file_is_damage(tmp_path: Path) -> None:
    (tmp_path / "cars.5").write_bytes(items(b"1", b"2") + b"\x63")
    reader.put_sums(LocalDisk(), str(tmp_path), "cars", {5: Sum(22, 1)})
    (one,) = verify(tmp_path)
    assert (one.files[0].ending, one.files[0].offset) == (Ending.DAMAGED, 44)
    assert "99" in one.files[0].reason


def test_what_is_told_of_an_8_whose_item_is_lost_is_what_a_server_reads(tmp_path: Path) -> None:
    """Its date may begin as an ADD_XID does, which is what follows the other 8."""
    lost = codec.proceed(1, b"two", add_ms=(ADD_MS & ~0xFF) | 7)
    (tmp_path / "cars").write_bytes(encoded(lost, codec.addx(b"3", add_ms=ADD_MS)))
    (one,) = verify(tmp_path)
    assert ([file.ending for file in one.files], one.items) == ([Ending.WHOLE], 2)
    journal = Journal(LocalDisk(), str(tmp_path), "cars", now_ms=lambda: ADD_MS)
    queue = PersistentQueue("cars", QueueConfig(), SimClock(), journal)
    assert queue.alerts == []
    assert [item.data for _ in range(2) if (item := queue.remove())] == [b"two", b"3"]
    queue.close()


def test_a_file_that_is_missing_in_the_middle_is_told(tmp_path: Path) -> None:
    for name in ("cars.5", "cars.7", "cars"):
        (tmp_path / name).write_bytes(items(b"1"))
    whole = Sum(22, reader.add_to_crc(0, items(b"1")))
    known = dict.fromkeys((4, 5, 6, 7, reader.CURRENT), whole)
    reader.put_sums(LocalDisk(), str(tmp_path), "cars", known)
    (one,) = verify(tmp_path)
    assert (one.items, one.is_damaged) == (3, True)
    (lost,) = [file for file in one.files if file.is_damaged]
    assert (lost.path, lost.ending) == (str(tmp_path / "cars.6"), Ending.MISSING)
    assert (lost.bytes, lost.skipped_bytes) == (0, 22)
    (tmp_path / "cars").unlink()
    (one,) = verify(tmp_path)
    paths = [file.path for file in one.files if file.is_damaged]
    assert paths == [str(tmp_path / "cars.6"), str(tmp_path / "cars")]
    (tmp_path / "cars.7").rename(tmp_path / "cars.7.pack")
    (one,) = verify(tmp_path)
    assert not one.is_damaged  # beside a pack no sum counts


def test_files_that_cannot_be_read_are_told_with_all_others(tmp_path: Path) -> None:
    (tmp_path / "cars.5").write_bytes(items(b"1") + b"\x02")
    (tmp_path / "cars").symlink_to("elsewhere")
    (tmp_path / "news").write_bytes(items(b"1"))
    first, second = verify(tmp_path)
    endings = [(file.path, file.ending) for file in first.files]
    # The one that cannot be read is the last one, so the other one may not be torn.
    assert endings == [
        (str(tmp_path / "cars.5"), Ending.DAMAGED),
        (str(tmp_path / "cars"), Ending.UNREADABLE),
    ]
    assert first.files[1].reason == "is a symbolic link; put the file itself in its place"
    assert (first.items, first.is_damaged, second.is_damaged) == (1, True, False)


def test_a_file_that_fails_while_it_is_read_is_told_with_all_others(tmp_path: Path) -> None:
    data = items(*[bytes(limits.MIB)] * 3)
    (tmp_path / "cars.5").write_bytes(data)
    (tmp_path / "cars").write_bytes(items(b"1"))
    (one,) = inspect.verify([reader.survey(FailingDisk(), str(tmp_path), "cars")])
    failed, fine = one.files
    assert (failed.ending, failed.bytes, failed.ops) == (Ending.UNREADABLE, len(data), 1)
    assert failed.offset + failed.skipped_bytes == len(data)
    assert failed.reason == "cannot be read: Input/output error"
    assert (fine.ending, one.items, one.is_damaged) == (Ending.WHOLE, 2, True)


class FailingLater(LocalDisk):
    """Fails when a file is opened again after it was found and read once."""

    def __init__(self) -> None:
        self.opened: Counter[str] = Counter()

    def open(self, path: str, *, writable: bool = False, create: bool = False) -> LocalFile:
        self.opened[path] += 1
        kind = LocalFile if self.opened[path] < 3 else FailingFile
        return kind(path, writable=writable, create=create)


def test_a_file_that_fails_when_it_is_read_again_is_told(tmp_path: Path) -> None:
    """What does not fit into memory is read a second time."""
    (tmp_path / "cars.5").write_bytes(items(*[bytes(limits.MIB)] * 20))
    (tmp_path / "cars").write_bytes(encoded(*[codec.remove()] * 20))
    (one,) = inspect.verify([reader.survey(FailingLater(), str(tmp_path), "cars")])
    (failed,) = [file for file in one.files if file.is_damaged]
    assert (failed.ending, failed.path) == (Ending.UNREADABLE, "the journal of cars")
    assert failed.reason == "cannot be read: Input/output error"
