"""Columns: n entries as offsets and bytes, and what is not such a column."""

from __future__ import annotations

from array import array
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import columns
from fjord.columns import Strings

rows_of_bytes = st.lists(st.binary(max_size=20), max_size=20)


def offsets_and_data(offsets: list[int], data: bytes) -> memoryview:
    """A column as it is stored, with any offsets."""
    head = array("I", offsets).tobytes()
    return memoryview(head + columns.PADDING[len(head) & 7] + data + columns.PADDING[len(data) & 7])


def test_a_column_is_stored_as_little_endian_offsets_and_bytes() -> None:
    assert Strings.of([b"ab", b"", b"cde"]).encode() == (
        b"\0\0\0\0\2\0\0\0\2\0\0\0\5\0\0\0" + b"abcde\0\0\0"
    )
    assert Strings.of([b"ab"]).encode() == b"\0\0\0\0\2\0\0\0" + b"ab\0\0\0\0\0\0"
    assert Strings.of([]).encode() == bytes(8)


@given(rows_of_bytes)
def test_strings_behave_like_the_list_they_were_made_of(rows: list[bytes]) -> None:
    column = Strings.of(rows)
    assert len(column) == len(rows)
    assert column.rows() == rows
    assert list(column) == rows
    assert [column[row] for row in range(len(rows))] == rows
    assert column.lengths() == [len(row) for row in rows]
    assert repr(column) == f"Strings({rows!r})"


@given(rows_of_bytes, st.integers(0, 3))
def test_strings_round_trip_at_any_aligned_position(rows: list[bytes], words: int) -> None:
    before = b"\xee" * 8 * words
    encoded = Strings.of(rows).encode()
    assert len(encoded) % 8 == 0
    view = memoryview(before + encoded + b"after")
    decoded, end = columns.decode_strings(view, len(before), len(rows))
    assert decoded.rows() == rows
    assert end == len(before) + len(encoded)
    assert decoded.encode() == encoded  # also from a view, and not only from an array


@given(rows_of_bytes)
def test_a_column_that_is_cut_anywhere_is_refused(rows: list[bytes]) -> None:
    column = Strings.of(rows)
    whole = column.encode()
    used = columns.aligned(4 * (len(rows) + 1)) + len(column.data)
    for size in range(used):
        with pytest.raises(ValueError, match="cut short"):
            columns.decode_strings(memoryview(whole)[:size], 0, len(rows))


@pytest.mark.parametrize(
    "offsets",
    [
        [1, 4],  # does not begin at 0
        [1],  # nor does the column without rows
        [0, 3, 2, 4],  # goes back
        [0, 5, 4],  # points behind the end, then back
        [2, 3, 4],
    ],
)
def test_offsets_that_do_not_ascend_from_0_are_refused(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="do not ascend from 0"):
        columns.decode_strings(offsets_and_data(offsets, b"abcd"), 0, len(offsets) - 1)


# Offsets are looked at in several ways: one by one, by large integers, by what is known of them.
COUNTS = [2, 63, 64, 65, 66, 999, 1_000, 2_047, 2_048, 2_049, 4_097, 16_384, 16_385, 20_000]


def lengths_of(count: int, kind: str) -> list[int]:
    if kind == "uneven":
        return [row * 7 % 5 for row in range(count)]
    if kind == "one longer":
        return [3] * (count - 1) + [4]
    return [{"empty": 0, "even": 3}[kind]] * count


@pytest.mark.parametrize("kind", ["uneven", "one longer", "empty", "even"])
@pytest.mark.parametrize("count", COUNTS)
def test_columns_of_any_size_round_trip(count: int, kind: str) -> None:
    rows = [b"x" * length for length in lengths_of(count, kind)]
    encoded = Strings.of(rows).encode()
    ends = list(accumulate(map(len, rows), initial=0))
    assert encoded == bytes(offsets_and_data(ends, b"".join(rows)))
    decoded, end = columns.decode_strings(memoryview(encoded), 0, count)
    assert end == len(encoded)
    assert decoded.rows() == rows


@pytest.mark.parametrize("kind", ["uneven", "one longer", "empty", "even"])
@pytest.mark.parametrize("count", COUNTS)
def test_one_wrong_offset_of_any_number_is_found(count: int, kind: str) -> None:
    good = list(accumulate(lengths_of(count, kind), initial=0))
    data = bytes(good[-1])
    for at in {1, 2, 63, 64, 65, 2_047, 2_048, 2_049, count // 2, count - 1} & set(range(1, count)):
        for wrong in {
            good[at - 1] - 1,
            good[at + 1] + 1,
            good[-1] + 1,
            2**31 - 1,
            2**31,
            2**32 - 1,
        }:
            if wrong >= 0:
                column = offsets_and_data([*good[:at], wrong, *good[at + 1 :]], data)
                with pytest.raises(ValueError, match="do not ascend from 0"):
                    columns.decode_strings(column, 0, count)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=64, max_size=90), st.booleans())
def test_offsets_are_taken_if_and_only_if_they_ascend(found: list[int], is_sorted: bool) -> None:
    middle = [one % 1_000 for one in found] if is_sorted else found
    offsets = [0, *(sorted(middle) if is_sorted else middle), 1_000]
    column = offsets_and_data(offsets, bytes(1_000))
    if offsets == sorted(offsets):
        decoded, _ = columns.decode_strings(column, 0, len(offsets) - 1)
        assert list(decoded.offsets) == offsets
    else:
        with pytest.raises(ValueError, match="do not ascend from 0"):
            columns.decode_strings(column, 0, len(offsets) - 1)


def test_a_column_is_the_same_in_one_piece_and_in_parts() -> None:
    for rows in ([], [b"k"], [b"a", b"", b"bcd"]):
        column = Strings.of(rows)
        assert b"".join(column.parts()) == column.encode()
        passed_on, _ = columns.decode_strings(memoryview(bytes(column.encode())), 0, len(rows))
        assert b"".join(passed_on.parts()) == column.encode()


@pytest.mark.parametrize("end", [9, 2**31, 2**32 - 1])
def test_offsets_that_point_outside_are_refused(end: int) -> None:
    with pytest.raises(ValueError, match="cut short"):
        columns.decode_strings(offsets_and_data([0, end], b"abcd"), 0, 1)


@pytest.mark.parametrize("count", [2, 1000, 2**32 - 1])
def test_more_rows_than_there_are_bytes_are_refused_before_anything_is_made(count: int) -> None:
    with pytest.raises(ValueError, match="cut short"):
        columns.decode_strings(memoryview(bytes(8)), 0, count)
    with pytest.raises(ValueError, match="cut short"):
        columns.decode_numbers(memoryview(bytes(8)), 0, count, "Q")


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_numbers_of_64_bits_round_trip(numbers: list[int]) -> None:
    for column in (numbers, tuple(numbers), array("Q", numbers), memoryview(array("Q", numbers))):
        encoded = columns.encode_u64(column)
        decoded, end = columns.decode_numbers(memoryview(encoded), 0, len(numbers), "Q")
        assert list(decoded) == numbers
        assert end == len(encoded)


@given(st.binary(max_size=20))
def test_numbers_of_8_bits_are_bytes_padded_to_a_multiple_of_8(numbers: bytes) -> None:
    encoded = columns.encode_u8(numbers)
    assert encoded == numbers + columns.PADDING[len(numbers) & 7]
    assert columns.encode_u8(list(numbers)) == encoded
    decoded, end = columns.decode_numbers(memoryview(encoded), 0, len(numbers), "B")
    assert bytes(decoded) == numbers
    assert end == len(encoded)


@given(st.integers(0, 2**64 - 1), st.integers(0, 9))
def test_a_repeated_number_is_a_column(number: int, count: int) -> None:
    column = columns.repeat(number, count)
    assert list(column) == [number] * count
    assert columns.encode_u64(column) == number.to_bytes(8, "little") * count


@pytest.mark.parametrize("count", [0, 2, 3, 8, 9])
def test_neighbouring_columns_of_numbers_are_read_together(count: int) -> None:
    wide, narrow = list(range(2**63, 2**63 + count)), bytes(range(count))
    encoded = columns.encode_u64(wide) + columns.encode_u8(narrow) + columns.encode_u64(wide)
    first, second, third, end = columns.decode_columns(memoryview(encoded), 0, count, "QBQ")
    assert (list(first), second, list(third)) == (wide, narrow, wide)
    assert end == len(encoded)
    for size in range(len(encoded)):
        with pytest.raises(ValueError, match="cut short"):
            columns.decode_columns(memoryview(encoded)[:size], 0, count, "QBQ")
