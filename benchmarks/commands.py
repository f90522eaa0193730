"""Commands other than plain writes: counters, transactions and ranges, Fjord beside Redis."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

import redis
import redis.asyncio

import fjord
import fjord.aio
from benchmarks import loads
from benchmarks.comparison import Compared, compare
from benchmarks.loads import VALUE
from benchmarks.scale import Scale

TASKS = 64
CALLS_PER_TASK = 300
SINGLE_CALLS = 2000
TRANSACTION_COMMANDS = 10
SINGLE_TRANSACTIONS = 1000
TRANSACTIONS_PER_TASK = 50
RANGE_ROWS = 100_000
RANGE_KEYS = 1000
RANGES = 200


def run(scale: Scale) -> None:
    compare("commands", COMPARED, scale)


# -- counters -------------------------------------------------------------------------------------


def fjord_add(url: str, round_: int, scale: Scale) -> float:
    calls = scale.of(SINGLE_CALLS)
    name = f"counter:{round_}"
    with fjord.connect(url) as db:
        kv = db.kv("bench")
        kv.set(name, 0)
        start = time.perf_counter()
        for _ in range(calls):
            kv.add(name, 1)
        return calls / (time.perf_counter() - start)


def redis_incr(port: int, round_: int, scale: Scale) -> float:
    calls = scale.of(SINGLE_CALLS)
    name = f"counter:{round_}"
    with redis.Redis(port=port) as client:
        client.set(name, 0)
        start = time.perf_counter()
        for _ in range(calls):
            client.incr(name)
        return calls / (time.perf_counter() - start)


def fjord_add_tasks(url: str, round_: int, scale: Scale) -> float:
    """A counter per task, with the same work as one counter that all tasks share."""

    async def run() -> float:
        async with await fjord.aio.connect(url) as db:
            kv = db.kv("bench")
            await kv.set_many({f"task:{round_}:{task}": 0 for task in range(TASKS)})
            return await _in_tasks(
                lambda task, _: kv.add(f"task:{round_}:{task}", 1), scale.of(CALLS_PER_TASK)
            )

    return asyncio.run(run())


def redis_incr_tasks(port: int, round_: int, scale: Scale) -> float:
    async def run() -> float:
        async with redis.asyncio.Redis(port=port) as client:
            await client.mset({f"task:{round_}:{task}": 0 for task in range(TASKS)})
            return await _in_tasks(
                lambda task, _: client.incr(f"task:{round_}:{task}"), scale.of(CALLS_PER_TASK)
            )

    return asyncio.run(run())


# -- transactions ---------------------------------------------------------------------------------


def fjord_transactions(url: str, round_: int, scale: Scale) -> float:
    count = scale.of(SINGLE_TRANSACTIONS)
    with fjord.connect(url) as db:
        start = time.perf_counter()
        for number in range(count):
            with db.transaction() as transaction:
                kv = transaction.kv("bench")
                for key in _transaction_keys(round_, 0, number):
                    kv.set(key, VALUE)
        return count / (time.perf_counter() - start)


def redis_transactions(port: int, round_: int, scale: Scale) -> float:
    count = scale.of(SINGLE_TRANSACTIONS)
    with redis.Redis(port=port) as client:
        start = time.perf_counter()
        for number in range(count):
            pipeline = client.pipeline(transaction=True)
            for key in _transaction_keys(round_, 0, number):
                pipeline.set(key, VALUE)
            pipeline.execute()
        return count / (time.perf_counter() - start)


def fjord_transactions_tasks(url: str, round_: int, scale: Scale) -> float:
    async def run() -> float:
        async with await fjord.aio.connect(url) as db:

            async def transact(task: int, number: int) -> None:
                async with db.transaction() as transaction:
                    kv = transaction.kv("bench")
                    for key in _transaction_keys(round_, task, number):
                        kv.set(key, VALUE)

            return await _in_tasks(transact, scale.of(TRANSACTIONS_PER_TASK))

    return asyncio.run(run())


def redis_transactions_tasks(port: int, round_: int, scale: Scale) -> float:
    async def run() -> float:
        async with redis.asyncio.Redis(port=port) as client:

            async def transact(task: int, number: int) -> None:
                pipeline = client.pipeline(transaction=True)
                for key in _transaction_keys(round_, task, number):
                    pipeline.set(key, VALUE)
                await pipeline.execute()

            return await _in_tasks(transact, scale.of(TRANSACTIONS_PER_TASK))

    return asyncio.run(run())


def _transaction_keys(round_: int, task: int, number: int) -> Iterable[str]:
    return (f"transaction:{round_}:{task}:{number}:{row}" for row in range(TRANSACTION_COMMANDS))


# -- ranges ---------------------------------------------------------------------------------------


def fjord_ranges(url: str, round_: int, scale: Scale) -> float:
    keys = loads.keys(scale.of(RANGE_ROWS))
    with fjord.connect(url) as db:
        kv = db.kv("range")
        if round_ == 0:
            loads.insert(kv, keys)
        found = 0
        start = time.perf_counter()
        for first in _first_keys(round_, keys, scale):
            found += len(list(kv.range(first, limit=RANGE_KEYS)))
        return found / (time.perf_counter() - start)


def redis_ranges(port: int, round_: int, scale: Scale) -> float:
    """Redis keeps keys in no order, so users keep a sorted set of them beside the values."""
    keys = loads.keys(scale.of(RANGE_ROWS))
    with redis.Redis(port=port) as client:
        if round_ == 0:
            for batch in loads.batches(keys, 10 * loads.BATCH):
                client.mset(batch)
                client.zadd("keys", dict.fromkeys(batch, 0))
        found = 0
        start = time.perf_counter()
        for first in _first_keys(round_, keys, scale):
            names = client.zrangebylex("keys", f"[{first}", "+", start=0, num=RANGE_KEYS)
            found += len(client.mget(names))
        return found / (time.perf_counter() - start)


def _first_keys(round_: int, keys: Sequence[str], scale: Scale) -> list[str]:
    """Returns keys that are followed by enough others."""
    return loads.drawn_keys(random.Random(round_), keys[:-RANGE_KEYS], scale.of(RANGES))


# -- tasks ----------------------------------------------------------------------------------------


async def _in_tasks(call: Callable[[int, int], Awaitable[object]], calls: int) -> float:
    """Calls with the number of the task and of the call; returns calls per second."""

    async def work(task: int) -> None:
        for number in range(calls):
            await call(task, number)

    start = time.perf_counter()
    await asyncio.gather(*map(work, range(TASKS)))
    return TASKS * calls / (time.perf_counter() - start)


COMPARED = [
    Compared(name="ADD / INCR, one in flight", fjord=fjord_add, redis=redis_incr),
    Compared(
        name="ADD / INCR, 64 asyncio tasks on one client object",
        fjord=fjord_add_tasks,
        redis=redis_incr_tasks,
    ),
    Compared(
        name="transactions of 10 SETs / MULTI, one in flight",
        fjord=fjord_transactions,
        redis=redis_transactions,
    ),
    Compared(
        name="transactions of 10 SETs / MULTI, 64 asyncio tasks",
        fjord=fjord_transactions_tasks,
        redis=redis_transactions_tasks,
    ),
    Compared(
        name="entries in ranges of 1,000 / ZRANGEBYLEX and MGET",
        fjord=fjord_ranges,
        redis=redis_ranges,
    ),
]
