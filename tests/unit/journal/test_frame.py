"""Segment headers and frames as bytes: round trips, and every flipped bit is noticed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import limits, ops
from fjord.columns import Strings
from fjord.errors import CorruptionError
from fjord.journal import frame
from fjord.journal import frame as frames
from fjord.journal.frame import Frame, SegmentHeader
from fjord.ops import Opcode
from tests.unit.journal.writing import header, kv_insert

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


def test_every_flipped_bit_of_a_segment_header_is_noticed() -> None:
    data = header().encode()
    for position in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            with pytest.raises(CorruptionError) as caught:
                frames.decode_segment_header(bytes(changed), PATH)
            assert caught.value.path == PATH


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


@pytest.mark.parametrize("size", range(frames.FRAME_HEADER_BYTES))
def test_a_short_frame_header_is_no_frame(size: int) -> None:
    data = frame_of(bytes(8)).encode(salt(1))
    assert frames.decode_frame(data[:size], 0, salt(1)) is None


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


# -- file names of the journal --------------------------------------------------------------------


@given(st.integers(0, 10**10 - 1))
def test_a_number_is_found_in_the_name_that_was_made_of_it(segment: int) -> None:
    name = frame.segment_path("/data", segment).removeprefix("/data/")
    assert frame.segment_number(name) == segment


@pytest.mark.parametrize(
    "name",
    [
        *("", "lock", "spare", "0000000001", "1.seg", "000000001.seg", "00000000001.seg"),
        *("0000000001.seg" + frame.UNFINISHED, "0000000001.seg\n", "x0000000001.seg"),
        *("000000000a.seg", "0000000001.SEG", "0000000001xseg", "-000000001.seg"),
    ],
)
def test_other_files_are_no_segments(name: str) -> None:
    assert frame.segment_number(name) is None


# -- the worked example of docs/journal-format.md -------------------------------------------------

PAGE = Path(__file__).parents[3] / "docs" / "journal-format.md"


def example() -> bytes:
    found = re.search(r"```hex\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    lines = [line.split("  ", 1)[1] for line in found[1].splitlines() if line]
    return bytes.fromhex("".join(lines))


def test_the_example_decodes_to_what_the_page_says() -> None:
    data = example()
    header = frames.decode_segment_header(data, "page")
    assert (header.segment, header.first_seq) == (2, 3)
    frame = frames.decode_frame(data, frames.SEGMENT_HEADER_BYTES, header.salt)
    assert frame is not None
    assert (frame.first_seq, frame.rows, frame.durable_seq, frame.length) == (3, 1, 2, 128)
    body = data[128:]
    assert frames.checksum(body) == frame.body_crc
    ((op, place),) = frames.decode_ops(frame, body, 2, 64)
    assert op.opcode is ops.Opcode.KV_INSERT
    assert op.column("key") == Strings.of([b"k"])
    assert op.column("value") == Strings.of([b"v"])
    assert (place.seq, place.segment, place.payload) == (3, 2, 184)
    assert data[184:185] == b"v"


def test_the_example_is_what_the_code_writes() -> None:
    data = example()
    header = frames.decode_segment_header(data, "page")
    frame = frames.decode_frame(data, 64, header.salt)
    assert frame is not None
    ((op, _),) = frames.decode_ops(frame, data[128:], 2, 64)
    assert header.encode() + frame.encode(header.salt) + ops.encode(op)[0] == data


KINDS = {ops.U8: "u8", ops.U64: "u64", ops.STRINGS: "strings", ops.ONCE: "once"}


def test_the_page_has_the_columns_of_every_opcode() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|.*\| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    shown = [(int(number), name, columns) for number, name, columns in rows]
    assert shown == [
        (
            opcode,
            opcode.name,
            ", ".join(f"{name} {KINDS[kind]}" for name, kind in opcode.columns) or "none",
        )
        for opcode in Opcode
    ]
