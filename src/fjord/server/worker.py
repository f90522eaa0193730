"""A thread that does one thing after the other and says when each is done."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from fjord import limits

Finish = Callable[[object, Exception | None], None]


class Worker:
    """Runs what it is given in order; `finish` is called on the worker's own thread."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[tuple[Callable[[], object], Finish] | None] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, work: Callable[[], object], finish: Finish) -> None:
        self._queue.put((work, finish))

    def close(self) -> None:
        """Waits for what is under way, but not for ever: storage elsewhere may not answer."""
        self._queue.put(None)
        self._thread.join(limits.STOP_SECONDS_MAX)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            work, finish = item
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - whoever gave the work gets the error
                finish(None, error)
            else:
                finish(result, None)
