"""Memory use of a daemon with a million values, and its restart time after SIGKILL."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Sequence

import fjord
from benchmarks import loads, report, servers
from benchmarks.scale import Scale

ROWS = 1_000_000
READS = 1_000_000
ANONYMOUS_BYTES_AIM = 250_000_000
READY_SECONDS_AIM = 2.0
# How long the writer continues after the kill.
_WRITER_SECONDS = 1.0


def run(scale: Scale) -> None:
    keys = loads.keys(scale.of(ROWS))
    with servers.data_directory() as directory, servers.Daemon(directory) as daemon:
        with fjord.connect(daemon.url) as db:
            loads.insert(db.kv("bench"), keys)
        memory(daemon, f"after loading {len(keys):,} values of 100 bytes")
        read_much(daemon.url, keys, scale.of(READS))
        memory(daemon, f"after {scale.of(READS):,} random reads")
        restarts(daemon, keys, scale.rounds)
        memory(daemon, "after the last restart")


def memory(daemon: servers.Daemon, when: str) -> None:
    """Reports anonymous memory; the kernel reclaims pages of files when it needs them."""
    anonymous = daemon.memory_bytes("RssAnon")
    of_files = daemon.memory_bytes("RssFile") + daemon.memory_bytes("RssShmem")
    report.figure(
        f"anonymous memory {when}",
        f"{report.megabytes(anonymous)}, and {report.megabytes(of_files)} of mapped files",
        aim=f"target: less than {report.megabytes(ANONYMOUS_BYTES_AIM)}",
        is_met=anonymous < ANONYMOUS_BYTES_AIM,
    )


def read_much(url: str, keys: Sequence[str], reads: int) -> None:
    """Fills the cache of values."""
    chance = random.Random(1)
    with fjord.connect(url) as db:
        kv = db.kv("bench")
        for _ in range(max(1, reads // loads.BATCH)):
            kv.get_many(loads.drawn_keys(chance, keys))


def restarts(daemon: servers.Daemon, keys: Sequence[str], rounds: int) -> None:
    times = [restart(daemon, keys) for _ in range(rounds)]
    ready, answered = (statistics.median(column) for column in zip(*times, strict=True))
    slowest = max(seconds for seconds, _ in times)
    report.figure(
        f"start after SIGKILL under load, until ready (median of {rounds})",
        f"{ready:.2f} s, the slowest {slowest:.2f} s",
        aim=f"target: less than {READY_SECONDS_AIM} s",
        is_met=slowest < READY_SECONDS_AIM,
    )
    report.figure("the same, until the first GET is answered", f"{answered:.2f} s")


def restart(daemon: servers.Daemon, keys: Sequence[str]) -> tuple[float, float]:
    """Kills a daemon during writes; returns seconds until ready, and until a GET."""
    kill_under_load(daemon, keys)
    start = time.perf_counter()
    ready_seconds = daemon.start()
    with fjord.connect(daemon.url) as db:
        value = db.kv("bench").get(keys[len(keys) // 2])
    answered_seconds = time.perf_counter() - start
    if value != loads.VALUE:
        raise RuntimeError(f"a value is lost: {value!r}")
    return ready_seconds, answered_seconds


def kill_under_load(daemon: servers.Daemon, keys: Sequence[str]) -> None:
    wrote = threading.Event()

    def write() -> None:
        chance = random.Random(2)
        try:
            with fjord.connect(daemon.url, timeout=_WRITER_SECONDS) as db:
                while True:
                    db.kv("bench").set_many(loads.drawn_batch(chance, keys))
                    wrote.set()
        except fjord.FjordError:
            pass  # the daemon was killed on purpose

    writer = threading.Thread(target=write)
    writer.start()
    has_written = wrote.wait(timeout=60)
    daemon.kill()
    writer.join()
    if not has_written:
        raise RuntimeError("the daemon did not accept a single batch")
