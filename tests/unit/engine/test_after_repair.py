"""Life after `fjord journal repair`: what was lost is lost, and everything else goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fjord.columns import Strings
from fjord.commands import CreateTable, Delete, Entries, Get
from fjord.engine import Engine, EngineSettings, open_engine
from fjord.engine import layout as layouts
from fjord.engine.layout import Clean, Layout
from fjord.engine.memory import TREE_COUNT
from fjord.errors import CorruptionError
from fjord.index.memory import MemoryIndexes
from fjord.journal import inspect, repair
from fjord.journal.reader import Journal
from fjord.kinds import Kind
from fjord.ops import Opcode
from fjord.testing import SimClock, SimDisk
from tests.unit.engine.world import TABLE, read, set_command, settings, write

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


def test_a_missing_first_segment_costs_what_was_in_it() -> None:
    world = World()
    fill(world)
    remove(world, 1)
    with pytest.raises(CorruptionError, match="segments before it are missing"):
        world.open()
    (done,) = repair.repair(world.disk, "/data/journal", "/data/quarantine")
    assert done.lost_rows > 10
    engine = world.open()
    assert engine.stats()["first_seq"] == 1
    engine.close()
    assert verified(world) == []
    world.open()
