"""A machine with streams and cold blocks on one simulated disk, for crash tests."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from fjord import commands, streams
from fjord.blocks.store import Store
from fjord.columns import Strings
from fjord.commands import Command, CreateTable, Messages, Page, Refusal, Reply, Subscribers
from fjord.engine import Engine, EngineSettings, doctor, open_engine
from fjord.engine.memory import TREE_COUNT
from fjord.index.memory import MemoryIndexes
from fjord.journal.reader import Journal
from fjord.kinds import Kind
from fjord.streams import Mode
from fjord.testing import SimClock, SimDisk
from tests.unit.engine.shore import Shore, append_command, told

HOUR_US = 3600 * 1_000_000
LOG, AGED, LATEST = "log", "aged", "latest"
STREAMS = {
    LOG: streams.Settings(block_rows=6),
    AGED: streams.Settings(block_rows=4, retention_us=HOUR_US),
    LATEST: streams.Settings(mode=Mode.LATEST, block_rows=6),
}
KV = "kv"
Row = tuple[int, bytes, bytes]  # seq, key, value
Seen = dict[str, Any]


class World:
    """Disk, clock, engine and a folder for blocks; what survives a crash is what the disk keeps."""

    def __init__(self, disk: SimDisk, blocks_disk: SimDisk | None = None) -> None:
        self.disk = disk
        self.clock = SimClock()
        self.indexes = MemoryIndexes(TREE_COUNT)
        self.store = Store("/blocks", disk=blocks_disk or disk)
        self.shore = Shore(self.store, disk)
        self.engine: Engine

    def settings(self) -> EngineSettings:
        return EngineSettings(
            disk=self.disk,
            clock=self.clock,
            indexes=self.indexes,
            segment_bytes=64 * 1024,
            rebuild_rows=50,
        )

    def open(self) -> None:
        self.engine = open_engine("/data", self.settings())
        self.shore = Shore(self.store, self.disk)
        self.shore.attach(self.engine)

    def create(self) -> None:
        for name, chosen in STREAMS.items():
            self.ask(CreateTable(name=name, kind=Kind.STREAM.number, settings=chosen.encode()))
        self.ask(CreateTable(name=KV, kind=Kind.KV.number))

    def ask(self, command: Command) -> Reply:
        """Runs a command; blocks say what the engine cannot."""
        reply = self.shore.ask(self.engine, command)
        assert not isinstance(reply, Refusal), reply
        return reply

    def append(self, table: str, rows: Sequence[tuple[bytes, bytes]]) -> Reply:
        self.clock.advance(0.001)
        return self.ask(append_command(table, rows))

    # -- sealing ----------------------------------------------------------------------------------

    def round(self) -> None:
        """Writes what is durable to blocks, once."""
        plan = self.engine.sealing.plan_seal(now=True)
        if plan is not None:
            self.engine.sync()
            blocks = self.shore.write(self.engine, plan)
            self.engine.sealing.finish_seal(plan, blocks)
            self.engine.sync()

    def upkeep(self) -> None:
        while self.engine.upkeep():
            pass
        self.engine.sync()

    def pack(self) -> None:
        """Begins another segment, and packs the oldest one if it may go."""
        self.engine.begin_segment()
        journal = self.engine.journal
        segments = len(journal.segments)
        while 1 < len(journal.segments) == segments:
            oldest = journal.segments[0].segment
            if self.engine.is_held(oldest) or not self.engine._packer.step():
                break
        self.engine.sync()

    # -- looking ----------------------------------------------------------------------------------

    def read_all(self, table: str, count: int = 0) -> list[Row]:
        """Reads a stream from its beginning to the end of one snapshot."""
        found: list[Row] = []
        after, until = 0, 0
        while True:
            read = commands.Read(table=table, after=after, until=until, count=count)
            reply = self.ask(read)
            assert isinstance(reply, Messages)
            assert reply.ended or reply.after > after
            found += rows_of(reply)
            if reply.ended:
                return found
            after, until = reply.after, reply.until

    def seen(self) -> Seen:
        """Returns all that a user can see."""
        found: Seen = {table: self.read_all(table) for table in STREAMS}
        for table in (LATEST, KV):
            page = self.ask(commands.Range(table=table))
            assert isinstance(page, Page)
            found[f"{table} entries"] = (page.keys.rows(), page.entries.values.rows())
        for table in STREAMS:
            reply = self.ask(commands.ListSubscribers(table=table))
            assert isinstance(reply, Subscribers)
            names = reply.names.rows()
            found[f"{table} subscribers"] = (names, list(reply.seqs), list(reply.epochs))
        return found

    def check_index(self) -> None:
        """Asserts that the index is what a replay of the journal comes to."""
        journal = Journal(self.disk, "/data/journal")
        found = doctor.diagnose(journal, self.indexes.open(), self.settings(), shown=5)
        assert not found.difference_count, found.differences

    def block_names(self) -> list[str]:
        return sorted(
            block.name for table in STREAMS for block in self.engine.sealing.blocks(table)
        )

    def crash(self, kind: str) -> None:
        """Crashes, by name of what SimDisk calls it, and begins again."""
        getattr(self.disk, kind)()
        if kind == "power_cut":
            self.indexes.drop()
        self.open()


def set_command(key: bytes, value: bytes, timestamp_us: int) -> commands.Set:
    return commands.Set(
        table=KV,
        keys=Strings.of([key]),
        types=b"\1",
        values=Strings.of([value]),
        timestamps_us=[timestamp_us],
    )


def rows_of(reply: Messages) -> list[Row]:
    """Returns the messages of an answer; a tombstone has the value `gone`."""
    return [(one.seq, one.key, b"gone" if one.is_tombstone else one.value) for one in told(reply)]


class Numbers:
    """Values that come once each, of sizes that fill segments."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._count = 0

    def rows(self) -> list[tuple[bytes, bytes]]:
        """Returns keys and values for one append."""
        return [self.row() for _ in range(self._dice.choice([1, 1, 2, 5]))]

    def row(self) -> tuple[bytes, bytes]:
        self._count += 1
        key = self._dice.choice([b"a", b"b", b"c", b"d"])
        return key, b"%d " % self._count + b"." * self._dice.choice([0, 100, 1000])


def every_point(
    calls_of: Callable[[int], int], cut: Callable[[int, str, int], None], kind: str, seconds: float
) -> int:
    """Lives whole lives, one seed after the other, each cut at every one of its calls."""
    deadline = time.monotonic() + seconds
    points = 0
    for seed in itertools.count(1):
        for point in range(1, calls_of(seed)):
            cut(seed, kind, point)
            points += 1
        print(f"seed {seed}: {points} crash points so far")
        if time.monotonic() > deadline:
            break
    return points
