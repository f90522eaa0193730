"""All sessions that are open, and what they share."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from fjord.clock import Clock
from fjord.commands import Command, Numbers, Scan, Span
from fjord.errors import Code
from fjord.server.bounds import Bounds, Memory
from fjord.server.counters import Counters
from fjord.server.job_events import JobEvents
from fjord.server.listeners import Listeners
from fjord.server.origin import After, Origin, Settle
from fjord.server.reading import Reads
from fjord.server.sealer import Sealer
from fjord.wire import Cursors


class Runner(Protocol):
    """Whoever runs the commands: the committer."""

    def submit(
        self,
        origin: Origin,
        request: Any,
        command: Command,
        after: After | None = None,
        settle: Settle | None = None,
        /,
    ) -> None: ...

    def scan(self, origin: Origin, request: Any, command: Scan | Span, /) -> None: ...

    def note_refusal(self, code: Code, /) -> None: ...

    def release(self) -> None: ...

    def leave(self, client: int, /) -> None: ...


class Watched(Protocol):
    """What the daemon looks at again and again: a session."""

    def check_deadlines(self, now_us: int) -> None: ...

    def stop(self) -> None: ...


class Sessions:
    """All sessions that are open."""

    def __init__(self) -> None:
        self._open: set[Watched] = set()
        self._gone: asyncio.Future[None] | None = None
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Watched]:
        return iter(list(self._open))

    def next_client(self) -> int:
        """Returns a number that no other session has had."""
        return next(self._numbers)

    def add(self, session: Watched) -> None:
        self._open.add(session)

    def discard(self, session: Watched) -> None:
        self._open.discard(session)
        if not self._open and self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    async def wait_gone(self) -> None:
        """Returns when no session is open."""
        if self._open:
            self._gone = asyncio.get_running_loop().create_future()
            await self._gone


@dataclass(slots=True, kw_only=True)
class Shared:
    """What every session works with."""

    runner: Runner
    loop: asyncio.AbstractEventLoop
    clock: Clock
    bounds: Bounds
    memory: Memory
    counters: Counters
    listeners: Listeners
    jobs: JobEvents
    reads: Reads
    sealer: Sealer | None  # None = nothing is sealed
    sessions: Sessions
    new_client: Callable[[], bytes]  # 16 bytes for a client that brings none
    cursors: Cursors
    stats: Callable[[], Numbers]
    version: str
