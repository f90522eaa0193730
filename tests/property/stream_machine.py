"""Streams on a simulated machine with a cold store, and the book that is kept of what happens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fjord import commands
from fjord.commands import Command, CreateTable, Done, Messages, Page, Replies, Reply
from fjord.engine import Engine, EngineSettings, doctor, open_engine
from fjord.engine.memory import TREE_COUNT
from fjord.index.memory import MemoryIndexes
from fjord.journal.reader import Journal
from fjord.kinds import Kind
from fjord.testing import SimClock, SimDisk
from tests.invariants.histories import Event, Outcome, Restarted
from tests.invariants.stream_histories import Change, How, Passed, Positioned, Wrote
from tests.invariants.stream_histories import Message as Told
from tests.property.streams_model import KV, LOGS, STREAMS
from tests.unit.engine.shore import Message, Shore, told
from tests.unit.engine.world import check_tokens


class Machine:
    """Disk, clock, engine, and a store for cold blocks that survives whatever happens to them."""

    def __init__(self, seed: int) -> None:
        self.disk = SimDisk(seed)
        self.clock = SimClock()
        self.indexes = MemoryIndexes(TREE_COUNT)
        self.shore = Shore(disk=self.disk)
        self.settings = EngineSettings(
            disk=self.disk,
            clock=self.clock,
            indexes=self.indexes,
            segment_bytes=64 * 1024,
            rebuild_rows=10,
        )
        self.engine: Engine = self.open()
        self.book = Book(self)
        for name, chosen in STREAMS.items():
            create = CreateTable(name=name, kind=Kind.STREAM.number, settings=chosen.encode())
            assert isinstance(self.ask(create), Done)
        assert isinstance(self.ask(CreateTable(name=KV, kind=Kind.KV.number)), Done)

    @property
    def now_us(self) -> int:
        return self.clock.wall_us()

    def tick(self) -> None:
        self.clock.advance(0.001)

    def open(self) -> Engine:
        engine = open_engine("/data", self.settings)
        self.shore.attach(engine)
        return engine

    # -- commands ---------------------------------------------------------------------------------

    def ask(self, command: Command) -> Reply:
        """Runs a command; blocks say what the engine cannot."""
        reply = self.shore.ask(self.engine, command)
        check_tokens(self.engine, [reply])
        return reply

    def ask_all(self, found: Sequence[Command], *, batch: bool) -> list[Reply]:
        if not batch:
            return [self.ask(command) for command in found]
        reply = self.ask(commands.Batch(commands=list(found)))
        assert isinstance(reply, Replies), reply
        check_tokens(self.engine, reply.replies)
        return list(reply.replies)

    def read(self, command: commands.Read) -> Messages:
        reply = self.ask(command)
        assert isinstance(reply, Messages), reply
        return reply

    # -- what happens to a node -------------------------------------------------------------------

    def upkeep(self) -> None:
        while self.engine.upkeep():
            pass
        self.engine.sync()

    def rotate(self) -> None:
        self.engine.begin_segment()

    def pack_oldest(self) -> None:
        """Packs until there is one segment less, if the oldest one may go."""
        journal = self.engine.journal
        segments = len(journal.segments)
        while 1 < len(journal.segments) == segments:
            oldest = journal.segments[0].segment
            if self.engine.is_held(oldest) or not self.engine._packer.step():
                break  # not all of it is in blocks, or a snapshot needs it
        self.engine.sync()
        self.check_index()

    def check_index(self) -> None:
        """The index is what a replay of the journal comes to (I17)."""
        journal = Journal(self.disk, "/data/journal")
        found = doctor.diagnose(journal, self.indexes.open(), self.settings, shown=3)
        assert not found.difference_count, found.differences

    def fall(self, *, power: bool) -> None:
        """The process dies, or the whole machine; what was not synced may be gone."""
        (self.disk.power_cut if power else self.disk.process_crash)()

    def start(self, how: str) -> None:
        """Begins again, and holds the index against a replay of the journal."""
        self.shore.cold.close()
        self.shore = Shore(self.shore.store, self.disk)
        self.engine = self.open()
        self.book.note(Restarted, how=how)
        self.check_index()


def page_of(reply: Reply) -> list[Message]:
    """Returns the entries of a page; their seqs are not told."""
    assert isinstance(reply, Page), reply
    assert not reply.next_key
    entries = reply.entries
    rows = zip(entries.timestamps_us, entries.types, reply.keys, entries.values, strict=True)
    return [Message(0, *row) for row in rows]


class Book:
    """The history of all tables: one thing after the other."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.history: list[Event] = []

    def note(self, kind: type[Event], **fields: Any) -> None:
        at = 2 * len(self.history)
        self.history.append(kind(began=at, ended=at + 1, wall_us=self._machine.now_us, **fields))

    def note_write(
        self, written: Sequence[tuple[str, Message]], outcome: Outcome = Outcome.OK
    ) -> None:
        changes = [
            Change(table, one.key, None if one.is_tombstone else one.value, one.seq)
            for table, one in written
        ]
        if changes:
            self.note(Wrote, changes=tuple(changes), outcome=outcome)

    def note_read(self, command: commands.Read, reply: Messages) -> None:
        messages = [
            Told(one.seq, one.key, None if one.is_tombstone else one.value) for one in told(reply)
        ]
        self.note(
            Passed,
            table=command.table,
            after=command.after,
            until=reply.until,
            messages=tuple(messages),
            next_after=reply.after,
            is_end=reply.ended,
            keeps_all=command.table in LOGS,
        )

    def note_position(self, table: str, name: str, how: How, **fields: Any) -> None:
        tail = self._machine.engine.applied_seq
        self.note(Positioned, name=f"{table}/{name}", how=how, tail=tail, **fields)
