"""From a spool to the daemon: the rate compared to direct calls, and the latency of one record.

The forwarder is a process of its own, as in production, and so are daemon and writer.  The spool is
filled before; measured is the time until everything is durable, sent and erased.  The sides work
alternately, each on a table of its own that grows in the same way.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.table import Table

import fjord
from benchmarks import report, servers
from benchmarks.forwarder import Child
from benchmarks.jobs import key
from benchmarks.loads import VALUE
from benchmarks.scale import Scale
from benchmarks.spool_writes import LIFE_SECONDS, PERIOD_SECONDS, Rate

RECORDS: Final = 500_000  # of each side, all turns together
BATCHES: Final = (1_000, 4_400)  # rows of a direct call
AIM: Final = 0.7  # of the rate of direct push_many
LATENCIES: Final = 2_000
SPOOLED: Final = "spooled"
_WAIT_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.005

Keys = Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The same rows by a spool, one at a time, and by direct calls with many."""

    spooled: Callable[[fjord.Spool, Keys], None]
    direct: Callable[[fjord.Database, str, Keys], None]  # table, rows of one call
    count: Callable[[fjord.Database, str], int] | None  # None: there is nothing left to count
    aim: float | None = None


def run(scale: Scale) -> None:
    with (
        servers.data_directory() as directory,
        servers.Daemon(directory) as daemon,
        fjord.connect(daemon.url) as db,
    ):
        _rates(scale, daemon.url, db)
        _beside_a_writer(scale, daemon.url, db)
        _latency(scale, daemon.url, db)


# -- the works ------------------------------------------------------------------------------------


def _push(spool: fjord.Spool, keys: Keys) -> None:
    push = spool.jobs(SPOOLED).push
    for key_ in keys:
        push(key_, VALUE)


def _push_many(db: fjord.Database, table: str, keys: Keys) -> None:
    db.jobs(table).push_many(keys=keys, values=[VALUE] * len(keys))


def _append(spool: fjord.Spool, keys: Keys) -> None:
    append = spool.stream(f"{SPOOLED}-stream").append
    for key_ in keys:
        append(VALUE, key=key_)


def _append_many(db: fjord.Database, table: str, keys: Keys) -> None:
    db.stream(f"{table}-stream").append_many([VALUE] * len(keys), keys=keys)


def _messages(db: fjord.Database, table: str) -> int:
    return db.stream(f"{table}-stream").subscriber("count", start="beginning").lag


def _set(spool: fjord.Spool, keys: Keys) -> None:
    set_ = spool.kv(f"{SPOOLED}-kv").set
    for key_ in keys:
        set_(key_, VALUE)


def _set_many(db: fjord.Database, table: str, keys: Keys) -> None:
    db.kv(f"{table}-kv").set_many(dict.fromkeys(keys, VALUE))


def _push_delayed(spool: fjord.Spool, keys: Keys) -> None:
    push = spool.jobs(f"{SPOOLED}-delayed").push
    for key_ in keys:
        push(key_, VALUE, delay=LIFE_SECONDS)


def _push_many_delayed(db: fjord.Database, table: str, keys: Keys) -> None:
    jobs = db.jobs(f"{table}-delayed")
    jobs.push_many(keys=keys, values=[VALUE] * len(keys), delay=LIFE_SECONDS)


def _set_for_a_while(spool: fjord.Spool, keys: Keys) -> None:
    set_ = spool.kv(f"{SPOOLED}-ttl").set
    for key_ in keys:
        set_(key_, VALUE, ttl=LIFE_SECONDS)


def _set_many_for_a_while(db: fjord.Database, table: str, keys: Keys) -> None:
    db.kv(f"{table}-ttl").set_many(dict.fromkeys(keys, VALUE), ttl=LIFE_SECONDS)


def _delete(spool: fjord.Spool, keys: Keys) -> None:
    delete = spool.kv(f"{SPOOLED}-kv").delete
    for key_ in keys:
        delete(key_)


def _delete_many(db: fjord.Database, table: str, keys: Keys) -> None:
    db.kv(f"{table}-kv").delete_many(keys)


WORKS: Final = {
    "push / push_many": Work(
        spooled=_push,
        direct=_push_many,
        count=lambda db, table: db.jobs(table).count().waiting,
        aim=AIM,
    ),
    "append / append_many": Work(spooled=_append, direct=_append_many, count=_messages),
    "set / set_many": Work(
        spooled=_set,
        direct=_set_many,
        count=lambda db, table: len(list(db.kv(f"{table}-kv").keys())),
    ),
    "push(delay) / push_many(delay)": Work(
        spooled=_push_delayed,
        direct=_push_many_delayed,
        count=lambda db, table: db.jobs(f"{table}-delayed").count().waiting,
    ),
    "set(ttl) / set_many(ttl)": Work(
        spooled=_set_for_a_while,
        direct=_set_many_for_a_while,
        count=lambda db, table: len(list(db.kv(f"{table}-ttl").keys())),
    ),
    # The keys set above.
    "delete / delete_many": Work(spooled=_delete, direct=_delete_many, count=None),
}


# -- rates ----------------------------------------------------------------------------------------


def _rates(scale: Scale, url: str, db: fjord.Database) -> None:
    beside = [cell for size in BATCHES for cell in (f"{size:,} a call /s", "ratio")]
    table = Table("spool to daemon / direct", "records/s", *beside, "target")
    for name, work in WORKS.items():
        spooled, direct = in_turns(work, scale, url, db)
        ours = spooled.per_second()
        cells = []
        for rate in direct.values():
            cells += [f"{rate.per_second():,.0f}", f"{ours / rate.per_second():.2f}"]
        ratio = min(ours / rate.per_second() for rate in direct.values())
        missed = "" if work.aim is None or ratio >= work.aim else " missed"
        table.add_row(name, f"{ours:,.0f}", *cells, f"{work.aim or '-'}{missed}")
    report.console.print(table)


def in_turns(
    work: Work, scale: Scale, url: str, db: fjord.Database
) -> tuple[Rate, dict[int, Rate]]:
    """Returns the rate of the spool, and those of direct calls by batch size."""
    spooled, direct = Rate(), {size: Rate() for size in BATCHES}
    count = scale.of(RECORDS) // scale.rounds
    for turn in range(scale.rounds):
        keys = [key(row) for row in range(turn * count, (turn + 1) * count)]
        with servers.data_directory() as directory:
            with fjord.spool(directory, period=PERIOD_SECONDS) as spool:
                work.spooled(spool, keys)
            with Child(directory, url, is_once=True) as child:
                spooled.add(count, functools.partial(_forward, child, count))
        for size, rate in direct.items():
            calls = functools.partial(_call, work, db, f"direct-{size}", keys, size)
            rate.add(count, calls)
        for name in (SPOOLED, *(f"direct-{size}" for size in BATCHES)):
            if work.count is not None:
                _expect(work.count(db, name), (turn + 1) * count)
    return spooled, direct


def _forward(child: Child, count: int) -> None:
    _expect(child.forward(), count)


def _call(work: Work, db: fjord.Database, table: str, keys: Keys, size: int) -> None:
    for start in range(0, len(keys), size):
        work.direct(db, table, keys[start : start + size])


def _expect(found: int, wanted: int) -> None:
    if found != wanted:
        raise RuntimeError(f"{found} records where there should be {wanted}")


# -- beside a writer ------------------------------------------------------------------------------


def _beside_a_writer(scale: Scale, url: str, db: fjord.Database) -> None:
    """Measures one process that writes as fast as possible while another one forwards."""
    count = scale.of(RECORDS)
    keys = [f"beside/{row}" for row in range(count)]
    before = db.jobs(SPOOLED).count().waiting
    with _spool(url) as spool:
        start = time.perf_counter()
        _push(spool, keys)
        written = time.perf_counter() - start
        while db.jobs(SPOOLED).count().waiting < before + count:
            time.sleep(_LOOK_SECONDS)
        arrived = time.perf_counter() - start
    report.figure(
        f"{count:,} pushes while they are forwarded",
        f"written at {count / written:,.0f} /s, arrived at {count / arrived:,.0f} /s",
    )


@contextlib.contextmanager
def _spool(url: str) -> Iterator[fjord.Spool]:
    """Yields a spool with a forwarder."""
    with (
        servers.data_directory() as directory,
        Child(directory, url),
        fjord.spool(directory, period=PERIOD_SECONDS) as spool,
    ):
        yield spool


# -- how long one takes ---------------------------------------------------------------------------


def _latency(scale: Scale, url: str, db: fjord.Database) -> None:
    """Measures from a push to the `next` that returns it, one at a time, by spool and directly."""
    count = scale.of(LATENCIES)
    found: dict[str, list[float]] = {"spooled": [], "direct": []}
    with _spool(url) as spool:
        pushes = {"spooled": spool.jobs("latency").push, "direct": db.jobs("latency").push}
        for number in range(count + 1):
            for name, push in pushes.items():
                start = time.perf_counter()
                push(f"{name}/{number}", VALUE)
                _expect(len(db.jobs("latency").next(wait=_WAIT_SECONDS, done=True)), 1)
                found[name].append(time.perf_counter() - start)
    for name, times in found.items():
        del times[0]  # connections are now open
        cuts = statistics.quantiles(times, n=100, method="inclusive")
        report.figure(
            f"from a push to its `next`, {name}, {count:,} times",
            f"p50 {cuts[49] * 1e3:.2f} ms, p99 {cuts[98] * 1e3:.2f} ms",
        )
