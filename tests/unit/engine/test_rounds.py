"""Rounds of sealing: the order of their steps, what a failure does, and who is told what."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from fjord.commands import Done, Refusal, SealNow
from fjord.engine.sealing import Rounds
from fjord.errors import ClosedError, Code, FjordError
from fjord.history import Block, SealedRange, SealPlan
from fjord.kinds import Kind
from fjord.tables.state import Table
from fjord.testing import SimClock

SECOND_US = 1_000_000
OLD = Block(7, 1, 10, 10, 100, 1, 2, 3, "t-7/old")


def plan_of(first: int, last: int) -> SealPlan:
    where = SealedRange(7, "t", 3, first, last, 1, 1000)
    return SealPlan(bytes(16), [where])


def block_of(first: int, last: int) -> Block:
    return Block(7, first, last, last - first + 1, 100, 1, 2, 3, f"t-7/{first}")


class World:
    """A source, a shelf and turns that remember the steps."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.steps: list[str] = []
        self.plans: list[SealPlan] = []
        self.retired: list[Block] = []
        self.failure: Exception | None = None
        self.tables = {
            "t": Table(id=7, name="t", kind=Kind.STREAM),
            "kv": Table(id=8, name="kv", kind=Kind.KV),
        }
        self.master = b"m" * 16
        self.durable_seq = 100
        self.journal = self.memory = self
        self.directory = "journal"
        self.is_secure = False
        self.due: int | None = 0
        self.sealing = self
        self.rounds = Rounds(cast(Any, self), self, self.turn, self.clock)

    def turn(self, call: Callable[[], None]) -> None:
        call()
        self.steps.append("durable")

    def due_us(self) -> int | None:
        return self.due

    def plan_seal(self, table: str = "", *, now: bool = False) -> SealPlan | None:
        self.steps.append(f"plan {table or 'all'}{' now' if now else ''}")
        return self.plans.pop(0) if self.plans else None

    def finish_seal(self, plan: SealPlan, blocks: Sequence[Block]) -> None:
        self.steps.append(f"sealed {len(blocks)}")

    def plan_retirement(self) -> list[Block]:
        return self.retired

    def finish_retirement(self, blocks: Sequence[Block]) -> None:
        self.steps.append("retired")

    def write(self, journal: str, plan: SealPlan) -> list[Block]:
        assert journal == self.directory
        self.steps.append("write")
        if self.failure is not None:
            raise self.failure
        return [block_of(one.first, one.last) for one in plan.ranges]

    def remove(self, blocks: Sequence[Block], *, wipes: bool = False) -> None:
        self.steps.append("wipe" if wipes else "remove")

    def stop(self) -> None:
        self.steps.append("stop")


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.req("JQ-10")
def test_blocks_are_written_once_the_range_is_durable_and_noted_once_they_are(world: World) -> None:
    world.plans = [plan_of(1, 50), plan_of(51, 100)]
    world.rounds.round()
    assert world.steps == [
        "durable",
        "plan all",
        "durable",
        "write",
        "sealed 1",
        "durable",
        "durable",
    ]
    assert len(world.plans) == 1  # the rest is due again
    assert world.rounds.stats() == {"sealed_blocks": 1, "seal_failures": 0}


@pytest.mark.req("SJ-19")
def test_files_are_overwritten_before_they_go_if_that_is_wanted(world: World) -> None:
    world.retired = [OLD]
    world.is_secure = True
    world.rounds.round()
    assert world.steps[-5:] == ["durable", "durable", "wipe", "retired", "durable"]


def test_everything_is_sealed_when_somebody_asks(world: World) -> None:
    world.plans = [plan_of(1, 50), plan_of(51, 100)]
    reply = world.rounds.seal(SealNow(table="t"))
    assert reply == Done(master=b"m" * 16, seq=100)
    assert world.steps.count("write") == 2
    assert world.steps.count("plan t now") == 2
    assert world.steps[-3:] == ["sealed 1", "durable", "durable"]


def test_what_comes_meanwhile_is_not_sealed_for_ever(world: World) -> None:
    world.plans = [plan_of(first, first + 49) for first in range(1, 1000, 50)]
    assert isinstance(world.rounds.seal(SealNow()), Done)
    assert world.steps.count("write") == 2


def test_a_table_without_history_is_not_sealed(world: World) -> None:
    reply = world.rounds.seal(SealNow(table="kv"))
    assert isinstance(reply, Refusal)
    text = "table kv is a kv table without history to seal"
    assert (reply.code, reply.text) == (Code.WRONG_KIND, text)
    assert world.steps == []


def test_who_asked_is_told_why_it_failed(world: World) -> None:
    world.plans, world.failure = [plan_of(1, 50)], FjordError("no room there")
    reply = world.rounds.seal(SealNow())
    assert isinstance(reply, Refusal)
    assert (reply.code, reply.text) == (Code.FAILED, "sealing failed: no room there")


def test_a_failure_is_counted_and_followed_by_a_rest_that_grows(world: World) -> None:
    world.failure = OSError("no network")
    rests = []
    for _ in range(12):
        world.plans = [plan_of(1, 50)]
        with pytest.raises(OSError, match="no network"):
            world.rounds.round()
        due_us = world.rounds.due_us()
        assert due_us is not None
        rests.append((due_us - world.clock.wall_us()) // SECOND_US)
        world.clock.advance(rests[-1])
    assert rests == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert world.rounds.stats() == {"sealed_blocks": 0, "seal_failures": 12}
    assert world.rounds.due_us() == 0
    world.plans, world.failure = [plan_of(1, 50)], None
    world.rounds.round()
    assert world.rounds.due_us() == 0


def test_nothing_is_due_where_there_is_nothing_or_after_the_stop(world: World) -> None:
    world.due = None
    assert world.rounds.due_us() is None
    world.due = 5
    assert world.rounds.due_us() == 5
    world.rounds.stop()
    assert world.rounds.due_us() is None
    assert world.steps == ["stop"]


def test_one_round_is_made_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    writing, go_on = threading.Event(), threading.Event()
    write = world.write

    def slow_write(journal: str, plan: SealPlan) -> list[Block]:
        writing.set()
        assert go_on.wait(10)
        return write(journal, plan)

    monkeypatch.setattr(world, "write", slow_write)
    world.plans = [plan_of(1, 50)]
    first = threading.Thread(target=world.rounds.round)
    first.start()
    assert writing.wait(10)
    second = threading.Thread(target=world.rounds.seal, args=[SealNow()])
    second.start()
    assert "plan all now" not in world.steps
    go_on.set()
    first.join(10)
    second.join(10)
    world.rounds.join()
    assert world.steps.index("sealed 1") < world.steps.index("plan all now")


def test_a_round_that_is_stopped_writes_nothing_and_is_no_failure(world: World) -> None:
    world.rounds.stop()
    world.plans = [plan_of(1, 50)]
    with pytest.raises(ClosedError):
        world.rounds.seal(SealNow())
    assert "write" not in world.steps
    assert world.rounds.failures == 0


def test_a_table_that_is_not_there_is_not_sealed(world: World) -> None:
    reply = world.rounds.seal(SealNow(table="unknown"))
    assert isinstance(reply, Refusal)
    assert reply.code is Code.NOT_FOUND
    assert world.steps == []
