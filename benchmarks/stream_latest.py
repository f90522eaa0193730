"""A stream that keeps the latest message of each key: inserts, updates, and a snapshot beside."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

import fjord
from benchmarks import loads, report, servers
from benchmarks.jobs import key
from benchmarks.scale import Scale

TABLE = "bench"
KEYS = 1_000_000
UPDATES = 500_000
RATE_AIM = 80_000

Batches = Sequence[tuple[list[bytes], list[str]]]  # values, keys


def run(scale: Scale) -> None:
    rows, updates = scale.of(KEYS), scale.of(UPDATES)
    keys = [key(row) for row in range(rows)]
    chance = random.Random(6)
    with (
        servers.data_directory() as directory,
        servers.Daemon(directory) as daemon,
        fjord.connect(daemon.url) as db,
    ):
        stream = db.create_stream(TABLE, mode="latest")

        def measure(name: str, batches: Batches, *, has_aim: bool = True) -> None:
            _show(name, _rate(stream.append_many, batches), has_aim=has_aim)

        measure(f"latest, inserts of {rows:,} keys in random order", _batches(keys))
        measure("  updates at random", _batches(chance.choices(keys, k=updates)))
        drawn = _batches(chance.choices(keys, k=updates))
        with db.snapshot() as snapshot:
            seen = snapshot.stream(TABLE).get(keys[0])
            measure("  updates at random, while a snapshot is open", drawn, has_aim=False)
            if snapshot.stream(TABLE).get(keys[0]) != seen:
                raise RuntimeError("a snapshot has changed")
        report.figure(
            "  anonymous memory of the daemon", report.megabytes(daemon.memory_bytes("RssAnon"))
        )


def _batches(keys: Sequence[str]) -> Batches:
    starts = range(0, len(keys), loads.BATCH)
    parts = [list(keys[start : start + loads.BATCH]) for start in starts]
    return [
        (loads.messages(start, len(part)), part) for start, part in zip(starts, parts, strict=True)
    ]


def _rate(append_many: Callable[..., int], batches: Batches) -> float:
    start = time.perf_counter()
    for values, keys in batches:
        append_many(values, keys=keys)
    return sum(len(keys) for _, keys in batches) / (time.perf_counter() - start)


def _show(name: str, rate: float, *, has_aim: bool) -> None:
    name, figure = f"{name}, 1,000 a batch", f"{rate:,.0f} messages/s"
    if has_aim:
        report.figure(name, figure, aim=f"target: {RATE_AIM:,}", is_met=rate >= RATE_AIM)
    else:
        report.figure(name, figure)
