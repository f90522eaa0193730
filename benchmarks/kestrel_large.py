"""Queues larger than memory: the cost of read-behind, and how fast such a queue starts."""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path

from benchmarks import report, servers
from benchmarks.scale import Scale
from fjord.clock import SystemClock
from fjord.disk import LocalDisk
from fjord.kestrel.config import QueueConfig
from fjord.kestrel.journal import Journal
from fjord.kestrel.queue import PersistentQueue

QUEUE = "cars"
ITEM = b"x" * 1000
ITEMS = 100_000
MEMORY_BYTES = 8 * 2**20
LARGE_ITEMS = 1_000_000
LARGE_MEMORY_BYTES = 128 * 2**20
READ_BEHIND_AIM = 3
START_ANONYMOUS_AIM = 250_000_000


def run(scale: Scale) -> None:
    _read_behind(scale)
    _start(scale)


def _read_behind(scale: Scale) -> None:
    """Takes the same items from memory and from read-behind, alternately."""
    count = max(scale.of(ITEMS), 3 * MEMORY_BYTES // len(ITEM))
    memory: list[float] = []
    behind: list[float] = []
    for _ in range(scale.rounds):
        memory.append(_taken(count, 2**40))
        behind.append(_taken(count, MEMORY_BYTES))
    ours, theirs = statistics.median(behind), statistics.median(memory)
    ratio = ours / theirs
    report.figure(
        f"an item of 1 KB taken from read-behind, {count:,} of them, maxMemorySize 8 MiB, packed "
        "meanwhile",
        f"{ours / count * 1e6:.1f} µs beside {theirs / count * 1e6:.1f} from memory: {ratio:.2f}",
        aim=f"{READ_BEHIND_AIM} times",
        is_met=ratio <= READ_BEHIND_AIM,
    )


def _taken(count: int, memory_bytes: int) -> float:
    """Returns the seconds for taking all items of a queue."""
    clock = SystemClock()
    with servers.data_directory() as folder:
        journal = Journal(LocalDisk(), folder, QUEUE, clock)
        queue = PersistentQueue(QUEUE, QueueConfig(max_memory_size=memory_bytes), clock, journal)
        for _ in range(count):
            queue.add(ITEM)
        start = time.perf_counter()
        while queue.remove() is not None:
            count -= 1
        seconds = time.perf_counter() - start
        queue.close()
    if count:
        raise RuntimeError(f"{count} items are missing")
    return seconds


def _start(scale: Scale) -> None:
    """Starts the server on a queue of a gigabyte from which nothing was taken."""
    clock = SystemClock()
    with servers.data_directory() as folder:
        queues = os.path.join(folder, "queues")
        os.mkdir(queues)
        journal = Journal(LocalDisk(), queues, QUEUE, clock)
        queue = PersistentQueue(QUEUE, QueueConfig(), clock, journal)
        count = scale.of(LARGE_ITEMS)
        for _ in range(count):
            queue.add(ITEM)
        queue.close()
        held = sum(one.stat().st_size for one in Path(queues).iterdir())
        with servers.kestrel_server(folder, json.dumps({})) as server:
            anonymous = server.memory_bytes("RssAnon")
            seconds = server.start_seconds
    report.figure(
        f"{count:,} items of 1 KB on disk, beside their data",
        f"{report.megabytes(held)}, {held / (count * len(ITEM)):.3f} times",
    )
    report.figure("start with them, until ready", f"{seconds:.2f} s")
    report.figure(
        "anonymous memory then, maxMemorySize 128 MiB",
        report.megabytes(anonymous),
        aim=report.megabytes(START_ANONYMOUS_AIM),
        is_met=anonymous <= START_ANONYMOUS_AIM,
    )
