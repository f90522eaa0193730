"""When a daemon seals, and who is told."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest

from fjord.blocks.child import NodeBlocks
from fjord.commands import Done, Refusal, SealNow
from fjord.engine import Engine
from fjord.engine.cold import LazyCold
from fjord.errors import ClosedError, Code
from fjord.history import Block, SealedRange, SealPlan
from fjord.server.committer import Committer
from fjord.server.sealer import ColdBlocks, Sealer
from fjord.server.threads import ThreadPool
from fjord.testing import SimClock
from tests.unit.engine.test_cold import Blocks
from tests.unit.server.asking import Asker
from tests.unit.server.sim_loop import SimLoop

DONE = Done(master=bytes(16), seq=1)
PLAN = SealPlan(bytes(16), [SealedRange(7, "t", 3, 1, 50, 1, 1000)])


class Source:
    """An engine of which the world knows everything."""

    def __init__(self, world: World) -> None:
        self.sealing = self.journal = self.memory = world
        self.tables: dict[str, Any] = {}
        self.master = bytes(16)
        self.durable_seq = 1


class World:
    """A sealer on a source that is as the test says, and a committer that runs at once."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.loop = SimLoop(self.clock)
        self.directory = "journal"
        self.is_secure = False
        self.due: int | None = None
        self.written = 0
        self.failure: Exception | None = None
        self.is_stuck = threading.Event()  # set while a child is under way, if it hangs
        self.hangs = False
        self._ended = threading.Event()
        self.sealing = ThreadPool(self.loop.as_loop, "test")
        self.sealer = Sealer(
            cast(Engine, Source(self)),
            ColdBlocks(cast(NodeBlocks, self), LazyCold(Blocks)),
            cast(Committer, self),
            self.loop.as_loop,
            self.clock,
        )
        self.rounds = self.sealer.rounds
        self.pool = self.sealing

    def call(self, run: Callable[[], None], finish: Callable[[], None]) -> None:
        run()
        finish()

    def due_us(self) -> int | None:
        return self.due

    def plan_seal(self, table: str = "", *, now: bool = False) -> SealPlan | None:
        return None if self.due is None else PLAN

    def finish_seal(self, plan: SealPlan, blocks: Sequence[Block]) -> None:
        self.due = None

    def plan_retirement(self) -> list[Block]:
        return []

    def finish_retirement(self, blocks: Sequence[Block]) -> None:
        raise AssertionError

    def write(self, journal: str, plan: SealPlan) -> list[Block]:
        if self.hangs:
            self.is_stuck.set()
            self.loop.call_soon_threadsafe(lambda: None)  # the loop looks around
            assert self._ended.wait(10)
            raise ClosedError
        self.written += 1
        if self.failure is not None:
            raise self.failure
        return [Block(7, 1, 50, 50, 100, 1, 2, 3, "t-7/1")]

    def remove(self, blocks: Sequence[Block], *, wipes: bool = False) -> None:
        raise AssertionError

    def stop(self) -> None:
        self._ended.set()

    def blocks(self, table: str) -> list[Block]:
        return []

    def finish(self) -> None:
        """Runs all that is under way."""
        self.loop.until(lambda: self.pool.is_idle)


@pytest.fixture
def world() -> Iterator[World]:
    one = World()
    yield one
    one.sealer.stop()
    one.pool.close()


@pytest.mark.req("JQ-10")
def test_what_is_due_is_sealed_a_moment_after_it_was_written(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world.due = 0
    world.sealer.look_soon()
    world.sealer.look_soon()
    assert world.loop.waits() == [1]
    world.loop.pass_time(1)
    world.finish()
    assert world.rounds.stats() == {"sealed_blocks": 1, "seal_failures": 0}
    assert [record.message for record in caplog.records] == ["blocks were written"]
    world.loop.pass_time(10)
    assert world.written == 1
    assert world.loop.waits() == []


def test_a_failure_is_logged_and_tried_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.due, world.failure = 0, OSError("no network")
    world.sealer.look_soon()
    world.loop.pass_time(1)
    world.finish()
    assert [record.message for record in caplog.records] == ["sealing failed"]
    assert world.rounds.failures == 1
    world.failure = None
    world.loop.pass_time(2)
    world.finish()
    assert (world.written, world.rounds.blocks) == (2, 1)


def test_who_asks_is_answered_when_it_is_done(world: World) -> None:
    first, second = Asker(), Asker()
    world.due = 0
    for client in (first, second):
        world.sealer.seal(client, object(), SealNow())
    assert first.replies == []
    world.finish()
    assert first.replies == [DONE]
    assert second.replies == [DONE]
    assert world.written == 1


def test_a_bug_is_no_reason_to_answer_nothing(world: World) -> None:
    client = Asker()
    world.due, world.failure = 0, ZeroDivisionError()
    world.sealer.seal(client, object(), SealNow())
    world.finish()
    (reply,) = client.replies
    assert isinstance(reply, Refusal)
    assert reply.code is Code.FAILED


def test_who_is_gone_is_not_answered(world: World) -> None:
    client = Asker()
    world.sealer.seal(client, object(), SealNow())
    client.is_open = False
    world.finish()
    assert (client.replies, len(client.forgotten)) == ([], 1)


def test_the_stop_ends_what_is_under_way(world: World, caplog: pytest.LogCaptureFixture) -> None:
    client = Asker()
    world.due, world.hangs = 0, True
    for _ in range(2):
        world.sealer.seal(client, object(), SealNow())
    world.loop.until(world.is_stuck.is_set)
    world.sealer.stop()
    world.finish()
    codes = [reply.code for reply in client.replies if isinstance(reply, Refusal)]
    assert codes == [Code.BUSY, Code.BUSY]
    assert caplog.records == []
    world.sealer.look_soon()
    assert world.loop.waits() == []
