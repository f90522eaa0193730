"""Key/value writes, each acknowledged after an fsync, 100-byte values: Fjord beside Redis."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import redis
import redis.asyncio

import fjord
import fjord.aio
from benchmarks.comparison import Compared, compare
from benchmarks.loads import BATCH, VALUE
from benchmarks.scale import Scale

BATCHES = 200
CLIENTS = 64
WRITES_PER_CLIENT = 300
SINGLE_WRITES = 2000


def run(scale: Scale) -> None:
    compare("writes", COMPARED, scale)


def fjord_batches(url: str, round_: int, scale: Scale) -> float:
    batches = [_batch(round_, number) for number in range(scale.of(BATCHES))]
    with fjord.connect(url) as db:
        kv = db.kv("bench")
        start = time.perf_counter()
        for batch in batches:
            kv.set_many(batch)
        return BATCH * len(batches) / (time.perf_counter() - start)


def redis_batches(port: int, round_: int, scale: Scale) -> float:
    batches = [_batch(round_, number) for number in range(scale.of(BATCHES))]
    with redis.Redis(port=port) as client:
        start = time.perf_counter()
        for batch in batches:
            pipeline = client.pipeline(transaction=False)
            for key, value in batch.items():
                pipeline.set(key, value)
            pipeline.execute()
        return BATCH * len(batches) / (time.perf_counter() - start)


def fjord_single(url: str, round_: int, scale: Scale) -> float:
    writes = scale.of(SINGLE_WRITES)
    with fjord.connect(url) as db:
        kv = db.kv("bench")
        start = time.perf_counter()
        for number in range(writes):
            kv.set(f"single:{round_}:{number}", VALUE)
        return writes / (time.perf_counter() - start)


def redis_single(port: int, round_: int, scale: Scale) -> float:
    writes = scale.of(SINGLE_WRITES)
    with redis.Redis(port=port) as client:
        start = time.perf_counter()
        for number in range(writes):
            client.set(f"single:{round_}:{number}", VALUE)
        return writes / (time.perf_counter() - start)


def fjord_many_tasks(url: str, round_: int, scale: Scale) -> float:
    """Tasks that share one database object, which uses one connection for all of them."""

    async def run() -> float:
        async with await fjord.aio.connect(url) as db:
            return await _all_at_once([db.kv("bench").set] * CLIENTS, round_, scale)

    return asyncio.run(run())


def redis_many_tasks(port: int, round_: int, scale: Scale) -> float:
    """Tasks that share one client object, which has a pool of connections for them."""

    async def run() -> float:
        client = redis.asyncio.Redis(port=port)
        rate = await _all_at_once([client.set] * CLIENTS, round_, scale)
        await client.aclose()
        return rate

    return asyncio.run(run())


def fjord_many_clients(url: str, round_: int, scale: Scale) -> float:
    """Tasks with a connection each."""

    async def run() -> float:
        databases = [await fjord.aio.connect(url) for _ in range(CLIENTS)]
        rate = await _all_at_once([db.kv("bench").set for db in databases], round_, scale)
        for db in databases:
            await db.close()
        return rate

    return asyncio.run(run())


def redis_many_clients(port: int, round_: int, scale: Scale) -> float:
    """Tasks with a connection each."""

    async def run() -> float:
        clients = [
            redis.asyncio.Redis(port=port, single_connection_client=True) for _ in range(CLIENTS)
        ]
        for client in clients:
            await client.initialize()
        rate = await _all_at_once([client.set for client in clients], round_, scale)
        for client in clients:
            await client.aclose()
        return rate

    return asyncio.run(run())


async def _all_at_once(
    sets: list[Callable[..., Awaitable[object]]], round_: int, scale: Scale
) -> float:
    writes = scale.of(WRITES_PER_CLIENT)

    async def client(number: int, set_: Callable[..., Awaitable[object]]) -> None:
        for write in range(writes):
            await set_(f"many:{round_}:{number}:{write}", VALUE)

    start = time.perf_counter()
    await asyncio.gather(*(client(number, set_) for number, set_ in enumerate(sets)))
    return len(sets) * writes / (time.perf_counter() - start)


def _batch(round_: int, number: int) -> dict[str, bytes]:
    start = number * BATCH
    return {f"batch:{round_}:{row}": VALUE for row in range(start, start + BATCH)}


COMPARED = [
    Compared(
        name="set_many, 1,000 a batch / redis-py pipeline",
        fjord=fjord_batches,
        redis=redis_batches,
        aim=2.0,
    ),
    Compared(
        name="64 asyncio tasks on one client object",
        fjord=fjord_many_tasks,
        redis=redis_many_tasks,
        aim=2.0,
    ),
    Compared(
        name="64 asyncio clients, a connection each",
        fjord=fjord_many_clients,
        redis=redis_many_clients,
        aim=2.0,
    ),
    Compared(
        name="one client, one in flight",
        fjord=fjord_single,
        redis=redis_single,
        aim=0.9,
    ),
]
