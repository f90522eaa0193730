"""Calls on the engine from another thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import cast

import pytest

from fjord.engine.sealing import in_turn
from fjord.errors import ClosedError, Code, DurabilityError, RefusedError
from fjord.server.committer import Committer
from fjord.server.sealer import Turns
from fjord.testing import SimClock
from tests.unit.server.sim_loop import SimLoop

SECONDS_MAX = 10.0


class World:
    """Turns, and a committer that runs what it is told to."""

    def __init__(self) -> None:
        self.loop = SimLoop(SimClock())
        self.called: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self.turns = Turns(self.loop.as_loop, cast(Committer, self))
        self.result: object = None

    def call(self, run: Callable[[], None], finish: Callable[[], None]) -> None:
        self.called.append((run, finish))

    def begin(self, call: Callable[[], object]) -> threading.Thread:
        """Returns a thread whose call has come to the committer."""

        def run() -> None:
            try:
                self.result = in_turn(self.turns, call)
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                self.result = error

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.loop.until(lambda: bool(self.called))
        return thread


def test_a_call_runs_in_its_turn_and_returns_when_it_is_durable() -> None:
    world = World()
    called: list[threading.Thread] = []

    def call() -> int:
        called.append(threading.current_thread())
        return 42

    thread = world.begin(call)
    ((run, finish),) = world.called
    assert called == []
    run()
    assert called == [threading.current_thread()]
    assert thread.is_alive()
    finish()
    thread.join(SECONDS_MAX)
    assert world.result == 42


def test_a_refusal_is_told_to_who_called_and_the_engine_goes_on() -> None:
    world = World()

    def call() -> None:
        raise RefusedError(Code.DISK_FULL, "full")

    thread = world.begin(call)
    ((run, finish),) = world.called
    run()
    finish()
    thread.join(SECONDS_MAX)
    assert isinstance(world.result, RefusedError)


def test_a_failure_is_told_to_the_committer_too() -> None:
    world = World()

    def call() -> None:
        raise DurabilityError

    thread = world.begin(call)
    with pytest.raises(DurabilityError):
        world.called[0][0]()
    thread.join(SECONDS_MAX)
    assert isinstance(world.result, DurabilityError)


def test_nobody_waits_after_a_stop() -> None:
    world = World()
    thread = world.begin(lambda: 42)
    world.turns.stop()
    thread.join(SECONDS_MAX)
    assert isinstance(world.result, ClosedError)
    run, finish = world.called[0]
    run()
    finish()  # too late, and no error
    with pytest.raises(ClosedError):
        world.turns(lambda: None)
