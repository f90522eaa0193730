"""Cold blocks: how fast they are written, what that costs an appending client, and reading them.

Sealing is measured on journals of one segment, in which nothing is sealed before it is requested;
then on a default daemon, which seals while messages are appended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import cycle

import fjord
from benchmarks import loads, report, servers
from benchmarks.scale import Scale
from benchmarks.stream_rates import BATCH, BOUNDS
from fjord import limits

# About as much as one child process writes.
SEALED = 2_400_000
ALONE_BATCHES = 100
LONG = 10_000_000
SEAL_AIM = 500_000
APPEND_RATIO_AIM = 0.5
ANONYMOUS_BYTES_AIM = 300_000_000
COLD, HOT = "cold", "hot"
_SEAL_SECONDS_MAX = 600.0


def run(scale: Scale) -> None:
    batches = [loads.messages(number * BATCH, BATCH) for number in range(scale.of(40))]
    sealed = _whole_batches(scale.of(SEALED))
    sealing_alone(batches, sealed)
    sealing_beside_appends(batches, sealed, scale.of(ALONE_BATCHES))
    as_it_comes(batches, _whole_batches(scale.of(LONG)))


def _whole_batches(messages: int) -> int:
    return max(BATCH, messages // BATCH * BATCH)


# -- sealing --------------------------------------------------------------------------------------


def sealing_alone(batches: list[list[bytes]], messages: int) -> None:
    with servers.data_directory() as directory, servers.Daemon(directory, **BOUNDS) as daemon:
        _fill(daemon.url, batches, messages)
        rate = messages / _seal(daemon.url)
    _show_sealing(f"sealing {messages:,} messages, nobody appends", rate)


def sealing_beside_appends(batches: list[list[bytes]], messages: int, alone: int) -> None:
    """Seals one stream while another client appends to another one."""
    with (
        servers.data_directory() as directory,
        servers.Daemon(directory, **BOUNDS) as daemon,
        fjord.connect(daemon.url) as db,
    ):
        _fill(daemon.url, batches, messages)
        hot = db.create_stream(HOT, block_rows=limits.BLOCK_ROWS_MAX)
        values = cycle(batches)
        seconds: list[float] = []
        sealer = threading.Thread(target=lambda: seconds.append(_seal(daemon.url)))
        start = time.perf_counter()
        sealer.start()
        beside = 0
        while sealer.is_alive():
            hot.append_many(next(values))
            beside += BATCH
        beside_rate = beside / (time.perf_counter() - start)
        alone_rate = _append_rate(hot, values, alone)
    if not seconds:
        raise RuntimeError("sealing failed")
    _show_sealing("  while another client appends", messages / seconds[0])
    ratio = beside_rate / alone_rate
    report.figure(
        "  append_many of 10,000 meanwhile",
        f"{beside_rate:,.0f} messages/s, beside {alone_rate:,.0f} alone: {ratio:.2f}",
        aim=f"target: {APPEND_RATIO_AIM}",
        is_met=ratio >= APPEND_RATIO_AIM,
    )


def _fill(url: str, batches: list[list[bytes]], messages: int) -> None:
    values = cycle(batches)
    with fjord.connect(url) as db:
        stream = db.create_stream(COLD, block_rows=limits.BLOCK_ROWS_MAX)
        for _ in range(messages // BATCH):
            stream.append_many(next(values))


def _seal(url: str) -> float:
    """Returns the seconds."""
    with fjord.connect(url, timeout=_SEAL_SECONDS_MAX) as db:
        start = time.perf_counter()
        db.seal(COLD)
        return time.perf_counter() - start


def _append_rate(stream: fjord.Stream, values: Iterator[list[bytes]], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        stream.append_many(next(values))
    return BATCH * count / (time.perf_counter() - start)


def _show_sealing(name: str, rate: float) -> None:
    report.figure(
        name, f"{rate:,.0f} messages/s", aim=f"target: {SEAL_AIM:,}", is_met=rate >= SEAL_AIM
    )


# -- with default settings ------------------------------------------------------------------------


def as_it_comes(batches: list[list[bytes]], messages: int) -> None:
    """Appends more than the journal keeps, and reads all of it back."""
    with (
        servers.data_directory() as directory,
        servers.Daemon(directory) as daemon,
        fjord.connect(daemon.url, timeout=_SEAL_SECONDS_MAX) as db,
    ):
        stream = db.create_stream(COLD)
        rate = _append_rate(stream, cycle(batches), messages // BATCH)
        report.figure(
            f"append_many of {messages:,} messages, sealed meanwhile",
            f"{rate:,.0f} messages/s",
        )
        db.seal(COLD)
        blocks = db.blocks(COLD)
        size = sum(block.bytes for block in blocks)
        report.figure("  all of it cold", f"{len(blocks)} blocks of {report.megabytes(size)}")
        before = daemon.memory_bytes("RssAnon")
        rate, most = _read_cold(daemon, stream, messages)
        after = daemon.memory_bytes("RssAnon")
    report.figure("  read back from the beginning, as columns", f"{rate:,.0f} messages/s")
    report.figure(
        "  anonymous memory of the daemon",
        f"{report.megabytes(before)} before, {report.megabytes(most)} at most, "
        f"{report.megabytes(after)} after",
        aim=f"target: less than {report.megabytes(ANONYMOUS_BYTES_AIM)}",
        is_met=most < ANONYMOUS_BYTES_AIM,
    )


def _read_cold(daemon: servers.Daemon, stream: fjord.Stream, messages: int) -> tuple[float, int]:
    """Returns messages per second, and the daemon's maximum memory meanwhile."""
    subscriber = stream.subscriber("reader")
    count = most = 0
    start = time.perf_counter()
    for batch in subscriber.batches(100_000):
        count += sum(len(part.values) for part in batch.columns)
        subscriber.ack(batch)
        most = max(most, daemon.memory_bytes("RssAnon"))
    rate = count / (time.perf_counter() - start)
    if count != messages:
        raise RuntimeError(f"{count} messages where there should be {messages}")
    return rate, most
