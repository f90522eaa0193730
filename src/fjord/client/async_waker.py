"""The asyncio version of `waker`; separate, since asyncio loads slowly."""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import Callable
from typing import Any

from fjord.client.waker import Ear


class AsyncWaker(Ear):
    """`fjord.Waker` for asyncio."""

    async def wait(self, timeout: float) -> bool:
        try:
            async with asyncio.timeout(timeout):
                while True:
                    await asyncio.sleep(self.rest_us() / 1_000_000)
                    await _until_readable(self.socket)
                    if self.take():
                        return True
        except TimeoutError:
            return False


async def _until_readable(opened: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(opened, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(opened)


async def pause(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def call_handler(handler: Callable[[Any], object], job: object) -> None:
    """Calls a handler, and awaits its result if needed."""
    working = handler(job)
    if inspect.isawaitable(working):
        await working
