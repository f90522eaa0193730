"""Verify counts what is there and names every damage; dump says what the rows say."""

from __future__ import annotations

from pathlib import Path

import pytest

from fjord import ops
from fjord.columns import Strings
from fjord.disk import LocalDisk
from fjord.journal import frame as frames
from fjord.journal import inspect
from fjord.journal.inspect import DumpRow, Wanted
from fjord.journal.survey import Damage
from fjord.journal.writer import Commit, Writer
from fjord.ops import Op, Opcode
from tests.unit.journal.writing import NOW_US, append, header, open_writer, rotate, segment_file


def create_table(number: int, name: bytes) -> bytes:
    columns = ((1,), Strings.of([name]), Strings.of([b""]))
    return ops.encode(Op(Opcode.CREATE_TABLE, number, 1, columns))[0]


def commit(writer: Writer, *encoded: bytes, rows: int) -> None:
    writer.append(Commit(NOW_US, 78, encoded, rows))
    writer.confirm()


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Seqs 1 (the table's name), 2-3, 4 in segment 1, and 5-7 in segment 2."""
    writer = open_writer(tmp_path)
    commit(writer, create_table(1, b"settings"), rows=1)
    append(writer, b"two", b"three")
    append(writer, b"four")
    rotate(writer)
    append(writer, b"five", b"six", b"\xff\x00")
    writer.close()
    return tmp_path


def damage_frame(directory: Path, segment: int, offset: int) -> None:
    path = segment_file(directory, segment)
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(bytes(data))


def dumped(directory: Path, wanted: Wanted | None = None) -> list[DumpRow]:
    steps = inspect.dump(LocalDisk(), str(directory), wanted)
    return [step for step in steps if isinstance(step, DumpRow)]


# -- verify ---------------------------------------------------------------------------------------


def test_a_whole_journal_is_counted(journal: Path) -> None:
    report = inspect.verify(LocalDisk(), str(journal), durable_seq=7)
    assert report.damages == []
    assert report.lost_rows == 0
    found = [
        (one.segment, one.frames, one.rows, one.first_seq, one.last_seq) for one in report.segments
    ]
    assert found == [(1, 3, 4, 1, 4), (2, 1, 3, 5, 7)]
    sizes = [segment_file(journal, number).stat().st_size for number in (1, 2)]
    assert [one.bytes for one in report.segments] == sizes
    assert [one.used_bytes for one in report.segments] == sizes


def test_ops_that_this_version_does_not_know_are_damage_and_not_lost(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    commit(writer, ops.HEADER.pack(200, 0, 0, 1, 2, 24) + bytes(8), rows=2)
    append(writer, b"three")
    writer.close()
    report = inspect.verify(LocalDisk(), str(tmp_path), durable_seq=3)
    (damage,) = report.damages
    assert (damage.offset, damage.rows) == (64, 0)
    assert "200" in damage.reason
    assert [one.rows for one in report.segments] == [3]


# -- where it begins ------------------------------------------------------------------------------


def packed_at(segment: int, seq: int) -> bytes:
    return ops.encode(Op(Opcode.PACKED, 0, 1, ((segment,), (seq,))))[0]


def three_segments(directory: Path, note: bytes | None = None) -> None:
    """Seqs 1 and 2, 3 and 4, 5 and 6, and then perhaps a note at seq 7."""
    writer = open_writer(directory)
    for segment in range(3):
        if segment:
            rotate(writer)
        append(writer, b"one")
        append(writer, b"two")
    if note is not None:
        commit(writer, note, rows=1)
    writer.close()


def test_damage_of_what_was_packed_costs_nothing(tmp_path: Path) -> None:
    three_segments(tmp_path, packed_at(2, 3))
    damage_frame(tmp_path, 1, 64)
    report = inspect.verify(LocalDisk(), str(tmp_path), durable_seq=7)
    assert [one.rows for one in report.damages] == [0]


def test_a_first_segment_that_lost_where_it_begins_is_held_to_the_note(tmp_path: Path) -> None:
    three_segments(tmp_path, packed_at(2, 3))
    segment_file(tmp_path, 1).unlink()
    for offset in (0, 64):
        damage_frame(tmp_path, 2, offset)
    report = inspect.verify(LocalDisk(), str(tmp_path), durable_seq=7)
    assert [(one.segment, one.first_seq, one.rows) for one in report.damages] == [
        (2, 0, 0),
        (2, 3, 1),
    ]


def test_where_the_note_may_be_lost_nobody_knows_what_is_missing(tmp_path: Path) -> None:
    three_segments(tmp_path, packed_at(2, 3))
    segment_file(tmp_path, 1).unlink()
    damage_frame(tmp_path, 3, segment_file(tmp_path, 3).stat().st_size - 8)
    report = inspect.verify(LocalDisk(), str(tmp_path), durable_seq=7)
    doubt, gone = report.damages
    assert doubt.reason.startswith("seqs 1 to 2 were packed or are lost")
    assert (doubt.rows, gone.first_seq, gone.rows) == (0, 7, 1)


def test_a_journal_of_which_no_file_is_left_is_not_whole(tmp_path: Path) -> None:
    assert inspect.verify(LocalDisk(), str(tmp_path), durable_seq=7).lost_rows == 7
    assert inspect.verify(LocalDisk(), str(tmp_path)).segments == []


# -- dump -----------------------------------------------------------------------------------------


def test_every_row_is_dumped_in_order(journal: Path) -> None:
    rows = dumped(journal)
    assert [row.seq for row in rows] == list(range(1, 8))
    assert [row.op for row in rows] == ["CREATE_TABLE"] + ["KV_INSERT"] * 6
    assert {row.table for row in rows} == {"settings"}
    assert {row.wall_us for row in rows} == {NOW_US}
    assert rows[1].fields == {"timestamp_us": NOW_US, "type": 1, "key": b"key-0", "value": b"two"}
    assert rows[6].fields["value"] == b"\xff\x00"
    assert [(row.segment, row.offset) for row in (rows[0], rows[6])] == [(1, 64), (2, 64)]


@pytest.mark.parametrize(("first", "last"), [(0, 3), (3, 6), (7, 7), (6, 100), (8, 9), (5, 2)])
def test_only_the_wanted_seqs_are_dumped_with_their_tables(
    journal: Path, first: int, last: int
) -> None:
    rows = dumped(journal, Wanted(first_seq=first, last_seq=last))
    assert [row.seq for row in rows] == [seq for seq in range(1, 8) if first <= seq <= last]
    assert all(row.table == "settings" for row in rows)


def test_only_the_wanted_table_is_dumped(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    commit(writer, create_table(1, b"one"), create_table(2, b"two"), rows=2)
    append(writer, b"in one")
    writer.close()
    assert [row.seq for row in dumped(tmp_path, Wanted(table="one"))] == [1, 3]
    assert [row.seq for row in dumped(tmp_path, Wanted(table="two"))] == [2]
    with pytest.raises(LookupError, match=r"no table three$"):
        dumped(tmp_path, Wanted(table="three"))


def test_lost_rows_are_one_line_however_many_they_are(tmp_path: Path) -> None:
    body, _ = ops.encode(Op(Opcode.LOST, 0, 4_000_000_000, ()))
    frame = frames.Frame(1, 4_000_000_000, 1, NOW_US, 0, 0, 80, frames.checksum(body))
    data = header().encode() + frame.encode(header().salt) + body
    segment_file(tmp_path).write_bytes(data)
    (row,) = dumped(tmp_path)
    assert (row.op, row.table, row.fields) == ("LOST", "", {"rows": 4_000_000_000})
    (row,) = dumped(tmp_path, Wanted(first_seq=3_999_999_999))
    assert (row.seq, row.fields) == (3_999_999_999, {"rows": 2})


def test_a_missing_first_segment_is_told(tmp_path: Path) -> None:
    three_segments(tmp_path)
    segment_file(tmp_path, 1).unlink()
    report = inspect.verify(LocalDisk(), str(tmp_path), durable_seq=6)
    assert [(one.reason, one.first_seq, one.rows) for one in report.damages] == [
        ("the file is missing", 0, 0),
        ("none of it can be read", 1, 2),
    ]
    assert [one.segment for one in report.segments] == [1, 2, 3]
    steps = list(inspect.dump(LocalDisk(), str(tmp_path), durable_seq=6))
    assert [step.rows for step in steps if isinstance(step, Damage)] == [0, 2]


def test_several_missing_segments_are_told_as_one(tmp_path: Path) -> None:
    three_segments(tmp_path)
    for segment in (1, 2):
        segment_file(tmp_path, segment).unlink()
    report = inspect.verify(LocalDisk(), str(tmp_path), durable_seq=6)
    assert report.damages[0].reason == "segments 1 to 2 are missing"
    assert report.lost_rows == 4
