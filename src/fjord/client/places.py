"""A bounded number of places for requests; cheap where one is free, since every call takes one."""

from __future__ import annotations

import asyncio
from collections import deque


class Places:
    """Take one with `free -= 1` while there is one, else `await wait()`."""

    def __init__(self, count: int) -> None:
        self.free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Takes a place, and waits for one if that must be."""
        if self.free:
            self.free -= 1
        else:
            await self.wait()

    async def wait(self) -> None:
        """Returns when a place was given to the caller; first come, first served."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.give_back()  # it was given just before
            raise

    def give_back(self) -> None:
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self.free += 1
