"""A directory of Kestrel's: which files are read, in which order, and how they end."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import limits
from fjord.disk import LocalDisk, LocalFile
from fjord.errors import CorruptionError, DirectoryError
from fjord.kestrel import codec, reader
from fjord.kestrel.codec import Op
from fjord.kestrel.reader import CURRENT, JournalFile, QueueSurvey, ReadOptions, Sum
from fjord.testing import SimDisk
from tests.unit.kestrel.vectors import ADD_MS, Replayed, encoded


def item(data: bytes) -> Op:
    return codec.addx(data, add_ms=ADD_MS)


def write(directory: Path, **files: bytes) -> None:
    """Writes files; `cars_904` stands for cars.904."""
    for name, data in files.items():
        (directory / name.replace("__", "~~").replace("_", ".")).write_bytes(data)


def state_of(found: QueueSurvey) -> Replayed:
    state = Replayed()
    for op, _, _ in chain.from_iterable(file.ops() for file in found.files):
        state.apply(op)
    return state


def cars(directory: Path) -> tuple[list[bytes], QueueSurvey]:
    found = reader.survey(LocalDisk(), str(directory), "cars")
    return [bytes(one.data) for one in state_of(found).queue], found


def read(path: Path, *, is_last: bool = True, **options: int) -> tuple[list[Op], JournalFile]:
    file = JournalFile(LocalDisk(), str(path), is_last=is_last)
    # The data of an op is a view, which is compared as bytes are.
    return [op for op, _, _ in file.ops(ReadOptions(**options))], file


# -- as one journal -------------------------------------------------------------------------------


@pytest.mark.req("KJ-01", "KJ-14")
def test_files_of_a_queue_are_one_journal(tmp_path: Path) -> None:
    write(
        tmp_path,
        cars_99=encoded(item(b"1"), item(b"2"), codec.remove_tentative(1)),
        cars_904=encoded(item(b"3"), codec.unremove(1), codec.remove()),
        cars_1000=encoded(item(b"4"), codec.remove()),
        cars=encoded(item(b"5")),
        vans=encoded(item(b"other")),
    )
    waiting, found = cars(tmp_path)
    assert waiting == [b"3", b"4", b"5"]
    assert [file.name for file in found.files] == ["cars.99", "cars.904", "cars.1000", "cars"]
    assert [file.broken for file in found.files] == [None] * 4


@pytest.mark.req("KJ-14")
def test_a_queue_without_a_current_file_is_read(tmp_path: Path) -> None:
    write(tmp_path, cars_904=encoded(item(b"1")))
    assert cars(tmp_path)[0] == [b"1"]
    assert reader.queues(LocalDisk(), str(tmp_path)) == ["cars"]


def test_what_is_open_counts_over_files(tmp_path: Path) -> None:
    """An 8 is a CONTINUE, since its xid was opened in the file before."""
    going_on = codec.proceed(1, b"", add_ms=(ADD_MS & ~0xFF) | 7)
    write(tmp_path, cars_1=encoded(item(b"1"), codec.remove_tentative(1)), cars=encoded(going_on))
    waiting, found = cars(tmp_path)
    assert waiting == [b""]
    assert state_of(found).open == {}


def test_temporary_dead_and_foreign_files_are_passed_over(tmp_path: Path) -> None:
    write(
        tmp_path,
        cars_904=encoded(item(b"dead")),
        cars_950=b"\x63",
        cars_950_pack=encoded(item(b"1")),
        cars_951=encoded(item(b"2")),
        cars=encoded(item(b"3")),
        cars__970=encoded(item(b"temporary")),
        cars_txt=b"notes",
    )
    for name in ("~~lock", "~~reserve"):
        (tmp_path / name).touch()
    (tmp_path / "~~corrupt").mkdir()
    waiting, found = cars(tmp_path)
    assert waiting == [b"1", b"2", b"3"]
    assert (found.dead, found.temporary) == (["cars.904", "cars.950"], ["cars~~970"])
    assert reader.foreign(LocalDisk(), str(tmp_path)) == ["cars.txt"]


def test_nothing_is_changed_by_reading(tmp_path: Path) -> None:
    write(tmp_path, cars_950=b"\x63", cars_950_pack=b"\x01", cars__1=b"", cars=b"\x02\x01")
    before = {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()
    }
    cars(tmp_path)
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
    assert after == before


def test_directories_are_no_files_of_a_queue(tmp_path: Path) -> None:
    (tmp_path / "cars.950").mkdir()
    write(tmp_path, cars=encoded(item(b"1")))
    assert cars(tmp_path)[0] == [b"1"]


def test_empty_files_are_whole(tmp_path: Path) -> None:
    write(tmp_path, cars_1=b"", cars=b"")
    waiting, found = cars(tmp_path)
    assert waiting == []
    assert [file.broken for file in found.files] == [None, None]


def test_a_queue_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert cars(tmp_path)[1].files == []


def test_a_simulated_disk_does_as_well() -> None:
    disk = SimDisk()
    disk.make_directory("/q")
    file = disk.open("/q/cars", writable=True, create=True)
    file.write(0, encoded(item(b"1")))
    found = reader.survey(disk, "/q", "cars")
    assert [bytes(one.data) for one in state_of(found).queue] == [b"1"]


# -- the law of the tail --------------------------------------------------------------------------

WHOLE = encoded(item(b"1"), codec.remove())


def test_the_last_file_may_end_within_an_op(tmp_path: Path) -> None:
    torn = encoded(item(b"torn"))
    for size in range(1, len(torn)):
        write(tmp_path, cars_1=WHOLE, cars=WHOLE + torn[:size])
        _, found = cars(tmp_path)
        last = found.files[-1]
        assert (last.is_torn, last.is_damaged) == (True, False)
        assert last.broken is not None
        assert (last.broken.offset, last.skipped_bytes) == (len(WHOLE), size)
        last.check()


def test_an_earlier_file_may_not(tmp_path: Path) -> None:
    write(tmp_path, cars_1=WHOLE + b"\x02\x01", cars=encoded(item(b"2")))
    waiting, found = cars(tmp_path)
    first, last = found.files
    assert (first.is_torn, first.is_damaged, first.skipped_bytes) == (False, True, 2)
    assert last.broken is None
    assert waiting == [b"2"]
    with pytest.raises(CorruptionError, match=rf"cars\.1 is damaged at byte {len(WHOLE)}: an op"):
        first.check()


def test_damage_is_told_with_its_place_and_later_files_are_read(tmp_path: Path) -> None:
    write(tmp_path, cars_1=WHOLE + b"\x63" + WHOLE, cars=encoded(item(b"2")))
    waiting, found = cars(tmp_path)
    first = found.files[0]
    assert first.broken is not None
    assert (first.broken.offset, first.broken.reason) == (len(WHOLE), "99 is no opcode")
    assert first.skipped_bytes == len(WHOLE) + 1
    assert waiting == [b"2"]


def test_damage_in_the_last_file_is_no_torn_tail(tmp_path: Path) -> None:
    write(tmp_path, cars=WHOLE + b"\x63")
    assert cars(tmp_path)[1].files[0].is_damaged


@pytest.mark.parametrize("count", [1, 4, 5, 9, 100, 3 * limits.MIB])
def test_zeros_at_the_end_of_the_last_file_are_a_torn_tail(tmp_path: Path, count: int) -> None:
    """A power cut leaves them; Kestrel takes them for an item of no size."""
    write(tmp_path, cars=WHOLE + bytes(count))
    file = cars(tmp_path)[1].files[0]
    assert (file.is_torn, file.skipped_bytes) == (True, count)
    write(tmp_path, cars=WHOLE + bytes(max(count, 5)) + b"\x01")
    assert cars(tmp_path)[1].files[0].is_damaged
    write(tmp_path, cars_1=WHOLE + bytes(count), cars=b"")
    assert cars(tmp_path)[1].files[0].is_damaged


def test_a_size_that_is_wrong_is_no_torn_tail(tmp_path: Path) -> None:
    """The op seems to go beyond the end of the file, and so would all behind it be cut off."""
    data = bytearray(encoded(*[item(b"%d" % number) for number in range(50)]))
    data[22 + 2] = 0xFF  # of the size of the second item
    write(tmp_path, cars=bytes(data))
    file = cars(tmp_path)[1].files[0]
    assert file.is_damaged
    assert file.broken is not None
    assert file.broken.offset == 22
    assert "yet an item stands at byte 44" in file.broken.reason


@given(st.lists(st.binary(max_size=20), max_size=5), st.data())
def test_a_cut_at_any_byte_keeps_all_whole_ops(
    tmp_path_factory: pytest.TempPathFactory, made: list[bytes], data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut"
    pieces = [encoded(item(one)) for one in made]
    whole = b"".join(pieces)
    size = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:size])
    found, file = read(path)
    ends = [sum(map(len, pieces[: count + 1])) for count in range(len(pieces))]
    assert len(found) == sum(end <= size for end in ends)
    assert file.is_damaged is False
    assert file.is_torn == (size not in (0, *ends))


# -- large files ----------------------------------------------------------------------------------


def test_items_over_the_borders_of_what_is_read_at_a_time_are_whole(tmp_path: Path) -> None:
    made = [item(bytes([number]) * 300_000) for number in range(20)]
    path = tmp_path / "q"
    path.write_bytes(encoded(*made))
    file = JournalFile(LocalDisk(), str(path))
    found = [bytes(op.item.data) for op, _, _ in file.ops() if op.item]
    assert found == [one.item.data for one in made if one.item]
    assert file.read_bytes == file.size


def test_an_op_that_cannot_be_whole_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with path.open("wb") as file:
        file.write(b"\x02" + (60 * limits.MIB).to_bytes(4, "little"))
        file.truncate(20 * limits.MIB)
    found, read_file = read(path)
    assert (found, read_file.is_torn) == ([], True)
    assert read_file.read_bytes <= 2 * limits.MIB


def test_the_largest_item_is_what_the_reader_says(tmp_path: Path) -> None:
    path = tmp_path / "q"
    path.write_bytes(encoded(item(bytes(2000))))
    assert len(read(path)[0]) == 1
    found, file = read(path, item_bytes_max=1999)
    assert (found, file.is_damaged) == ([], True)


@pytest.mark.req("KJ-12")
def test_a_file_of_starling_is_read(tmp_path: Path) -> None:
    write(tmp_path, cars=b"".join([encoded(codec.add(b"1"), codec.add(b"2")), b"\x01"]))
    assert cars(tmp_path)[0] == [b"2"]
    found, _ = read(tmp_path / "cars", now_ms=77)
    assert [one.item.add_ms for one in found if one.item] == [77, 77]


# -- somebody writes meanwhile, or the files cannot be read ---------------------------------------


def test_a_file_that_grows_meanwhile_is_read_up_to_where_it_was(tmp_path: Path) -> None:
    write(tmp_path, cars=WHOLE)
    file = JournalFile(LocalDisk(), str(tmp_path / "cars"))
    write(tmp_path, cars=WHOLE + WHOLE)
    assert len(list(file.ops())) == 2
    assert file.broken is None


def test_a_file_that_is_cut_meanwhile_is_no_damage(tmp_path: Path) -> None:
    write(tmp_path, cars=WHOLE + WHOLE)
    file = JournalFile(LocalDisk(), str(tmp_path / "cars"))
    os.truncate(tmp_path / "cars", len(WHOLE))
    assert len(list(file.ops())) == 2
    assert (file.broken, file.size) == (None, len(WHOLE))


def test_files_that_are_renamed_meanwhile_are_told(tmp_path: Path) -> None:
    write(tmp_path, cars=WHOLE)
    found = reader.survey(LocalDisk(), str(tmp_path), "cars")
    (tmp_path / "cars").rename(tmp_path / "cars.5")
    with pytest.raises(DirectoryError, match="was renamed or removed while it was read"):
        state_of(found)
    write(tmp_path, cars=WHOLE)
    with pytest.raises(DirectoryError, match="was renamed or removed while it was read"):
        state_of(found)


class Rotating(LocalDisk):
    """Somebody rotates the file of a queue whenever its directory was listed, a few times."""

    def __init__(self, path: Path, numbers: Iterator[int]) -> None:
        self._path = path
        self._numbers = numbers

    def names(self, path: str) -> list[str]:
        listed = super().names(path)
        number = next(self._numbers, None)
        if number is not None:
            self._path.rename(f"{self._path}.{number}")
            if number % 2:
                self._path.write_bytes(b"\x01")
        return listed


def test_the_directory_is_looked_at_again_if_files_are_rotated_meanwhile(tmp_path: Path) -> None:
    write(tmp_path, cars=WHOLE)
    found = reader.survey(Rotating(tmp_path / "cars", iter([1, 3, 6])), str(tmp_path), "cars")
    assert [file.name for file in found.files] == ["cars.1", "cars.3", "cars.6"]
    assert [file.is_last for file in found.files] == [False, False, True]


def test_looking_ends_if_files_are_rotated_without_end(tmp_path: Path) -> None:
    write(tmp_path, cars=WHOLE)
    disk = Rotating(tmp_path / "cars", iter(range(1, 10_000, 2)))
    with pytest.raises(DirectoryError, match="change all the time"):
        reader.survey(disk, str(tmp_path), "cars")


class FailingFile(LocalFile):
    """A file on a disk that has gone bad."""

    def read(self, offset: int, size: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


class Failing(LocalDisk):
    def open(self, path: str, *, writable: bool = False, create: bool = False) -> LocalFile:
        return FailingFile(path, writable=writable, create=create)


def test_a_disk_that_fails_is_told(tmp_path: Path) -> None:
    write(tmp_path, cars=WHOLE)
    found = reader.survey(Failing(), str(tmp_path), "cars")
    with pytest.raises(DirectoryError, match="cars cannot be read: Input/output error"):
        state_of(found)
    found = reader.survey(LocalDisk(), str(tmp_path), "cars")
    (tmp_path / "cars").unlink()
    (tmp_path / "cars").mkdir()
    with pytest.raises(DirectoryError, match="cars cannot be read"):
        state_of(found)


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "cars").symlink_to("elsewhere")
    with pytest.raises(DirectoryError, match="cars is a symbolic link; put the file itself"):
        cars(tmp_path)
    with pytest.raises(DirectoryError, match="cannot be read"):
        reader.queues(LocalDisk(), __file__)


# -- sums -----------------------------------------------------------------------------------------


def summed(data: bytes, identity: str = "") -> Sum:
    return Sum(len(data), reader.add_to_crc(0, data), identity)


def put_sums(directory: Path, known: dict[int, Sum]) -> None:
    assert reader.put_sums(LocalDisk(), str(directory), "cars", known)


def changed(directory: Path) -> list[str | None]:
    _, found = cars(directory)
    return [file.changed for file in found.files]


def test_files_are_compared_with_their_sums(tmp_path: Path) -> None:
    first, second = encoded(item(b"1")), encoded(item(b"2"), codec.remove())
    write(tmp_path, cars_1=first, cars_2=second, cars=WHOLE)
    put_sums(tmp_path, {1: summed(first), 2: summed(second), CURRENT: summed(WHOLE, "any")})
    assert changed(tmp_path) == [None] * 3
    assert reader.foreign(LocalDisk(), str(tmp_path)) == []
    write(tmp_path, cars_1=encoded(item(b"x")), cars_2=second[:-1])
    assert changed(tmp_path) == [
        "its first 22 bytes are not those that were written",
        "it had 23 bytes and has 22",
        None,
    ]
    write(tmp_path, cars_1=first, cars_2=second, cars=WHOLE[::-1])
    _, found = cars(tmp_path)
    with pytest.raises(CorruptionError):
        found.files[-1].check()


def test_a_changed_file_is_not_whole_to_who_asks(tmp_path: Path) -> None:
    write(tmp_path, cars=encoded(item(b"x")))
    put_sums(tmp_path, {CURRENT: summed(encoded(item(b"1")), "any")})
    _, found = cars(tmp_path)
    with pytest.raises(CorruptionError, match="not those that were written"):
        found.files[0].check()


def test_only_the_front_of_a_file_is_compared(tmp_path: Path) -> None:
    write(tmp_path, cars=WHOLE + encoded(item(b"2")) + b"\x02")
    identity = LocalDisk().identity(str(tmp_path / "cars")) or ""
    put_sums(tmp_path, {CURRENT: summed(WHOLE, identity)})
    _, found = cars(tmp_path)
    assert (found.files[0].changed, found.files[0].is_torn) == (None, True)


def test_where_a_sum_tells_of_bytes_is_no_torn_tail(tmp_path: Path) -> None:
    data = WHOLE + encoded(item(b"2"))
    write(tmp_path, cars=data[:-1] + b"x")
    put_sums(tmp_path, {CURRENT: summed(data, "any")})
    assert changed(tmp_path) == ["its first 45 bytes are not those that were written"]
    larger = WHOLE + encoded(item(b"22"))[:-1]
    write(tmp_path, cars=larger)
    _, found = cars(tmp_path)
    assert (found.files[0].is_damaged, found.files[0].changed) == (True, None)


def test_a_current_file_of_another_size_and_identity_has_no_sum(tmp_path: Path) -> None:
    write(tmp_path, cars=WHOLE)
    put_sums(tmp_path, {CURRENT: Sum(99, 1, "other")})
    assert changed(tmp_path) == [None]
    put_sums(tmp_path, {CURRENT: Sum(3, 1, "other")})
    assert changed(tmp_path) == [None]


def test_no_sum_counts_beside_a_pack(tmp_path: Path) -> None:
    write(tmp_path, cars_5_pack=WHOLE, cars_7=WHOLE, cars=WHOLE)
    put_sums(tmp_path, {5: Sum(3, 1), 7: Sum(3, 1), CURRENT: Sum(len(WHOLE), 1, "any")})
    assert changed(tmp_path) == [None] * 3


def test_sums_that_are_put_while_files_are_looked_up_are_those_that_count(tmp_path: Path) -> None:
    write(tmp_path, cars_5=WHOLE)
    put_sums(tmp_path, {5: Sum(3, 1)})

    class Packing(LocalDisk):
        """Another process replaces a file behind the first look at the sums."""

        def names(self, path: str) -> list[str]:
            put_sums(tmp_path, {5: summed(WHOLE)})
            return super().names(path)

    (file,) = reader.survey(Packing(), str(tmp_path), "cars").files
    assert file.sum == summed(WHOLE)


def test_a_sum_may_end_anywhere_in_what_is_read_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_CHUNK_BYTES", 10)
    data = encoded(*[item(b"1")] * 4)
    write(tmp_path, cars_5=data)
    for size in range(1, len(data) + 1):
        put_sums(tmp_path, {5: summed(data[:size])})
        assert changed(tmp_path) == [None]
        put_sums(tmp_path, {5: Sum(size, 1)})
        assert changed(tmp_path) != [None]
