"""Fjord for asyncio: `db = await fjord.aio.connect("fjord://127.0.0.1:17994")`."""

from fjord.client.asynchronous import AsyncDatabase, AsyncKv, connect

__all__ = ["AsyncDatabase", "AsyncKv", "connect"]
