"""Fjord for asyncio: `db = await fjord.aio.connect("fjord://127.0.0.1:17994")`."""

from fjord.client.async_listening import AsyncChanges
from fjord.client.async_waker import AsyncWaker
from fjord.client.database import AsyncDatabase, connect
from fjord.client.jobs.table import AsyncJob, AsyncJobs
from fjord.client.kv import AsyncKv
from fjord.client.snapshots import AsyncSnapshot
from fjord.client.streams import AsyncStream
from fjord.client.subscribers import AsyncReader, AsyncSubscriber

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
