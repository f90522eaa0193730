"""Explain names every byte: its fields follow each other without a gap."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from fjord import ops
from fjord.disk import LocalDisk
from fjord.journal import explain as explaining
from fjord.journal.explain import Field
from fjord.journal.writer import Commit
from fjord.ops import Op, Opcode
from tests.unit.journal.writing import NOW_US, append, open_writer, segment_file


def explain(directory: Path, at: int | None = None, segment: int = 1) -> list[Field]:
    return explaining.explain(LocalDisk(), str(directory), segment, at)


def check_gapless(fields: list[Field], start: int, end: int) -> None:
    assert fields[0].offset == start
    assert fields[-1].end == end
    for before, after in itertools.pairwise(fields):
        assert before.end == after.offset, (before, after)


@pytest.fixture
def places(tmp_path: Path) -> list[int]:
    """A frame of one row, one of three, one of 1000; where each begins, and where they end."""
    writer = open_writer(tmp_path, segment_bytes=2**20)
    found = [
        append(writer, b"one"),
        append(writer, b"two", b"", b"2"),
        append(writer, *(b"%d" % number * (number % 5) for number in range(1000))),
        writer.position,
    ]
    writer.close()
    return found


def test_the_fields_of_any_frame_have_no_gaps(tmp_path: Path, places: list[int]) -> None:
    for start, end in itertools.pairwise(places):
        for at in range(start, end, 7):
            fields = explain(tmp_path, at)
            check_gapless(fields, start, end)
            assert sum(1 for field in fields if field.offset <= at < field.end) == 1


def test_the_header_is_named(tmp_path: Path, places: list[int]) -> None:
    for at in (0, 63):
        fields = explain(tmp_path, at)
        check_gapless(fields, 0, 64)
        named = {field.name: field.value for field in fields}
        assert named["magic"] == "FJORDSEG"
        assert (named["version"], named["segment"], named["first seq"]) == ("1", "1", "1")
        assert named["shard"] == b"the shard's uuid".hex()
        assert (named["created"], named["lease"]) == (str(NOW_US), "77")


def test_without_a_place_header_and_first_frame_are_named(
    tmp_path: Path, places: list[int]
) -> None:
    fields = explain(tmp_path)
    check_gapless(fields, 0, places[1])
    named = {field.name: field.value for field in fields}
    assert named["frame rows"] == "1"
    assert named["opcode"] == f"{Opcode.KV_INSERT.value} KV_INSERT"
    assert named["key[0]"] == "'key-0'"
    assert named["value[0]"] == "'one'"


def test_of_many_rows_the_one_at_the_place_is_named(tmp_path: Path, places: list[int]) -> None:
    data = segment_file(tmp_path).read_bytes()
    at = data.index(b"777" * 2, places[2])
    fields = explain(tmp_path, at)
    (field,) = [field for field in fields if field.offset <= at < field.end]
    assert (field.name, field.value) == ("value[777]", "'777777'")
    names = [field.name for field in fields]
    assert {"value[0..776]", "value[778..999]", "key[0..999]", "timestamp_us[0..999]"} <= {*names}


def test_numbers_that_an_op_has_once_are_named(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    columns = tuple((number,) for number in range(1, 7))
    commit, _ = ops.encode(Op(Opcode.STREAM_COMMIT, 1, 5, columns))
    writer.append(Commit(NOW_US, 0, [commit], 5))
    end = writer.position
    writer.close()
    fields = explain(tmp_path, 64)
    check_gapless(fields, 64, end)
    assert {"stage[0]": "1", "freed[0]": "6"}.items() <= {
        field.name: field.value for field in fields
    }.items()


def test_where_no_frame_is_the_bytes_are_shown(tmp_path: Path, places: list[int]) -> None:
    path = segment_file(tmp_path)
    with path.open("ab") as file:
        file.write(bytes(100))
    (field,) = explain(tmp_path, places[3] + 50)
    assert (field.offset, field.name) == (places[3], "no frame, zeros so far")
    assert field.end == path.stat().st_size
    data = bytearray(path.read_bytes())
    data[places[1]] ^= 0xFF
    path.write_bytes(bytes(data))
    (field,) = explain(tmp_path, places[1] + 30)
    assert field.name == "no frame"
    assert field.offset == places[1]


def test_an_op_that_is_not_known_is_shown_as_it_is(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    writer.append(Commit(NOW_US, 0, [ops.HEADER.pack(200, 0, 0, 1, 2, 24) + bytes(8)], 2))
    writer.close()
    fields = explain(tmp_path, 64)
    check_gapless(fields, 64, 64 + 88)
    assert "200" in fields[-1].name


def test_a_segment_that_is_not_there_cannot_be_explained(tmp_path: Path, places: list[int]) -> None:
    with pytest.raises(LookupError, match="segment 9"):
        explain(tmp_path, segment=9)


def test_a_copy_of_an_earlier_frame_is_no_frame(tmp_path: Path, places: list[int]) -> None:
    path = segment_file(tmp_path)
    data = bytearray(path.read_bytes())
    data[places[2] : places[2] + places[1] - places[0]] = data[places[0] : places[1]]
    path.write_bytes(bytes(data))
    assert explain(tmp_path, places[1])[0].name == "frame length", "the one before it"
    assert explain(tmp_path, places[2])[0].name == "no frame", "its seq is elsewhere"


def test_a_byte_behind_the_file_is_none(tmp_path: Path, places: list[int]) -> None:
    size = segment_file(tmp_path).stat().st_size
    assert explain(tmp_path, size - 1)[-1].end == size
    for at in (size, 2**63):
        with pytest.raises(LookupError, match=f"has {size} bytes; there is no byte {at}"):
            explain(tmp_path, at)


def test_a_damaged_header_is_shown_as_it_is(tmp_path: Path, places: list[int]) -> None:
    path = segment_file(tmp_path)
    data = bytearray(path.read_bytes())
    data[0] = ord("X")
    path.write_bytes(bytes(data))
    (field,) = explain(tmp_path, 5)
    assert "FJORDSEG" in field.name
    check_gapless(explain(tmp_path, places[0]), places[0], places[1])
