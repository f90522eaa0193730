"""A directory of Kestrel's: which files are read, in which order, and how they end."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import limits
from fjord.disk import LocalDisk, LocalFile
from fjord.errors import CorruptionError, DirectoryError
from fjord.kestrel import codec, reader
from fjord.kestrel.codec import Op
from fjord.kestrel.reader import CURRENT, Ending, JournalFile, QueueSurvey, ReadOptions, Sum
from fjord.testing import SimDisk
from tests.unit.kestrel import vectors
from tests.unit.kestrel.directory import FOLDER, QUEUE, made_disk, meaning, put, replayed
from tests.unit.kestrel.vectors import ADD_MS, encoded, item

WHOLE = encoded(item(b"1"), codec.remove())


def write(directory: Path, **files: bytes) -> None:
    """Writes files; `cars_904` stands for cars.904."""
    for name, data in files.items():
        (directory / name.replace("__", "~~").replace("_", ".")).write_bytes(data)


def cars(directory: Path) -> tuple[list[bytes], QueueSurvey]:
    found = reader.survey(LocalDisk(), str(directory), "cars")
    return meaning(replayed(found))[0], found


def read(path: Path, **options: int) -> tuple[list[Op], JournalFile]:
    file = JournalFile(LocalDisk(), str(path))
    return [op for op, _, _ in file.ops(ReadOptions(**options))], file


# -- as one journal -------------------------------------------------------------------------------


@pytest.mark.req("KJ-01", "KJ-14")
def test_files_of_a_queue_are_one_journal(tmp_path: Path) -> None:
    write(
        tmp_path,
        cars_99=encoded(item(b"1"), item(b"2"), codec.remove_tentative(1)),
        cars_904=encoded(item(b"3"), codec.unremove(1), codec.remove()),
        cars_950=b"",
        cars_1000=encoded(item(b"4"), codec.remove()),
        cars=encoded(item(b"5")),
        vans_7=encoded(item(b"other")),
    )
    waiting, found = cars(tmp_path)
    assert waiting == [b"3", b"4", b"5"]
    names = ["cars.99", "cars.904", "cars.950", "cars.1000", "cars"]
    assert [(file.name, file.broken) for file in found.files] == [(name, None) for name in names]
    assert reader.queues(LocalDisk(), str(tmp_path)) == ["cars", "vans"]
    assert reader.survey(LocalDisk(), str(tmp_path), "bikes").files == []


def test_what_is_open_counts_over_files(tmp_path: Path) -> None:
    """An 8 is a CONTINUE, since its xid was opened in the file before."""
    ambiguous = vectors.proceed(1, b"", add_ms=(ADD_MS & ~0xFF) | 7)
    write(tmp_path, cars_1=encoded(item(b"1"), codec.remove_tentative(1)), cars=encoded(ambiguous))
    found = reader.survey(LocalDisk(), str(tmp_path), "cars")
    assert meaning(replayed(found)) == ([b""], {})


# -- the law of the tail --------------------------------------------------------------------------


def test_the_last_file_may_end_within_an_op(tmp_path: Path) -> None:
    torn = encoded(item(b"torn"))
    for size in range(1, len(torn)):
        write(tmp_path, cars_1=WHOLE, cars=WHOLE + torn[:size])
        last = cars(tmp_path)[1].files[-1].report()
        assert (last.ending, last.offset, last.skipped_bytes) == (Ending.TORN, len(WHOLE), size)
        last.check()


@pytest.mark.parametrize(
    ("tail", "reason"), [(b"\x02\x01", "an op"), (b"\x63" + WHOLE, "99 is no opcode")]
)
def test_damage_is_told_and_later_files_are_read(tmp_path: Path, tail: bytes, reason: str) -> None:
    write(tmp_path, cars_1=WHOLE + tail, cars=encoded(item(b"2")))
    waiting, found = cars(tmp_path)
    first, last = (one.report() for one in found.files)
    assert (first.ending, first.skipped_bytes) == (Ending.DAMAGED, len(tail))
    assert (waiting, last.ending) == ([b"2"], Ending.WHOLE)
    with pytest.raises(
        CorruptionError, match=rf"cars\.1 is damaged at byte {len(WHOLE)}: {reason}"
    ):
        first.check()
    write(tmp_path, cars=WHOLE + b"\x63")
    assert cars(tmp_path)[1].files[1].report().is_damaged  # which is no torn tail


@pytest.mark.parametrize("count", [1, 4, 5, 9, 100, 3 * limits.MIB])
def test_zeros_at_the_end_of_the_last_file_are_a_torn_tail(tmp_path: Path, count: int) -> None:
    """A power cut leaves them; Kestrel takes them for an item of no size."""
    write(tmp_path, cars=WHOLE + bytes(count))
    file = cars(tmp_path)[1].files[0].report()
    assert (file.ending, file.skipped_bytes) == (Ending.TORN, count)
    write(tmp_path, cars=WHOLE + bytes(max(count, 5)) + b"\x01")
    assert cars(tmp_path)[1].files[0].report().is_damaged
    write(tmp_path, cars_1=WHOLE + bytes(count), cars=b"")
    assert cars(tmp_path)[1].files[0].report().is_damaged


def test_a_size_that_is_wrong_is_no_torn_tail(tmp_path: Path) -> None:
    """The op seems to go beyond the end of the file, and so would all behind it be cut off."""
    data = bytearray(encoded(*[item(b"%d" % number) for number in range(50)]))
    data[22 + 2] = 0xFF  # of the size of the second item
    write(tmp_path, cars=bytes(data))
    file = cars(tmp_path)[1].files[0].report()
    assert (file.ending, file.offset) == (Ending.DAMAGED, 22)
    assert "yet an item stands at byte 44" in file.reason


# -- large files, and old ones --------------------------------------------------------------------


def test_items_over_the_borders_of_what_is_read_at_a_time_are_whole(tmp_path: Path) -> None:
    made = [bytes([number]) * 300_000 for number in range(20)]
    write(tmp_path, cars=encoded(*map(item, made)))
    file = JournalFile(LocalDisk(), str(tmp_path / "cars"))
    assert [bytes(op.item.data) for op, _, _ in file.ops() if op.item] == made
    assert file.read_bytes == file.size


def test_an_op_that_cannot_be_whole_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "q"
    path.write_bytes(b"\x02" + (60 * limits.MIB).to_bytes(4, "little"))
    os.truncate(path, 20 * limits.MIB)
    found, file = read(path)
    assert (found, file.report().ending) == ([], Ending.TORN)
    assert file.read_bytes <= 2 * limits.MIB


@pytest.mark.req("KJ-12")
def test_a_file_of_starling_is_read(tmp_path: Path) -> None:
    write(tmp_path, cars=encoded(vectors.add(b"1"), vectors.add(b"2"), codec.remove()))
    assert cars(tmp_path)[0] == [b"2"]
    found, _ = read(tmp_path / "cars", now_ms=77)
    assert [one.item.add_ms for one in found if one.item] == [77, 77]


# -- somebody writes meanwhile, or the files cannot be read ---------------------------------------


def test_a_file_that_grows_or_is_cut_meanwhile_is_read(tmp_path: Path) -> None:
    for first, second in ((WHOLE, WHOLE * 2), (WHOLE * 2, WHOLE)):
        write(tmp_path, cars=first)
        file = JournalFile(LocalDisk(), str(tmp_path / "cars"))
        write(tmp_path, cars=second)
        assert (len(list(file.ops())), file.broken, file.size) == (2, None, len(WHOLE))


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
    looked = [(file.name, file.is_last) for file in found.files]
    assert looked == [("cars.1", False), ("cars.3", False), ("cars.6", True)]
    write(tmp_path, cars=WHOLE)
    disk = Rotating(tmp_path / "cars", iter(range(11, 10_000, 2)))
    with pytest.raises(DirectoryError, match="change all the time"):
        reader.survey(disk, str(tmp_path), "cars")


class FailingFile(LocalFile):
    """A file on a disk that has gone bad."""

    def read(self, offset: int, size: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


class Failing(LocalDisk):
    def open(self, path: str, *, writable: bool = False, create: bool = False) -> LocalFile:
        return FailingFile(path, writable=writable, create=create)


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    path = tmp_path / "cars"

    def check(told: str, change: Callable[[], object], disk: LocalDisk | None = None) -> None:
        write(tmp_path, cars=WHOLE)
        found = reader.survey(disk or LocalDisk(), str(tmp_path), "cars")
        change()
        with pytest.raises(DirectoryError, match=told):
            replayed(found)

    def become_a_directory() -> None:
        path.unlink()
        path.mkdir()

    def replace() -> None:
        path.rename(tmp_path / "cars.6")
        path.write_bytes(WHOLE)

    check("cars cannot be read: Input/output error", lambda: None, Failing())
    check("renamed or removed while it was read", lambda: path.rename(tmp_path / "cars.5"))
    check("renamed or removed while it was read", replace)
    check("cars cannot be read", become_a_directory)
    path.rmdir()
    path.symlink_to("elsewhere")
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
    return [file.changed for file in cars(directory)[1].files]


def test_files_are_compared_with_their_sums(tmp_path: Path) -> None:
    first, second = encoded(item(b"1")), encoded(item(b"2"), codec.remove())
    write(tmp_path, cars_1=first, cars_2=second, cars=WHOLE)
    put_sums(tmp_path, {1: summed(first), 2: summed(second), CURRENT: summed(WHOLE, "any")})
    assert changed(tmp_path) == [None] * 3
    assert reader.foreign(LocalDisk(), str(tmp_path)) == []
    write(tmp_path, cars_1=encoded(item(b"x")), cars_2=second[:-1])
    told = ["its first 22 bytes are not those that were written", "it had 23 bytes and has 22"]
    assert changed(tmp_path) == [*told, None]
    with pytest.raises(CorruptionError, match="not those that were written"):
        cars(tmp_path)[1].files[0].report().check()


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


def test_a_sum_may_end_within_a_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_CHUNK_BYTES", 10)
    data = encoded(*[item(b"1")] * 4)
    write(tmp_path, cars_5=data)
    for size in range(1, len(data) + 1):
        put_sums(tmp_path, {5: summed(data[:size])})
        assert changed(tmp_path) == [None]
        put_sums(tmp_path, {5: Sum(size, 1)})
        assert changed(tmp_path) != [None]


# -- the format of sums ----------------------------------------------------------------------------

KNOWN = {904: Sum(32, 0x6FEA3B87), CURRENT: Sum(33, 0xF64565FA, "2049:1311", 1_000_000_000)}
TEXT = b"fjord-sums 1\n904 32 6fea3b87\ncurrent 33 f64565fa 2049:1311 1000000000\ncrc 258250d2\n"

numbers = st.integers(0, 10**19 - 1)
identities = st.tuples(numbers, numbers).map(lambda pair: f"{pair[0]}:{pair[1]}")
sums = st.builds(
    lambda size, crc, last: Sum(size + 1, crc, *last),
    st.integers(0, 10**19 - 2),
    st.integers(0, 2**32 - 1),
    st.one_of(st.just(()), st.tuples(identities, numbers)),
)


@pytest.fixture
def disk() -> SimDisk:
    return made_disk()


def known(disk: SimDisk) -> dict[int, Sum]:
    return reader.read_sums(disk, FOLDER, QUEUE)


def test_the_format_is_text() -> None:
    assert reader.encode_sums(KNOWN) == TEXT
    assert reader.decode_sums(TEXT) == KNOWN


@given(st.dictionaries(st.one_of(st.just(CURRENT), numbers), sums, max_size=5))
def test_what_is_encoded_is_decoded(known: dict[int, Sum]) -> None:
    assert reader.decode_sums(reader.encode_sums(known)) == known


def test_sums_with_a_wrong_byte_are_none() -> None:
    for at in range(len(TEXT)):
        for bit in range(8):
            wrong = TEXT[:at] + bytes((TEXT[at] ^ 1 << bit,)) + TEXT[at + 1 :]
            assert reader.decode_sums(wrong) == {}
        assert reader.decode_sums(TEXT[:at]) == {}
    assert reader.decode_sums(TEXT + b"\n") == {}


LINES = [b"904 32 6fea3b87", b"0904 1 00000000", b"x", b"905 0 00000000"]


@pytest.mark.parametrize(
    "data", [b"fjord-sums 2\n", *(TEXT[: TEXT.index(b"crc")] + line + b"\n" for line in LINES)]
)
def test_sums_of_another_version_or_with_a_line_that_nobody_writes_are_none(data: bytes) -> None:
    assert reader.decode_sums(data + b"crc %08x\n" % reader.add_to_crc(0, data)) == {}


@pytest.mark.parametrize(
    ("known", "size", "identity", "written_s", "is_held"),
    [
        *((Sum(22, 1), size, "other", 5, True) for size in (3, 22, 99)),  # it has a number
        *((Sum(22, 1, "this", 5), size, "this", s, True) for size in (3, 22, 99) for s in (5, 6)),
        (Sum(22, 1, "this", 5), 22, "copy", 5, True),
        (Sum(22, 1, "this", 5), 22, "another", 6, False),
        *((Sum(22, 1, "this", 5), size, "another", 5, False) for size in (3, 99)),
        (Sum(22, 1, "this"), 22, "copy", 6, True),  # nobody knows when that was written to
        (Sum(22, 1, "this"), 23, "another", 6, False),
    ],
)
def test_a_file_is_held_to_a_sum_if_it_is_the_one_or_a_copy(
    known: Sum, size: int, identity: str, written_s: int, is_held: bool
) -> None:
    assert reader.is_held_to(known, size, identity, written_s) is is_held


def test_without_space_there_are_no_sums_instead_of_old_ones(disk: SimDisk) -> None:
    reader.put_sums(disk, FOLDER, QUEUE, KNOWN)
    disk.capacity = disk.used_bytes() + 5
    assert not reader.put_sums(disk, FOLDER, QUEUE, {**KNOWN, 905: Sum(1, 1)})
    disk.power_cut()
    assert disk.names(FOLDER) == []


def test_old_sums_that_may_be_left_are_told(disk: SimDisk) -> None:
    reader.put_sums(disk, FOLDER, QUEUE, KNOWN)
    disk.errors = dict.fromkeys(range(len(disk.calls), len(disk.calls) + 9), errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        reader.put_sums(disk, FOLDER, QUEUE, {905: Sum(1, 1)})


def test_too_many_sums_are_not_put(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "SUMS_BYTES_MAX", len(TEXT))
    assert reader.put_sums(disk, FOLDER, QUEUE, KNOWN)
    assert not reader.put_sums(disk, FOLDER, QUEUE, {**KNOWN, 905: Sum(1, 1)})
    assert known(disk) == {}
    put(disk, "cars~~sums", TEXT + b"x")
    assert known(disk) == {}


def test_a_name_without_room_for_sums_has_none(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder, queue = str(tmp_path_factory.mktemp("q")), "q" * 252
    assert reader.read_sums(LocalDisk(), folder, queue) == {}
    assert not reader.put_sums(LocalDisk(), folder, queue, KNOWN)


@pytest.mark.parametrize(
    ("known", "there", "missing"),
    [
        ([1, 2, 3], [1, 2, 3], []),
        ([1, 2, 3], [1, 3], [2]),
        ([1, 2, 3], [2, 3], []),  # files go from the oldest on
        ([1, 2, 3], [0, CURRENT], [1, 2, 3]),
        ([1, 2, CURRENT], [1, 2], [CURRENT]),
        ([1, CURRENT], [CURRENT], []),
        ([1, CURRENT], [], []),
        ([], [1, 2], []),
    ],
)
def test_a_file_is_missing_if_an_older_one_is_there(
    known: list[int], there: list[int], missing: list[int]
) -> None:
    assert reader.missing_numbers(dict.fromkeys(known, Sum(1, 1)), there) == missing
