"""Work beside the loop: in order, as many at a time as there are threads, for who is there."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from fjord.server.threads import ThreadPool
from fjord.testing import SimClock
from tests.unit.server.asking import Asker
from tests.unit.server.sim_loop import SimLoop

SECONDS_MAX = 10.0


class World:
    """One ThreadPool, and what came of what it was given."""

    def __init__(self, threads: int) -> None:
        self.loop = SimLoop(SimClock())
        self.idle = 0
        self.done: list[tuple[object, str]] = []
        self.pool = ThreadPool(self.loop.as_loop, "test", threads=threads, on_idle=self._note_idle)

    def _note_idle(self) -> None:
        self.idle += self.pool.is_idle

    def put(self, client: Asker, name: str, wait_for: threading.Event | None = None) -> None:
        def work() -> str:
            if wait_for is not None:
                assert wait_for.wait(SECONDS_MAX)
            if name == "fails":
                raise OSError(name)
            return name

        def finish(result: object, error: Exception | None) -> None:
            self.done.append((result, str(error or "")))

        self.pool.put(client, work, finish, lambda: client.forget(name))

    def until(self, count: int) -> list[object]:
        self.loop.until(lambda: len(self.done) >= count)
        return [result for result, _ in self.done]


@pytest.fixture
def world() -> Iterator[World]:
    one = World(1)
    yield one
    one.pool.close()


def test_work_is_done_in_order_and_finished_on_the_loop(world: World) -> None:
    client = Asker()
    for name in ("a", "b", "c"):
        world.put(client, name)
    assert world.done == []
    assert world.until(3) == ["a", "b", "c"]
    assert world.pool.is_idle
    assert world.idle == 1


def test_as_much_is_done_at_a_time_as_there_are_threads() -> None:
    world, client, event = World(2), Asker(), threading.Event()
    world.put(client, "slow", event)
    world.put(client, "a")
    world.put(client, "b")
    assert world.until(2) == ["a", "b"]
    assert not world.pool.is_idle
    event.set()
    assert world.until(3) == ["a", "b", "slow"]
    world.pool.close()


def test_who_takes_no_replies_waits_and_others_have_their_turn(world: World) -> None:
    stalled, client = Asker(), Asker()
    stalled.is_stalled = True
    world.put(stalled, "a")
    world.put(client, "b")
    assert world.until(1) == ["b"]
    assert not world.pool.is_idle
    stalled.is_stalled = False
    world.pool.release()
    assert world.until(2) == ["b", "a"]


def test_what_a_peer_asked_for_that_is_gone_is_forgotten(world: World) -> None:
    gone = Asker()
    gone.is_stalled = True
    world.put(gone, "a")
    gone.is_open = False
    world.pool.release()
    assert gone.forgotten == ["a"]
    assert world.pool.is_idle
