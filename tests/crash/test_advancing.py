"""A forwarder that loses answers, daemons that crash, batches that are cut otherwise: each record
of a spool is applied once, and in order.

What is forwarded shows whether it came twice: messages of a log, and a value that is added to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.columns import Strings
from fjord.commands import (
    Advance,
    AskWriter,
    Batch,
    Change,
    Command,
    Committed,
    Done,
    Entries,
    Get,
    Modify,
    Refusal,
    Replies,
    Set,
)
from fjord.errors import Code
from fjord.tables.state import Tree
from fjord.testing import SimCrash, SimDisk
from tests.crash.stream_world import KV, LOG, World
from tests.unit.engine.shore import append_command

SPOOL: Final = "a spool"
ONE: Final = (1).to_bytes(8, "little")
DAY: Final = 24 * 3600.0


class Forwarder(World):
    """Sends records 0, 1, 2 ... of a spool, from where it thinks that the daemon is."""

    def __init__(self, disk: SimDisk) -> None:
        super().__init__(disk)
        self.at = -1  # as far as it knows; the number of a record is where it ends

    def batch(self, count: int) -> Batch:
        self.clock.advance(0.001)
        begin = max(0, self.at)
        rows = [(b"", b"%d" % number) for number in range(begin, begin + count)]
        now_us = self.clock.wall_us()
        adds: list[Command] = [
            Modify(table=KV, key=b"sum", change=Change.ADD, operand=ONE, timestamp_us=now_us)
            for _ in rows
        ]
        advance = Advance(writer=SPOOL, expected=self.at, batch=begin + count)
        return Batch(commands=[append_command(LOG, rows), *adds, advance])

    def send(self, count: int) -> None:
        """Sends the next records; whoever is told to be elsewhere asks, and goes on from there."""
        reply = self.shore.ask(self.engine, self.batch(count))
        if isinstance(reply, Replies):
            self.at = max(0, self.at) + count
            return
        assert isinstance(reply, Refusal)
        assert reply.code is Code.STALE_NUMBER, reply
        self.learn()

    def lose(self, count: int) -> None:
        """Sends records, and never hears of them."""
        self.shore.ask(self.engine, self.batch(count))

    def learn(self) -> None:
        reply = self.ask(AskWriter(table="", writer=SPOOL))
        assert isinstance(reply, Committed)
        self.at = reply.batch

    def care(self) -> None:
        self.round()
        self.upkeep()
        self.pack()

    def rebuild(self) -> None:
        """Begins again without an index."""
        self.engine.close()
        self.indexes.drop()
        self.open()

    def check(self) -> None:
        """Each record up to where the writer is was applied once, and no other one."""
        self.learn()
        count = max(0, self.at)
        assert [value for _, _, value in self.read_all(LOG)] == [b"%d" % n for n in range(count)]
        entries = self.ask(Get(table=KV, keys=Strings.of([b"sum"])))
        assert isinstance(entries, Entries)
        assert int.from_bytes(entries.values[0], "little") == count
        self.check_index()


def begun(seed: int = 1) -> Forwarder:
    world = Forwarder(SimDisk(seed))
    world.open()
    world.create()
    zero = Set(
        table=KV,
        keys=Strings.of([b"sum"]),
        types=b"\3",
        values=Strings.of([bytes(8)]),
        timestamps_us=[world.clock.wall_us()],
    )
    world.ask(zero)
    return world


# -- one daemon -----------------------------------------------------------------------------------


def test_a_refused_advance_applies_nothing_of_its_batch() -> None:
    world = begun()
    world.send(3)
    late = world.batch(2)
    world.send(1)
    seq = world.engine.applied_seq
    reply = world.shore.ask(world.engine, late)
    assert isinstance(reply, Refusal)
    assert reply.code is Code.STALE_NUMBER
    assert reply.text == f"command 4 of the batch: writer {SPOOL} is at 4, not at 3"
    assert world.engine.applied_seq == seq
    world.check()


def test_a_batch_that_is_refused_does_not_advance() -> None:
    world = begun()
    world.send(3)
    batch = world.batch(2)
    bad = Modify(table=KV, key=b"none", change=Change.ADD, operand=ONE, timestamp_us=10**15)
    for commands in ([bad, *batch.commands], [*batch.commands, bad]):
        reply = world.shore.ask(world.engine, Batch(commands=commands))
        assert isinstance(reply, Refusal)
        assert reply.code is Code.NOT_FOUND
        world.check()
        assert world.at == 3
    world.ask(batch)
    world.check()
    assert world.at == 5


def test_a_batch_sees_where_its_writer_is_by_then() -> None:
    world = begun()
    first, second = world.batch(2), Advance(writer=SPOOL, expected=2, batch=7)
    other = Advance(writer="other", expected=-1, batch=5)
    gone = Advance(writer="other", expected=5, batch=0)
    world.ask(Batch(commands=[*first.commands, other, second, gone]))
    world.learn()
    assert world.at == 7
    twice = Batch(commands=[Advance(writer=SPOOL, expected=7, batch=8)] * 2)
    reply = world.shore.ask(world.engine, twice)
    assert isinstance(reply, Refusal)
    assert reply.text.startswith("command 2 of the batch: ")
    world.learn()
    assert world.at == 7
    world.check_index()


def test_a_writer_alone_advances_in_the_same_frame_as_others() -> None:
    world = begun()
    steps = [Advance(writer=SPOOL, expected=at, batch=at + 2) for at in (-1, 1, 3, 1)]
    *done, refused = world.engine.run(steps)
    world.engine.sync()
    assert {type(one) for one in done} == {Done}
    assert isinstance(refused, Refusal)
    world.learn()
    assert world.at == 5


def test_a_forwarder_is_forgotten_after_a_year() -> None:
    world = begun()
    world.send(3)
    world.clock.advance(300 * DAY)
    world.upkeep()
    world.send(1)
    world.clock.advance(300 * DAY)
    world.upkeep()
    world.check()
    assert world.at == 4
    world.clock.advance(70 * DAY)
    world.upkeep()
    world.learn()
    assert world.at == -1
    assert not world.engine.scan_index(Tree.WRITERS, b"", None, 10)
    world.check_index()


def test_a_forwarder_that_is_over_is_forgotten_after_a_day() -> None:
    world = begun()
    world.send(3)
    world.ask(Advance(writer=SPOOL, expected=world.at, batch=0))
    world.clock.advance(DAY // 2)
    world.upkeep()
    world.learn()
    assert world.at == 2**63 - 1
    world.clock.advance(DAY)
    world.upkeep()
    world.learn()
    assert world.at == -1
    world.check_index()


@pytest.mark.parametrize("kind", ["power_cut", "process_crash"])
def test_segments_go_and_writers_stay(kind: str) -> None:
    world = begun()
    world.send(3)
    for _ in range(3):
        world.care()
    assert world.engine.stats()["packed_segments"]
    world.check()
    world.crash(kind)
    world.check()
    world.rebuild()
    world.check()
    assert world.at == 3
    world.send(2)
    world.check()


# -- all that can go wrong ------------------------------------------------------------------------

Step = tuple[str, int, int]  # what happens, to how many records, at which call of the disk
STEPS: Final = ["send", "lose", "learn", "care", "rebuild", "power_cut", "process_crash"]


def live(world: Forwarder, steps: Sequence[Step]) -> None:
    for what, count, call in steps:
        if what in ("send", "lose"):
            getattr(world, what)(count)
        elif what in ("learn", "care", "rebuild"):
            getattr(world, what)()
        else:
            world.disk.crash_after(call)
            with contextlib.suppress(SimCrash):
                world.send(count)
            world.crash(what)


@given(
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(1, 5), st.integers(1, 6)), max_size=15)
)
def test_each_record_is_applied_once_whatever_happens(steps: list[Step]) -> None:
    world = begun()
    live(world, steps)
    world.check()
    before = world.at
    world.send(3)
    world.check()
    assert world.at == max(0, before) + 3


@pytest.mark.parametrize("kind", ["power_cut", "process_crash"])
def test_every_call_may_be_the_last(kind: str) -> None:
    for call in range(1, 8):
        for is_told in (True, False):
            world = begun(call)
            live(world, [("send", 2, 0), ("lose", 2, 0), ("learn", 0, 0), (kind, 3, call)])
            if is_told:
                world.learn()
            world.send(5)
            world.check()
            assert world.at >= 7
