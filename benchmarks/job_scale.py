"""The cost of millions of jobs: those that wait for a worker, and those that wait for their date.

The engine with many jobs has a process of its own, so that only its memory is measured.
"""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import re
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

import fjord
from benchmarks import report, servers
from benchmarks.jobs import key, rows_of
from benchmarks.journal import settle
from benchmarks.loads import BATCH, VALUE
from benchmarks.scale import Scale
from fjord import commands
from fjord.clock import Stamps, SystemClock
from fjord.columns import Strings, repeat
from fjord.engine import open_engine
from fjord.engine.embedded import Embedded
from fjord.values import Type

TABLE = "bench"
WAITING, FEW_WAITING = 5_000_000, 5_000
PRIORITIES = (10, 100, 180)
# How many are taken at once, and how often.
TAKEN = {10: 200, 1000: 40}
NEXT_AIM = 2.0
PUSH_AIM = 80_000
ANONYMOUS_BYTES_AIM = 400_000_000

DELAYED = 1_000_000
DELAY_SECONDS = 24 * 3600.0
IDLE_SECONDS = 5.0
EMPTY_NEXTS = 2000
# Ticks of the kernel's accounting are 10 ms, and a few of them are noise.
IDLE_CPU_SECONDS_AIM = 0.05
EMPTY_NEXT_AIM = 1.25


def run(scale: Scale) -> None:
    with concurrent.futures.ProcessPoolExecutor(
        max_workers=1, mp_context=multiprocessing.get_context("spawn")
    ) as process:
        process.submit(measure, rows_of(WAITING, scale)).result().show()
    delayed(scale)


# -- waiting for a worker -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds for the same operation with few waiting jobs, and with many."""

    few: float
    many: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The results of the process with many jobs."""

    waiting: int
    push_rate: float
    last_push_rate: float  # of the last tenth
    filled_bytes: int  # anonymous memory when all were pushed
    taken_bytes: int  # and at the end
    costs: dict[int, Cost]  # by the number of jobs that are taken at once

    def show(self) -> None:
        self._show_push("push on the engine, 1,000 at a time", self.push_rate)
        self._show_push("  the last tenth of them", self.last_push_rate)
        self._show_memory(f"with {self.waiting:,} jobs waiting", self.filled_bytes)
        self._show_memory("after jobs were taken from them", self.taken_bytes)
        table = Table(
            "next on the engine",
            *(f"µs, {FEW_WAITING:,} waiting", f"µs, {self.waiting:,} waiting"),
            *("ratio", "target at most"),
        )
        for count, cost in self.costs.items():
            ratio = cost.many / cost.few
            table.add_row(
                f"next({count})",
                f"{cost.few * 1e6:,.0f}",
                f"{cost.many * 1e6:,.0f}",
                f"{ratio:.2f}",
                f"{NEXT_AIM}{'' if ratio <= NEXT_AIM else '  missed'}",
            )
        report.console.print(table)

    def _show_push(self, name: str, rate: float) -> None:
        report.figure(
            f"{name}, up to {self.waiting:,} waiting",
            f"{rate:,.0f} jobs/s",
            aim=f"target: {PUSH_AIM:,}",
            is_met=rate >= PUSH_AIM,
        )

    def _show_memory(self, when: str, size: int) -> None:
        report.figure(
            f"anonymous memory {when}",
            report.megabytes(size),
            aim=f"target: less than {report.megabytes(ANONYMOUS_BYTES_AIM)}",
            is_met=size < ANONYMOUS_BYTES_AIM,
        )


def measure(waiting: int) -> Measured:
    """Fills a table, then takes jobs from it, alternating with a table that has few."""
    with servers.data_directory() as directory, servers.data_directory() as other:
        many = Queue(directory)
        seconds = many.fill(waiting - waiting // 10)
        last_seconds = many.fill(waiting // 10)
        filled_bytes = _anonymous_bytes()
        few = Queue(other)
        few.fill(FEW_WAITING)
        costs = {count: in_turns(few, many, count, times) for count, times in TAKEN.items()}
        measured = Measured(
            waiting=waiting,
            push_rate=waiting / (seconds + last_seconds),
            last_push_rate=waiting // 10 / last_seconds,
            filled_bytes=filled_bytes,
            taken_bytes=_anonymous_bytes(),
            costs=costs,
        )
        many.close()
        few.close()
    return measured


def in_turns(few: Queue, many: Queue, count: int, times: int) -> Cost:
    """Returns the median times of taking jobs from both tables."""
    seconds = [(few.take(count), many.take(count)) for _ in range(times)]
    of_few, of_many = (statistics.median(column) for column in zip(*seconds, strict=True))
    return Cost(few=of_few, many=of_many)


class Queue:
    """A jobs table on an engine of its own."""

    def __init__(self, directory: str) -> None:
        self._embedded = Embedded(open_engine(directory))
        self._stamps = Stamps(SystemClock())
        self._rows = 0  # pushed so far

    def fill(self, rows: int) -> float:
        """Pushes more jobs; returns the seconds that the engine took to make them durable."""
        seconds = 0.0
        for start in range(0, rows, BATCH):
            command = self._push(min(BATCH, rows - start))
            begun = time.perf_counter()
            self._execute(command)
            seconds += time.perf_counter() - begun
        return seconds

    def take(self, count: int) -> float:
        """Takes jobs; returns the seconds for that, and then pushes as many others."""
        begun = time.perf_counter()
        taken = self._embedded.execute(commands.Next(table=TABLE, count=count))
        seconds = time.perf_counter() - begun
        if not isinstance(taken, commands.Taken) or len(taken.rows) != count:
            raise RuntimeError(f"there should be {count} jobs in {taken!r}")
        xids = range(taken.first_xid, taken.first_xid + count)
        self._execute(commands.Finish(table=TABLE, xids=xids))
        self._execute(self._push(count))
        return seconds

    def close(self) -> None:
        self._embedded.close()

    def _execute(self, command: commands.Command) -> None:
        reply = self._embedded.execute(command)
        if isinstance(reply, commands.Refusal):
            raise reply.error()

    def _push(self, rows: int) -> commands.Push:
        first, self._rows = self._rows, self._rows + rows
        numbers = range(first, self._rows)
        return commands.Push(
            table=TABLE,
            keys=Strings.of([key(row).encode() for row in numbers]),
            domains=Strings.of([b""] * rows),
            types=bytes([Type.BUFFER]) * rows,
            values=Strings.of([VALUE] * rows),
            priorities=bytes([PRIORITIES[row % len(PRIORITIES)] for row in numbers]),
            process_at_us=repeat(0, rows),
            expires_at_us=repeat(0, rows),
            timestamps_us=repeat(self._stamps.next_us(), rows),
        )


def _anonymous_bytes() -> int:
    """Returns anonymous memory; the kernel reclaims pages of mapped files when it needs them."""
    found = re.search(r"^RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError("this kernel does not report RssAnon")
    return int(found[1]) * 1024


# -- waiting for a date ---------------------------------------------------------------------------


def delayed(scale: Scale) -> None:
    """Compares a daemon that has many jobs for tomorrow with one that has a single one."""
    rows = rows_of(DELAYED, scale)
    with (
        servers.data_directory() as directory,
        servers.data_directory() as other,
        servers.Daemon(directory) as many,
        servers.Daemon(other) as one,
        fjord.connect(many.url) as many_db,
        fjord.connect(one.url) as one_db,
    ):
        postpone(many_db, rows)
        postpone(one_db, 1)
        settle(many_db)
        cpu_seconds = idle(one, many)
        next_seconds = empty_nexts(one_db, many_db, scale)
    report.figure(
        f"processor time of the daemon in {IDLE_SECONDS:.0f} s, {rows:,} jobs due tomorrow",
        f"{cpu_seconds.many:.2f} s, beside {cpu_seconds.few:.2f} s with one",
        aim=f"target: nothing, less than {IDLE_CPU_SECONDS_AIM} s more",
        is_met=cpu_seconds.many - cpu_seconds.few < IDLE_CPU_SECONDS_AIM,
    )
    ratio = next_seconds.many / next_seconds.few
    report.figure(
        "a next that finds none of them due",
        f"{next_seconds.many * 1e6:,.0f} µs, beside {next_seconds.few * 1e6:,.0f} µs with one: "
        f"{ratio:.2f}",
        aim=f"target: nothing, at most {EMPTY_NEXT_AIM} times",
        is_met=ratio <= EMPTY_NEXT_AIM,
    )


def postpone(db: fjord.Database, rows: int) -> None:
    """Pushes jobs that are due tomorrow."""
    jobs = db.jobs(TABLE)
    for start in range(0, rows, BATCH):
        keys = [key(row) for row in range(start, min(start + BATCH, rows))]
        jobs.push_many(keys=keys, values=[VALUE] * len(keys), delay=DELAY_SECONDS)


def idle(one: servers.Daemon, many: servers.Daemon) -> Cost:
    """Returns the processor time of both daemons while they are idle."""
    before = one.cpu_seconds(), many.cpu_seconds()
    time.sleep(IDLE_SECONDS)
    return Cost(few=one.cpu_seconds() - before[0], many=many.cpu_seconds() - before[1])


def empty_nexts(one: fjord.Database, many: fjord.Database, scale: Scale) -> Cost:
    """Returns the median times of a `next` that finds nothing, alternating between both."""
    seconds = [(_empty_next(one), _empty_next(many)) for _ in range(rows_of(EMPTY_NEXTS, scale))]
    of_one, of_many = (statistics.median(column) for column in zip(*seconds, strict=True))
    return Cost(few=of_one, many=of_many)


def _empty_next(db: fjord.Database) -> float:
    jobs = db.jobs(TABLE)
    begun = time.perf_counter()
    found = jobs.next()
    seconds = time.perf_counter() - begun
    if len(found) or found.next_at is None:
        raise RuntimeError("a job that is due tomorrow was handed out, or is lost")
    return seconds
