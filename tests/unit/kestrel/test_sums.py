"""Checksums beside the files of a queue: their format, and when they count."""

from __future__ import annotations

import contextlib
import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.disk import LocalDisk
from fjord.kestrel import reading
from fjord.kestrel.reading import CURRENT, Sum
from fjord.testing import SimDisk
from tests.unit.kestrel.directory import FOLDER, QUEUE, made_disk, put

KNOWN = {904: Sum(32, 0x6FEA3B87), CURRENT: Sum(33, 0xF64565FA, "2049:1311", 1_000_000_000)}
TEXT = b"fjord-sums 1\n904 32 6fea3b87\ncurrent 33 f64565fa 2049:1311 1000000000\ncrc 258250d2\n"

numbers = st.integers(0, 10**19 - 1)
identities = st.from_regex(r"\w{1,9}:[0-9]{1,9}", fullmatch=True).filter(str.isascii)
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
    return reading.read_sums(disk, FOLDER, QUEUE)


def test_the_format_is_text() -> None:
    assert reading.encode_sums(KNOWN) == TEXT
    assert reading.decode_sums(TEXT) == KNOWN


@given(st.dictionaries(st.one_of(st.just(CURRENT), numbers), sums, max_size=5))
def test_what_is_encoded_is_decoded(known: dict[int, Sum]) -> None:
    assert reading.decode_sums(reading.encode_sums(known)) == known


def test_sums_with_a_wrong_byte_are_none() -> None:
    for at in range(len(TEXT)):
        for bit in range(8):
            wrong = TEXT[:at] + bytes((TEXT[at] ^ 1 << bit,)) + TEXT[at + 1 :]
            assert reading.decode_sums(wrong) == {}
        assert reading.decode_sums(TEXT[:at]) == {}
    assert reading.decode_sums(TEXT + b"\n") == {}


LINES = [b"904 32 6fea3b87", b"0904 1 00000000", b"x", b"905 0 00000000"]


@pytest.mark.parametrize(
    "data", [b"fjord-sums 2\n", *(TEXT[: TEXT.index(b"crc")] + line + b"\n" for line in LINES)]
)
def test_sums_of_another_version_or_with_a_line_that_nobody_writes_are_none(data: bytes) -> None:
    assert reading.decode_sums(data + b"crc %08x\n" % reading.add_to_crc(0, data)) == {}


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
    assert reading.is_held_to(known, size, identity, written_s) is is_held


def test_sums_are_put_and_read(disk: SimDisk) -> None:
    assert known(disk) == {}
    assert reading.put_sums(disk, FOLDER, QUEUE, KNOWN)
    disk.power_cut()
    assert disk.names(FOLDER) == ["cars~~sums"]
    assert known(disk) == KNOWN
    assert reading.read_sums(disk, FOLDER, "vans") == {}
    assert reading.put_sums(disk, FOLDER, QUEUE, {})  # which is no file
    disk.power_cut()
    assert disk.names(FOLDER) == []


def test_without_space_there_are_no_sums_instead_of_old_ones(disk: SimDisk) -> None:
    reading.put_sums(disk, FOLDER, QUEUE, KNOWN)
    disk.capacity = disk.used_bytes() + 5
    assert not reading.put_sums(disk, FOLDER, QUEUE, {**KNOWN, 905: Sum(1, 1)})
    disk.power_cut()
    assert disk.names(FOLDER) == []


def test_old_sums_that_may_be_left_are_told(disk: SimDisk) -> None:
    reading.put_sums(disk, FOLDER, QUEUE, KNOWN)
    disk.errors = dict.fromkeys(range(len(disk.calls), len(disk.calls) + 9), errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        reading.put_sums(disk, FOLDER, QUEUE, {905: Sum(1, 1)})


def test_more_sums_than_are_read_are_not_put(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SUMS_BYTES_MAX", len(TEXT))
    assert reading.put_sums(disk, FOLDER, QUEUE, KNOWN)
    assert not reading.put_sums(disk, FOLDER, QUEUE, {**KNOWN, 905: Sum(1, 1)})
    assert known(disk) == {}
    put(disk, "cars~~sums", TEXT + b"x")
    assert known(disk) == {}


def test_a_name_that_leaves_no_room_for_sums_has_none(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder, queue = str(tmp_path_factory.mktemp("q")), "q" * 252
    assert reading.read_sums(LocalDisk(), folder, queue) == {}
    assert not reading.put_sums(LocalDisk(), folder, queue, KNOWN)


def test_the_crc_is_that_of_the_front(disk: SimDisk) -> None:
    put(disk, QUEUE, b"123456789 and more")
    with contextlib.closing(disk.open(f"{FOLDER}/{QUEUE}")) as file:
        assert [reading.crc_of(file, size) for size in (9, 0)] == [0xE3069283, 0]


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
    assert reading.missing_numbers(dict.fromkeys(known, Sum(1, 1)), there) == missing
