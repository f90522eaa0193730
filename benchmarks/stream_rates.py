"""Messages appended and read back: Fjord compared to Redis streams, and to a plain file.

All acknowledge after an fsync.  The sides work alternately on the same messages, and a rate covers
all turns of a side, so that no stall is missed.  Segments are so large here that nothing is sealed
meanwhile; `stream_sealing` measures the cost of that.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
import redis.asyncio
from rich.table import Table

import fjord
import fjord.aio
from benchmarks import loads, report, servers
from benchmarks.scale import Scale
from fjord import limits

TABLE = "bench"
SINGLE_TABLE = "single"
BATCH = 10_000
ROUND_BATCHES = 40  # of one turn
# One acknowledgement of Redis takes as long as many of the others: fewer show the rate too.
REDIS_ROUND_BATCHES = 5
READ_COUNT = 50_000
SINGLE_APPENDS = 500
CLIENTS = 64
APPENDS_PER_CLIENT = 60
# For a daemon that has nothing to seal while it is measured.
BOUNDS = {"SEGMENT_BYTES": limits.SEGMENT_BYTES_MAX}

FJORD, REDIS, FILE = "Fjord", "Redis", "a file"

Append = Callable[[bytes], Awaitable[object]]


@dataclass(slots=True)
class Rate:
    """The work that one side has done in all its turns so far."""

    messages: int = 0
    seconds: float = 0.0

    def add(self, work: Callable[[], int]) -> None:
        """Runs the work, which returns its number of messages."""
        start = time.perf_counter()
        done = work()
        self.seconds += time.perf_counter() - start
        self.messages += done

    def per_second(self) -> float:
        return self.messages / self.seconds


@dataclass(slots=True, kw_only=True)
class Sides:
    """All participants, and the messages of each turn."""

    scale: Scale
    batches: Sequence[list[bytes]]  # of each turn
    turn: int = 0
    file: int  # file descriptor
    db: fjord.Database
    redis: redis.Redis | None = None  # None: it is not installed
    runner: asyncio.Runner
    fjord_appends: Sequence[Append] = ()  # each over a connection of its own
    redis_appends: Sequence[Append] = ()


Work = Callable[[Sides], int]  # returns its number of messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure: the same work on each side."""

    name: str
    fjord: Work
    aim: int | None = None  # the target in messages per second
    beside: dict[str, tuple[str, Work]] = field(default_factory=dict)  # the same work elsewhere
    ratio_aim: float | None = None  # compared to Redis


def run(scale: Scale) -> None:
    table = Table("streams", "Fjord /s", "target", "beside", "its /s", "ratio", "target")
    with _sides(scale) as sides:
        for figure in FIGURES:
            _show(table, figure, in_turns(figure, sides))
    report.console.print(table)


def in_turns(figure: Figure, sides: Sides) -> dict[str, Rate]:
    """Lets every side do a part of the work, then the next part, until all of it is done."""
    works = {FJORD: figure.fjord} | {name: work for name, (_, work) in figure.beside.items()}
    if sides.redis is None:
        works.pop(REDIS, None)
    rates = {name: Rate() for name in works}
    for turn in range(sides.scale.rounds):
        sides.turn = turn
        for name, work in works.items():
            rates[name].add(functools.partial(work, sides))
    return rates


def _show(table: Table, figure: Figure, rates: dict[str, Rate]) -> None:
    ours = rates[FJORD].per_second()
    cells = [figure.name, f"{ours:,.0f}", _asked(figure.aim, ours)]
    for name, rate in rates.items():
        if name != FJORD:
            how, _ = figure.beside[name]
            theirs = rate.per_second()
            aim = figure.ratio_aim if name == REDIS else None
            ratio = ours / theirs
            table.add_row(*cells, how, f"{theirs:,.0f}", f"{ratio:.2f}", _asked(aim, ratio))
            cells = [""] * len(cells)
    if cells[0]:
        table.add_row(*cells, "-", "-", "-", "-")


def _asked(aim: float | None, found: float) -> str:
    if aim is None:
        return "-"
    return f"{aim:,}{'' if found >= aim else ' missed'}"


@contextlib.contextmanager
def _sides(scale: Scale) -> Iterator[Sides]:
    """Starts the servers that are installed; yields clients of them."""
    count = max(REDIS_ROUND_BATCHES, scale.of(ROUND_BATCHES))
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(servers.data_directory())
        daemon = stack.enter_context(servers.Daemon(directory, **BOUNDS))
        file = stack.enter_context(tempfile.TemporaryFile(dir=Path.cwd()))
        sides = Sides(
            scale=scale,
            batches=[loads.messages(number * BATCH, BATCH) for number in range(count)],
            file=file.fileno(),
            db=stack.enter_context(fjord.connect(daemon.url)),
            runner=stack.enter_context(asyncio.Runner()),
        )
        for table in (TABLE, SINGLE_TABLE):
            sides.db.create_stream(table, block_rows=limits.BLOCK_ROWS_MAX)
        # Load now what is otherwise loaded on first use.
        stream = sides.db.stream(SINGLE_TABLE)
        stream.append(b"")
        stream.read(1).to_arrow()
        many = sides.runner.run(_fjord_clients(daemon.url))
        stack.callback(lambda: sides.runner.run(_close(db.close for db in many)))
        sides.fjord_appends = [db.stream(SINGLE_TABLE).append for db in many]
        if servers.has_redis():
            _add_redis(stack, sides)
        else:
            report.console.print(f"redis-server is not installed: {servers.REDIS_INSTALL}")
        yield sides


def _add_redis(stack: contextlib.ExitStack, sides: Sides) -> None:
    port = stack.enter_context(servers.redis_server())
    sides.redis = stack.enter_context(redis.Redis(port=port))
    many = sides.runner.run(_redis_clients(port))
    stack.callback(lambda: sides.runner.run(_close(client.aclose for client in many)))

    def append_with(client: redis.asyncio.Redis) -> Append:
        return lambda value: client.xadd(SINGLE_TABLE, {"value": value})

    sides.redis_appends = [append_with(client) for client in many]


async def _fjord_clients(url: str) -> list[fjord.aio.AsyncDatabase]:
    return [await fjord.aio.connect(url) for _ in range(CLIENTS)]


async def _redis_clients(port: int) -> list[redis.asyncio.Redis]:
    clients = [
        redis.asyncio.Redis(port=port, single_connection_client=True) for _ in range(CLIENTS)
    ]
    for client in clients:
        await client.initialize()
    return clients


async def _close(closes: Iterable[Callable[[], Awaitable[None]]]) -> None:
    for close in closes:
        await close()


# -- appending batches ----------------------------------------------------------------------------


def fjord_append_many(sides: Sides) -> int:
    stream = sides.db.stream(TABLE)
    for batch in sides.batches:
        stream.append_many(batch)
    return BATCH * len(sides.batches)


def file_append(sides: Sides) -> int:
    """Appends the same bytes to a file, each batch durable before the next one."""
    for batch in sides.batches:
        os.write(sides.file, b"".join(batch))
        os.fdatasync(sides.file)
    return BATCH * len(sides.batches)


def redis_append_many(sides: Sides) -> int:
    assert sides.redis is not None
    batches = sides.batches[:REDIS_ROUND_BATCHES]
    for batch in batches:
        pipeline = sides.redis.pipeline(transaction=False)
        for value in batch:
            pipeline.xadd(TABLE, {"value": value})
        pipeline.execute()
    return BATCH * len(batches)


# -- reading back ---------------------------------------------------------------------------------


def _read_all(sides: Sides, what: str, look: Callable[[fjord.MessageBatch], int]) -> int:
    """Reads everything as a new subscriber, and checks it; acknowledges at the end."""
    subscriber = sides.db.stream(TABLE).subscriber(f"{what}-{sides.turn}")
    count, last = 0, None
    for batch in subscriber.batches(READ_COUNT):
        count += look(batch)
        last = batch
    if last is None or count != sides.scale.rounds * BATCH * len(sides.batches):
        raise RuntimeError(f"a wrong number of messages: {count}")
    subscriber.ack(last)
    return count


def fjord_columns(sides: Sides) -> int:
    """As columns: no object is created for a message."""
    return _read_all(
        sides, "columns", lambda batch: sum(len(part.values) for part in batch.columns)
    )


def fjord_arrow(sides: Sides) -> int:
    return _read_all(sides, "arrow", lambda batch: int(batch.to_arrow().num_rows))


def fjord_values(sides: Sides) -> int:
    return _read_all(sides, "values", lambda batch: len(batch.values))


def fjord_messages(sides: Sides) -> int:
    """As objects, one after the other."""

    def look(batch: fjord.MessageBatch) -> int:
        count = 0
        for _ in batch:
            count += 1
        return count

    return _read_all(sides, "messages", look)


def redis_read(sides: Sides) -> int:
    assert sides.redis is not None
    count, last = 0, b"0"
    while True:
        found: Any = sides.redis.xread({TABLE: last}, count=BATCH)
        if not found:
            return count
        ((_, messages),) = found
        count += len(messages)
        last = messages[-1][0]


# -- one at a time --------------------------------------------------------------------------------


def fjord_append(sides: Sides) -> int:
    stream = sides.db.stream(SINGLE_TABLE)
    values = _some(sides, SINGLE_APPENDS)
    for value in values:
        stream.append(value)
    return len(values)


def redis_append(sides: Sides) -> int:
    assert sides.redis is not None
    values = _some(sides, SINGLE_APPENDS)
    for value in values:
        sides.redis.xadd(SINGLE_TABLE, {"value": value})
    return len(values)


def fjord_many_clients(sides: Sides) -> int:
    return sides.runner.run(_all_at_once(sides, sides.fjord_appends))


def redis_many_clients(sides: Sides) -> int:
    return sides.runner.run(_all_at_once(sides, sides.redis_appends))


async def _all_at_once(sides: Sides, appends: Sequence[Append]) -> int:
    values = _some(sides, APPENDS_PER_CLIENT)

    async def client(append: Append) -> None:
        for value in values:
            await append(value)

    await asyncio.gather(*map(client, appends))
    return len(appends) * len(values)


def _some(sides: Sides, count: int) -> Sequence[bytes]:
    return sides.batches[0][: sides.scale.of(count)]


# The order matters: what is read was appended before.
FIGURES = [
    Figure(
        name="append_many of 10,000",
        fjord=fjord_append_many,
        aim=1_500_000,
        beside={
            FILE: ("file and fdatasync", file_append),
            REDIS: ("XADD, a pipeline", redis_append_many),
        },
        ratio_aim=20.0,
    ),
    Figure(
        name="read back as columns",
        fjord=fjord_columns,
        aim=8_000_000,
        beside={REDIS: ("XREAD of 10,000", redis_read)},
    ),
    Figure(name="  as Arrow tables", fjord=fjord_arrow),
    Figure(name="  as lists of bytes", fjord=fjord_values),
    Figure(
        name="  as Message objects",
        fjord=fjord_messages,
        aim=2_000_000,
        beside={REDIS: ("XREAD of 10,000", redis_read)},
    ),
    Figure(
        name="append, one in flight",
        fjord=fjord_append,
        beside={REDIS: ("XADD", redis_append)},
    ),
    Figure(
        name="append, 64 connections",
        fjord=fjord_many_clients,
        beside={REDIS: ("XADD", redis_many_clients)},
    ),
]
