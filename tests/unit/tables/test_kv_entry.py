"""Entries, marks and schedules, byte by byte."""

from __future__ import annotations

import pytest

from fjord import limits, ops
from fjord.layouts import end_of, prefix_of
from fjord.tables.kv import layout
from fjord.tables.kv.layout import BASE, FULL, NO_MARK, KvEntry, Mark
from fjord.tables.state import Pointer

U64_MAX = 2**64 - 1


def test_the_layouts_of_entries_are_fixed() -> None:
    assert (BASE.size, FULL.size, layout.MARK.size) == (33, 73, 32)
    assert BASE.pack(1, 2, 3, 4, 5, 6, 7) == (
        b"\1\0\0\0\0\0\0\0"  # row
        b"\2\0\0\0\0\0\0\0"  # timestamp
        b"\3\0\0\0\4\0\0\0\5\0\0\0\6\0\0\0"  # segment, offset, size, crc
        b"\7"  # type
    )
    assert FULL.pack(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)[33:] == b"".join(
        number.to_bytes(8, "little") for number in (8, 9, 10, 11, 12)
    )


def test_what_a_base_does_not_say_follows_from_it() -> None:
    entry = layout.decode(BASE.pack(7, 100, 1, 2, 3, 4, 5))
    assert entry == KvEntry(7, 100, 1, 2, 3, 4, 5, 7, 100, 0, 0, 7)
    assert entry.pointer == Pointer(1, 2, 3, 4, 7)
    assert entry.is_value


def test_a_full_entry_says_all_itself() -> None:
    data = FULL.pack(7, 100, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12)
    assert layout.decode(data) == KvEntry(7, 100, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12)


@pytest.mark.parametrize("held", [7, 8, U64_MAX])
def test_a_tombstone_is_no_value_and_knows_who_holds_it(held: int) -> None:
    data = layout.encode_tombstone(7, 100, held, 55)
    assert len(data) == FULL.size
    entry = layout.decode(data)
    assert (entry.row, entry.timestamp_us, entry.held) == (7, 100, held)
    assert entry.created_us == 55  # when it was buried
    assert (entry.type, entry.size, entry.expires_at_us) == (ops.TOMBSTONE, 0, 0)
    assert not entry.is_value


@pytest.mark.parametrize("size", [1, 31, 32, 33, limits.KV_KEY_BYTES_MAX])
def test_an_alias_leads_to_its_target_however_long(size: int) -> None:
    """With 32 bytes it is as long as a full entry."""
    target = b"t" * size
    data = layout.encode_alias(7, 100, 9, target)
    entry = layout.decode(data)
    assert (entry.row, entry.timestamp_us, entry.held, entry.size) == (7, 100, 9, size)
    assert (entry.type, entry.expires_at_us, entry.is_value) == (ops.ALIAS, 0, False)
    assert layout.decode_target(data) == target


def test_a_mark_is_void_for_any_other_row() -> None:
    data = layout.encode_mark(7, 1, 2, 3)
    assert layout.decode_mark(data, 7) == Mark(7, 1, 2, 3)
    assert layout.decode_mark(data, 8) == NO_MARK
    assert layout.decode_mark(None, 7) == NO_MARK


@pytest.mark.parametrize(
    ("own", "noted", "expected"), [(0, 0, 0), (0, 9, 0), (5, 0, 5), (5, 9, 9), (9, 5, 9)]
)
def test_the_later_expiry_holds_and_never_stays_never(own: int, noted: int, expected: int) -> None:
    entry = KvEntry(7, 100, 1, 2, 3, 4, 5, 8, 9, own, 11, 12)
    assert layout.expiry_of(entry, Mark(7, 1, noted, 0)) == expected


def test_a_schedule_is_in_order_of_time() -> None:
    moments = [1, 255, 256, 2**32, 2**63, U64_MAX]
    keys = [layout.schedule_key(moment, b"\0\0\0\1key") for moment in moments]
    assert keys == sorted(keys)
    assert [layout.decode_schedule(key) for key in keys] == [
        (moment, b"\0\0\0\1key") for moment in moments
    ]


def test_the_keys_of_a_table_end_where_the_next_one_begins() -> None:
    assert prefix_of(1) == b"\0\0\0\1"
    assert end_of(b"\0\0\0\xff") == b"\0\0\1\0"
    assert end_of(b"\xff\xff\xff\xff") is None
