"""Writing to a spool: compared to a plain `write`, synced, and by many processes at once.

Both sides of a figure work alternately, on new files each time, and a rate covers all turns of a
side.  No daemon and no forwarder is running.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Final

from rich.table import Table

import fjord
from benchmarks import report, servers
from benchmarks.jobs import key
from benchmarks.loads import VALUE
from benchmarks.scale import Scale

TABLE: Final = "bench"
RECORDS: Final = 500_000  # of each kind, all turns together
SYNCED_RECORDS: Final = 5_000
THREADS: Final = 8
PROCESSES: Final = 8
AIM: Final = 150_000  # records a second, one process, without sync
LIFE_SECONDS: Final = 3600  # a delay, or a TTL
# So that no file ends in the middle of a turn.
PERIOD_SECONDS: Final = 7 * 24 * 3600

Write = Callable[[fjord.Spool, Sequence[str]], None]


@dataclass(slots=True)
class Rate:
    """The work that one side has done in all its turns so far."""

    records: int = 0
    seconds: float = 0.0

    def add(self, records: int, work: Callable[[], object]) -> None:
        start = time.perf_counter()
        work()
        self.seconds += time.perf_counter() - start
        self.records += records

    def per_second(self) -> float:
        return self.records / self.seconds

    def microseconds(self) -> float:
        return self.seconds / self.records * 1e6


def run(scale: Scale) -> None:
    _one_process(scale)
    _synced(scale)
    _processes(scale)


# -- the writes -----------------------------------------------------------------------------------


def push(spool: fjord.Spool, keys: Sequence[str]) -> None:
    jobs = spool.jobs(TABLE)
    for key_ in keys:
        jobs.push(key_, VALUE)


def append(spool: fjord.Spool, keys: Sequence[str]) -> None:
    stream = spool.stream(TABLE)
    for key_ in keys:
        stream.append(VALUE, key=key_)


def set_(spool: fjord.Spool, keys: Sequence[str]) -> None:
    kv = spool.kv(TABLE)
    for key_ in keys:
        kv.set(key_, VALUE)


def push_delayed(spool: fjord.Spool, keys: Sequence[str]) -> None:
    jobs = spool.jobs(TABLE)
    for key_ in keys:
        jobs.push(key_, VALUE, delay=LIFE_SECONDS)


def set_for_a_while(spool: fjord.Spool, keys: Sequence[str]) -> None:
    kv = spool.kv(TABLE)
    for key_ in keys:
        kv.set(key_, VALUE, ttl=LIFE_SECONDS)


def delete(spool: fjord.Spool, keys: Sequence[str]) -> None:
    kv = spool.kv(TABLE)
    for key_ in keys:
        kv.delete(key_)


# What is written, and whether it has a target.
WRITES: Final[dict[str, tuple[Write, bool]]] = {
    "push": (push, True),
    "append": (append, True),
    "set": (set_, True),
    "push(delay)": (push_delayed, False),
    "set(ttl)": (set_for_a_while, False),
    "delete": (delete, False),
}


def lines_of(directory: str) -> list[bytes]:
    """Returns the contents of the one file of a spool, one line for each write."""
    (path,) = Path(directory).glob("*.spool")
    _, *lines = path.read_bytes().splitlines(keepends=True)
    return lines


# -- one process, without sync --------------------------------------------------------------------


def _one_process(scale: Scale) -> None:
    table = Table(
        "spool, one process, no sync", "records/s", "target", "µs", "os.write µs", "ratio"
    )
    count = scale.of(RECORDS) // scale.rounds
    for name, (write, is_aimed) in WRITES.items():
        ours, plain = Rate(), Rate()
        for turn in range(scale.rounds):
            _turn(write, range(turn * count, (turn + 1) * count), ours, plain)
        rate = ours.per_second()
        table.add_row(
            f"{name}, {ours.records:,}",
            f"{rate:,.0f}",
            f"{AIM:,}{'' if rate >= AIM else ' missed'}" if is_aimed else "-",
            f"{ours.microseconds():.2f}",
            f"{plain.microseconds():.2f}",
            f"{ours.microseconds() / plain.microseconds():.2f}",
        )
    report.console.print(table)


def _turn(write: Write, rows: Sequence[int], ours: Rate, plain: Rate) -> None:
    """Lets the spool write records, and then a plain file the same bytes."""
    keys = [key(row) for row in rows]
    with servers.data_directory() as directory:
        with fjord.spool(directory, period=PERIOD_SECONDS) as spool:
            write(spool, keys[:1])  # makes the file
            ours.add(len(keys), lambda: write(spool, keys))
        lines = lines_of(directory)[1:]
        if len(lines) != len(keys):
            raise RuntimeError(f"{len(lines)} lines where there should be {len(keys)}")
        with tempfile.NamedTemporaryFile(dir=directory) as file:
            fd = os.open(file.name, os.O_WRONLY | os.O_APPEND)
            try:
                plain.add(len(lines), lambda: _write_plainly(fd, lines))
            finally:
                os.close(fd)


def _write_plainly(fd: int, lines: Sequence[bytes]) -> None:
    for line in lines:
        os.write(fd, line)


# -- synced ---------------------------------------------------------------------------------------


def _synced(scale: Scale) -> None:
    """Each record on disk before its call returns; threads share one spool."""
    table = Table("spool, one process, synced", "1 thread /s", f"{THREADS} threads /s")
    rates = {(sync, n): Rate() for sync in ("each", "group") for n in (1, THREADS)}
    plain = Rate()
    count = max(THREADS, scale.of(SYNCED_RECORDS) // scale.rounds)
    for _ in range(scale.rounds):
        for (sync, threads), rate in rates.items():
            _synced_turn(sync, threads, count, rate)
        _plain_turn(count, plain)
    for sync in ("each", "group"):
        one, many = rates[sync, 1], rates[sync, THREADS]
        table.add_row(f'sync="{sync}"', f"{one.per_second():,.0f}", f"{many.per_second():,.0f}")
    table.add_row("os.write and os.fdatasync", f"{plain.per_second():,.0f}", "-")
    report.console.print(table)


def _synced_turn(sync: str, threads: int, count: int, rate: Rate) -> None:
    shares = [[key(row) for row in range(start, count, threads)] for start in range(threads)]
    with (
        servers.data_directory() as directory,
        fjord.spool(directory, sync=sync, period=PERIOD_SECONDS) as spool,
    ):
        push(spool, [key(count)])
        running = [threading.Thread(target=push, args=(spool, share)) for share in shares]

        def work() -> None:
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()

        rate.add(count, work)
        if len(lines_of(directory)) != count + 1:
            raise RuntimeError("lines are missing")


def _plain_turn(count: int, rate: Rate) -> None:
    with servers.data_directory() as directory:
        with fjord.spool(directory, period=PERIOD_SECONDS) as spool:
            push(spool, [key(row) for row in range(count)])
        lines = lines_of(directory)
        with tempfile.NamedTemporaryFile(dir=directory) as file:
            fd = os.open(file.name, os.O_WRONLY | os.O_APPEND)

            def work() -> None:
                for line in lines:
                    os.write(fd, line)
                    os.fdatasync(fd)

            try:
                rate.add(count, work)
            finally:
                os.close(fd)


# -- many processes -------------------------------------------------------------------------------


def _processes(scale: Scale) -> None:
    """Processes that write to one spool at the same time, without sync."""
    rate = Rate()
    count = scale.of(RECORDS) // scale.rounds // PROCESSES
    context = multiprocessing.get_context("fork")
    for _ in range(scale.rounds):
        with servers.data_directory() as directory:
            barrier = context.Barrier(PROCESSES + 1)
            running = [
                context.Process(target=_write_beside, args=(directory, number, count, barrier))
                for number in range(PROCESSES)
            ]
            for process in running:
                process.start()

            def work(barrier: Barrier = barrier) -> None:
                barrier.wait()  # all are ready
                barrier.wait()  # all are done

            rate.add(PROCESSES * count, work)
            for process in running:
                process.join()
            if len(lines_of(directory)) != PROCESSES * (count + 1):
                raise RuntimeError("lines are missing")
    report.figure(
        f"{PROCESSES} processes write to one spool, push, no sync",
        f"{rate.per_second():,.0f} records/s together",
    )


def _write_beside(directory: str, number: int, count: int, barrier: Barrier) -> None:
    keys = [key(row) for row in range(number * count, (number + 1) * count)]
    with fjord.spool(directory, period=PERIOD_SECONDS) as spool:
        push(spool, ["first"])
        barrier.wait()
        push(spool, keys)
        barrier.wait()
