"""Truncation and flipped bits at every byte of 64 KiB, in parts that run beside each other.

The 64 KiB are eight short segments: what stands before the frame that is hit is read again for
every byte, and costs more than it shows.  One long segment is cut at the edges of its frames, and
by `make soak` at every byte, too.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from fjord import limits
from fjord.errors import CorruptionError
from fjord.journal import frame as frames
from fjord.journal.reader import Journal
from fjord.testing import SimDisk
from tests.unit.journal.writing import append, open_journal, open_writer, segment_file

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
