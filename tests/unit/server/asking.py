"""Who asks a server for something, and what is to run for them; for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fjord.commands import Command, Fail, Reply
from fjord.engine import Engine
from fjord.engine.cold import LazyCold
from fjord.server.counters import Counters
from fjord.server.origin import After, Origin
from fjord.server.threads import ThreadPool
from fjord.server.waits import WaitingRequest, WaitingRequests
from fjord.testing import SimClock
from tests.unit.server.sim_loop import SimLoop


class Asker:
    """Asks, and remembers what it is told; that must be durable, if there is an engine."""

    def __init__(self, engine: Engine | None = None, client: int = 1, *, name: str = "") -> None:
        self._engine = engine
        self.client = client
        self.name = name
        self.is_stalled = False
        self.is_open = True
        self.is_ending = False
        self.answers: list[tuple[Any, Reply]] = []
        self.sent: list[Reply] = []
        self.pushed: list[bytes] = []
        self.forgotten: list[Any] = []

    @property
    def replies(self) -> list[Reply]:
        return [reply for _, reply in self.answers]

    def answer(self, request: Any, reply: Reply) -> None:
        assert self.is_open
        self.check_durable()
        self.answers.append((request, reply))

    def flush(self) -> None:
        self.sent = self.replies

    def forget(self, request: Any) -> None:
        self.forgotten.append(request)

    def push(self, messages: Sequence[bytes]) -> None:
        self.check_durable()
        self.pushed += messages

    def close(self) -> None:
        self.is_open, self.is_stalled = False, True

    def check_durable(self) -> None:
        assert self._engine is None or self._engine.durable_seq == self._engine.applied_seq


class Waiting:
    """Requests that wait, and a committer that only collects what is to run."""

    def __init__(self, *, threads: int, cold: LazyCold | None = None) -> None:
        self.clock = SimClock()
        self.loop = SimLoop(self.clock)
        self.counters = Counters()
        self.submitted: list[tuple[Origin, Any, Command, After | None, WaitingRequest | None]] = []
        loop = self.loop.as_loop
        self.pool = ThreadPool(loop, "test", threads=threads, on_idle=lambda: None)
        self.waiting = WaitingRequests(
            self.submit, loop, self.clock, self.counters, self.pool, cold
        )
        self.given_back: list[Fail] = []
        self.waiting.give_back = self.given_back.append

    def submit(
        self,
        origin: Origin,
        request: Any,
        command: Command,
        after: After | None = None,
        wait: WaitingRequest | None = None,
    ) -> None:
        self.submitted.append((origin, request, command, after, wait))
