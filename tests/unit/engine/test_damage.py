"""Damage in the journal: a torn tail is cut in silence, anything else is never served."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fjord import streams
from fjord.columns import Strings
from fjord.commands import (
    CreateTable,
    Done,
    Entries,
    Get,
    Range,
    Read,
    Refusal,
    Scan,
    Scanned,
)
from fjord.engine import Engine, ReadOnlyEngine
from fjord.errors import Code, CorruptionError
from fjord.journal import frame as frames
from fjord.kinds import Kind
from fjord.streams import Mode
from fjord.testing import SimClock
from tests.unit.engine.shore import append_command
from tests.unit.engine.world import (
    SEGMENT_BYTES,
    TABLE,
    open_at,
    read,
    set_command,
    settings,
    write,
)

VALUE = b"v" * 1000


def two_segments(path: Path) -> dict[bytes, bytes]:
    """Leaves a closed segment and an open one, after a clean stop; returns what is stored."""
    clock, items = SimClock(), {}
    engine = open_at(path, clock)
    number = 0
    while len(segments(path)) < 2:
        items[b"key-%03d" % number] = VALUE + b"%d" % number
        write(engine, clock, {b"key-%03d" % number: items[b"key-%03d" % number]})
        number += 1
    engine.close()
    return items


def segments(path: Path) -> list[Path]:
    return sorted((path / "journal").glob("*.seg"))


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


def answers(engine: Engine, items: dict[bytes, bytes]) -> set[str]:
    """Returns which of 'right' and 'refused' the engine answers; anything else fails."""
    found = set()
    for key, value in items.items():
        (reply,) = engine.run([Get(table=TABLE, keys=Strings.of([key]))])
        if isinstance(reply, Refusal):
            assert reply.code is Code.CORRUPT
            found.add("refused")
        else:
            assert isinstance(reply, Entries)
            assert reply.values.rows() == [value]
            found.add("right")
    return found


def test_a_flipped_bit_in_a_closed_segment_is_never_served(tmp_path: Path) -> None:
    items = two_segments(tmp_path / "whole")
    size = len(segments(tmp_path / "whole")[0].read_bytes().rstrip(b"\0"))
    for offset in range(0, size, 307):
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "whole" / "journal", copy / "journal")
        flip(segments(copy)[0], offset)
        with pytest.raises(CorruptionError) as caught:  # without an index, all of it is read
            open_at(copy)
        assert caught.value.path == str(segments(copy)[0])
        assert caught.value.offset <= offset
        shutil.rmtree(copy)
    assert answers(open_at(tmp_path / "whole"), items) == {"right"}


def test_a_flipped_bit_under_a_live_index_is_refused_and_the_rest_is_served(
    tmp_path: Path,
) -> None:
    items = two_segments(tmp_path)
    closed = segments(tmp_path)[0]
    with closed.open("r+b") as file:
        content = file.read()
        offset = content.index(items[b"key-010"]) + 500
        file.seek(offset)
        file.write(bytes([content[offset] ^ 1]))
    engine = open_at(tmp_path)
    assert answers(engine, items) == {"right", "refused"}
    assert read(engine, b"key-011") == [items[b"key-011"]]
    reply = engine.scan(Scan(table=TABLE, start_seq=1, end_seq=0))
    assert isinstance(reply, Refusal)
    assert reply.code is Code.CORRUPT
    assert str(closed) in reply.text
    engine.close()


@pytest.mark.parametrize("lost", [slice(-1, None), slice(None)], ids=["the last", "all"])
def test_a_copy_that_lost_segments_is_refused_at_every_start(tmp_path: Path, lost: slice) -> None:
    items = two_segments(tmp_path / "whole")
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "whole", copy)  # which does not believe its `published` page
    gone = segments(copy)[lost]
    for segment in gone:
        segment.unlink()
    for _ in range(3):
        with pytest.raises(CorruptionError):
            open_at(copy)
    for segment in gone:
        shutil.copy(tmp_path / "whole" / "journal" / segment.name, segment)
    assert answers(open_at(copy), items) == {"right"}


def test_a_copy_that_lost_its_last_segment_is_not_read_either(tmp_path: Path) -> None:
    two_segments(tmp_path / "whole")
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "whole", copy)
    segments(copy)[-1].unlink()
    with pytest.raises(CorruptionError):
        ReadOnlyEngine(str(copy), settings())


TOGETHER = [b"key-%d" % number for number in range(5)]


@pytest.mark.parametrize(
    "command",
    [
        Get(table=TABLE, keys=Strings.of(TOGETHER)),
        Range(table=TABLE),
        Read(table="log", after=0),
        Read(table="latest", after=0),
    ],
    ids=["get", "range", "log", "latest"],
)
def test_a_flipped_bit_among_values_that_are_read_together_is_never_served(
    command: Get | Range | Read, tmp_path: Path
) -> None:
    clock = SimClock()
    engine = open_at(tmp_path, clock)
    for mode in Mode:
        encoded = streams.Settings(mode=mode).encode()
        create = CreateTable(name=mode, kind=Kind.STREAM.number, settings=encoded)
        assert isinstance(engine.run([create])[0], Done)
    for key in TOGETHER:
        write(engine, clock, {key: b"kv value of " + key})
        for table in Mode:
            engine.run([append_command(table, [(key, f"{table} value of ".encode() + key)])])
    engine.sync()
    (whole,) = engine.run([command])
    assert not isinstance(whole, Refusal)
    (segment,) = segments(tmp_path)
    kind = "kv" if command.table == TABLE else command.table
    flip(segment, segment.read_bytes().index(f"{kind} value of ".encode() + TOGETHER[2]))
    (refused,) = engine.run([command])
    assert isinstance(refused, Refusal)
    assert refused.code is Code.CORRUPT
    assert str(segment) in refused.text
    engine.abandon()


def test_a_tail_torn_at_any_byte_is_cut_and_stays_cut(tmp_path: Path) -> None:
    clock = SimClock()
    engine = open_at(tmp_path / "whole", clock)
    write(engine, clock, {b"key": b"acknowledged"})
    start = engine.writer.position
    write(engine, clock, {b"key": b"torn-off"})
    end = engine.writer.position
    engine.abandon()
    for size in range(start, end, 3):
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "whole" / "journal", copy / "journal")
        (segment,) = segments(copy)
        segment.write_bytes(segment.read_bytes()[:size].ljust(SEGMENT_BYTES, b"\0"))
        for _ in range(2):
            engine = open_at(copy, clock)
            assert read(engine, b"key") == [b"acknowledged"]
            write(engine, clock, {b"other": b"after the cut"})
            engine.abandon()
        assert segment.stat().st_size == start
        shutil.rmtree(copy)


def test_a_damaged_last_frame_that_was_published_as_durable_stops_the_start(
    tmp_path: Path,
) -> None:
    clock = SimClock()
    engine = open_at(tmp_path, clock)
    write(engine, clock, {b"key": b"acknowledged"})
    end = engine.writer.position
    engine.abandon()
    flip(segments(tmp_path)[0], end - 16)
    with pytest.raises(CorruptionError, match="not readable"):
        open_at(tmp_path)


def test_a_damaged_frame_that_a_later_one_calls_durable_stops_the_start(tmp_path: Path) -> None:
    clock = SimClock()
    engine = open_at(tmp_path, clock)
    start = engine.writer.position
    for value in (b"one", b"two", b"three"):
        write(engine, clock, {b"key": value})
    engine.abandon()
    (tmp_path / "published").unlink()
    flip(segments(tmp_path)[0], start + frames.FRAME_HEADER_BYTES + 4)
    with pytest.raises(CorruptionError, match="was durable") as caught:
        open_at(tmp_path)
    assert caught.value.offset == start


def test_a_missing_journal_is_not_taken_for_a_new_directory(tmp_path: Path) -> None:
    two_segments(tmp_path)
    for segment in segments(tmp_path):
        segment.unlink()
    with pytest.raises(CorruptionError, match="were durable here"):
        open_at(tmp_path)


def test_a_segment_of_another_journal_is_refused(tmp_path: Path) -> None:
    two_segments(tmp_path / "one")
    two_segments(tmp_path / "two")
    shutil.copy(segments(tmp_path / "two")[1], segments(tmp_path / "one")[1])
    with pytest.raises(CorruptionError, match="another journal"):
        open_at(tmp_path / "one")


def test_an_unfinished_segment_is_removed(tmp_path: Path) -> None:
    items = two_segments(tmp_path)
    leftover = tmp_path / "journal" / "0000000003.seg.new"
    leftover.write_bytes(b"half")
    engine = open_at(tmp_path)
    assert not leftover.exists()
    assert answers(engine, items) == {"right"}
    engine.close()


def test_a_scan_of_a_whole_journal_gives_every_row(tmp_path: Path) -> None:
    items = two_segments(tmp_path)
    engine = open_at(tmp_path)
    reply = engine.scan(Scan(table=TABLE, start_seq=1, end_seq=0))
    assert isinstance(reply, Scanned)
    assert len(reply.ops) == len(items) + 1  # and the op that created the table
    engine.close()


def test_a_value_that_looks_like_a_frame_does_not_stop_a_start(tmp_path: Path) -> None:
    """Were it taken for one, the torn frame before it would count as damage."""
    clock = SimClock()
    engine = open_at(tmp_path, clock)
    write(engine, clock, {b"key": b"acknowledged"})
    start = engine.writer.position
    forged = frames.Frame(
        first_seq=99,
        rows=1,
        op_count=1,
        wall_us=0,
        lease_us=0,
        durable_seq=10**9,
        length=72,
        body_crc=0,
    ).encode(bytes(16) + (1).to_bytes(8, "little"))
    clock.advance(0.001)
    engine.run([set_command({b"key": forged}, timestamp_us=clock.wall_us())])
    engine.abandon()
    (segment,) = segments(tmp_path)
    data = bytearray(segment.read_bytes())
    data[start : start + 32] = bytes(32)
    segment.write_bytes(data)
    engine = open_at(tmp_path, clock)
    assert read(engine, b"key") == [b"acknowledged"]
    engine.close()


@pytest.mark.parametrize("kind", ["fifo", "directory", "symlink"])
def test_what_is_no_file_is_not_taken_for_a_segment(tmp_path: Path, kind: str) -> None:
    two_segments(tmp_path)
    path = segments(tmp_path)[1]
    path.rename(tmp_path / "aside")
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "aside")
    with pytest.raises(CorruptionError, match="cannot be read") as caught:
        open_at(tmp_path)
    assert caught.value.path == str(path)


def test_a_missing_segment_in_the_middle_is_named(tmp_path: Path) -> None:
    clock = SimClock()
    engine = open_at(tmp_path, clock)
    for number in range(200):
        write(engine, clock, {b"key-%03d" % number: VALUE})
    engine.close()
    segments(tmp_path)[1].unlink()
    with pytest.raises(CorruptionError, match="previous segment 2 is missing"):
        open_at(tmp_path)
