"""Key/value writes, each acknowledged after an fsync, 100-byte values: Fjord beside Redis."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import redis
import redis.asyncio

import fjord
import fjord.aio

VALUE = b"x" * 100
BATCH = 1000
BATCHES = 200
CLIENTS = 64
WRITES_PER_CLIENT = 300
SINGLE_WRITES = 2000


def fjord_batches(url: str, round_: int) -> float:
    batches = [_batch(round_, number) for number in range(BATCHES)]
    with fjord.connect(url) as db:
        kv = db.kv("bench")
        start = time.perf_counter()
        for batch in batches:
            kv.set_many(batch)
        return BATCH * BATCHES / (time.perf_counter() - start)


def redis_batches(port: int, round_: int) -> float:
    batches = [_batch(round_, number) for number in range(BATCHES)]
    with redis.Redis(port=port) as client:
        start = time.perf_counter()
        for batch in batches:
            pipeline = client.pipeline(transaction=False)
            for key, value in batch.items():
                pipeline.set(key, value)
            pipeline.execute()
        return BATCH * BATCHES / (time.perf_counter() - start)


def fjord_single(url: str, round_: int) -> float:
    with fjord.connect(url) as db:
        kv = db.kv("bench")
        start = time.perf_counter()
        for number in range(SINGLE_WRITES):
            kv.set(f"single:{round_}:{number}", VALUE)
        return SINGLE_WRITES / (time.perf_counter() - start)


def redis_single(port: int, round_: int) -> float:
    with redis.Redis(port=port) as client:
        start = time.perf_counter()
        for number in range(SINGLE_WRITES):
            client.set(f"single:{round_}:{number}", VALUE)
        return SINGLE_WRITES / (time.perf_counter() - start)


def fjord_many_tasks(url: str, round_: int) -> float:
    """Tasks that share one database object, which sends all of them over one connection."""

    async def run() -> float:
        async with await fjord.aio.connect(url) as db:
            return await _all_at_once([db.kv("bench").set] * CLIENTS, round_)

    return asyncio.run(run())


def redis_many_tasks(port: int, round_: int) -> float:
    """Tasks that share one client object, which has a pool of connections for them."""

    async def run() -> float:
        client = redis.asyncio.Redis(port=port)
        rate = await _all_at_once([client.set] * CLIENTS, round_)
        await client.aclose()
        return rate

    return asyncio.run(run())


def fjord_many_clients(url: str, round_: int) -> float:
    """Tasks with a connection each."""

    async def run() -> float:
        databases = [await fjord.aio.connect(url) for _ in range(CLIENTS)]
        rate = await _all_at_once([db.kv("bench").set for db in databases], round_)
        for db in databases:
            await db.close()
        return rate

    return asyncio.run(run())


def redis_many_clients(port: int, round_: int) -> float:
    """Tasks with a connection each."""

    async def run() -> float:
        clients = [
            redis.asyncio.Redis(port=port, single_connection_client=True) for _ in range(CLIENTS)
        ]
        for client in clients:
            await client.initialize()
        rate = await _all_at_once([client.set for client in clients], round_)
        for client in clients:
            await client.aclose()
        return rate

    return asyncio.run(run())


async def _all_at_once(sets: list[Callable[..., Awaitable[object]]], round_: int) -> float:
    async def client(number: int, set_: Callable[..., Awaitable[object]]) -> None:
        for write in range(WRITES_PER_CLIENT):
            await set_(f"many:{round_}:{number}:{write}", VALUE)

    start = time.perf_counter()
    await asyncio.gather(*(client(number, set_) for number, set_ in enumerate(sets)))
    return len(sets) * WRITES_PER_CLIENT / (time.perf_counter() - start)


def _batch(round_: int, number: int) -> dict[str | bytes, bytes]:
    start = number * BATCH
    return {f"batch:{round_}:{row}": VALUE for row in range(start, start + BATCH)}
