"""Calls on the engine from another thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from fjord.commands import Command, Done, Nop
from fjord.errors import ClosedError, Code, DurabilityError, RefusedError
from fjord.server.origin import After, Origin
from fjord.server.turns import Turns
from fjord.testing import SimClock
from tests.unit.server.sim_loop import SimLoop

DONE = Done(master=bytes(16), seq=1)
SECONDS_MAX = 10.0


class World:
    """Turns, and a committer that runs what it is told to."""

    def __init__(self) -> None:
        self.loop = SimLoop(SimClock())
        self.submitted: list[tuple[Origin, Command, After]] = []
        self.turns = Turns(self.loop.as_loop, self.submit)
        self.result: object = None

    def submit(self, origin: Origin, request: Any, command: Command, after: After | None) -> None:
        assert after is not None
        self.submitted.append((origin, command, after))

    def begin(self, call: Callable[[], object]) -> threading.Thread:
        """Returns a thread whose call has come to the committer."""

        def run() -> None:
            try:
                self.result = self.turns(call)
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                self.result = error

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.loop.until(lambda: bool(self.submitted))
        return thread


def test_a_call_runs_in_its_turn_and_returns_when_it_is_durable() -> None:
    world = World()
    called: list[threading.Thread] = []

    def call() -> int:
        called.append(threading.current_thread())
        return 42

    thread = world.begin(call)
    ((origin, command, after),) = world.submitted
    assert isinstance(command, Nop)
    assert (origin.is_open, origin.is_stalled, called) == (True, False, [])
    assert after(DONE) == DONE
    assert called == [threading.current_thread()]
    assert thread.is_alive()
    origin.answer(None, DONE)
    origin.flush()
    thread.join(SECONDS_MAX)
    assert world.result == 42


def test_a_refusal_is_told_to_who_called_and_the_engine_goes_on() -> None:
    world = World()

    def call() -> None:
        raise RefusedError(Code.DISK_FULL, "full")

    thread = world.begin(call)
    ((origin, _, after),) = world.submitted
    assert after(DONE) == DONE
    origin.answer(None, DONE)
    thread.join(SECONDS_MAX)
    assert isinstance(world.result, RefusedError)


def test_a_failure_is_told_to_the_committer_too() -> None:
    world = World()

    def call() -> None:
        raise DurabilityError

    thread = world.begin(call)
    with pytest.raises(DurabilityError):
        world.submitted[0][2](DONE)
    thread.join(SECONDS_MAX)
    assert isinstance(world.result, DurabilityError)


def test_nobody_waits_after_a_stop() -> None:
    world = World()
    thread = world.begin(lambda: 42)
    world.turns.stop()
    thread.join(SECONDS_MAX)
    assert isinstance(world.result, ClosedError)
    origin, _, after = world.submitted[0]
    after(DONE)
    origin.answer(None, DONE)  # too late, and no error
    origin.forget(None)
    with pytest.raises(ClosedError):
        world.turns(lambda: 42)
