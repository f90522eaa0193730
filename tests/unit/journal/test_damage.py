"""The law of the tail: a torn end is silence, damage anywhere else is an error with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from fjord.errors import CorruptionError
from fjord.journal import frame as frames
from fjord.journal.writer import Writer
from tests.unit.journal.writing import (
    append,
    header,
    open_journal,
    open_writer,
    read_all,
    rotate,
    segment_file,
    seqs,
    values_of,
)


def three_frames(directory: Path) -> tuple[Writer, list[int]]:
    """A closed journal of three frames; returns where each begins."""
    writer = open_writer(directory)
    positions = [append(writer, b"one"), append(writer, b"two", b"2"), append(writer, b"three")]
    writer.close()
    return writer, positions


def test_a_tail_of_zeros_from_any_byte_leaves_exactly_the_earlier_frames(tmp_path: Path) -> None:
    _, positions = three_frames(tmp_path)
    path = segment_file(tmp_path)
    whole = path.read_bytes()
    used = len(whole.rstrip(b"\0"))
    for end in range(positions[2], used):
        path.write_bytes(whole[:end] + bytes(4096))
        assert values_of(read_all(tmp_path, durable_seq=3)) == [b"one", b"two", b"2"]


def test_a_tail_of_garbage_from_any_byte_leaves_exactly_the_earlier_frames(tmp_path: Path) -> None:
    _, positions = three_frames(tmp_path)
    path = segment_file(tmp_path)
    whole = path.read_bytes()
    for end in range(positions[2], len(whole)):
        path.write_bytes(whole[:end] + b"\xa5" * 512)
        assert values_of(read_all(tmp_path, durable_seq=3)) == [b"one", b"two", b"2"]


@pytest.mark.parametrize("cut", [1, 2])
def test_a_torn_tail_below_what_was_durable_is_damage(tmp_path: Path, cut: int) -> None:
    _, positions = three_frames(tmp_path)
    path = segment_file(tmp_path)
    path.write_bytes(path.read_bytes()[: positions[cut] + 20])
    first_lost = (2, 4)[cut - 1]
    assert len(read_all(tmp_path, durable_seq=first_lost - 1)) == cut
    with pytest.raises(CorruptionError, match=f"frame of seq {first_lost}") as caught:
        read_all(tmp_path, durable_seq=4)
    assert (caught.value.path, caught.value.offset) == (str(path), positions[cut])


def test_damage_in_a_closed_segment_names_the_frame_and_spares_what_is_before(
    tmp_path: Path,
) -> None:
    writer = open_writer(tmp_path)
    append(writer, b"one")
    damaged = append(writer, b"two")
    append(writer, b"three")
    rotate(writer)
    append(writer, b"four")
    writer.close()
    path = segment_file(tmp_path, 1)
    data = bytearray(path.read_bytes())
    data[damaged + 70] ^= 1
    path.write_bytes(bytes(data))
    journal = open_journal(tmp_path)
    reading = journal.frames(1, durable_seq=0)
    assert seqs([next(reading)]) == [(1, 1)]
    with pytest.raises(CorruptionError) as caught:
        next(reading)
    assert (caught.value.path, caught.value.offset) == (str(path), damaged)
    # What lies behind the damage is still there for those who ask for it alone.
    assert values_of(list(journal.frames(4, durable_seq=4))) == [b"four"]
    journal.close()


def test_a_frame_missing_in_the_middle_is_damage(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    append(writer, b"one")
    start = append(writer, b"two")
    end = append(writer, b"three")
    rotate(writer)
    writer.close()
    path = segment_file(tmp_path, 1)
    whole = path.read_bytes()
    for data in (whole[:start] + bytes(end - start) + whole[end:], whole[:start] + whole[end:]):
        path.write_bytes(data)
        with pytest.raises(CorruptionError, match="frame of seq 2 is not readable") as caught:
            read_all(tmp_path)
        assert caught.value.offset == start


# -- damage that a later frame betrays ------------------------------------------------------------


def claim_after(directory: Path, offset: int) -> int:
    journal = open_journal(directory)
    try:
        return journal.synced_claim(journal.segments[0], offset)
    finally:
        journal.close()


def test_garbage_and_frames_of_other_segments_claim_nothing(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    append(writer, b"one")
    writer.sync()
    end = append(writer, b"two")
    writer.abandon()
    path = segment_file(tmp_path)
    whole = path.read_bytes()
    foreign = frames.decode_frame(whole, end, header().salt)
    assert foreign is not None
    path.write_bytes(whole[:end] + foreign.encode(header(2).salt) + b"\x48\0\0\0" * 100)
    assert claim_after(tmp_path, end) == 0


def test_the_header_of_a_frame_that_lost_its_body_still_counts(tmp_path: Path) -> None:
    """The first sector of the last frame reached the disk and the rest did not."""
    writer = open_writer(tmp_path)
    damaged = append(writer, b"one")
    writer.sync()
    last = append(writer, b"two")
    writer.abandon()
    path = segment_file(tmp_path)
    data = bytearray(path.read_bytes())
    data[damaged + 70] ^= 1
    data[last + frames.FRAME_HEADER_BYTES :] = bytes(len(data) - last - frames.FRAME_HEADER_BYTES)
    path.write_bytes(bytes(data))
    assert claim_after(tmp_path, damaged) == 1
