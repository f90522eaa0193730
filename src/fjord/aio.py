"""Fjord for asyncio: `db = await fjord.aio.connect("fjord://127.0.0.1:17994")`."""

from fjord.client.async_jobs import AsyncJob, AsyncJobs
from fjord.client.async_kv import AsyncKv
from fjord.client.async_listening import AsyncChanges
from fjord.client.async_snapshots import AsyncSnapshot
from fjord.client.async_streams import AsyncStream
from fjord.client.async_subscribers import AsyncReader, AsyncSubscriber
from fjord.client.async_waker import AsyncWaker
from fjord.client.asynchronous import AsyncDatabase, connect

__all__ = [
    "AsyncChanges",
    "AsyncDatabase",
    "AsyncJob",
    "AsyncJobs",
    "AsyncKv",
    "AsyncReader",
    "AsyncSnapshot",
    "AsyncStream",
    "AsyncSubscriber",
    "AsyncWaker",
    "connect",
]
