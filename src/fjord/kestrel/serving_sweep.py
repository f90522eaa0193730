"""What a server does by itself, from time to time: only as often as something is configured.

- expired items are looked for, if `expirationTimerFrequency` says so;
- items that are open for too long go back, and queues that nobody uses are deleted, if some queue
  has such a bound;
- what a connection had open, and could not be given back for want of space, is tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final, Protocol

from fjord import disk as disks
from fjord.clock import Clock
from fjord.kestrel.session import Queues, Session

_log = logging.getLogger("fjord.kestrel")

_RETRY_SECONDS: Final = 1.0

# Told that items of a queue are their holders' no more; None = all of that queue.
Forget = Callable[[str, AbstractSet[int] | None], None]


class Tidied(Queues, Protocol):
    """Queues that have to be tidied."""

    def tidy_seconds(self) -> float | None:
        """Returns how often, None if there is nothing to do."""
        ...

    async def tidy(self, forget: Forget) -> None:
        """Gives back what is open for too long, and deletes queues that nobody uses."""
        ...


class Sweeper:
    """Does it, as a task of a server."""

    def __init__(
        self, queues: Tidied, clock: Clock, *, expire_seconds: float | None, forget: Forget
    ) -> None:
        self._queues = queues
        self._clock = clock
        self._expire_seconds = expire_seconds
        self._forget = forget
        self.orphans: list[Session] = []  # whose connections are gone
        self._changed = asyncio.Event()

    def adopt(self, session: Session) -> None:
        """Takes over what a connection has left open."""
        self.orphans.append(session)
        self.configure()

    def configure(self) -> None:
        """Looks again how often there is something to do."""
        self._changed.set()

    async def run(self) -> None:
        """Raises FjordError or OSError if the disk failed; one that is full has not."""
        expired_us = self._clock.monotonic_us()
        while True:
            if not await self._pause():
                continue
            now_us = self._clock.monotonic_us()
            seconds = self._expire_seconds
            expires = seconds is not None and now_us - expired_us >= seconds * 1_000_000
            if expires:
                expired_us = now_us
            await self._sweep(expires=expires)

    async def _pause(self) -> bool:
        """Waits until there is something to do; False if it is to look how long."""
        times = [
            self._expire_seconds,
            self._queues.tidy_seconds(),
            _RETRY_SECONDS if self.orphans else None,
        ]
        seconds = min((one for one in times if one is not None), default=None)
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return True
        self._changed.clear()
        return False

    async def _sweep(self, *, expires: bool) -> None:
        for session in self.orphans:
            with _bearing():
                await session.abort_all()
        self.orphans = [session for session in self.orphans if session.has_open]
        if self._queues.tidy_seconds() is not None:
            with _bearing():
                await self._queues.tidy(self._forget)
        if expires:
            for queue in await self._queues.names():
                with _bearing():
                    await self._queues.flush_expired(queue)
        await self._queues.settle()


@contextlib.contextmanager
def _bearing() -> Iterator[None]:
    """What finds no space is left for the next time."""
    try:
        yield
    except OSError as error:
        if not disks.is_full(error):
            raise
        _log.warning("the disk is full", extra={"fields": {"error": error}})
