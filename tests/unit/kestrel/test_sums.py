"""Checksums beside the files of a queue: their format, and when they count."""

from __future__ import annotations

import contextlib
import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.disk import LocalDisk
from fjord.kestrel import reader
from fjord.kestrel.reader import CURRENT, Sum
from fjord.testing import SimDisk

FOLDER = "/kestrel"
KNOWN = {904: Sum(32, 0x6FEA3B87), CURRENT: Sum(33, 0xF64565FA, "2049:1311", 1_000_000_000)}
TEXT = b"fjord-sums 1\n904 32 6fea3b87\ncurrent 33 f64565fa 2049:1311 1000000000\ncrc 258250d2\n"

known_sums = st.dictionaries(
    st.one_of(st.just(CURRENT), st.integers(0, 10**19 - 1)),
    st.builds(
        lambda size, crc, last: Sum(size, crc, *last),
        st.integers(1, 10**19 - 1),
        st.integers(0, 2**32 - 1),
        st.one_of(
            st.just(()),
            st.tuples(
                st.from_regex(r"\w{1,9}:[0-9]{1,9}", fullmatch=True).filter(str.isascii),
                st.integers(0, 10**19 - 1),
            ),
        ),
    ),
    max_size=5,
)


@pytest.fixture
def disk() -> SimDisk:
    made = SimDisk()
    made.make_directory(FOLDER)
    made.sync_directory("/")
    return made


def put(disk: SimDisk, name: str, data: bytes) -> None:
    with contextlib.closing(disk.open(f"{FOLDER}/{name}", create=True)) as file:
        file.write(0, data)


def test_the_format_is_text() -> None:
    assert reader.encode_sums(KNOWN) == TEXT
    assert reader.decode_sums(TEXT) == KNOWN


@given(known_sums)
def test_what_is_encoded_is_decoded(known: dict[int, Sum]) -> None:
    assert reader.decode_sums(reader.encode_sums(known)) == known


def test_sums_with_a_wrong_byte_are_none() -> None:
    for at in range(len(TEXT)):
        for bit in range(8):
            wrong = bytearray(TEXT)
            wrong[at] ^= 1 << bit
            assert reader.decode_sums(bytes(wrong)) == {}
        assert reader.decode_sums(TEXT[:at]) == {}
    assert reader.decode_sums(TEXT + b"\n") == {}


@pytest.mark.parametrize("line", [b"904 32 6fea3b87", b"0904 1 00000000", b"x", b"905 0 00000000"])
def test_a_line_that_nobody_writes_makes_all_of_them_none(line: bytes) -> None:
    data = TEXT[: TEXT.index(b"crc")] + line + b"\n"
    assert reader.decode_sums(data + b"crc %08x\n" % reader.add_to_crc(0, data)) == {}


def test_sums_of_another_version_are_none() -> None:
    data = b"fjord-sums 2\n"
    assert reader.decode_sums(data + b"crc %08x\n" % reader.add_to_crc(0, data)) == {}


def test_a_numbered_file_is_held_to_its_sum_whatever_it_is() -> None:
    assert reader.is_held_to(Sum(22, 1), 22, "other", 5)
    assert reader.is_held_to(Sum(22, 1), 99, "other", 5)
    assert reader.is_held_to(Sum(22, 1), 3, "other", 5)


@pytest.mark.parametrize("written_s", [5, 6])
@pytest.mark.parametrize("size", [3, 22, 99])
def test_the_current_file_that_was_summed_is_held_to_it_whatever_it_is(
    size: int, written_s: int
) -> None:
    assert reader.is_held_to(Sum(22, 1, "this", 5), size, "this", written_s)


def test_another_current_file_is_held_to_a_sum_if_it_is_a_copy() -> None:
    known = Sum(22, 1, "this", 5)
    assert reader.is_held_to(known, 22, "copy", 5)
    assert not reader.is_held_to(known, 22, "another", 6)
    assert not reader.is_held_to(known, 99, "another", 5)
    assert not reader.is_held_to(known, 3, "another", 5)


def test_if_nobody_knows_when_a_file_was_written_to_its_size_tells_a_copy() -> None:
    assert reader.decode_sums(reader.encode_sums({CURRENT: Sum(22, 1, "this")})) == {
        CURRENT: Sum(22, 1, "this")
    }
    assert reader.is_held_to(Sum(22, 1, "this"), 22, "copy", 6)
    assert not reader.is_held_to(Sum(22, 1, "this"), 23, "another", 6)


def test_sums_are_put_and_read(disk: SimDisk) -> None:
    assert reader.read_sums(disk, FOLDER, "cars") == {}
    assert reader.put_sums(disk, FOLDER, "cars", KNOWN)
    disk.power_cut()
    assert disk.names(FOLDER) == ["cars~~sums"]
    assert reader.read_sums(disk, FOLDER, "cars") == KNOWN
    assert reader.read_sums(disk, FOLDER, "vans") == {}


def test_no_sums_are_no_file(disk: SimDisk) -> None:
    reader.put_sums(disk, FOLDER, "cars", KNOWN)
    assert reader.put_sums(disk, FOLDER, "cars", {})
    disk.power_cut()
    assert disk.names(FOLDER) == []


def test_without_space_there_are_no_sums_instead_of_old_ones(disk: SimDisk) -> None:
    reader.put_sums(disk, FOLDER, "cars", KNOWN)
    disk.capacity = disk.used_bytes() + 5
    assert not reader.put_sums(disk, FOLDER, "cars", {**KNOWN, 905: Sum(1, 1)})
    disk.power_cut()
    assert disk.names(FOLDER) == []


def test_old_sums_that_may_be_left_are_told(disk: SimDisk) -> None:
    reader.put_sums(disk, FOLDER, "cars", KNOWN)
    disk.errors = dict.fromkeys(range(len(disk.calls), len(disk.calls) + 9), errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        reader.put_sums(disk, FOLDER, "cars", {905: Sum(1, 1)})


def test_more_sums_than_are_read_are_not_put(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "SUMS_BYTES_MAX", len(TEXT))
    assert reader.put_sums(disk, FOLDER, "cars", KNOWN)
    assert not reader.put_sums(disk, FOLDER, "cars", {**KNOWN, 905: Sum(1, 1)})
    assert reader.read_sums(disk, FOLDER, "cars") == {}
    put(disk, "cars~~sums", TEXT + b"x")
    assert reader.read_sums(disk, FOLDER, "cars") == {}


def test_a_name_that_leaves_no_room_for_sums_has_none(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder, queue = str(tmp_path_factory.mktemp("q")), "q" * 252
    assert reader.read_sums(LocalDisk(), folder, queue) == {}
    assert not reader.put_sums(LocalDisk(), folder, queue, KNOWN)


def test_the_crc_is_that_of_the_front(disk: SimDisk) -> None:
    put(disk, "cars", b"123456789 and more")
    with contextlib.closing(disk.open(f"{FOLDER}/cars")) as file:
        assert reader.crc_of(file, 9) == 0xE3069283
        assert reader.crc_of(file, 0) == 0


@pytest.mark.parametrize(
    ("known", "there", "missing"),
    [
        ([1, 2, 3], [1, 2, 3], []),
        ([1, 2, 3], [1, 3], [2]),
        ([1, 2, 3], [2, 3], []),  # files go from the oldest on
        ([1, 2, 3], [0, reader.CURRENT], [1, 2, 3]),
        ([1, 2, reader.CURRENT], [1, 2], [reader.CURRENT]),
        ([1, reader.CURRENT], [reader.CURRENT], []),
        ([1, reader.CURRENT], [], []),
        ([], [1, 2], []),
    ],
)
def test_a_file_is_missing_if_an_older_one_is_there(
    known: list[int], there: list[int], missing: list[int]
) -> None:
    assert reader.missing_numbers(dict.fromkeys(known, Sum(1, 1)), there) == missing
