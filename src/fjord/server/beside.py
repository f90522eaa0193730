"""What takes long, on threads beside the loop: scans, blocks that are read, sealing.

    put -> queue -> a thread is free, and the peer takes its replies -> work -> finish, on the loop

What is asked for by a peer that takes no replies waits until it does; others have their turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from fjord.server.origin import Origin
from fjord.server.worker import Finish, Worker

Asked = tuple[Origin, Any, Callable[[], object], Finish]


class Beside:
    """Does what it is given, in order, as many at a time as it has threads."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        *,
        threads: int = 1,
        on_idle: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop = loop
        self._workers = [Worker(name) for _ in range(threads)]
        self._free = list(self._workers)
        self._waiting: deque[Asked] = deque()
        self._on_idle = on_idle  # called whenever something is done

    @property
    def is_idle(self) -> bool:
        """Says that nothing is under way, and that nothing waits."""
        return not self._waiting and len(self._free) == len(self._workers)

    def put(self, origin: Origin, request: Any, work: Callable[[], object], finish: Finish) -> None:
        """Does some work for a peer; `finish` is called on the loop with what came of it."""
        self._waiting.append((origin, request, work, finish))
        self.release()

    def release(self) -> None:
        """Begins what can begin; what a peer asked for that is gone is forgotten."""
        for _ in range(len(self._waiting)):
            if not self._free:
                return
            asked = self._waiting.popleft()
            if not asked[0].is_stalled:
                self._begin(self._free.pop(), asked)
            elif asked[0].is_open:
                self._waiting.append(asked)
            else:
                asked[0].forget(asked[1])

    def close(self) -> None:
        """Waits for what is under way; what waits is not done."""
        for worker in self._workers:
            worker.close()

    def _begin(self, worker: Worker, asked: Asked) -> None:
        def finish(result: object, error: Exception | None) -> None:
            self._free.append(worker)
            asked[3](result, error)
            self.release()
            self._on_idle()

        worker.put(
            asked[2],
            lambda result, error: self._call_back(finish, result, error),
        )

    def _call_back(self, finish: Finish, result: object, error: Exception | None) -> None:
        self._loop.call_soon_threadsafe(finish, result, error)
