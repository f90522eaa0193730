"""Finding frames behind damage: all of this segment's life, and nothing that looks like one."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from fjord import limits
from fjord.disk import LocalDisk
from fjord.journal import frame as frames
from fjord.journal import search
from tests.unit.journal.writing import append, header, open_writer, segment_file


def found(path: Path, offset: int = 64, segment: int = 1) -> list[tuple[int, int]]:
    """Where frames were found, and their first seqs."""
    with closing(LocalDisk().open(str(path))) as file:
        hits = search.find_headers(file, offset, header(segment).salt)
        return [(position, frame.first_seq) for position, frame in hits]


def test_every_frame_is_found_once_wherever_it_stands(tmp_path: Path) -> None:
    writer = open_writer(tmp_path, segment_bytes=8 * limits.MIB)
    places = [append(writer, b"v" * (997 * number % 70_000)) for number in range(150)]
    assert writer.position > 4 * limits.MIB
    writer.abandon()
    expected = [(place, seq) for seq, place in enumerate(places, start=1)]
    assert found(segment_file(tmp_path)) == expected
    assert found(segment_file(tmp_path), places[3] + 8) == expected[4:]


def test_a_header_across_two_chunks_is_found_once(tmp_path: Path) -> None:
    path = segment_file(tmp_path)
    frame = frames.Frame(7, 1, 1, 0, 0, 0, 72, 0).encode(header().salt)
    for place in range(limits.MIB - 128, limits.MIB + 192, 8):
        path.write_bytes(bytes(place) + frame + bytes(100))
        assert found(path, 0) == [(place, 7)]
        assert found(path, 64) == [(place, 7)]


def test_zeros_garbage_and_frames_of_others_are_not_found(tmp_path: Path) -> None:
    path = segment_file(tmp_path)
    foreign = frames.Frame(7, 1, 1, 0, 0, 0, 72, 0).encode(header(2).salt)
    for data in (b"", bytes(3 * limits.MIB), b"\x48\0\0\0" * 10_000, foreign * 100, b"x" * 63):
        path.write_bytes(data)
        assert found(path) == []


def test_strays_are_the_frames_of_others_in_a_file(tmp_path: Path) -> None:
    paths = {number: segment_file(tmp_path, number) for number in (1, 2)}
    frame = {
        number: frames.Frame(10 * number, 1, 1, 0, 0, 0, 72, 0).encode(header(number).salt)
        for number in (1, 2, 3, 4)
    }
    paths[1].write_bytes(bytes(64) + frame[1] + frame[3] + frame[2])
    paths[2].write_bytes(bytes(64) + frame[2] + frame[4])
    files = {number: str(path) for number, path in [*paths.items(), (9, tmp_path / "none")]}
    salts = {number: header(number).salt for number in (1, 2, 3, 9)}
    strays = search.Strays(LocalDisk(), files, salts)
    assert strays.paths() == set(), "nobody has asked yet"
    places = {
        number: [(one.frame.first_seq, one.path, one.offset) for one in strays.of(number)]
        for number in salts
    }
    assert places == {1: [], 2: [(20, files[1], 192)], 3: [(30, files[1], 128)], 9: []}
    assert strays.paths() == {files[1]}
