"""Jobs pushed, taken and done: Fjord beside Redis streams and beanstalkd.

All three acknowledge after an fsync.  Only Fjord looks up each key among the waiting jobs: a
stream, and a tube, accept the same key again and again.  The sides work alternately on the same
keys, and a rate covers all turns of a side, so that no stall is missed.
"""

from __future__ import annotations

import contextlib
import functools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import redis
from rich.table import Table

import fjord
from benchmarks import report, servers
from benchmarks.beanstalkd import Beanstalk
from benchmarks.loads import BATCH, VALUE
from benchmarks.scale import Scale

KEYS = 1_000_000
HOT_KEYS = 10_000
SINGLE_JOBS = 10_000
# An fsync for each put: fewer jobs show the rate as well.
BEANSTALKD_JOBS = 50_000
# A smaller share of the rows would not show the cost of a full table.
DIVISOR_MAX = 10
FJORD, REDIS, BEANSTALKD = "Fjord", "Redis", "beanstalkd"
GROUP, WORKER = "workers", "worker"
_VALUES = [VALUE] * BATCH

Batches = Sequence[Sequence[str]]


def key(row: int) -> str:
    """Returns one of 2 to the 32 URIs; those of neighbouring rows are far apart."""
    return f"https://www{row % 1000:03}.example/page/{row * 2654435761 % 2**32:010}"


def rows_of(full: int, scale: Scale) -> int:
    return full // min(scale.divisor, DIVISOR_MAX)


# -- Fjord ----------------------------------------------------------------------------------------


def fjord_push_many(db: fjord.Database, table: str, batches: Batches) -> None:
    jobs = db.jobs(table)
    for keys in batches:
        jobs.push_many(keys=keys, values=_VALUES)


def fjord_push(db: fjord.Database, table: str, batches: Batches) -> None:
    jobs = db.jobs(table)
    for (key_,) in batches:
        jobs.push(key_, VALUE)


def fjord_take_many(db: fjord.Database, table: str, batches: Batches) -> None:
    jobs = db.jobs(table)
    for keys in batches:
        taken = jobs.next(len(keys))
        _expect(len(taken), len(keys))
        _expect(len(jobs.done_many(taken)), 0)


def fjord_read_many(db: fjord.Database, table: str, batches: Batches) -> None:
    jobs = db.jobs(table)
    for keys in batches:
        taken = jobs.next(len(keys))
        _expect(len([job.key for job in taken if job.value == VALUE]), len(keys))
        _expect(len(jobs.done_many(taken)), 0)


def fjord_take(db: fjord.Database, table: str, batches: Batches) -> None:
    jobs = db.jobs(table)
    for _ in batches:
        (job,) = jobs.next()
        job.done()


# -- Redis ----------------------------------------------------------------------------------------


def redis_push_many(client: redis.Redis, table: str, batches: Batches) -> None:
    for keys in batches:
        pipeline = client.pipeline(transaction=False)
        for key_ in keys:
            pipeline.xadd(table, {"key": key_, "value": VALUE})
        pipeline.execute()


def redis_push(client: redis.Redis, table: str, batches: Batches) -> None:
    for (key_,) in batches:
        client.xadd(table, {"key": key_, "value": VALUE})


def redis_take_many(client: redis.Redis, table: str, batches: Batches) -> None:
    for keys in batches:
        taken = _redis_next(client, table, len(keys))
        _expect(client.xack(table, GROUP, *[number for number, _ in taken]), len(keys))


def redis_read_many(client: redis.Redis, table: str, batches: Batches) -> None:
    for keys in batches:
        taken = _redis_next(client, table, len(keys))
        read = [job[b"key"] for _, job in taken if job[b"value"] == VALUE]
        _expect(len(read), len(keys))
        _expect(client.xack(table, GROUP, *[number for number, _ in taken]), len(keys))


def _redis_next(client: redis.Redis, table: str, count: int) -> list[Any]:
    found: Any = client.xreadgroup(GROUP, WORKER, {table: ">"}, count=count)
    ((_, taken),) = found
    return list(taken)


# -- beanstalkd -----------------------------------------------------------------------------------


def beanstalkd_push(beanstalk: Beanstalk, _: str, batches: Batches) -> None:
    for keys in batches:
        beanstalk.put_many([key_.encode() + VALUE for key_ in keys])


def beanstalkd_take(beanstalk: Beanstalk, _: str, batches: Batches) -> None:
    for _keys in batches:
        beanstalk.take()


def _expect(found: int, wanted: int) -> None:
    if found != wanted:
        raise RuntimeError(f"{found} jobs where there should be {wanted}")


# -- alternating ----------------------------------------------------------------------------------

Side = Callable[[Any, str, Batches], None]  # its client, the table


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One figure: the same work on each side."""

    name: str
    table: str  # also the name of the stream
    batches: Callable[[int, Scale], Batches]  # of one turn
    sides: dict[str, Side]
    aims: dict[str, float]  # the target ratios


@dataclass(slots=True)
class Rate:
    """The work that one side has done in all its turns so far."""

    jobs: int = 0
    seconds: float = 0.0

    def add(self, batches: Batches, work: Callable[[Batches], None]) -> None:
        start = time.perf_counter()
        work(batches)
        self.seconds += time.perf_counter() - start
        self.jobs += sum(map(len, batches))

    def per_second(self) -> float:
        return self.jobs / self.seconds


def run(scale: Scale) -> None:
    title = f"jobs, {rows_of(KEYS, scale):,} pushed"
    beside = ("Redis /s", "ratio", "target", "beanstalkd /s", "ratio", "target")
    table = Table(title, "Fjord /s", *beside)
    with _clients() as clients:
        for work in WORKS:
            rates = in_turns(work, clients, scale)
            ours = rates[FJORD].per_second()
            table.add_row(
                work.name,
                f"{ours:,.0f}",
                *_beside(ours, rates.get(REDIS), work.aims.get(REDIS)),
                *_beside(ours, rates.get(BEANSTALKD), work.aims.get(BEANSTALKD)),
            )
    report.console.print(table)


def in_turns(work: Work, clients: dict[str, Any], scale: Scale) -> dict[str, Rate]:
    """Lets every side do a part of the work, then the next part, until all of it is done."""
    rates = {name: Rate() for name in work.sides if name in clients}
    for turn in range(scale.rounds):
        batches = work.batches(turn, scale)
        for name, rate in rates.items():
            some = batches
            if name == BEANSTALKD:
                rows = rows_of(BEANSTALKD_JOBS, scale) // scale.rounds
                some = batches[: rows // len(batches[0])]
            rate.add(some, functools.partial(work.sides[name], clients[name], work.table))
    return rates


def _beside(ours: float, theirs: Rate | None, aim: float | None) -> tuple[str, str, str]:
    """Returns the rate of another side, its ratio to Fjord, and the target."""
    asked = "-" if aim is None else str(aim)
    if theirs is None:
        return "-", "-", asked
    ratio = ours / theirs.per_second()
    is_missed = aim is not None and ratio < aim
    return f"{theirs.per_second():,.0f}", f"{ratio:.2f}", f"{asked}{' missed' if is_missed else ''}"


@contextlib.contextmanager
def _clients() -> Iterator[dict[str, Any]]:
    """Starts all servers that are installed; yields a client of each."""
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(servers.Daemon(stack.enter_context(servers.data_directory())))
        clients: dict[str, Any] = {FJORD: stack.enter_context(fjord.connect(daemon.url))}
        if servers.has_redis():
            port = stack.enter_context(servers.redis_server())
            client = clients[REDIS] = stack.enter_context(redis.Redis(port=port))
            for table in {work.table for work in WORKS}:
                client.xgroup_create(table, GROUP, id="0", mkstream=True)
        else:
            report.console.print(f"redis-server is not installed: {servers.REDIS_INSTALL}")
        if servers.has_beanstalkd():
            port = stack.enter_context(servers.beanstalkd_server())
            clients[BEANSTALKD] = stack.enter_context(Beanstalk(port))
        else:
            report.console.print(f"beanstalkd is not installed: {servers.BEANSTALKD_INSTALL}")
        yield clients


# -- what is measured -----------------------------------------------------------------------------


def distinct_batches(turn: int, scale: Scale) -> Batches:
    rows = rows_of(KEYS, scale) // scale.rounds
    return _batches([key(row) for row in range(turn * rows, (turn + 1) * rows)], BATCH)


def hot_batches(turn: int, scale: Scale) -> Batches:
    rows = rows_of(KEYS, scale) // scale.rounds
    hot = [key(row) for row in range(HOT_KEYS)]
    return _batches(random.Random(turn).choices(hot, k=rows), BATCH)


def half_batches(turn: int, scale: Scale) -> Batches:
    """Returns two pieces of work that share the jobs pushed under distinct keys."""
    batches = distinct_batches(turn, scale)
    return batches[: len(batches) // 2]


def single_batches(turn: int, scale: Scale) -> Batches:
    rows = rows_of(SINGLE_JOBS, scale) // scale.rounds
    return _batches([key(row) for row in range(turn * rows, (turn + 1) * rows)], 1)


def _batches(keys: Sequence[str], size: int) -> Batches:
    return [keys[start : start + size] for start in range(0, len(keys), size)]


# The order matters: jobs are taken that were pushed before.
WORKS = [
    Work(
        name="push_many of 1,000, distinct keys / XADD, put",
        table="distinct",
        batches=distinct_batches,
        sides={FJORD: fjord_push_many, REDIS: redis_push_many, BEANSTALKD: beanstalkd_push},
        aims={REDIS: 2.0, BEANSTALKD: 10.0},
    ),
    Work(
        name="next(1000), done_many / XREADGROUP, XACK",
        table="distinct",
        batches=half_batches,
        sides={FJORD: fjord_take_many, REDIS: redis_take_many},
        aims={REDIS: 2.0},
    ),
    Work(
        name="the same, every key and value read",
        table="distinct",
        batches=half_batches,
        sides={FJORD: fjord_read_many, REDIS: redis_read_many},
        aims={REDIS: 2.0},
    ),
    Work(
        name=f"push_many of 1,000, {HOT_KEYS:,} hot keys / XADD",
        table="hot",
        batches=hot_batches,
        sides={FJORD: fjord_push_many, REDIS: redis_push_many},
        aims={REDIS: 1.5},
    ),
    Work(
        name="push, one in flight / XADD, put",
        table="single",
        batches=single_batches,
        sides={FJORD: fjord_push, REDIS: redis_push, BEANSTALKD: beanstalkd_push},
        aims={REDIS: 0.9},
    ),
    Work(
        name="next, done, one in flight / XREADGROUP, XACK / reserve, delete",
        table="single",
        batches=single_batches,
        sides={FJORD: fjord_take, REDIS: redis_take_many, BEANSTALKD: beanstalkd_take},
        aims={REDIS: 0.9},
    ),
]
