"""What is told of queues and handed out: counts, items in order, and where files are damaged."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import limits
from fjord.disk import LocalDisk, LocalFile
from fjord.errors import CorruptionError
from fjord.kestrel import codec, inspect, reader
from fjord.kestrel.codec import Op
from fjord.kestrel.inspect import Contents, QueueReport
from fjord.kestrel.reader import Ending, ReadOptions
from tests.unit.kestrel import vectors
from tests.unit.kestrel.directory import FOLDER, QUEUE, drained, made_disk, opened, put, replayed
from tests.unit.kestrel.vectors import ADD_MS, encoded, going_on, item, named


class FailingFile(LocalFile):
    def read(self, offset: int, size: int) -> bytes:
        if offset >= 2 * limits.MIB:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(offset, size)


class FailingDisk(LocalDisk):
    def open(self, path: str, *, writable: bool = False, create: bool = False) -> LocalFile:
        return FailingFile(path, writable=writable, create=create)


def write(directory: Path, **files: bytes) -> None:
    for name, data in files.items():
        (directory / name.replace("__", "~~").replace("_", ".")).write_bytes(data)


def verify(directory: Path, disk: LocalDisk | None = None) -> list[QueueReport]:
    disk, path = disk or LocalDisk(), str(directory)
    queues = reader.queues(disk, path)
    found = [reader.survey(disk, path, one, passes_unreadable=True) for one in queues]
    return list(inspect.verify(found))


def items(*data: bytes) -> bytes:
    return encoded(*map(item, data))


def test_files_that_cannot_be_read_are_told_with_all_others(tmp_path: Path) -> None:
    write(tmp_path, cars_5=items(b"1") + b"\x02", news=items(b"1"))
    (tmp_path / "cars").symlink_to("elsewhere")
    first, second = verify(tmp_path)
    # The one that cannot be read is the last one, so the other one may not be torn.
    assert [file.ending for file in first.files] == [Ending.DAMAGED, Ending.UNREADABLE]
    assert first.files[1].reason == "is a symbolic link; put the file itself in its place"
    assert (first.items, first.is_damaged, second.is_damaged) == (1, True, False)
    (tmp_path / "cars").unlink()
    data = items(*[bytes(limits.MIB)] * 3)
    write(tmp_path, cars_5=data, cars=items(b"1"))
    found = verify(tmp_path, FailingDisk())[0]
    failed, fine = found.files
    assert (failed.ending, failed.bytes, failed.ops) == (Ending.UNREADABLE, len(data), 1)
    assert failed.offset + failed.skipped_bytes == len(data)
    assert failed.reason == "cannot be read: Input/output error"
    assert (fine.ending, found.items, found.is_damaged) == (Ending.WHOLE, 2, True)


def test_what_is_told_of_an_8_whose_item_is_lost_is_what_a_server_reads(tmp_path: Path) -> None:
    """Its date may begin as an ADD_XID does, which is what follows the other 8."""
    data = encoded(vectors.proceed(1, b"two", add_ms=(ADD_MS & ~0xFF) | 7), item(b"3"))
    write(tmp_path, cars=data)
    (one,) = verify(tmp_path)
    assert ([file.ending for file in one.files], one.items) == ([Ending.WHOLE], 2)
    disk = made_disk()
    put(disk, QUEUE, data)
    queue = opened(disk)
    assert queue.alerts == []
    assert drained(queue) == [b"two", b"3"]


# -- contents -------------------------------------------------------------------------------------


def look(directory: Path, memory_bytes_max: int = inspect.MEMORY_BYTES_MAX) -> Contents:
    survey = reader.survey(LocalDisk(), str(directory), QUEUE)
    return Contents(survey, ReadOptions(now_ms=5), memory_bytes_max=memory_bytes_max)


@pytest.mark.req("KJ-01", "KJ-08")
def test_what_is_left_is_handed_out_with_what_was_open_first(tmp_path: Path) -> None:
    write(tmp_path, cars_9=encoded(*map(item, (b"a", b"bb", b"ccc")), item(b"d", expiry_ms=9)))
    assert look(tmp_path).open_count == 0
    first = look(tmp_path).crc()
    opens = [codec.remove_tentative(8), codec.remove_tentative(7)]
    write(tmp_path, cars=encoded(codec.remove(), *opens, item(b"4444")))
    found = look(tmp_path)
    assert (found.count, found.open_count, found.bytes, found.items_left.missed) == (4, 2, 10, 0)
    assert found.size == sum(len(path.read_bytes()) for path in tmp_path.iterdir())
    left = [(b"ccc", 0, 7), (b"bb", 0, 8), (b"d", 9, 0), (b"4444", 0, 0)]
    assert [(one.data, one.expiry_ms, one.xid) for one in found.items()] == left
    assert look(tmp_path).crc() == found.crc() != first


def test_files_are_checked_and_what_can_be_read_of_them_is_handed_out(tmp_path: Path) -> None:
    one = items(b"1")
    write(tmp_path, cars_1=one, cars_3=one, cars=one)
    look(tmp_path).check()
    reader.put_sums(LocalDisk(), str(tmp_path), "cars", {2: reader.Sum(22, 1)})
    with pytest.raises(CorruptionError, match=r"cars\.2 is damaged at byte 0: it is missing"):
        look(tmp_path).check()
    write(tmp_path, cars_1=one + b"\xff" + one)
    with pytest.raises(CorruptionError, match=r"cars\.1 is damaged at byte 22"):
        look(tmp_path).check()
    for memory in (0, inspect.MEMORY_BYTES_MAX):
        found = look(tmp_path, memory)
        assert [file.is_damaged for file in found.reports()][:3] == [True, False, False]
        assert [bytes(one.data) for one in found.items()] == [b"1"] * 3


OPS = [
    *(item(b"data"), vectors.add(b"old"), item(b"", expiry_ms=3), named(5, b"named")),
    *(codec.remove(), codec.remove_tentative(), going_on(5, b"next"), codec.save_xid(5)),
    *(make(xid) for make in (codec.remove_tentative, codec.confirm_remove) for xid in (5, 6)),
    *(codec.unremove(1), codec.unremove(5), vectors.state_dump(7, 0)),
]


@given(
    st.lists(st.sampled_from(OPS), max_size=40),
    st.lists(st.integers(0, 40), max_size=3),
    st.sampled_from([0, 1, 8, 1000]),
)
def test_contents_are_what_the_whole_replay_has(made: list[Op], cuts: list[int], most: int) -> None:
    disk = made_disk()
    edges = [0, *sorted(min(cut, len(made)) for cut in cuts), len(made)]
    names = [f"cars.{number}" for number in range(len(edges) - 2)] + ["cars"]
    for name, low, high in zip(names, edges, edges[1:], strict=False):
        put(disk, name, encoded(*made[low:high]))
    state = replayed(reader.survey(disk, FOLDER, QUEUE))
    found = Contents(reader.survey(disk, FOLDER, QUEUE), memory_bytes_max=most)
    expected: list[object] = [(state.open[xid].data, xid) for xid in sorted(state.open)]
    expected += [(item.data, 0) for item in state.queue]
    assert [(item.data, item.xid) for item in found.items()] == expected
    assert (found.count, found.items_left.missed) == (len(expected), state.missed)
    counted = Contents(reader.survey(disk, FOLDER, QUEUE), memory_bytes_max=most, counts_only=True)
    assert (counted.count, counted.bytes, counted.items_left.missed) == (
        *(len(expected), state.queue_bytes + state.open_bytes),
        state.missed,
    )
    assert (counted.open_count, counted.items_left.open_bytes) == (
        len(state.open),
        state.open_bytes,
    )
