"""A survey finds everything that is whole, whatever is damaged, and says what is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fjord import limits
from fjord.disk import LocalDisk
from fjord.errors import CorruptionError
from fjord.journal import survey
from fjord.journal.reader import Located
from fjord.journal.survey import Damage, Part
from tests.unit.journal.writing import (
    append,
    header,
    open_writer,
    rotate,
    segment_file,
    values_of,
)

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


def test_an_empty_directory_has_no_parts(tmp_path: Path) -> None:
    assert parts_of(tmp_path) == []


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
    assert (damage.segment, damage.offset, damage.first_seq, damage.rows) == (
        *places[seq],
        seq,
        1,
    )
    assert damage.path == str(segment_file(tmp_path, segment))


@pytest.mark.parametrize("seqs", [(1, 2), (2, 3), (1, 3), (1, 2, 3), (3, 4), (2, 5, 8)])
def test_several_damaged_frames_cost_no_other(
    tmp_path: Path, places: Places, seqs: tuple[int, ...]
) -> None:
    for seq in seqs:
        segment, offset = places[seq]
        smash(tmp_path, segment, offset + 4)
    whole, damages = walk_all(tmp_path, durable_seq=9)
    assert found_seqs(whole) == [one for one in range(1, 10) if one not in seqs]
    assert lost(damages) == list(seqs)


def test_bytes_that_were_put_in_between_cost_nothing(tmp_path: Path, places: Places) -> None:
    segment, offset = places[5]
    path = segment_file(tmp_path, segment)
    data = path.read_bytes()
    path.write_bytes(data[:offset] + b"\xa5" * 80 + data[offset:])
    whole, damages = walk_all(tmp_path, durable_seq=9)
    assert found_seqs(whole) == list(range(1, 10))
    assert [(one.offset, one.rows) for one in damages] == [(offset, 0)]


def test_a_closed_segment_that_is_cut_short_lost_its_end(tmp_path: Path, places: Places) -> None:
    segment, offset = places[5]
    os.truncate(segment_file(tmp_path, segment), offset + 30)
    whole, damages = walk_all(tmp_path, durable_seq=9)
    assert found_seqs(whole) == [1, 2, 3, 4, 7, 8, 9]
    assert lost(damages) == [5, 6]
    assert damages[0].offset == offset


# -- the tail -------------------------------------------------------------------------------------


def test_a_torn_tail_is_no_damage(tmp_path: Path, places: Places) -> None:
    smash(tmp_path, *places[9])
    whole, damages = walk_all(tmp_path, durable_seq=8)
    assert found_seqs(whole) == list(range(1, 9))
    assert damages == []


def test_a_torn_tail_that_was_durable_is_damage(tmp_path: Path, places: Places) -> None:
    smash(tmp_path, *places[8])
    _, offset = places[9]
    os.truncate(segment_file(tmp_path, 3), offset + 10)
    whole, damages = walk_all(tmp_path, durable_seq=12)
    assert found_seqs(whole) == list(range(1, 8))
    assert lost(damages) == [8, 9, 10, 11, 12]


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


def test_a_later_frame_that_vouches_for_nothing_is_part_of_the_torn_tail(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    append(writer, b"value 1")
    damaged = append(writer, b"value 2")
    append(writer, b"value 3")
    writer.abandon()
    smash(tmp_path, 1, damaged)
    whole, damages = walk_all(tmp_path)
    assert found_seqs(whole) == [1]
    assert damages == []


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


@pytest.mark.parametrize("segment", [1, 2, 3])
def test_a_segment_that_lost_its_beginning_gives_its_other_frames(
    tmp_path: Path, places: Places, segment: int
) -> None:
    first = 3 * segment - 2
    smash(tmp_path, segment, 0, places[first + 1][1])
    whole, damages = walk_all(tmp_path, durable_seq=9)
    assert found_seqs(whole) == [one for one in range(1, 10) if one != first]
    assert lost(damages) == [first]


def test_a_missing_segment_is_made_out_from_its_neighbours(tmp_path: Path, places: Places) -> None:
    segment_file(tmp_path, 2).unlink()
    whole, damages = walk_all(tmp_path, durable_seq=9)
    assert found_seqs(whole) == [1, 2, 3, 7, 8, 9]
    assert lost(damages) == [4, 5, 6]
    assert {one.segment for one in damages} == {2}
    assert "missing" in damages[0].reason


def test_a_missing_last_segment_is_known_from_what_was_durable(
    tmp_path: Path, places: Places
) -> None:
    segment_file(tmp_path, 3).unlink()
    whole, damages = walk_all(tmp_path, durable_seq=9)
    assert found_seqs(whole) == [1, 2, 3, 4, 5, 6]
    assert lost(damages) == [7, 8, 9]


def test_segments_before_the_first_are_packed_not_missing(tmp_path: Path, places: Places) -> None:
    segment_file(tmp_path, 1).unlink()
    whole, damages = walk_all(tmp_path, durable_seq=9)
    assert found_seqs(whole) == [4, 5, 6, 7, 8, 9]
    assert damages == []


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


def test_a_segment_of_another_journal_is_damage(tmp_path: Path, places: Places) -> None:
    segment_file(tmp_path, 2).write_bytes(header(2, 4, shard=b"x" * 16).encode())
    whole, damages = walk_all(tmp_path, durable_seq=9)
    assert found_seqs(whole) == [1, 2, 3, 7, 8, 9]
    assert "another journal" in damages[0].reason
    assert lost(damages) == [4, 5, 6]


def test_a_segment_under_a_number_far_away_is_not_of_this_journal(
    tmp_path: Path, places: Places
) -> None:
    segment_file(tmp_path, 3 + limits.SEGMENTS_MISSING_MAX + 10).touch()
    with pytest.raises(CorruptionError, match="missing"):
        parts_of(tmp_path)


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


def test_all_segments_are_made_out_without_their_headers(tmp_path: Path, places: Places) -> None:
    for segment in (1, 2, 3):
        smash(tmp_path, segment, 0, 64)
    whole, damages = walk_all(tmp_path, durable_seq=9)
    assert found_seqs(whole) == list(range(1, 10))
    assert lost(damages) == []


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


@pytest.fixture
def many(tmp_path: Path) -> list[int]:
    """One segment of 151 frames of one row, and a second one; returns where the frames are."""
    writer = open_writer(tmp_path)
    found = [append(writer, b"value %d" % seq) for seq in range(1, 152)]
    rotate(writer)
    append(writer, b"value 152")
    writer.close()
    return found


def copy_frame(directory: Path, source: tuple[int, int], target: tuple[int, int]) -> None:
    """Writes a frame over another place."""
    data = segment_file(directory, source[0]).read_bytes()
    length = int.from_bytes(data[source[1] : source[1] + 4], "little")
    with segment_file(directory, target[0]).open("r+b") as file:
        file.seek(target[1])
        file.write(data[source[1] : source[1] + length])


def test_a_frame_written_over_another_one_costs_that_one_alone(
    tmp_path: Path, many: list[int]
) -> None:
    copy_frame(tmp_path, (1, many[150]), (1, many[99]))
    whole, damages = walk_all(tmp_path, durable_seq=152)
    assert found_seqs(whole) == [seq for seq in range(1, 153) if seq != 100]
    assert lost(damages) == [100]
    assert [one.offset for one in damages] == [many[99]]


def test_a_frame_that_is_only_in_a_wrong_place_is_found_there(
    tmp_path: Path, many: list[int]
) -> None:
    copy_frame(tmp_path, (1, many[150]), (1, many[99]))
    smash(tmp_path, 1, many[150], 64)
    whole, damages = walk_all(tmp_path, durable_seq=152)
    assert found_seqs(whole) == [seq for seq in range(1, 153) if seq != 100]
    assert lost(damages) == [100]


@pytest.mark.parametrize("target", [1, 3])
def test_a_frame_that_is_only_in_another_file_is_found_there(
    tmp_path: Path, places: Places, target: int
) -> None:
    overwritten = 3 * target - 1
    copy_frame(tmp_path, places[5], places[overwritten])
    smash(tmp_path, *places[5], 64)
    whole, damages = walk_all(tmp_path, durable_seq=9)
    assert found_seqs(whole) == [seq for seq in range(1, 10) if seq != overwritten]
    assert lost(damages) == [overwritten]


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


def test_a_segment_that_is_only_there_under_another_name_is_found(
    tmp_path: Path, places: Places
) -> None:
    segment_file(tmp_path, 3).rename(segment_file(tmp_path, 2))
    whole, damages = walk_all(tmp_path, durable_seq=9)
    assert found_seqs(whole) == [1, 2, 3, 7, 8, 9]
    assert lost(damages) == [4, 5, 6]


def test_frames_behind_damage_count_though_the_next_segment_is_missing(
    tmp_path: Path, places: Places
) -> None:
    smash(tmp_path, *places[2])
    segment_file(tmp_path, 2).unlink()
    whole, damages = walk_all(tmp_path, durable_seq=9)
    assert found_seqs(whole) == [1, 3, 7, 8, 9]
    assert lost(damages) == [2, 4, 5, 6]
