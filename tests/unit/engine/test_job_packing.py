"""Packing of jobs: what is left of the journal is all that a next start has."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fjord import commands, jobs
from fjord.columns import Strings, repeat
from fjord.commands import Acted, CreateTable, Done, JobPage, Reply, Taken
from fjord.disk import LocalDisk
from fjord.engine import Engine, doctor
from fjord.engine.moving import Moving
from fjord.jobs import State
from fjord.journal.reader import Journal
from fjord.tables.state import Kind, Tree
from fjord.testing import SimClock
from tests.unit.engine.world import open_at, settings

KEYS = [b"http://example.com/%d" % number for number in range(60)]
TABLES = ("plain", "merged", "fair")
HOUR = 3600


class Life:
    """A directory in which jobs come and go at random, and the journal is packed meanwhile."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.dice = random.Random(seed)
        self.clock = SimClock()
        self.engine = open_at(path, self.clock)
        self.taken: dict[str, list[int]] = {table: [] for table in TABLES}
        for table, declared in zip(
            TABLES,
            (
                jobs.Settings(merge=False),
                jobs.Settings(timeouts_max=2),
                jobs.Settings(fairness=jobs.Fairness.DOMAIN),
            ),
            strict=True,
        ):
            self.run(CreateTable(name=table, kind=Kind.JOBS, settings=declared.encode()))

    def run(self, command: commands.Command) -> Reply:
        (reply,) = self.engine.run([command])
        self.engine.sync()
        assert not isinstance(reply, commands.Refusal), reply
        return reply

    def step(self) -> None:
        table = self.dice.choice(TABLES)
        verb: Callable[[str], object] = self.dice.choice(
            [self.push] * 6
            + [self.next] * 5
            + [self.finish] * 4
            + [self.fail, self.touch, self.cancel, self.reschedule, self.bury, self.revive]
        )
        verb(table)
        self.clock.advance(self.dice.choice([0, 0, 1, 30]))

    def push(self, table: str) -> None:
        keys = self.dice.choices(KEYS, k=self.dice.randint(1, 8))
        count, now_us = len(keys), self.clock.wall_us()
        expires = [self.dice.choice([0, 0, now_us + 500_000_000]) for _ in keys]
        command = commands.Push(
            table=table,
            keys=Strings.of(keys),
            domains=Strings.of([self.dice.choice([b"", b"a", b"b"]) for _ in keys]),
            types=b"\1" * count,
            values=Strings.of([self.dice.randbytes(self.dice.randint(0, 900)) for _ in keys]),
            priorities=bytes(self.dice.choices([10, 100, 220], k=count)),
            process_at_us=[self.dice.choice([0, 0, 40_000_000]) for _ in keys],
            expires_at_us=expires,
            timestamps_us=repeat(now_us, count),
            relative=True,
        )
        assert isinstance(self.run(command), Done)

    def next(self, table: str) -> None:
        count, lease_us = self.dice.randint(1, 6), self.dice.choice([60, HOUR]) * 1_000_000
        reply = self.run(commands.Next(table=table, count=count, lease_us=lease_us))
        assert isinstance(reply, Taken)
        self.taken[table] += range(reply.first_xid, reply.first_xid + len(reply.rows))

    def some(self, table: str) -> list[int]:
        found = self.taken[table]
        self.dice.shuffle(found)
        return [found.pop() for _ in range(min(len(found), self.dice.randint(1, 4)))]

    def finish(self, table: str) -> None:
        if xids := self.some(table):
            assert isinstance(self.run(commands.Finish(table=table, xids=xids)), Acted)

    def fail(self, table: str) -> None:
        if xids := self.some(table):
            delay_us = self.dice.choice([0, 5_000_000])
            self.run(commands.Fail(table=table, xids=xids, delay_us=delay_us, reason=b"why"))

    def touch(self, table: str) -> None:
        if xids := self.some(table):
            self.run(commands.Extend(table=table, xids=xids))
            self.taken[table] += xids

    def keys(self) -> Strings:
        return Strings.of(self.dice.sample(KEYS, 3))

    def cancel(self, table: str) -> None:
        self.run(commands.Cancel(table=table, keys=self.keys()))

    def reschedule(self, table: str) -> None:
        self.run(commands.Reschedule(table=table, keys=self.keys(), priority=5))

    def bury(self, table: str) -> None:
        self.run(commands.Bury(table=table, keys=self.keys(), reason=b"by hand"))

    def revive(self, table: str) -> None:
        rows = [row for row, *_ in self.seen(table, State.DEAD)]
        if rows:
            self.run(commands.Revive(table=table, rows=rows[:3]))
            self.run(commands.Discard(table=table, rows=rows[3:6] or [1]))

    def seen(self, table: str, state: State) -> Iterator[tuple[object, ...]]:
        """Yields all that can be seen of jobs."""
        start = b""
        while True:
            page = self.run(commands.Peek(table=table, state=state, start=start))
            assert isinstance(page, JobPage)
            numbers = [getattr(page, name) for name in JobPage.NUMBERS]
            columns = [page.priorities, page.timeouts, page.types, page.keys, page.domains]
            yield from zip(*numbers, *columns, page.values, page.reasons, strict=True)
            if not page.next_start:
                return
            start = page.next_start

    def all(self) -> dict[tuple[str, State], list[tuple[object, ...]]]:
        return {
            (table, state): list(self.seen(table, state)) for table in TABLES for state in State
        }

    def examine(self) -> None:
        found = doctor.examine(str(self.path), settings(self.clock))
        assert not found.difference_count, found.differences

    def reopen(self, *, crash: bool) -> None:
        if crash:
            self.engine.abandon()
        else:
            self.engine.close()
        self.engine = open_at(self.path, self.clock)


def settle(engine: Engine, clock: SimClock) -> None:
    """Does all upkeep that is due, rests included."""
    for _ in range(10_000):
        if not engine.upkeep() and engine.upkeep_due_us() > clock.wall_us():
            break
        clock.advance(0.01)
    engine.sync()


@pytest.mark.parametrize("seed", range(6))
def test_jobs_outlive_the_segments_that_they_were_pushed_in(tmp_path: Path, seed: int) -> None:
    life = Life(tmp_path, seed)
    for step in range(1200):
        life.step()
        if step % 3 == 0:
            life.engine.upkeep()
            life.engine.sync()
        if step % 200 == 199:
            life.reopen(crash=step % 400 == 399)
    settle(life.engine, life.clock)
    assert life.engine.stats()["packed_segments"] > 0 or life.engine.stats()["first_seq"] > 1
    counts = life.engine.job_counts()
    before = life.all()
    for table in TABLES:
        assert list(counts[table]) == [len(before[table, state]) for state in State]
    life.engine.close()
    life.examine()
    (tmp_path / "index" / "data.mdb").unlink()
    life.engine = open_at(tmp_path, life.clock)
    assert life.all() == before
    assert life.engine.job_counts() == counts
    life.engine.close()


def test_jobs_that_are_taken_while_others_are_moved_are_moved_too(tmp_path: Path) -> None:
    """A pass looks at waiting jobs first; what is given back then waits where it has looked."""
    life = Life(tmp_path, 1)
    for _ in range(60):
        life.push("plain")
    life.clock.advance(60)
    for _ in range(10):
        life.next("plain")
    segment = life.engine.stats()["segments"] - 1
    assert segment > 1
    moving = Moving(life.engine, segment)
    steps = moving.commands()
    moved = [next(steps)]
    while moved[-1].tree is Tree.JOBS_READY:
        life.engine.run_internal(moved[-1])
        moved.append(next(steps))
    first_seq = life.engine.applied_seq + 1
    reply = life.run(commands.Fail(table="plain", xids=life.taken["plain"]))
    assert isinstance(reply, Acted)
    assert [step for step in Moving(life.engine, segment).commands() if step.keys]
    journal = Journal(LocalDisk(), str(tmp_path / "journal"))
    for located in journal.frames(first_seq, durable_seq=0):
        for op, place in located.ops():
            moving.note(op, place)
    journal.close()
    for step in steps:
        life.engine.run_internal(step)
    assert not [step for step in Moving(life.engine, segment).commands() if step.keys]
    life.engine.close()
