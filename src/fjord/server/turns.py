"""Calls on the engine from another thread: each takes its turn among the commands.

The engine belongs to the loop's thread.  A call is handed over to it, runs between two commands
like a NOP, and returns once everything is durable that it has written.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from fjord.commands import Nop, Reply
from fjord.errors import ClosedError, RefusedError
from fjord.server.origin import After, Origin

T = TypeVar("T")


class Submit(Protocol):
    """Runs a command in its turn: the committer."""

    def __call__(
        self, origin: Origin, request: Any, command: Nop, after: After | None, /
    ) -> None: ...


class Turns:
    """Lets one other thread, or several, use the engine."""

    def __init__(self, loop: asyncio.AbstractEventLoop, submit: Submit) -> None:
        self._loop = loop
        self._submit = submit
        self._changing = threading.Lock()
        self._under_way: set[_Turn] = set()
        self._is_stopped = False

    def __call__(self, call: Callable[[], T]) -> T:
        """Makes a call; not on the loop's own thread.

        Raises:
            ClosedError: if the daemon stops; perhaps the call was made all the same.
        """
        turn = _Turn(call)
        with self._changing:
            if self._is_stopped:
                raise ClosedError
            self._under_way.add(turn)
        try:
            self._loop.call_soon_threadsafe(self._submit, turn, None, Nop(), turn.run)
            found: T = turn.future.result()
        finally:
            with self._changing:
                self._under_way.discard(turn)
        return found

    def stop(self) -> None:
        """Lets nobody wait any more."""
        with self._changing:
            self._is_stopped = True
            for turn in self._under_way:
                turn.fail(ClosedError())


class _Turn:
    """One call, in the place of a session."""

    client = 0
    is_stalled = False
    is_open = True

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._found: object = None
        self._ending = threading.Lock()  # it ends once: by its answer, or by a stop
        self.future: Future[Any] = Future()

    def run(self, reply: Reply) -> Reply:
        try:
            self._found = self._call()
        except RefusedError as error:  # nothing was changed, and the engine goes on
            self.fail(error)
        except Exception as error:
            self.fail(error)
            raise
        return reply

    def answer(self, request: Any, reply: Reply) -> None:
        with self._ending:
            if not self.future.done():
                self.future.set_result(self._found)

    def fail(self, error: Exception) -> None:
        with self._ending:
            if not self.future.done():
                self.future.set_exception(error)

    def flush(self) -> None: ...

    def forget(self, request: Any) -> None: ...
