"""Slow work on threads, away from the loop: syncs, scans, reading blocks, sealing.

A `WorkerThread` is one.  A `ThreadPool` has several, for requests of peers:

    put -> queue -> a thread is free, and the peer reads its replies -> work -> finish, on the loop

Work for a peer that does not read its replies waits until it does; others have their turn.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable

from fjord import limits
from fjord.server.origin import Origin

Work = Callable[[], object]
Finish = Callable[[object, Exception | None], object]
Asked = tuple[Origin | None, Work, Finish, Callable[[], None]]


class WorkerThread:
    """Runs work in order; `finish` is called on the worker's own thread."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[tuple[Work, Finish] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, work: Work, finish: Finish) -> None:
        self._queue.put((work, finish))

    def close(self) -> None:
        """Waits for the current work, but not for ever: remote storage may not answer."""
        self._queue.put(None)
        self._thread.join(limits.STOP_SECONDS_MAX)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            work, finish = item
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - the caller gets the error
                finish(None, error)
            else:
                finish(result, None)


class ThreadPool:
    """Runs work in order, as many items at a time as it has threads."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        *,
        threads: int = 1,
        on_idle: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop = loop
        self._workers = [WorkerThread(name) for _ in range(threads)]
        self._free = list(self._workers)
        self._waiting: deque[Asked] = deque()
        self._on_idle = on_idle  # called whenever an item is done

    @property
    def is_idle(self) -> bool:
        """Returns whether nothing is running or waiting."""
        return not self._waiting and len(self._free) == len(self._workers)

    def put(
        self,
        origin: Origin | None,
        work: Work,
        finish: Finish,
        forget: Callable[[], None] = lambda: None,
    ) -> None:
        """Does work for a peer, or for the daemon (None); then calls `finish` on the loop.

        If the peer is gone before the work begins, `forget` is called instead.
        """
        self._waiting.append((origin, work, finish, forget))
        self.release()

    def release(self) -> None:
        """Begins what can begin; work for a peer that is gone is dropped."""
        for _ in range(len(self._waiting)):
            if not self._free:
                return
            asked = self._waiting.popleft()
            origin = asked[0]
            if origin is None or not origin.is_stalled:
                self._begin(self._free.pop(), asked)
            elif origin.is_open:
                self._waiting.append(asked)
            else:
                asked[3]()

    def close(self) -> None:
        """Waits for running work; what waits is not run."""
        for worker in self._workers:
            worker.close()

    def _begin(self, worker: WorkerThread, asked: Asked) -> None:
        def finish(result: object, error: Exception | None) -> None:
            self._free.append(worker)
            asked[2](result, error)
            self.release()
            self._on_idle()

        call = self._loop.call_soon_threadsafe
        worker.put(asked[1], lambda result, error: call(finish, result, error))
