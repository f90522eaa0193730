"""How fast a lost index is rebuilt from the journal."""

from __future__ import annotations

import os
import shutil
import time

import fjord
from benchmarks import report, servers
from benchmarks.loads import VALUE
from benchmarks.scale import Scale
from fjord.client.kv import KvCalls
from fjord.clock import Stamps, SystemClock
from fjord.engine import open_engine

LARGE_ROWS, LARGE_COMMIT, LARGE_AIM = 1_000_000, 10_000, 150_000
SINGLE_ROWS = 50_000


def run(scale: Scale) -> None:
    rate = rebuild(scale.of(LARGE_ROWS), LARGE_COMMIT)
    report.figure(
        f"index rebuild, {LARGE_COMMIT:,} rows a commit",
        f"{rate:,.0f} entries/s",
        aim=f"target: {LARGE_AIM:,}",
        is_met=rate >= LARGE_AIM,
    )
    rate = rebuild(scale.of(SINGLE_ROWS), 1)
    report.figure("index rebuild, one row a commit", f"{rate:,.0f} entries/s")


def rebuild(rows: int, batch: int) -> float:
    """Returns entries per second."""
    with servers.data_directory() as directory:
        fill(directory, rows, batch)
        shutil.rmtree(os.path.join(directory, "index"))
        start = time.perf_counter()
        fjord.open(directory).close()
        return rows / (time.perf_counter() - start)


def fill(directory: str, rows: int, batch: int) -> None:
    """Writes rows without waiting for each commit, which would be slow one by one."""
    calls = KvCalls("bench", Stamps(SystemClock()))
    engine = open_engine(directory)
    for start in range(0, rows, batch):
        items = {f"key:{row}": VALUE for row in range(start, start + batch)}
        engine.run([calls.set_many(items).command])
    engine.close()
