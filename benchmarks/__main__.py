"""Runs the benchmarks and prints rates, and ratios to what users would choose instead."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

import fjord
from benchmarks import kv, servers
from fjord.client.kv import KvCalls
from fjord.clock import Stamps, SystemClock
from fjord.engine import open_engine

ROUNDS = 5
REBUILD_ROWS = 1_000_000
console = Console()

# name, Fjord's run, Redis's run, the ratio that is asked for
COMPARED: list[tuple[str, Callable[[str, int], float], Callable[[int, int], float], float]] = [
    ("set_many, 1,000 a batch / redis-py pipeline", kv.fjord_batches, kv.redis_batches, 2.0),
    ("64 asyncio tasks on one client object", kv.fjord_many_tasks, kv.redis_many_tasks, 2.0),
    ("64 asyncio clients, a connection each", kv.fjord_many_clients, kv.redis_many_clients, 2.0),
    ("one client, one in flight", kv.fjord_single, kv.redis_single, 0.9),
]


def main() -> None:
    console.print(
        f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    console.print("fsync before every acknowledgement, 100-byte values, median of 5 rounds\n")
    compare()
    rebuild()


def compare() -> None:
    """Runs both servers in turns, so that a slow moment of the machine meets both."""
    table = Table("writes", "Fjord /s", "Redis /s", "ratio", "asked for")
    if not servers.has_redis():
        console.print(
            f"redis-server is not installed, so there is nothing to compare with: "
            f"{servers.REDIS_INSTALL}\n"
        )
    for name, run_fjord, run_redis, wanted in COMPARED:
        ours: list[float] = []
        theirs: list[float] = []
        with servers.data_directory() as directory, servers.fjord_daemon(directory) as url:
            if not servers.has_redis():
                ours = [run_fjord(url, round_) for round_ in range(ROUNDS)]
            else:
                with servers.redis_server() as port:
                    for round_ in range(ROUNDS):
                        ours.append(run_fjord(url, round_))
                        theirs.append(run_redis(port, round_))
        mine = statistics.median(ours)
        if theirs:
            other = statistics.median(theirs)
            ratio = mine / other
            mark = "" if ratio >= wanted else "  missed"
            table.add_row(name, f"{mine:,.0f}", f"{other:,.0f}", f"{ratio:.2f}", f"{wanted}{mark}")
        else:
            table.add_row(name, f"{mine:,.0f}", "-", "-", str(wanted))
    console.print(table)


def rebuild() -> None:
    """Times the rebuild of an index that is gone, with rows in large commits and in single ones."""
    for rows, batch, wanted in ((REBUILD_ROWS, 10_000, "asked for 150,000"), (50_000, 1, "no aim")):
        with servers.data_directory() as directory:
            fill(directory, rows, batch)
            shutil.rmtree(os.path.join(directory, "index"))
            start = time.perf_counter()
            fjord.open(directory).close()
            rate = rows / (time.perf_counter() - start)
        console.print(f"index rebuild, {batch:,} rows a commit: {rate:,.0f} entries/s ({wanted})")


def fill(directory: str, rows: int, batch: int) -> None:
    """Writes rows without waiting for each commit, which is what takes long with single ones."""
    calls = KvCalls("bench", Stamps(SystemClock()))
    engine = open_engine(directory)
    for start in range(0, rows, batch):
        items = {f"key:{row}": kv.VALUE for row in range(start, start + batch)}
        engine.run([calls.set_many(items).command])
    engine.close()


if __name__ == "__main__":
    main()
