"""Limits: every one is a bound, and they fit into each other."""

from __future__ import annotations

from fjord import columns, limits, ops
from fjord.journal import frame
from fjord.ops import Opcode

BOUNDS = {name: value for name, value in vars(limits).items() if name.isupper()}
# What LMDB was built with.
LMDB_KEY_BYTES_MAX = 511
TABLE_ID_BYTES = 4


def row_bytes(opcode: Opcode) -> int:
    """How many bytes a row of an op takes beside its keys and values."""
    sizes = {ops.U8: 1, ops.U64: 8, ops.STRINGS: 4, ops.ONCE: 0}
    return sum(sizes[kind] for _, kind in opcode.columns)


def test_no_bound_is_zero_or_below() -> None:
    assert len(BOUNDS) > 20
    assert all(value > 0 for value in BOUNDS.values())


def test_a_key_with_its_prefix_fits_the_index() -> None:
    assert TABLE_ID_BYTES + limits.KV_KEY_BYTES_MAX <= LMDB_KEY_BYTES_MAX


def test_the_largest_entry_fits_a_batch() -> None:
    assert limits.KV_KEY_BYTES_MAX + limits.VALUE_BYTES_MAX <= limits.BATCH_BYTES_MAX


def test_the_largest_batch_fits_a_message() -> None:
    dates_types_and_offsets = limits.BATCH_ROWS_MAX * (8 + 1 + 4 + 4)
    head_bytes = 1024
    largest = limits.BATCH_BYTES_MAX + dates_types_and_offsets + head_bytes
    assert largest <= limits.MESSAGE_BYTES_MAX


def test_the_largest_batch_fits_a_frame() -> None:
    for opcode in Opcode:
        body = limits.BATCH_BYTES_MAX + limits.BATCH_ROWS_MAX * row_bytes(opcode) + 1024
        assert frame.is_frame_length(columns.aligned(frame.FRAME_HEADER_BYTES + body))


def test_the_largest_frame_fits_a_segment() -> None:
    assert limits.SEGMENT_BYTES_MIN <= limits.SEGMENT_BYTES <= limits.SEGMENT_BYTES_MAX
    assert limits.FRAME_BYTES_MAX + frame.SEGMENT_HEADER_BYTES <= limits.SEGMENT_BYTES


def test_offsets_in_a_segment_fit_32_bits() -> None:
    assert limits.SEGMENT_BYTES_MAX + limits.FRAME_BYTES_MAX < 2**32


def test_the_largest_value_fits_an_answer_and_a_scan() -> None:
    assert limits.VALUE_BYTES_MAX <= limits.ANSWER_BYTES_MAX
    assert limits.FRAME_BYTES_MAX <= limits.ANSWER_BYTES_MAX
    assert limits.SCAN_BYTES_MAX <= limits.ANSWER_BYTES_MAX
