"""The cost of idle subscribers: memory and processor time of the daemon."""

from __future__ import annotations

import time

import fjord
from benchmarks import loads, report, servers
from benchmarks.scale import Scale
from fjord.client.connection import Connection
from fjord.commands import Batch, Command, Replies, Subscribe
from fjord.streams import Start

TABLE = "bench"
SUBSCRIBERS = 100_000
IDLE_SECONDS = 5.0
# Ticks of the kernel's accounting are 10 ms, and a few of them are noise.
IDLE_CPU_SECONDS_AIM = 0.05
_TIMEOUT_SECONDS = 60.0


def run(scale: Scale) -> None:
    count = scale.of(SUBSCRIBERS)
    with (
        servers.data_directory() as directory,
        servers.Daemon(directory) as daemon,
        fjord.connect(daemon.url) as db,
    ):
        stream = db.create_stream(TABLE)
        stream.append_many(loads.messages(0, 1000))
        before = daemon.memory_bytes("RssAnon")
        start = time.perf_counter()
        subscribe(daemon.url, count)
        rate = count / (time.perf_counter() - start)
        if db.stats()["subscribers"] != count:
            raise RuntimeError(f"there should be {count} subscribers")
        report.figure(f"{count:,} subscribers made, 1,000 at a time", f"{rate:,.0f} /s")
        after = daemon.memory_bytes("RssAnon")
        report.figure(
            "  anonymous memory of the daemon",
            f"{report.megabytes(after)}, {report.megabytes(before)} without them",
        )
        idle(daemon)
        start = time.perf_counter()
        subscriber = stream.subscriber(f"s{count // 2:06}")
        batch = subscriber.read(1000)
        subscriber.ack(batch)
        seconds = time.perf_counter() - start
        report.figure(
            f"  one of them reads {len(batch):,} messages and acknowledges",
            f"{seconds * 1e3:,.1f} ms",
        )


def subscribe(url: str, count: int) -> None:
    """Creates subscribers, many per commit."""
    connection = Connection(url, timeout=_TIMEOUT_SECONDS)
    for start in range(0, count, loads.BATCH):
        commands: list[Command] = [
            Subscribe(table=TABLE, name=f"s{number:06}", start=Start.BEGINNING)
            for number in range(start, min(count, start + loads.BATCH))
        ]
        reply = connection.execute(Batch(commands=commands))
        if not isinstance(reply, Replies):
            raise RuntimeError(f"subscribers were not made: {reply!r}")
    connection.close()


def idle(daemon: servers.Daemon) -> None:
    before = daemon.cpu_seconds()
    time.sleep(IDLE_SECONDS)
    seconds = daemon.cpu_seconds() - before
    report.figure(
        f"  processor time of the daemon in {IDLE_SECONDS:.0f} s",
        f"{seconds:.2f} s",
        aim=f"target: nothing, less than {IDLE_CPU_SECONDS_AIM} s",
        is_met=seconds < IDLE_CPU_SECONDS_AIM,
    )
