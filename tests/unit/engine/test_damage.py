"""Damage in the journal: a torn tail is cut in silence, anything else is never served."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fjord import streams
from fjord.columns import Strings
from fjord.commands import CreateTable, Delete, Done, Entries, Get, Range, Read, Refusal, Scan
from fjord.disk import LocalDisk
from fjord.engine import Engine, EngineSettings, open_engine
from fjord.engine import layout as layouts
from fjord.engine.layout import Clean, Layout, Owner, read_mark, write_mark
from fjord.engine.memory import TREE_COUNT
from fjord.errors import Code, CorruptionError
from fjord.index.memory import MemoryIndexes
from fjord.journal import frame as frames
from fjord.journal import inspect, repair
from fjord.journal.reader import Journal
from fjord.kinds import Kind
from fjord.ops import Opcode
from fjord.streams import Mode
from fjord.testing import SimClock, SimDisk
from tests.unit.engine.shore import append_command
from tests.unit.engine.world import (
    SEGMENT_BYTES,
    TABLE,
    delete,
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
    for offset in range(0, size, 997):
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "whole" / "journal", copy / "journal")
        flip(segments(copy)[0], offset)
        with pytest.raises(CorruptionError) as caught:  # without an index, all of it is read
            open_at(copy)
        assert caught.value.path == str(segments(copy)[0])
        assert caught.value.offset <= offset
        shutil.rmtree(copy)
    assert answers(open_at(tmp_path / "whole"), items) == {"right"}


def test_a_flipped_bit_under_a_live_index_is_refused_and_the_rest_is_served(tmp_path: Path) -> None:
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
    engine: Engine, clock: SimClock, command: Get | Range | Read, tmp_path: Path
) -> None:
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


def test_a_tail_torn_at_any_byte_is_cut_and_stays_cut(clock: SimClock, tmp_path: Path) -> None:
    engine = open_at(tmp_path / "whole", clock)
    write(engine, clock, {b"key": b"acknowledged"})
    start = engine.writer.position
    write(engine, clock, {b"key": b"torn-off"})
    end = engine.writer.position
    engine.abandon()
    for size in range(start, end, 7):
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
    engine: Engine, clock: SimClock, tmp_path: Path
) -> None:
    write(engine, clock, {b"key": b"acknowledged"})
    end = engine.writer.position
    engine.abandon()
    flip(segments(tmp_path)[0], end - 16)
    with pytest.raises(CorruptionError, match="not readable"):
        open_at(tmp_path)


def test_a_damaged_frame_that_a_later_one_calls_durable_stops_the_start(
    engine: Engine, clock: SimClock, tmp_path: Path
) -> None:
    start = engine.writer.position
    for value in (b"one", b"two", b"three"):
        write(engine, clock, {b"key": value})
    engine.abandon()
    (tmp_path / "published").unlink()
    flip(segments(tmp_path)[0], start + frames.FRAME_HEADER_BYTES + 4)
    with pytest.raises(CorruptionError, match="was durable") as caught:
        open_at(tmp_path)
    assert caught.value.offset == start


def test_a_value_that_looks_like_a_frame_does_not_stop_a_start(
    engine: Engine, clock: SimClock, tmp_path: Path
) -> None:
    """Were it taken for one, the torn frame before it would count as damage."""
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


# -- an index that is gone, copied, behind or damaged ---------------------------------------------

ROWS = {b"key-%04d" % number: b"value-%04d" % number for number in range(3000)}


def filled(path: Path, *, clean: bool) -> None:
    """Leaves a directory with some overwritten and deleted keys, after a stop or a crash."""
    clock = SimClock()
    engine = open_at(path, clock)
    write(engine, clock, ROWS)
    write(engine, clock, {b"key-0001": b"newer"})
    delete(engine, clock, b"key-0002")
    if clean:
        engine.close()
    else:
        engine.abandon()


def check(path: Path) -> int:
    """Asserts that all answers are right; returns how many rows the start had to replay."""
    replayed: list[int] = []
    opened = settings()
    engine = open_engine(
        str(path),
        type(opened)(
            segment_bytes=opened.segment_bytes,
            index_step_bytes=opened.index_step_bytes,
            rebuild_rows=opened.rebuild_rows,
            clock=opened.clock,
            progress=lambda done, total: replayed.append(total),
        ),
    )
    assert read(engine, b"key-0000", b"key-0001", b"key-0002") == [b"value-0000", b"newer", None]
    assert read(engine, *ROWS)[3:] == list(ROWS.values())[3:]
    engine.close()
    return max(replayed, default=0)


CLEAN = pytest.mark.parametrize("clean", [True, False], ids=["clean", "crashed"])


@CLEAN
def test_an_index_that_is_there_is_used(tmp_path: Path, clean: bool) -> None:
    filled(tmp_path, clean=clean)
    assert check(tmp_path) == 0


@CLEAN
def test_a_deleted_index_is_rebuilt(tmp_path: Path, clean: bool) -> None:
    filled(tmp_path, clean=clean)
    shutil.rmtree(tmp_path / "index")
    assert check(tmp_path) > len(ROWS)


def test_an_index_of_another_boot_is_rebuilt_after_a_crash(tmp_path: Path) -> None:
    filled(tmp_path, clean=False)
    change_boot(tmp_path)
    assert check(tmp_path) > len(ROWS)


def test_a_clean_stop_counts_once(tmp_path: Path) -> None:
    filled(tmp_path, clean=True)
    open_at(tmp_path).abandon()
    change_boot(tmp_path)
    assert check(tmp_path) > len(ROWS)


def test_an_index_behind_the_journal_catches_up(tmp_path: Path) -> None:
    filled(tmp_path, clean=True)
    old = tmp_path / "old.mdb"
    data = tmp_path / "index" / "data.mdb"
    shutil.copy(data, old)
    clock = SimClock()
    clock.advance(60)
    engine = open_at(tmp_path, clock)
    write(engine, clock, {b"key-0001": b"newer"})
    engine.abandon()
    data.write_bytes(old.read_bytes())  # the same file, with what it held before
    assert 0 < check(tmp_path) < len(ROWS)


def test_an_index_ahead_of_the_journal_is_rebuilt(tmp_path: Path) -> None:
    filled(tmp_path, clean=False)
    before = tmp_path / "before"
    shutil.copytree(tmp_path / "journal", before)
    clock = SimClock()
    clock.advance(60)
    engine = open_at(tmp_path, clock)
    write(engine, clock, {b"key-0001": b"never seen"})
    engine.abandon()
    shutil.rmtree(tmp_path / "journal")
    before.rename(tmp_path / "journal")
    (tmp_path / "published").unlink()
    assert check(tmp_path) > len(ROWS)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.write_bytes(b"not an index"),
        lambda data: data.write_bytes(b""),
        lambda data: data.write_bytes(bytes(1024 * 1024)),
    ],
    ids=["foreign", "empty", "zeroed"],
)
def test_a_damaged_index_file_is_rebuilt(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    filled(tmp_path, clean=False)
    damage(tmp_path / "index" / "data.mdb")
    assert check(tmp_path) > len(ROWS)


def change_boot(path: Path) -> None:
    """Makes the owner file speak of a boot that is not this one."""
    disk, layout = LocalDisk(), Layout(str(path))
    owner = read_mark(disk, layout.owner, Owner)
    assert owner is not None
    write_mark(disk, layout.owner, Owner(boot="another boot", index=owner.index))


# -- life after `fjord journal repair` ------------------------------------------------------------

SEGMENT = "/data/journal/%010d.seg"


class World:
    """A directory whose journal can be damaged and repaired."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.clock = SimClock()

    def settings(self) -> EngineSettings:
        fresh = MemoryIndexes(TREE_COUNT)  # a repair drops the index
        return replace(settings(self.clock), disk=self.disk, indexes=fresh)

    def open(self) -> Engine:
        return open_engine("/data", self.settings())

    def damage_and_repair(self, segment: int, offset: int) -> None:
        self.disk.flip_bit(SEGMENT % segment, offset)
        (repaired,) = repair.repair(self.disk, "/data/journal", "/data/quarantine")
        assert repaired.lost_rows > 0


def test_the_deletion_of_a_lost_row_does_not_upset_the_count_of_live_bytes() -> None:
    world = World()
    engine = world.open()
    write(engine, world.clock, {b"big": b"x" * 20_000})
    world.clock.advance(1)
    now_us = world.clock.wall_us()
    engine.run([Delete(table=TABLE, keys=Strings.of([b"big"]), timestamp_us=now_us)])
    write(engine, world.clock, {b"kept": b"1"})
    engine.close()
    world.damage_and_repair(1, 10_000)
    engine = world.open()
    assert read(engine, b"big") == [None]
    assert 0 < engine.stats()["live_bytes"] < 1000
    write(engine, world.clock, {b"new": b"2"})


def test_a_journal_that_lost_the_note_of_its_begin_opens() -> None:
    world = World()
    engine = world.open()
    for number in range(200):
        write(engine, world.clock, {b"key-%d" % (number % 3): b"x" * 2000})
        while engine.upkeep():
            pass
    assert engine.stats()["first_seq"] > 1
    engine.close()
    journal = Journal(world.disk, "/data/journal")
    notes = [
        (located.segment, located.offset)
        for located in journal.frames(journal.first_seq, durable_seq=0)
        for op, _ in located.ops()
        if op.opcode is Opcode.PACKED
    ]
    segment, offset = notes[-1]
    world.damage_and_repair(segment, offset + 70)
    assert read(world.open(), b"key-0", b"key-1") == [b"x" * 2000] * 2


def test_a_new_table_does_not_get_the_rows_of_one_whose_creation_was_lost() -> None:
    world = World()
    engine = world.open()
    engine.run([CreateTable(name="secret", kind=Kind.KV.number)])
    engine.sync()
    end = engine.writer.position
    now_us = world.clock.wall_us()
    engine.run([set_command({b"k": b"hidden"}, timestamp_us=now_us, table="secret")])
    engine.close()
    world.damage_and_repair(1, end - 8)
    engine = world.open()
    assert list(engine.tables) == []
    engine.run([CreateTable(name="public", kind=Kind.KV.number)])
    (reply,) = engine.run([Get(table="public", keys=Strings.of([b"k"]))])
    assert isinstance(reply, Entries)
    assert reply.types[0] == Entries.MISSING


def fill(world: World) -> None:
    """Fills several segments, without packing."""
    engine = world.open()
    for number in range(60):
        write(engine, world.clock, {b"key-%d" % number: b"x" * 3000})
    engine.close()


def remove(world: World, segment: int) -> None:
    world.disk.remove(SEGMENT % segment)
    world.disk.sync_directory("/data/journal")


def verified(world: World) -> list[str]:
    report = inspect.verify(world.disk, "/data/journal", durable_seq=known_seq(world))
    return [damage.reason for damage in report.damages]


def known_seq(world: World) -> int:
    clean = layouts.read_mark(world.disk, Layout("/data").clean, Clean)
    return clean.seq if clean else 0


def test_a_repaired_journal_that_loses_its_first_segment_later_is_damaged() -> None:
    world = World()
    fill(world)
    world.damage_and_repair(2, 10_000)
    world.open().close()
    assert verified(world) == []
    remove(world, 1)
    assert verified(world) == ["the file is missing", "none of it can be read"]
    with pytest.raises(CorruptionError, match="segments before it are missing"):
        world.open()
    repair.repair(world.disk, "/data/journal", "/data/quarantine", durable_seq=known_seq(world))
    assert verified(world) == []
    world.open()
