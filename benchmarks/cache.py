"""Reads of values that fit the daemon's cache, and of many more than it can hold.

What exceeds the cache comes from the journal's files, most of it from the page cache of the kernel:
this measures Fjord, not the disk.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.table import Table

import fjord
from benchmarks import loads, report, servers
from benchmarks.scale import Scale
from fjord import limits

VALUE_BYTES = 1024
TIMES_THE_CACHE = 8
BATCHES = 50
SINGLE_READS = 5000
# The cache counts more than the bytes of a value, so only half of it is used for reads inside.
_INSIDE_SHARE = 2
# A value is cached when it is read again within a while.
_WARMING_ROUNDS = 3

Read = Callable[[fjord.Kv, random.Random, int, Scale], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How many of the first rows are read at random."""

    inside: int  # few enough for the cache
    rows: int  # all of them


def run(scale: Scale) -> None:
    cache_bytes = scale.of(limits.VALUE_CACHE_BYTES)
    spread = Spread(
        inside=cache_bytes // _INSIDE_SHARE // VALUE_BYTES,
        rows=TIMES_THE_CACHE * cache_bytes // VALUE_BYTES,
    )
    with (
        servers.data_directory() as directory,
        servers.Daemon(directory, VALUE_CACHE_BYTES=cache_bytes) as daemon,
        fjord.connect(daemon.url) as db,
    ):
        fill(db.kv("bench"), spread.rows)
        check(db.kv("bench"), spread.rows)
        table = Table(
            f"reads of {report.megabytes(spread.rows * VALUE_BYTES)} in values of 1 KiB, "
            f"cache of {report.megabytes(cache_bytes)}",
            *("inside /s", "beyond /s", "ratio"),
        )
        for name, read in (("get_many, 1,000 a batch", batched), ("one in flight", single)):
            near, far = in_turns(db.kv("bench"), spread, read, scale)
            table.add_row(name, f"{near:,.0f}", f"{far:,.0f}", f"{far / near:.2f}")
        report.console.print(table)
        memory = daemon.memory_bytes("RssAnon")
    report.figure("anonymous memory after these reads", report.megabytes(memory))


def fill(kv: fjord.Kv, rows: int) -> None:
    for start in range(0, rows, loads.BATCH):
        kv.set_many({loads.key(row): value(row) for row in _batch(start, rows)})


def check(kv: fjord.Kv, rows: int) -> None:
    """Reads everything once, to check that all data is there."""
    for start in range(0, rows, loads.BATCH):
        wanted = {loads.key(row): value(row) for row in _batch(start, rows)}
        if kv.get_many(wanted) != wanted:
            raise RuntimeError(f"values from row {start} on differ from those that were set")


def value(row: int) -> bytes:
    return row.to_bytes(8, "big") * (VALUE_BYTES // 8)


def _batch(start: int, rows: int) -> range:
    return range(start, min(start + loads.BATCH, rows))


def in_turns(kv: fjord.Kv, spread: Spread, read: Read, scale: Scale) -> tuple[float, float]:
    """Returns the median rates inside the cache and beyond it."""
    inside: list[float] = []
    beyond: list[float] = []
    chance = random.Random(5)
    for _ in range(scale.rounds):
        warm(kv, spread.inside)
        inside.append(read(kv, chance, spread.inside, scale))
        beyond.append(read(kv, chance, spread.rows, scale))
    return statistics.median(inside), statistics.median(beyond)


def warm(kv: fjord.Kv, rows: int) -> None:
    for _ in range(_WARMING_ROUNDS):
        for start in range(0, rows, loads.BATCH):
            kv.get_many([loads.key(row) for row in _batch(start, rows)])


def batched(kv: fjord.Kv, chance: random.Random, rows: int, scale: Scale) -> float:
    keys = loads.keys(rows)
    batches = [loads.drawn_keys(chance, keys) for _ in range(scale.of(BATCHES))]
    start = time.perf_counter()
    for batch in batches:
        kv.get_many(batch)
    return loads.BATCH * len(batches) / (time.perf_counter() - start)


def single(kv: fjord.Kv, chance: random.Random, rows: int, scale: Scale) -> float:
    keys = loads.drawn_keys(chance, loads.keys(rows), scale.of(SINGLE_READS))
    start = time.perf_counter()
    for key in keys:
        kv.get(key)
    return len(keys) / (time.perf_counter() - start)
