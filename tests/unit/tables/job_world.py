"""Jobs in short words: a world of `world.World` in which jobs are pushed, taken and finished."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from fjord import commands, jobs
from fjord.columns import Strings
from fjord.commands import Acted, CreateTable, JobPage, Numbers, Push, Reply, Taken
from fjord.jobs import State
from fjord.kinds import Kind
from fjord.tables.jobs.keep import EndLeases, ExpireJobs
from tests.unit.tables.world import World

TABLE = "jobs"
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
BUFFER = 1


class New(NamedTuple):
    """A job to push.  Dates are moments of wall time, 0 as in `commands.Push`."""

    key: bytes
    value: bytes = b""
    priority: int = 100
    process_at_us: int = 0
    expires_at_us: int = 0
    stamp_us: int = 0  # 0: the world's time
    domain: bytes = b""
    type: int = BUFFER


class Got(NamedTuple):
    """A job as it was handed out, or as somebody saw it."""

    key: bytes
    value: bytes
    xid: int
    row: int
    priority: int
    process_at_us: int
    inserted_us: int
    updated_us: int
    expires_at_us: int
    timeouts: int
    type: int
    domain: bytes
    reason: bytes = b""
    moment_us: int = 0


class JobWorld(World):
    """A world whose table "jobs" is there, with these settings."""

    def __init__(self, journal: bytes = b"", next_seq: int = 1, **settings: Any) -> None:
        super().__init__(journal, next_seq)
        if settings:
            self.create(jobs.Settings(**settings).encode())

    def create(self, settings: bytes, table: str = TABLE) -> Reply:
        return self.run(CreateTable(name=table, kind=Kind.JOBS.number, settings=settings))

    def replayed(self) -> JobWorld:
        world = JobWorld(self.journal[: self.begin], self.first_seq)
        for op, _ in self.placed():
            world.apply(op)
        world.recount()
        return world

    # -- time -------------------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        """Time passes, and what is due is done."""
        self.now_us += round(seconds * SECOND)
        self.lease_us += round(seconds * SECOND)
        self.upkeep()

    def jump(self, seconds: float) -> None:
        """The wall clock is set."""
        self.now_us += round(seconds * SECOND)

    def upkeep(self) -> None:
        for command in (EndLeases(limit=100), ExpireJobs(limit=100)):
            before = 0
            while before != self.next_seq:
                before = self.next_seq
                self.run(command)

    # -- short forms ------------------------------------------------------------------------------

    def push(self, *found: New | bytes, table: str = TABLE, relative: bool = False) -> Reply:
        """Pushes jobs; a mere key stands for one with nothing else to say."""
        rows = [one if isinstance(one, New) else New(one) for one in found]
        return self.run(push_command(rows, self.now_us, table=table, relative=relative))

    def push_one(self, key: bytes, **fields: Any) -> Reply:
        return self.push(New(key, **fields))

    def next(self, count: int = 1, table: str = TABLE, **fields: Any) -> list[Got]:
        return got(self.take(count, table, **fields))

    def take(self, count: int = 1, table: str = TABLE, **fields: Any) -> Taken:
        reply = self.run(commands.Next(table=table, count=count, **fields))
        assert isinstance(reply, Taken), reply
        return reply

    def keys(self, count: int = 1, **fields: Any) -> list[bytes]:
        """Takes jobs and returns their keys."""
        return [one.key for one in self.next(count, **fields)]

    def done(self, *taken: Got | int, table: str = TABLE) -> list[int]:
        """Says that jobs are done; returns the positions of those that came too late."""
        return missing(self.run(commands.Finish(table=table, xids=_xids(taken))))

    def extend(self, *taken: Got | int, lease_us: int = 0) -> list[int]:
        command = commands.Extend(table=TABLE, xids=_xids(taken), lease_us=lease_us)
        return missing(self.run(command))

    def fail(self, *taken: Got | int, **fields: Any) -> list[int]:
        return missing(self.run(commands.Fail(table=TABLE, xids=_xids(taken), **fields)))

    def cancel(self, *keys: bytes) -> list[int]:
        return missing(self.run(commands.Cancel(table=TABLE, keys=Strings.of(keys))))

    def reschedule(self, *keys: bytes, **fields: Any) -> list[int]:
        command = commands.Reschedule(table=TABLE, keys=Strings.of(keys), **fields)
        return missing(self.run(command))

    def bury(self, *keys: bytes, reason: bytes = b"") -> list[int]:
        command = commands.Bury(table=TABLE, keys=Strings.of(keys), reason=reason)
        return missing(self.run(command))

    def revive(self, *rows: int, delay_us: int = 0) -> list[int]:
        command = commands.Revive(table=TABLE, rows=rows, delay_us=delay_us)
        return missing(self.run(command))

    def discard(self, *rows: int) -> list[int]:
        return missing(self.run(commands.Discard(table=TABLE, rows=rows)))

    def peek(self, state: State = State.WAITING, **fields: Any) -> list[Got]:
        reply = self.run(commands.Peek(table=TABLE, state=state, **fields))
        return seen(reply)

    def find(self, *keys: bytes) -> list[Got]:
        return seen(self.run(commands.Find(table=TABLE, keys=Strings.of(keys))))

    def waiting(self, key: bytes) -> Got:
        """Returns the job that waits under a key."""
        (found,) = self.find(key)
        return found

    def count(self, domain: bytes = b"") -> dict[str, int]:
        return numbers(self.run(commands.CountJobs(table=TABLE, domain=domain)))

    def totals(self) -> tuple[int, int, int]:
        """Returns how many jobs wait, are taken and are dead."""
        found = self.count()
        return found["waiting"], found["taken"], found["dead"]

    def check(self) -> None:
        """Asserts what must hold of every state, and that the journal tells the same."""
        super().check()
        again = self.replayed()
        assert again.trees() == self.trees()
        assert again.totals() == self.totals()


# -- commands and replies -------------------------------------------------------------------------


def push_command(
    rows: Sequence[New], now_us: int, *, table: str = TABLE, relative: bool = False
) -> Push:
    return Push(
        table=table,
        keys=Strings.of([row.key for row in rows]),
        domains=Strings.of([row.domain for row in rows]),
        types=bytes(row.type for row in rows),
        values=Strings.of([row.value for row in rows]),
        priorities=bytes(row.priority for row in rows),
        process_at_us=[row.process_at_us for row in rows],
        expires_at_us=[row.expires_at_us for row in rows],
        timestamps_us=[row.stamp_us or now_us for row in rows],
        relative=relative,
    )


def got(reply: Reply) -> list[Got]:
    """Returns the jobs of an answer to NEXT."""
    assert isinstance(reply, Taken), reply
    count, first = len(reply.rows), reply.first_xid
    return _told(reply, range(first, first + count) if first else [0] * count)


def seen(reply: Reply) -> list[Got]:
    """Returns the jobs of a page."""
    assert isinstance(reply, JobPage), reply
    return _told(reply, reply.xids, reply.reasons.rows(), reply.moments_us)


def _told(reply: Taken | JobPage, xids: Iterable[int], *more: Iterable[Any]) -> list[Got]:
    dates = (reply.process_at_us, reply.inserted_us, reply.updated_us, reply.expires_at_us)
    numbers = (xids, reply.rows, reply.priorities, *dates, reply.timeouts, reply.types)
    columns = (reply.keys.rows(), reply.values.rows(), *numbers, reply.domains.rows(), *more)
    return [Got(*fields) for fields in zip(*columns, strict=True)]


def missing(reply: Reply) -> list[int]:
    assert isinstance(reply, Acted), reply
    return list(reply.missing)


def numbers(reply: Reply) -> dict[str, int]:
    assert isinstance(reply, Numbers), reply
    names = [name.decode() for name in reply.names.rows()]
    return dict(zip(names, reply.values, strict=True))


def _xids(taken: Sequence[Got | int]) -> list[int]:
    return [one.xid if isinstance(one, Got) else one for one in taken]
