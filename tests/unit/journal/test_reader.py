"""The reader: frames in order from anywhere, single payloads, and which segments there are."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fjord import limits
from fjord.disk import LocalDisk
from fjord.errors import CorruptionError
from fjord.journal import frame as frames
from fjord.journal.writer import Writer
from tests.unit.journal.writing import (
    SEGMENT_BYTES,
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


@pytest.fixture
def three_segments(tmp_path: Path) -> Path:
    """Segments 1 to 3 with the seqs 1-2 3, 4-6, 7 8."""
    writer = open_writer(tmp_path)
    append(writer, b"1", b"2")
    append(writer, b"3")
    rotate(writer)
    append(writer, b"4", b"5", b"6")
    rotate(writer)
    append(writer, b"7")
    append(writer, b"8")
    writer.close()
    return tmp_path


def test_a_directory_without_segments_is_an_empty_journal(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "none"):
        journal = open_journal(directory)
        assert journal.segments == []
        assert list(journal.frames(1, durable_seq=0)) == []


def test_frames_come_in_order_over_all_segments(three_segments: Path) -> None:
    found = read_all(three_segments, durable_seq=8)
    assert seqs(found) == [(1, 2), (3, 3), (4, 6), (7, 7), (8, 8)]
    assert values_of(found) == [b"%d" % number for number in range(1, 9)]
    assert [one.segment for one in found] == [1, 1, 2, 3, 3]


@pytest.mark.parametrize("start_seq", range(1, 10))
def test_frames_may_start_anywhere(three_segments: Path, start_seq: int) -> None:
    found = read_all(three_segments, start_seq, durable_seq=8)
    whole = [(1, 2), (3, 3), (4, 6), (7, 7), (8, 8)]
    assert seqs(found) == [(first, last) for first, last in whole if last >= start_seq]
    assert all(one.body for one in found)


def test_frames_may_start_anywhere_again_and_again(tmp_path: Path) -> None:
    """What is remembered of earlier reads changes nothing."""
    writer = open_writer(tmp_path, segment_bytes=4 * limits.MIB)
    for number in range(30):
        append(writer, b"%d" % number * 50_000)
    writer.close()
    journal = open_journal(tmp_path)
    for _ in range(2):
        for start_seq in (1, 30, 17, 2, 29, 16):
            found = list(journal.frames(start_seq, durable_seq=30))
            assert seqs(found) == [(seq, seq) for seq in range(start_seq, 31)]
    journal.close()


def test_a_journal_that_begins_later_cannot_answer_from_the_start(three_segments: Path) -> None:
    segment_file(three_segments, 1).unlink()
    with pytest.raises(CorruptionError, match="begins at seq 4, seq 3 is requested") as caught:
        read_all(three_segments, 3)
    assert caught.value.path == str(segment_file(three_segments, 2))
    assert seqs(read_all(three_segments, 4)) == [(4, 6), (7, 7), (8, 8)]


def test_frames_larger_than_what_is_read_at_once_are_whole(tmp_path: Path) -> None:
    large = [bytes([number]) * (3 * limits.MIB + number) for number in (1, 2)]
    writer = open_writer(tmp_path, segment_bytes=8 * limits.MIB)
    values = [b"small", large[0], b"", large[1], b"last"]
    for value in values:
        append(writer, value)
    writer.close()
    assert values_of(read_all(tmp_path, durable_seq=5)) == values
    assert values_of(read_all(tmp_path, 3, durable_seq=5)) == values[2:]


def test_many_small_frames_cross_what_is_read_at_once(tmp_path: Path) -> None:
    writer = open_writer(tmp_path, segment_bytes=4 * limits.MIB)
    values = [b"%06d" % number * 100 for number in range(3000)]
    for value in values:
        append(writer, value)
    writer.close()
    assert values_of(read_all(tmp_path, durable_seq=3000)) == values


def test_a_reader_beside_a_writer_sees_what_is_there(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    journal = open_journal(tmp_path)
    assert list(journal.frames(1, durable_seq=0)) == []
    append(writer, b"one")
    assert values_of(list(journal.frames(1, durable_seq=0))) == [b"one"]
    rotate(writer)
    append(writer, b"two")
    journal.refresh()
    assert [one.segment for one in journal.segments] == [1, 2]
    assert values_of(list(journal.frames(1, durable_seq=2))) == [b"one", b"two"]
    writer.close()
    journal.close()


def test_a_segment_of_this_process_is_added_without_a_look(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    journal = open_journal(tmp_path)
    append(writer, b"one")
    rotate(writer)
    journal.add(writer.header)
    append(writer, b"two")
    assert values_of(list(journal.frames(1, durable_seq=2))) == [b"one", b"two"]
    writer.close()


def test_more_segments_than_files_may_be_open_are_read(tmp_path: Path) -> None:
    count = limits.SEGMENT_FILES_OPEN_MAX + 10
    for number in range(1, count + 1):
        segment_file(tmp_path, number).write_bytes(header(number, number).encode())
    journal = open_journal(tmp_path)
    assert [one.segment for one in journal.segments] == list(range(1, count + 1))
    for number in (1, count, 1):
        assert journal.payload(number, 0, 8, frames.checksum(b"FJORDSEG")) == b"FJORDSEG"
    journal.close()


# -- which segments there are ---------------------------------------------------------------------


def test_other_files_are_not_the_journals(three_segments: Path) -> None:
    (three_segments / "0000000004.seg.new").write_bytes(b"unfinished")
    (three_segments / "notes.txt").write_bytes(b"mine")
    assert [one.segment for one in open_journal(three_segments).segments] == [1, 2, 3]


def test_a_segment_of_another_journal_is_refused(three_segments: Path) -> None:
    foreign = header(4, 9, shard=b"x" * 16)
    segment_file(three_segments, 4).write_bytes(foreign.encode())
    with pytest.raises(CorruptionError, match="belongs to another journal") as caught:
        open_journal(three_segments)
    assert caught.value.path == str(segment_file(three_segments, 4))


def test_a_segment_under_another_number_is_refused(three_segments: Path) -> None:
    shutil.copy(segment_file(three_segments, 2), segment_file(three_segments, 4))
    with pytest.raises(CorruptionError, match="its header is that of segment 2") as caught:
        open_journal(three_segments)
    assert caught.value.path == str(segment_file(three_segments, 4))


def test_a_segment_that_begins_before_its_predecessor_is_refused(three_segments: Path) -> None:
    segment_file(three_segments, 4).write_bytes(header(4, 6).encode())
    with pytest.raises(CorruptionError, match="begins before the previous segment"):
        open_journal(three_segments)


@pytest.mark.parametrize("size", [0, 1, 63])
def test_a_segment_without_a_whole_header_is_refused(three_segments: Path, size: int) -> None:
    segment_file(three_segments, 4).write_bytes(header(4, 9).encode()[:size])
    with pytest.raises(CorruptionError, match="shorter than a segment header"):
        open_journal(three_segments)


def test_a_segment_that_is_missing_in_the_middle_is_damage(three_segments: Path) -> None:
    segment_file(three_segments, 2).unlink()
    with pytest.raises(CorruptionError, match="previous segment 2 is missing") as caught:
        read_all(three_segments)
    assert caught.value.path == str(segment_file(three_segments, 3))


def test_the_frames_of_a_segment_file_under_another_number_are_no_frames(
    three_segments: Path,
) -> None:
    """Bytes of an older life of a file never count."""
    data = segment_file(three_segments, 3).read_bytes()
    segment_file(three_segments, 3).write_bytes(header(3, 7).encode() + bytes(len(data) - 64))
    segment_file(three_segments, 4).write_bytes(header(4, 7).encode() + data[64:])
    assert seqs(read_all(three_segments)) == [(1, 2), (3, 3), (4, 6)]


# -- segments that overlap ------------------------------------------------------------------------


def rewrite(directory: Path, segment: int, start_seq: int) -> Writer:
    """Writes the frames from `start_seq` on once more, to a new segment, as recovery does."""
    tail = read_all(directory, start_seq)
    body = b"".join(one.frame.encode(header(segment).salt) + one.body for one in tail)
    writer = Writer(
        LocalDisk(), str(directory), header(segment, start_seq), segment_bytes=SEGMENT_BYTES
    )
    writer.create(body, last_seq=tail[-1].frame.last_seq)
    return writer


def test_a_later_segment_that_begins_at_an_earlier_frame_supersedes(three_segments: Path) -> None:
    writer = rewrite(three_segments, 4, 8)
    append(writer, b"9")
    writer.close()
    found = read_all(three_segments, durable_seq=9)
    assert values_of(found) == [b"%d" % number for number in range(1, 10)]
    assert [one.segment for one in found] == [1, 1, 2, 3, 4, 4]
    assert [one.segment for one in read_all(three_segments, 8)] == [4, 4]


def test_a_rewritten_segment_may_be_rewritten_again(three_segments: Path) -> None:
    for segment in (4, 5):
        rewrite(three_segments, segment, 7).close()
    found = read_all(three_segments, durable_seq=8)
    assert values_of(found) == [b"%d" % number for number in range(1, 9)]
    assert [one.segment for one in found] == [1, 1, 2, 5, 5]


def test_what_a_superseded_segment_held_beyond_is_not_read(three_segments: Path) -> None:
    """A tail that was damaged after it was written again does not matter."""
    rewrite(three_segments, 4, 8).close()
    old = segment_file(three_segments, 3)
    old.write_bytes(old.read_bytes()[:-100] + b"\xff" * 100)
    assert values_of(read_all(three_segments, durable_seq=8))[-1] == b"8"


# -- payloads -------------------------------------------------------------------------------------


def test_payloads_are_found_at_their_places(three_segments: Path) -> None:
    journal = open_journal(three_segments)
    for located in journal.frames(1, durable_seq=8):
        for op, place in located.ops():
            for row, value in enumerate(op.column("value")):
                assert isinstance(value, bytes)
                crc = frames.checksum(value)
                at = place.payload + row  # every value here has one byte
                assert journal.payload(place.segment, at, 1, crc) == value
    assert journal.payload(1, 64, 0, frames.checksum(b"")) == b""
    journal.close()


def test_a_payload_with_a_flipped_bit_is_never_served(three_segments: Path) -> None:
    journal = open_journal(three_segments)
    located = next(iter(journal.frames(1, durable_seq=8)))
    ((_, place),) = located.ops()
    path = segment_file(three_segments, 1)
    good = path.read_bytes()
    for bit in range(8):
        changed = bytearray(good)
        changed[place.payload] ^= 1 << bit
        path.write_bytes(bytes(changed))
        with pytest.raises(CorruptionError, match="fail their checksum") as caught:
            journal.payload(1, place.payload, 1, frames.checksum(b"1"))
        assert (caught.value.path, caught.value.offset) == (str(path), place.payload)
    journal.close()


def test_a_payload_behind_the_end_of_its_file_is_damage(three_segments: Path) -> None:
    journal = open_journal(three_segments)
    with pytest.raises(CorruptionError):
        journal.payload(1, 1_000_000, 3, frames.checksum(b"abc"))
    journal.close()


@pytest.mark.req("FJ-29")
def test_more_data_than_the_cache_holds_is_read_all_the_same(tmp_path: Path) -> None:
    writer = open_writer(tmp_path, segment_bytes=64 * limits.MIB)
    values = [number.to_bytes(4, "little") * (limits.MIB // 8) for number in range(80)]
    for value in values:
        append(writer, value)
    writer.close()
    assert sum(map(len, values)) > limits.VALUE_CACHE_BYTES
    journal = open_journal(tmp_path)
    places = [place.payload for one in journal.frames(1, durable_seq=80) for _, place in one.ops()]
    for _ in range(3):
        for value, place in zip(values, places, strict=True):
            crc = frames.checksum(value)
            assert journal.payload(1, place, len(value), crc) == value
    journal.close()


@pytest.mark.req("FJ-29")
def test_a_value_that_is_read_often_is_not_read_from_disk_again(three_segments: Path) -> None:
    journal = open_journal(three_segments)
    located = next(iter(journal.frames(1, durable_seq=8)))
    ((_, place),) = located.ops()
    crc = frames.checksum(b"1")
    for _ in range(2):
        assert journal.payload(1, place.payload, 1, crc) == b"1"
    journal.close()
    segment_file(three_segments, 1).unlink()
    assert journal.payload(1, place.payload, 1, crc) == b"1"
    journal.forget(1)
    with pytest.raises(FileNotFoundError):
        journal.payload(1, place.payload, 1, crc)


# -- packed journals ------------------------------------------------------------------------------


def test_a_journal_may_begin_at_any_segment(three_segments: Path) -> None:
    assert open_journal(three_segments).first_seq == 1
    segment_file(three_segments, 1).unlink()
    journal = open_journal(three_segments)
    assert journal.first_seq == 4
    assert values_of(list(journal.frames(4, durable_seq=8))) == [b"4", b"5", b"6", b"7", b"8"]
    journal.close()


def test_an_empty_journal_begins_at_the_first_seq(tmp_path: Path) -> None:
    assert open_journal(tmp_path).first_seq == 1


def test_a_removed_segment_is_forgotten(three_segments: Path) -> None:
    journal = open_journal(three_segments)
    assert len(list(journal.frames(1, durable_seq=8))) == 5
    journal.remove(1)
    assert [one.segment for one in journal.segments] == [2, 3]
    assert journal.first_seq == 4
    segment_file(three_segments, 1).unlink()
    journal.refresh()
    assert seqs(list(journal.frames(4, durable_seq=8))) == [(4, 6), (7, 7), (8, 8)]
    with pytest.raises(CorruptionError, match="begins at seq 4"):
        list(journal.frames(1, durable_seq=8))
    journal.close()


def test_a_reader_finds_out_which_segments_went(three_segments: Path) -> None:
    journal = open_journal(three_segments)
    before = len(os.listdir("/proc/self/fd"))
    for number in (1, 2):
        segment_file(three_segments, number).unlink()
    journal.refresh()
    assert [one.segment for one in journal.segments] == [3]
    assert len(os.listdir("/proc/self/fd")) == before - 2, "space comes back with the last holder"
    journal.close()


def test_sizes_are_those_of_the_files(three_segments: Path) -> None:
    journal = open_journal(three_segments)
    sizes = [segment_file(three_segments, number).stat().st_size for number in (1, 2, 3)]
    assert [journal.segment_bytes(number) for number in (1, 2, 3)] == sizes
    assert journal.used_bytes() == sum(sizes)
    with segment_file(three_segments, 3).open("ab") as file:
        file.write(bytes(100))
    assert journal.segment_bytes(3) == sizes[2] + 100, "the last one may grow"
    journal.remove(1)
    assert journal.used_bytes() == sizes[1] + sizes[2] + 100
    journal.close()
