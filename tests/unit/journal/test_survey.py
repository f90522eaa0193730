"""A survey finds everything that is whole, whatever is damaged, and says what is missing."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from fjord import limits
from fjord.disk import LocalDisk
from fjord.errors import CorruptionError
from fjord.journal import frame as frames
from fjord.journal import search, survey
from fjord.journal.reader import Located
from fjord.journal.survey import Damage, Part
from tests.unit.journal.writing import append, header, open_writer, rotate, segment_file, values_of

Places = dict[int, tuple[int, int]]  # seq of each frame -> segment, offset


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """Segments 1 to 3 of three frames each, one row a frame: seqs 1 to 9."""
    writer = open_writer(tmp_path)
    found = {}
    for seq in range(1, 10):
        found[seq] = (writer.segment, append(writer, b"value %d" % seq))
        if seq in (3, 6):
            rotate(writer)
    writer.close()
    return found


def parts_of(directory: Path) -> list[Part]:
    return survey.make_out(LocalDisk(), str(directory))


def walk_all(directory: Path, durable_seq: int = 0) -> tuple[list[Located], list[Damage]]:
    whole: list[Located] = []
    damages: list[Damage] = []
    for part in parts_of(directory):
        for step in survey.walk(LocalDisk(), part, durable_seq=durable_seq):
            if isinstance(step, Damage):
                damages.append(step)
            else:
                whole.append(step)
    return whole, damages


def found_seqs(whole: list[Located]) -> list[int]:
    assert values_of(whole) == [b"value %d" % one.frame.first_seq for one in whole]
    return [one.frame.first_seq for one in whole]


def lost(damages: list[Damage]) -> list[int]:
    return [seq for one in damages for seq in range(one.first_seq, one.first_seq + one.rows)]


def smash(directory: Path, segment: int, offset: int, size: int = 1) -> None:
    path = segment_file(directory, segment)
    data = bytearray(path.read_bytes())
    data[offset : offset + size] = bytes(one ^ 0xFF for one in data[offset : offset + size])
    path.write_bytes(bytes(data))


def test_a_whole_journal_has_no_damage(tmp_path: Path, places: Places) -> None:
    whole, damages = walk_all(tmp_path, durable_seq=9)
    assert found_seqs(whole) == list(range(1, 10))
    assert damages == []
    assert [(one.segment, one.offset) for one in whole] == list(places.values())


@pytest.mark.parametrize("seq", range(1, 7))
@pytest.mark.parametrize("where", [0, 10, 70], ids=["length", "header", "body"])
def test_one_damaged_frame_costs_no_other(
    tmp_path: Path, places: Places, seq: int, where: int
) -> None:
    segment, offset = places[seq]
    smash(tmp_path, segment, offset + where)
    whole, damages = walk_all(tmp_path, durable_seq=9)
    assert found_seqs(whole) == [one for one in range(1, 10) if one != seq]
    (damage,) = damages
    assert (damage.segment, damage.offset, damage.first_seq, damage.rows) == (*places[seq], seq, 1)
    assert damage.path == str(segment_file(tmp_path, segment))


# -- the tail -------------------------------------------------------------------------------------


def test_a_torn_tail_is_no_damage(tmp_path: Path, places: Places) -> None:
    smash(tmp_path, *places[9])
    whole, damages = walk_all(tmp_path, durable_seq=8)
    assert found_seqs(whole) == list(range(1, 9))
    assert damages == []


def test_a_later_frame_vouches_for_an_earlier_one(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    append(writer, b"value 1")
    damaged = append(writer, b"value 2")
    writer.sync()
    append(writer, b"value 3")
    writer.abandon()
    smash(tmp_path, 1, damaged)
    whole, damages = walk_all(tmp_path)
    assert found_seqs(whole) == [1, 3]
    assert lost(damages) == [2]


# -- headers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("segment", [1, 2, 3])
@pytest.mark.parametrize("where", [0, 8, 12, 16, 24, 32, 48, 56])
def test_a_damaged_header_costs_no_frame(
    tmp_path: Path, places: Places, segment: int, where: int
) -> None:
    smash(tmp_path, segment, where)
    whole, damages = walk_all(tmp_path, durable_seq=9)
    assert found_seqs(whole) == list(range(1, 10))
    (damage,) = damages
    assert (damage.segment, damage.rows) == (segment, 0)
    made_out = [part.header.first_seq for part in parts_of(tmp_path)]
    assert made_out == [1, 4, 7]


def test_what_a_later_segment_supersedes_does_not_count(tmp_path: Path, places: Places) -> None:
    tail, _ = walk_all(tmp_path)
    body = b"".join(one.frame.encode(header(4).salt) + one.body for one in tail[7:])
    segment_file(tmp_path, 4).write_bytes(header(4, 8).encode() + body)
    smash(tmp_path, *places[9])
    whole, damages = walk_all(tmp_path, durable_seq=9)
    assert found_seqs(whole) == list(range(1, 10))
    assert [one.segment for one in whole][-2:] == [4, 4]
    assert damages == []
    smash(tmp_path, 4, 0)
    whole, damages = walk_all(tmp_path, durable_seq=9)
    assert found_seqs(whole) == list(range(1, 10))
    assert [part.header.first_seq for part in parts_of(tmp_path)] == [1, 4, 7, 8]


def test_a_segment_under_a_number_far_away_is_not_of_this_journal(
    tmp_path: Path, places: Places
) -> None:
    segment_file(tmp_path, 3 + limits.SEGMENTS_MISSING_MAX + 10).touch()
    with pytest.raises(CorruptionError, match="missing"):
        parts_of(tmp_path)


def test_where_nothing_can_be_read_all_that_was_durable_is_lost(tmp_path: Path) -> None:
    segment_file(tmp_path, 1).write_bytes(b"no journal")
    whole, damages = walk_all(tmp_path, durable_seq=3)
    assert whole == []
    assert lost(damages) == [1, 2, 3]


def test_a_segment_that_cannot_be_read_is_damage(tmp_path: Path, places: Places) -> None:
    path = segment_file(tmp_path, 2)
    path.unlink()
    path.mkdir()
    whole, damages = walk_all(tmp_path, durable_seq=9)
    assert found_seqs(whole) == [1, 2, 3, 7, 8, 9]
    assert "cannot be read" in damages[0].reason
    assert lost(damages) == [4, 5, 6]


def test_a_segment_that_is_packed_meanwhile_is_no_damage(tmp_path: Path, places: Places) -> None:
    first, second, *_ = parts_of(tmp_path)
    segment_file(tmp_path, 1).unlink()
    assert list(survey.walk(LocalDisk(), first)) == []
    steps = survey.walk(LocalDisk(), second)
    next(steps)
    path = segment_file(tmp_path, 2)
    with path.open("r+b") as file:
        file.truncate(0)
    path.unlink()
    assert not [step for step in steps if isinstance(step, Damage)]


def test_a_frame_that_is_finished_meanwhile_is_no_damage(tmp_path: Path) -> None:
    """The survey reads ahead: what it has in memory is older than what it finds behind."""
    writer = open_writer(tmp_path)
    append(writer, b"value 1")
    (part,) = parts_of(tmp_path)
    steps = survey.walk(LocalDisk(), part)
    found = [next(steps)]
    append(writer, b"value 2")
    writer.sync()
    append(writer, b"value 3")
    found += list(steps)
    writer.abandon()
    assert not [step for step in found if isinstance(step, Damage)]
    assert len(found) == 3


# -- frames that are not in their place ------------------------------------------------------------


def test_swapped_files_cost_nothing(tmp_path: Path, places: Places) -> None:
    one, other = segment_file(tmp_path, 1), segment_file(tmp_path, 3)
    first, third = one.read_bytes(), other.read_bytes()
    one.write_bytes(third)
    other.write_bytes(first)
    whole, damages = walk_all(tmp_path, durable_seq=9)
    assert found_seqs(whole) == list(range(1, 10))
    assert lost(damages) == []
    assert {one.segment for one in damages} == {1, 3}
    assert "its header is that of segment 3" in damages[0].reason
    assert [part.header.first_seq for part in parts_of(tmp_path)] == [1, 4, 7]


# -- finding frames behind damage -----------------------------------------------------------------


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


@pytest.mark.parametrize("size", [12, 48, 64], ids=["magic", "uuid", "all of it"])
def test_a_lone_segment_is_made_out_without_its_header(tmp_path: Path, size: int) -> None:
    writer = open_writer(tmp_path)
    for seq in range(1, 4):
        append(writer, b"value %d" % seq)
    writer.close()
    smash(tmp_path, 1, 0, size)
    whole, damages = walk_all(tmp_path, durable_seq=3)
    assert found_seqs(whole) == [1, 2, 3]
    assert [one.rows for one in damages] == [0]


def test_a_segment_of_another_journal_is_damage(tmp_path: Path, places: Places) -> None:
    segment_file(tmp_path, 2).write_bytes(header(2, 4, shard=b"x" * 16).encode())
    whole, damages = walk_all(tmp_path, durable_seq=9)
    assert found_seqs(whole) == [1, 2, 3, 7, 8, 9]
    assert "another journal" in damages[0].reason
    assert lost(damages) == [4, 5, 6]
