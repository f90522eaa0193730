"""Batches that are staged and committed, cut at every call: each of them is there exactly once.

A writer stages rows for four tables and commits them as numbered batches.  After a crash it does
what Spark does: it runs its last batch again, from the beginning, with the same number.  Meanwhile
tables are sealed, and segments are packed; and some stages are never committed.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fjord import commands, limits
from fjord.columns import Strings
from fjord.commands import CommitStages, Committed, Done, Numbers, Push, Stage
from fjord.tables.state import Tree
from fjord.testing import SimCrash, SimDisk
from tests.crash.stream_world import KV, LATEST, LOG, World, every_point
from tests.unit.engine.shore import append_command

JOBS = "jobs"
WRITER = "a query"
Rows = list[tuple[bytes, bytes]]


class StagingWorld(World):
    """A writer, and what there has to be of its batches."""

    def __init__(self, disk: SimDisk) -> None:
        super().__init__(disk)
        self.batch = 0  # that is next

    def rows(self, table: str, batch: int) -> list[Rows]:
        """Returns what a batch has for a table: some stages of rows, the same each time."""
        stages = 1 + (batch + len(table)) % 3
        return [
            [
                (b"%d" % (number % 3), b"%s-%d-%d-%d" % (table.encode(), batch, stage, number))
                for number in range(1 + (batch + stage) % 4)
            ]
            for stage in range(stages)
        ]

    def stage(self, table: str, rows: Rows) -> int:
        reply = self.ask(Stage(rows=self.command(table, rows)))
        assert isinstance(reply, Done)
        return reply.seq

    def command(self, table: str, rows: Rows) -> commands.Append | commands.Set | Push:
        if table in (LOG, LATEST):
            padding = b"." * (2000 if table == LOG else 0)
            return append_command(table, [(key, value + padding) for key, value in rows])
        keys, values = Strings.of([key for key, _ in rows]), Strings.of([one for _, one in rows])
        types, stamps = b"\1" * len(rows), [self.clock.wall_us()] * len(rows)
        if table == KV:
            return commands.Set(
                table=KV, keys=keys, types=types, values=values, timestamps_us=stamps
            )
        none = [0] * len(rows)
        return Push(
            table=JOBS,
            keys=values,
            domains=Strings.of([b""] * len(rows)),
            types=types,
            values=values,
            priorities=bytes(len(rows)),
            process_at_us=none,
            expires_at_us=none,
            timestamps_us=stamps,
        )

    def write(self) -> None:
        """Writes the next batch; what is staged for nothing is never seen."""
        for table in (LOG, LATEST, KV, JOBS):
            self.clock.advance(0.001)
            self.stage(table, [(b"lost", b"never committed")])
            stages = [self.stage(table, rows) for rows in self.rows(table, self.batch)]
            command = CommitStages(table=table, writer=WRITER, batch=self.batch, stages=stages)
            while self.commit(command).left:
                pass
        self.batch += 1

    def commit(self, command: CommitStages) -> Committed:
        reply = self.ask(command)
        assert isinstance(reply, Committed)
        return reply

    def live(self) -> None:
        for _ in range(2):
            for step in STEPS:
                step(self)

    # -- what must hold ---------------------------------------------------------------------------

    def expected(self, table: str) -> Rows:
        return [
            row for batch in range(self.batch) for stage in self.rows(table, batch) for row in stage
        ]

    def check(self) -> None:
        """Every row of every batch is there once; nothing of the others is."""
        log = [value.rstrip(b".") for _, _, value in self.read_all(LOG, 4)]
        assert log == [value for _, value in self.expected(LOG)]
        latest = {key: value for _, key, value in self.read_all(LATEST)}
        assert latest == dict(self.expected(LATEST))
        page = self.ask(commands.Range(table=KV))
        assert isinstance(page, commands.Page)
        found = dict(zip(page.keys.rows(), page.entries.values.rows(), strict=True))
        assert found == dict(self.expected(KV))
        counted = self.ask(commands.CountJobs(table=JOBS))
        assert isinstance(counted, Numbers)
        numbers = dict(zip(counted.names.rows(), counted.values, strict=True))
        assert numbers[b"waiting"] == len(self.expected(JOBS))
        self.check_index()

    def settle(self) -> None:
        """Waits until what was staged in vain is dropped, and the journal can be packed."""
        self.clock.advance(2 * limits.STAGE_US_MAX // 1_000_000)
        for _ in range(3):
            self.round()
            self.upkeep()
            self.pack()

    def left(self) -> int:
        return len(self.engine.scan_index(Tree.STAGES, b"", None, 1000))


STEPS: list[Callable[[StagingWorld], None]] = [
    StagingWorld.write,
    StagingWorld.write,
    StagingWorld.round,
    StagingWorld.upkeep,
    StagingWorld.pack,
    StagingWorld.write,
]


def begun(seed: int) -> StagingWorld:
    world = StagingWorld(SimDisk(seed))
    world.open()
    world.create()
    return world


def test_a_life_without_a_crash_leaves_nothing_staged() -> None:
    world = begun(1)
    world.live()
    world.check()
    assert world.left()
    first_seq = world.engine.stats()["first_seq"]
    world.settle()
    assert not world.left()
    assert world.engine.stats()["first_seq"] > first_seq
    world.check()


@pytest.mark.parametrize(("seed", "kind"), [(1, "power_cut"), (2, "process_crash")])
def test_a_tenth_of_all_calls_may_be_the_last(seed: int, kind: str) -> None:
    for point in range(seed, calls_of(seed), 10):
        cut(seed, kind, point)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["power_cut", "process_crash"])
def test_every_call_may_be_the_last(kind: str, soak_seconds: float) -> None:
    assert every_point(calls_of, cut, kind, soak_seconds) > 0


def calls_of(seed: int) -> int:
    """Returns how many calls of a life change the disk."""
    world = begun(seed)
    began = len(world.disk.calls)
    world.live()
    return len(world.disk.calls) - began


def cut(seed: int, kind: str, point: int) -> None:
    """Ends a life at one of its calls; the writer then runs its last batch again."""
    world = begun(seed)
    world.disk.crash_after(point)
    with pytest.raises(SimCrash):
        world.live()
    world.crash(kind)
    world.write()
    world.check()
    again = world.batch = world.batch - 1
    world.write()  # and again, though nobody asked for it
    assert world.batch == again + 1
    world.settle()
    world.check()
    world.engine.close()
    world.indexes.drop()
    world.open()
    world.check()
    assert not world.left()
