"""The law of the tail: a torn end is silence, damage anywhere else is an error with its place."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from fjord import limits
from fjord.errors import CorruptionError
from fjord.journal import frame as frames
from fjord.journal.reader import Journal
from fjord.journal.writer import Writer
from fjord.testing import SimDisk
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


# -- files that are no segments -------------------------------------------------------------------

NOBODY = 65534


@pytest.fixture
def directory() -> Iterator[Path]:
    """Two segments of one frame each, where a user without rights may look too."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    writer = open_writer(path)
    append(writer, b"one")
    rotate(writer, urgent=True)
    append(writer, b"two")
    writer.close()
    yield path
    shutil.rmtree(path)


def replaced(path: Path, offset: int, data: bytes) -> None:
    old = path.read_bytes()
    path.write_bytes(old[:offset] + data + old[offset + len(data) :])


def as_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_link(path: Path) -> None:
    path.rename(path.with_suffix(".elsewhere"))
    path.symlink_to(path.with_suffix(".elsewhere"))


def as_dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def as_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def newer(path: Path) -> None:
    """A whole header, checksum and all, of the next version."""
    data = bytearray(path.read_bytes())
    data[8:16] = (frames.VERSION + 1).to_bytes(4, "little") + bytes(4)
    data[12:16] = frames.checksum(bytes(data[:64])).to_bytes(4, "little")
    path.write_bytes(bytes(data))


BAD: dict[str, tuple[Callable[[Path], object], int, str]] = {
    "other magic": (lambda path: replaced(path, 0, b"KESTREL!"), 0, "does not begin with FJORDSEG"),
    "a text file": (lambda path: path.write_bytes(b"hello\n" * 20), 0, "does not begin with"),
    "a newer version": (newer, 8, "version 2, not 1"),
    "an old version": (lambda path: replaced(path, 8, bytes(4)), 8, "version 0, not 1"),
    "an empty file": (lambda path: path.write_bytes(b""), 0, "shorter than a segment header"),
    "half a header": (lambda path: os.truncate(path, 40), 0, "shorter than a segment header"),
    "zeros": (lambda path: path.write_bytes(bytes(4096)), 0, "does not begin with FJORDSEG"),
    "a directory": (as_directory, 0, "cannot be read"),
    "a symbolic link": (as_link, 0, "cannot be read"),
    "a dangling link": (as_dangling_link, 0, "cannot be read"),
    "a named pipe": (as_fifo, 0, "cannot be read"),
}


@pytest.mark.parametrize("segment", [1, 2])
@pytest.mark.parametrize("name", BAD)
def test_what_is_no_segment_is_refused_with_its_path_and_the_place(
    directory: Path, name: str, segment: int
) -> None:
    action, offset, reason = BAD[name]
    path = segment_file(directory, segment)
    action(path)
    with pytest.raises(CorruptionError, match=reason) as caught:
        open_journal(directory)
    assert (caught.value.path, caught.value.offset) == (str(path), offset)


@pytest.mark.root
def test_a_file_without_rights_is_refused(directory: Path) -> None:
    path = segment_file(directory, 1)
    path.chmod(0)
    os.seteuid(NOBODY)
    try:
        with pytest.raises(CorruptionError, match="Permission denied") as caught:
            open_journal(directory)
    finally:
        os.seteuid(0)
    assert caught.value.path == str(path)


@pytest.mark.parametrize("length", [1 << 20, 32 << 20])
def test_a_frame_that_goes_past_the_end_of_its_file_is_damage(directory: Path, length: int) -> None:
    """The header is right in every way, but the body is not there."""
    frame = frames.Frame(1, 1, 1, 0, 0, 0, length, 0).encode(header().salt)
    path = segment_file(directory, 1)
    replaced(path, 64, frame)
    with pytest.raises(CorruptionError, match="frame of seq 1 is not readable") as caught:
        read_all(directory, durable_seq=2)
    assert caught.value.offset == 64
    replaced(
        segment_file(directory, 2),
        64,
        frames.Frame(2, 1, 1, 0, 0, 0, length, 0).encode(header(2).salt),
    )
    assert values_of(read_all(directory, 2, durable_seq=1)) == [], "a torn tail"


# -- every byte of 64 KiB -------------------------------------------------------------------------

# Truncation and flipped bits in parts that run beside each other.  The 64 KiB are eight short
# segments: what stands before the frame that is hit is read again for every byte, and costs more
# than it shows.  One long segment is cut at the edges of its frames, and by `make soak` at every
# byte, too.

TAIL_BYTES = 64 * limits.KIB
SHORT_BYTES = 8 * limits.KIB
PARTS = 4


def write(directory: Path, numbers: Iterator[int], size: int = TAIL_BYTES) -> list[int]:
    """A closed segment of so many bytes of frames, of all sizes; returns where each begins."""
    writer = open_writer(directory, segment_bytes=2 * TAIL_BYTES)
    places = []
    for number in numbers:
        places.append(append(writer, b"%d" % number * (number * number % 3000)))
        if writer.position >= size + frames.SEGMENT_HEADER_BYTES:
            break
    writer.close()
    return places


def write_short(directory: Path, part: int) -> list[tuple[Path, list[int]]]:
    """Writes such frames into short segments, each alone in a folder; returns those of a part."""
    numbers = itertools.count()
    found = []
    for nth in range(TAIL_BYTES // SHORT_BYTES):
        folder = directory / str(nth)
        folder.mkdir()
        found.append((folder, write(folder, numbers, SHORT_BYTES)))
    return found[part::PARTS]


def last_first(directory: Path, start: int) -> range:
    """Returns the positions in a segment from `start` on, last ones first."""
    return range(segment_file(directory).stat().st_size - 1, start - 1, -1)


def check_truncations(directory: Path, places: list[int], cuts: Iterable[int]) -> int:
    """Cuts the segment at each byte, longest first; the whole frames, and no others, are found."""
    path = segment_file(directory)
    ends = [*places[1:], path.stat().st_size]
    count = 0
    for end in cuts:
        os.truncate(path, end)
        expected = bisect.bisect_right(ends, end)
        found = 0
        with contextlib.closing(open_journal(directory)) as journal:
            for one in journal.frames(1, durable_seq=expected):
                found = one.frame.last_seq
        assert found == expected, f"cut at {end}"
        # Who opens it next finds as many, and says which one is the first that is not there.
        missing = pytest.raises(CorruptionError, match=f"frame of seq {expected + 1} ")
        with contextlib.closing(open_journal(directory)) as journal, missing:
            list(journal.frames(expected + 1, durable_seq=expected + 1))
        count += 1
    return count


@pytest.mark.req("FJ-18")
@pytest.mark.parametrize("part", range(PARTS))
def test_a_segment_cut_at_every_byte_keeps_exactly_its_whole_frames(
    part: int, tmp_path: Path
) -> None:
    count = 0
    for folder, places in write_short(tmp_path, part):
        count += check_truncations(folder, places, last_first(folder, frames.SEGMENT_HEADER_BYTES))
    assert count >= TAIL_BYTES // PARTS


def test_a_long_segment_cut_at_the_edges_of_frames_keeps_its_whole_frames(tmp_path: Path) -> None:
    places = write(tmp_path, itertools.count())
    inside = (0, 1, frames.FRAME_HEADER_BYTES - 1, frames.FRAME_HEADER_BYTES)
    edges = {place + step for place in places for step in inside} | {one - 1 for one in places[1:]}
    assert check_truncations(tmp_path, places, sorted(edges, reverse=True)) > 4 * len(places)


# -- flipped bits ---------------------------------------------------------------------------------


def sealed(directory: Path) -> SimDisk:
    """The segment of a folder with another one after it, in memory."""
    disk = SimDisk()
    disk.make_directory("/journal")
    data = segment_file(directory).read_bytes()
    disk.open("/journal/0000000001.seg", writable=True, create=True).write(0, data)
    with contextlib.closing(open_journal(directory)) as journal:
        last = [one.frame.last_seq for one in journal.frames(1, durable_seq=0)][-1]
    writer_header = frames.SegmentHeader(
        segment=2, first_seq=last + 1, shard=journal.segments[0].shard, created_us=0, lease_us=0
    )
    second = disk.open("/journal/0000000002.seg", writable=True, create=True)
    second.write(0, writer_header.encode())
    return disk


def check_flips(disk: SimDisk, places: list[int], positions: Iterable[int]) -> int:
    """Flips one bit of each byte: no read ends without an error that names file and place."""
    count = 0
    for position in positions:
        disk.flip_bit("/journal/0000000001.seg", position, bit=position % 8)
        with pytest.raises(CorruptionError) as caught:
            journal = Journal(disk, "/journal")
            # Start at the frame that is hit: those before it are as they were.
            hit = max(0, bisect.bisect_right(places, position) - 1)
            list(journal.frames(hit + 1, durable_seq=0))
        assert caught.value.path == "/journal/0000000001.seg"
        assert caught.value.offset <= position
        disk.flip_bit("/journal/0000000001.seg", position, bit=position % 8)
        count += 1
    return count


@pytest.mark.parametrize("part", range(PARTS))
def test_a_bit_flipped_in_every_byte_of_a_sealed_segment_is_never_served(
    part: int, tmp_path: Path
) -> None:
    count = 0
    for folder, places in write_short(tmp_path, part):
        disk = sealed(folder)
        count += check_flips(disk, places, last_first(folder, 0))
        assert len(list(Journal(disk, "/journal").frames(1, durable_seq=0))) == len(places)
    assert count >= TAIL_BYTES // PARTS


@pytest.mark.soak
def test_a_long_segment_cut_at_every_byte_keeps_exactly_its_whole_frames(tmp_path: Path) -> None:
    places = write(tmp_path, itertools.count())
    cuts = last_first(tmp_path, frames.SEGMENT_HEADER_BYTES)
    assert check_truncations(tmp_path, places, cuts) >= TAIL_BYTES


@pytest.mark.soak
def test_a_bit_flipped_in_every_byte_of_a_long_segment_is_never_served(tmp_path: Path) -> None:
    places = write(tmp_path, itertools.count())
    assert check_flips(sealed(tmp_path), places, last_first(tmp_path, 0)) >= TAIL_BYTES
