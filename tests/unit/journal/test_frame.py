"""Segment headers and frames as bytes: round trips, and every flipped bit is noticed."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import limits
from fjord.errors import CorruptionError
from fjord.journal import frame as frames
from fjord.journal.frame import Frame, SegmentHeader
from tests.unit.journal.writing import SHARD, header, kv_insert

u64 = st.integers(0, 2**64 - 1)
u32 = st.integers(0, 2**32 - 1)
PATH = "/data/journal/0000000001.seg"


def salt(segment: int) -> bytes:
    return header(segment).salt


def frame_of(body: bytes, *, rows: int = 1, op_count: int = 1) -> Frame:
    return Frame(
        first_seq=5,
        rows=rows,
        op_count=op_count,
        wall_us=1,
        lease_us=2,
        durable_seq=3,
        length=frames.FRAME_HEADER_BYTES + len(body),
        body_crc=frames.checksum(body),
    )


# -- segment headers ------------------------------------------------------------------------------


@given(
    st.builds(
        SegmentHeader,
        segment=u64,
        first_seq=u64,
        shard=st.binary(min_size=16, max_size=16),
        created_us=u64,
        lease_us=u64,
    )
)
def test_a_segment_header_round_trips(made: SegmentHeader) -> None:
    data = made.encode()
    assert len(data) == frames.SEGMENT_HEADER_BYTES
    assert frames.decode_segment_header(data, PATH) == made
    assert frames.decode_segment_header(data + b"frames", PATH) == made


def test_a_segment_header_is_laid_out_as_the_format_page_says() -> None:
    data = header(segment=2, first_seq=9).encode()
    assert data[:12] == b"FJORDSEG" + b"\1\0\0\0"
    assert data[16:32] == struct.pack("<QQ", 2, 9)
    assert data[32:48] == SHARD
    assert data[48:] == struct.pack("<QQ", header().created_us, 77)


def test_every_flipped_bit_of_a_segment_header_is_noticed() -> None:
    data = header().encode()
    for position in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            with pytest.raises(CorruptionError) as caught:
                frames.decode_segment_header(bytes(changed), PATH)
            assert caught.value.path == PATH


@pytest.mark.parametrize("size", range(frames.SEGMENT_HEADER_BYTES))
def test_a_short_segment_header_is_damage(size: int) -> None:
    with pytest.raises(CorruptionError, match="shorter than a segment header"):
        frames.decode_segment_header(header().encode()[:size], PATH)


def test_other_files_and_newer_versions_are_named_as_such() -> None:
    with pytest.raises(CorruptionError, match="does not begin with FJORDSEG"):
        frames.decode_segment_header(bytes(64), PATH)
    newer = bytearray(header().encode())
    newer[8] = 2
    with pytest.raises(CorruptionError, match="format version 2, not 1") as caught:
        frames.decode_segment_header(bytes(newer), PATH)
    assert caught.value.offset == 8


# -- frames ---------------------------------------------------------------------------------------


@given(
    st.builds(
        Frame,
        first_seq=u64,
        rows=u32,
        op_count=u32,
        wall_us=u64,
        lease_us=u64,
        durable_seq=u64,
        length=st.integers(9, limits.FRAME_BYTES_MAX // 8).map(lambda words: 8 * words),
        body_crc=u32,
    ),
    u64,
    st.integers(0, 3),
)
def test_a_frame_header_round_trips_at_any_offset(made: Frame, segment: int, words: int) -> None:
    data = made.encode(salt(segment))
    assert len(data) == frames.FRAME_HEADER_BYTES
    before = b"\xee" * 8 * words
    assert frames.decode_frame(before + data + b"body", len(before), salt(segment)) == made


def test_a_frame_header_is_laid_out_as_the_format_page_says() -> None:
    made = frame_of(bytes(8), rows=6, op_count=7)
    data = made.encode(salt(1))
    assert data[:4] == struct.pack("<I", 72)
    assert data[8:52] == struct.pack("<QIIQQQI", 5, 6, 7, 1, 2, 3, made.body_crc)
    assert data[52:] == bytes(12)
    covered = SHARD + struct.pack("<Q", 1) + data[:4] + data[8:]
    assert data[4:8] == struct.pack("<I", frames.checksum(covered))


@given(u64, u64)
def test_a_frame_is_no_frame_of_another_segment(segment: int, other: int) -> None:
    data = frame_of(bytes(8)).encode(salt(segment))
    assert (frames.decode_frame(data, 0, salt(other)) is not None) is (segment == other)


def test_every_flipped_bit_of_a_frame_header_is_noticed() -> None:
    body = kv_insert([b"some value"])
    data = frame_of(body).encode(salt(1)) + body + bytes(limits.MIB)
    for position in range(frames.FRAME_HEADER_BYTES):
        for bit in range(8):
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            found = frames.decode_frame(bytes(changed[:64]), 0, salt(1))
            if found is not None:
                # Only the length is outside of the header's checksum; the body's notices it.
                assert position < 4
                assert frames.checksum(bytes(changed[64 : found.length])) != found.body_crc


def test_every_flipped_bit_of_a_body_is_noticed() -> None:
    body = kv_insert([b"some value"])
    made = frame_of(body)
    for position in range(len(body)):
        for bit in range(8):
            changed = bytearray(body)
            changed[position] ^= 1 << bit
            assert frames.checksum(bytes(changed)) != made.body_crc


@pytest.mark.parametrize("size", range(frames.FRAME_HEADER_BYTES))
def test_a_short_frame_header_is_no_frame(size: int) -> None:
    data = frame_of(bytes(8)).encode(salt(1))
    assert frames.decode_frame(data[:size], 0, salt(1)) is None


def test_zeros_are_no_frame() -> None:
    assert frames.decode_frame(bytes(128), 0, salt(1)) is None
    assert frames.decode_frame(bytes(128), 0, salt(0)) is None


@pytest.mark.parametrize(
    ("length", "good"),
    [
        (0, False),
        (64, False),  # no body
        (72, True),
        (73, False),
        (limits.FRAME_BYTES_MAX, True),
        (limits.FRAME_BYTES_MAX + 8, False),
        (2**32 - 8, False),
    ],
)
def test_a_length_is_a_multiple_of_8_within_bounds(*, length: int, good: bool) -> None:
    assert frames.is_frame_length(length) is good
    made = frame_of(bytes(8))._replace(length=length)
    assert (frames.decode_frame(made.encode(salt(1)), 0, salt(1)) is not None) is good


def test_the_last_seq_counts_the_rows() -> None:
    assert frame_of(bytes(8), rows=1).last_seq == 5
    assert frame_of(bytes(8), rows=10).last_seq == 14


# -- ops of a frame -------------------------------------------------------------------------------


def test_ops_come_with_their_places() -> None:
    first, second = kv_insert([b"one", b"two"]), kv_insert([b"three"])
    body = first + second
    offset = 640
    made = frame_of(body, rows=3, op_count=2)
    found = list(frames.decode_ops(made, body, 9, offset))
    assert [(place.seq, place.segment) for _, place in found] == [(5, 9), (7, 9)]
    stored = bytes(offset) + bytes(frames.FRAME_HEADER_BYTES) + body
    payloads = [place.payload for _, place in found]
    assert stored[payloads[0] : payloads[0] + 6] == b"onetwo"
    assert stored[payloads[1] : payloads[1] + 5] == b"three"


@pytest.mark.parametrize(
    ("rows", "op_count"), [(2, 2), (4, 2), (3, 1), (3, 3), (3, 0), (0, 2), (2**32 - 1, 2)]
)
def test_a_body_of_other_ops_than_its_header_says_is_refused(rows: int, op_count: int) -> None:
    body = kv_insert([b"one", b"two"]) + kv_insert([b"three"])
    with pytest.raises(ValueError, match=r"ops of a frame do not match|cut short"):
        list(frames.decode_ops(frame_of(body, rows=rows, op_count=op_count), body, 1, 64))
