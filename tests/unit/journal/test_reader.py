"""The reader: frames in order from anywhere, single payloads, and which segments there are."""

from __future__ import annotations

import gc
import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest

import fjord
from fjord import limits, ops
from fjord.columns import Strings
from fjord.disk import LocalDisk
from fjord.errors import CorruptionError
from fjord.journal import frame as frames
from fjord.journal import reader
from fjord.journal.reader import ENTRY_BYTES, Journal, Key, ValueCache
from fjord.journal.writer import Writer
from fjord.ops import Op, Opcode
from tests.unit.journal import writing


@pytest.fixture
def three_segments(tmp_path: Path) -> Path:
    """Segments 1 to 3 with the seqs 1-2 3, 4-6, 7 8."""
    writer = writing.open_writer(tmp_path)
    writing.append(writer, b"1", b"2")
    writing.append(writer, b"3")
    writing.rotate(writer)
    writing.append(writer, b"4", b"5", b"6")
    writing.rotate(writer)
    writing.append(writer, b"7")
    writing.append(writer, b"8")
    writer.close()
    return tmp_path


@pytest.mark.parametrize("start_seq", range(1, 10))
def test_frames_may_start_anywhere(three_segments: Path, start_seq: int) -> None:
    found = writing.read_all(three_segments, start_seq, durable_seq=8)
    whole = [(1, 2), (3, 3), (4, 6), (7, 7), (8, 8)]
    assert writing.seqs(found) == [(first, last) for first, last in whole if last >= start_seq]
    assert all(one.body for one in found)


def test_a_journal_that_begins_later_cannot_answer_from_the_start(three_segments: Path) -> None:
    writing.segment_file(three_segments, 1).unlink()
    with pytest.raises(CorruptionError, match="begins at seq 4, seq 3 is requested") as caught:
        writing.read_all(three_segments, 3)
    assert caught.value.path == str(writing.segment_file(three_segments, 2))
    assert writing.seqs(writing.read_all(three_segments, 4)) == [(4, 6), (7, 7), (8, 8)]


def test_a_reader_beside_a_writer_sees_what_is_there(tmp_path: Path) -> None:
    writer = writing.open_writer(tmp_path)
    journal = writing.open_journal(tmp_path)
    assert list(journal.frames(1, durable_seq=0)) == []
    writing.append(writer, b"one")
    assert writing.values_of(list(journal.frames(1, durable_seq=0))) == [b"one"]
    writing.rotate(writer)
    writing.append(writer, b"two")
    journal.refresh()
    assert [one.segment for one in journal.segments] == [1, 2]
    assert writing.values_of(list(journal.frames(1, durable_seq=2))) == [b"one", b"two"]
    writer.close()
    journal.close()


def test_more_segments_than_files_may_be_open_are_read(tmp_path: Path) -> None:
    count = limits.SEGMENT_FILES_OPEN_MAX + 10
    for number in range(1, count + 1):
        writing.segment_file(tmp_path, number).write_bytes(writing.header(number, number).encode())
    journal = writing.open_journal(tmp_path)
    assert [one.segment for one in journal.segments] == list(range(1, count + 1))
    for number in (1, count, 1):
        assert journal.payload(number, 0, 8, frames.checksum(b"FJORDSEG")) == b"FJORDSEG"
    journal.close()


# -- which segments there are ---------------------------------------------------------------------


def test_a_segment_of_another_journal_is_refused(three_segments: Path) -> None:
    foreign = writing.header(4, 9, shard=b"x" * 16)
    writing.segment_file(three_segments, 4).write_bytes(foreign.encode())
    with pytest.raises(CorruptionError, match="belongs to another journal") as caught:
        writing.open_journal(three_segments)
    assert caught.value.path == str(writing.segment_file(three_segments, 4))


def test_a_segment_under_another_number_is_refused(three_segments: Path) -> None:
    shutil.copy(writing.segment_file(three_segments, 2), writing.segment_file(three_segments, 4))
    with pytest.raises(CorruptionError, match="its header is that of segment 2") as caught:
        writing.open_journal(three_segments)
    assert caught.value.path == str(writing.segment_file(three_segments, 4))


def test_a_segment_that_is_missing_in_the_middle_is_damage(three_segments: Path) -> None:
    writing.segment_file(three_segments, 2).unlink()
    with pytest.raises(CorruptionError, match="previous segment 2 is missing") as caught:
        writing.read_all(three_segments)
    assert caught.value.path == str(writing.segment_file(three_segments, 3))


# -- segments that overlap ------------------------------------------------------------------------


def rewrite(directory: Path, segment: int, start_seq: int) -> Writer:
    """Writes the frames from `start_seq` on once more, to a new segment, as recovery does."""
    tail = writing.read_all(directory, start_seq)
    body = b"".join(one.frame.encode(writing.header(segment).salt) + one.body for one in tail)
    writer = Writer(
        LocalDisk(),
        str(directory),
        writing.header(segment, start_seq),
        segment_bytes=writing.SEGMENT_BYTES,
    )
    writer.create(body, last_seq=tail[-1].frame.last_seq)
    return writer


def test_what_a_superseded_segment_held_beyond_is_not_read(three_segments: Path) -> None:
    """A tail that was damaged after it was written again does not matter."""
    rewrite(three_segments, 4, 8).close()
    old = writing.segment_file(three_segments, 3)
    old.write_bytes(old.read_bytes()[:-100] + b"\xff" * 100)
    assert writing.values_of(writing.read_all(three_segments, durable_seq=8))[-1] == b"8"


# -- payloads -------------------------------------------------------------------------------------


@pytest.mark.req("FJ-29")
def test_a_value_that_is_read_often_is_not_read_from_disk_again(three_segments: Path) -> None:
    journal = writing.open_journal(three_segments)
    located = next(iter(journal.frames(1, durable_seq=8)))
    ((_, place),) = located.ops()
    crc = frames.checksum(b"1")
    for _ in range(2):
        assert journal.payload(1, place.payload, 1, crc) == b"1"
    journal.close()
    writing.segment_file(three_segments, 1).unlink()
    assert journal.payload(1, place.payload, 1, crc) == b"1"
    journal.forget(1)
    with pytest.raises(FileNotFoundError):
        journal.payload(1, place.payload, 1, crc)


# -- packed journals ------------------------------------------------------------------------------


def test_a_reader_finds_out_which_segments_went(three_segments: Path) -> None:
    gc.collect()  # what other tests left open closes now
    journal, before = writing.open_journal(three_segments), len(os.listdir("/proc/self/fd"))
    for number in (1, 2):
        writing.segment_file(three_segments, number).unlink()
    journal.refresh()
    assert [one.segment for one in journal.segments] == [3]
    assert len(os.listdir("/proc/self/fd")) == before - 2, "space comes back with the last holder"
    journal.close()


def test_sizes_are_those_of_the_files(three_segments: Path) -> None:
    journal = writing.open_journal(three_segments)
    sizes = [writing.segment_file(three_segments, number).stat().st_size for number in (1, 2, 3)]
    assert [journal.segment_bytes(number) for number in (1, 2, 3)] == sizes
    assert journal.used_bytes() == sum(sizes)
    with writing.segment_file(three_segments, 3).open("ab") as file:
        file.write(bytes(100))
    assert journal.segment_bytes(3) == sizes[2] + 100, "the last one may grow"
    journal.remove(1)
    assert journal.used_bytes() == sizes[1] + sizes[2] + 100
    journal.close()


# -- the value cache ------------------------------------------------------------------------------

SIZE_MAX = 100_000
VALUE = b"v" * (1000 - ENTRY_BYTES)  # counts 1000


def key(number: int, segment: int = 1) -> Key:
    return segment, number * 8, len(VALUE), number * 0x01010101


def read_twice(cache: ValueCache, one: Key, value: bytes = VALUE) -> None:
    for _ in range(2):
        cache.offer(one, value)


@pytest.mark.req("FJ-29")
def test_a_value_that_is_read_again_is_kept() -> None:
    cache = ValueCache(SIZE_MAX)
    read_twice(cache, key(1))
    assert cache.get(key(1)) == VALUE
    assert cache.get(key(2)) is None
    assert (len(cache), cache.size) == (1, 1000)


@pytest.mark.req("FJ-29")
def test_the_cache_never_grows_beyond_its_bound_and_drops_what_was_used_longest_ago() -> None:
    cache = ValueCache(SIZE_MAX)
    for number in range(1, 201):
        read_twice(cache, key(number))
        assert cache.get(key(1)) == VALUE, "it is used all the time"
        assert cache.size <= SIZE_MAX
    assert len(cache) == 100
    assert [number for number in range(1, 201) if cache.get(key(number))] == [1, *range(102, 201)]


def test_a_value_that_would_take_too_large_a_share_is_not_kept() -> None:
    cache = ValueCache(SIZE_MAX)
    largest = b"v" * (SIZE_MAX // 16 - ENTRY_BYTES)
    read_twice(cache, key(1), largest)
    read_twice(cache, key(2), largest + b"v")
    assert cache.get(key(1)) == largest
    assert cache.get(key(2)) is None


def test_the_values_of_one_segment_are_forgotten() -> None:
    cache = ValueCache(SIZE_MAX)
    for number in range(1, 11):
        read_twice(cache, key(number, segment=number % 2))
    cache.forget(1)
    assert (len(cache), cache.size) == (5, 5000)
    assert all(cache.get(key(number, 0)) for number in range(2, 11, 2))
    cache.forget(7)
    assert len(cache) == 5


# -- messages that were staged --------------------------------------------------------------------


def commit_of(directory: Path) -> Op:
    """Writes a batch, and returns the op that gave it seqs."""
    with fjord.open(directory) as db:
        keys = Strings.of([b"k", b"l"])
        staging = db.staging("events")
        staging.commit("w", 0, [staging.append(b"\1\1", keys, Strings.of([b"a", b"b"]))])
    with closing(Journal(LocalDisk(), str(directory / "journal"))) as journal:
        found = [op for one in journal.frames(1, durable_seq=0) for op, _ in one.ops()]
    (commit,) = [op for op in found if op.opcode is Opcode.STREAM_COMMIT]
    return commit


def messages(directory: Path, commit: Op) -> list[bytes]:
    with closing(Journal(LocalDisk(), str(directory / "journal"))) as journal:
        data = reader.messages_of(journal, ops.encode(commit)[0])
    op, _, _ = ops.decode(memoryview(data), 0)
    assert op.opcode is Opcode.STREAM_APPEND
    values = op.column("value")
    assert isinstance(values, Strings)
    return values.rows()


def changed(commit: Op, **columns: int) -> Op:
    names = [name for name, _ in Opcode.STREAM_COMMIT.columns]
    found = zip(names, commit.columns, strict=True)
    return commit._replace(
        columns=tuple((columns[name],) if name in columns else column for name, column in found)
    )


def test_a_commit_leads_to_its_messages(tmp_path: Path) -> None:
    assert messages(tmp_path, commit_of(tmp_path)) == [b"a", b"b"]


def test_messages_that_stand_elsewhere_are_found_by_their_stage(tmp_path: Path) -> None:
    commit = commit_of(tmp_path)
    for wrong in ({"offset": 64}, {"segment": 9}):
        assert messages(tmp_path, changed(commit, **wrong)) == [b"a", b"b"]


def test_messages_that_are_nowhere_are_damage(tmp_path: Path) -> None:
    commit = commit_of(tmp_path)
    with pytest.raises(CorruptionError):
        messages(tmp_path, changed(commit, offset=64, stage=1))
    with pytest.raises(CorruptionError, match="does not contain the 3 messages"):
        messages(tmp_path, commit._replace(rows=3))
    with pytest.raises(CorruptionError, match="does not contain"):
        messages(tmp_path, commit._replace(table=9))


def test_a_segment_that_begins_before_its_predecessor_is_refused(three_segments: Path) -> None:
    writing.segment_file(three_segments, 4).write_bytes(writing.header(4, 6).encode())
    with pytest.raises(CorruptionError, match="begins before the previous segment"):
        writing.open_journal(three_segments)
