"""A random life of jobs on an engine, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from fjord import commands, jobs
from fjord.columns import Strings, repeat
from fjord.commands import Acted, CreateTable, Done, JobPage, Reply, Taken
from fjord.engine import Engine
from fjord.jobs import State
from fjord.kinds import Kind
from fjord.testing import SimClock

KEYS = [b"http://example.com/%d" % number for number in range(60)]
TABLES = ("plain", "merged", "fair")
HOUR = 3600


class Life:
    """An engine on which jobs come and go at random."""

    def __init__(
        self,
        engine: Engine,
        clock: SimClock,
        seed: int,
        *,
        value_bytes: int = 900,
        period: jobs.Period = jobs.Period.NONE,
    ) -> None:
        self.value_bytes = value_bytes
        self.dice = random.Random(seed)
        self.clock = clock
        self.engine = engine
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
            settings = replace(declared, period=period).encode()
            self.run(CreateTable(name=table, kind=Kind.JOBS.number, settings=settings))

    def run(self, command: commands.Command) -> Reply:
        (reply,) = self.engine.run([command])
        self.engine.sync()
        assert not isinstance(reply, commands.Refusal), reply
        return reply

    def step(self) -> None:
        table = self.dice.choice(TABLES)
        verb: Callable[[str], object] = self.dice.choice(
            [self.push] * 5
            + [self.next] * 6
            + [self.finish] * 6
            + [self.drain] * 2
            + [self.fail, self.touch, self.cancel, self.reschedule, self.bury, self.revive]
        )
        if verb in (self.cancel, self.reschedule, self.bury) and table == "plain":
            verb = self.push  # jobs that are not merged are not found by key
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
            values=Strings.of(
                [self.dice.randbytes(self.dice.randint(0, self.value_bytes)) for _ in keys]
            ),
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

    def drain(self, table: str) -> None:
        self.run(commands.Next(table=table, count=20, done=True))

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
            made = self.dice.choice([commands.Revive, commands.Discard])
            self.run(made(table=table, rows=rows[:3]))

    def seen(self, table: str, state: State) -> Iterator[tuple[Any, ...]]:
        """Yields all that can be seen of jobs, but when their leases are over."""
        start = b""
        while True:
            page = self.run(commands.Peek(table=table, state=state, start=start))
            assert isinstance(page, JobPage)
            names = [name for name in JobPage.row.columns if name != "moments_us"]
            yield from zip(*[list(getattr(page, name)) for name in names], strict=True)
            if not page.next_start:
                return
            start = page.next_start

    def all(self) -> dict[tuple[str, State], list[tuple[Any, ...]]]:
        return {
            (table, state): list(self.seen(table, state)) for table in TABLES for state in State
        }
