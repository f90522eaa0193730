"""Streams of an embedded engine: threads that wait for messages, cold blocks, sealing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fjord import commands
from fjord.columns import Strings
from fjord.engine import Embedded, Engine
from fjord.engine.cold import LazyCold
from fjord.errors import ClosedError, FjordError
from fjord.history import Block, SealPlan, block_name
from fjord.streams import Settings as StreamSettings
from fjord.streams import Start
from fjord.testing import SimClock
from tests.unit.engine.shore import append_command
from tests.unit.engine.world import open_at

SECOND_US = 1_000_000
SECONDS_MAX = 10.0
STREAM = 3


def append(*values: bytes) -> commands.Append:
    return append_command("t", [(b"", value) for value in values])


class Shelf:
    """Blocks that are only noted: what is in them, nobody asks."""

    def __init__(self) -> None:
        self.plans: list[SealPlan] = []
        self.removed: list[str] = []
        self.failure: Exception | None = None
        self.written = threading.Semaphore(0)
        self.is_stopped = False
        self.on_write: Callable[[], None] = lambda: None

    def write(self, journal: str, plan: SealPlan) -> list[Block]:
        self.plans.append(plan)
        self.written.release()
        self.on_write()
        if self.failure is not None:
            raise self.failure
        return [
            Block(one.table, one.first, one.last, 5, 100, 1, 2**60, 3, block_name(one, 1, one.last))
            for one in plan.ranges
        ]

    def remove(self, blocks: Sequence[Block], *, wipes: bool = False) -> None:
        self.removed += [block.name for block in blocks]

    def stop(self) -> None:
        self.is_stopped = True


class Cold:
    """A reader of blocks who says that all of them hold one message."""

    def __init__(self) -> None:
        self.read_by: list[str] = []
        self.rested: list[str] = []
        self.forgotten: list[str] = []

    def read(self, where: commands.InBlock, command: commands.Read) -> commands.Messages:
        self.read_by.append(command.subscriber)
        return commands.Messages(
            first_seqs=[where.last],
            walls_us=[1],
            ops=Strings.of([b""]),
            after=where.last,
            until=where.until,
            ended=where.last >= where.until,
            rows=1,
        )

    def locate(self, where: commands.InBlock, wall_us: int) -> int:
        return where.first

    def count_after(self, where: commands.InBlock, after: int) -> int:
        return 2

    def rest(self, table: str, subscriber: str) -> None:
        self.rested.append(subscriber)

    def forget(self, table: str) -> None:
        self.forgotten.append(table)

    def stats(self) -> dict[str, int]:
        return {"cold_bytes": 7}

    def close(self) -> None: ...


class World:
    """An embedded engine in virtual time, with a stream that seals every 5 messages."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, *, seals: bool = True) -> None:
        self.clock = SimClock()
        self.engine: Engine = open_at(path, self.clock)
        self.shelf, self.cold = Shelf(), Cold()
        self.engine.attach_blocks("blocks")
        self.embedded = Embedded(
            self.engine,
            self.clock,
            cold=LazyCold(lambda: self.cold),
            shelf=self.shelf if seals else None,
        )
        self._parked = threading.Semaphore(0)
        wait = self.embedded._wait

        def noted_wait(waiter: Any) -> None:
            self._parked.release()
            wait(waiter)

        monkeypatch.setattr(self.embedded, "_wait", noted_wait)
        settings = StreamSettings(block_rows=5).encode()
        assert isinstance(
            self.embedded.execute(commands.CreateTable(name="t", kind=STREAM, settings=settings)),
            commands.Done,
        )

    def append(self, *values: bytes) -> int:
        reply = self.embedded.execute(append(*values))
        assert isinstance(reply, commands.Done), reply
        return reply.seq

    def read(self, after: int = 0, **options: Any) -> commands.Messages:
        reply = self.embedded.execute(commands.Read(table="t", after=after, **options))
        assert isinstance(reply, commands.Messages), reply
        return reply

    def reader(self, after: int = 0, *, wait: float = 60) -> Reader:
        """Returns a thread that has found nothing, and waits."""
        wait_us = round(wait * SECOND_US)
        reader = Reader(self.embedded, commands.Read(table="t", after=after, wait_us=wait_us))
        self.wait_parked()
        return reader

    def wait_parked(self) -> None:
        assert self._parked.acquire(timeout=SECONDS_MAX)

    def seal(self) -> None:
        assert isinstance(self.embedded.execute(commands.SealNow()), commands.Done)
        while self.embedded.upkeep() <= self.clock.wall_us():
            pass  # what is in blocks is forgotten bit by bit


class Reader:
    """A thread that reads once."""

    def __init__(self, embedded: Embedded, command: commands.Read) -> None:
        self._found: list[commands.Reply | BaseException] = []

        def run() -> None:
            try:
                self._found.append(embedded.execute(command))
            except BaseException as error:  # noqa: BLE001 - `result` raises it
                self._found.append(error)

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def result(self) -> commands.Messages:
        self.thread.join(SECONDS_MAX)
        (found,) = self._found
        if isinstance(found, BaseException):
            raise found
        assert isinstance(found, commands.Messages)
        return found


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    one = World(tmp_path, monkeypatch)
    yield one
    one.embedded.close()


# -- waiting --------------------------------------------------------------------------------------


@pytest.mark.req("JQ-09")
def test_threads_that_wait_get_the_message_that_comes(world: World) -> None:
    readers = [world.reader(), world.reader()]
    seq = world.append(b"a", b"b")
    for reader in readers:
        found = reader.result()
        assert (found.rows, found.after, found.ended) == (2, seq, True)
    assert len(world.embedded._waits._readers) == 0


def test_a_wait_for_messages_ends_in_time(world: World) -> None:
    reader = world.reader(wait=0.001)
    found = reader.result()
    assert (found.rows, found.ended) == (0, True)
    assert len(world.embedded._waits._readers) == 0


# -- cold blocks ----------------------------------------------------------------------------------


def test_what_is_in_blocks_is_read_there_and_the_rest_in_the_journal(world: World) -> None:
    world.append(b"a", b"b")
    world.seal()
    world.append(b"c")
    world.embedded.execute(commands.Subscribe(table="t", name="s", start=Start.BEGINNING))
    first = world.read(subscriber="s")
    assert (first.rows, first.ended) == (1, False)
    assert world.cold.read_by == ["s"]
    second = world.read(after=first.after, until=first.until, subscriber="s")
    assert (second.rows, second.ended) == (1, True)
    assert world.cold.rested == ["s"]  # nothing stays in memory for it
    stats = world.embedded.execute(commands.Stats())
    assert isinstance(stats, commands.Numbers)
    found = dict(zip(stats.names.rows(), stats.values, strict=True))
    assert (found[b"cold_bytes"], found[b"sealed_blocks"], found[b"blocks"]) == (7, 1, 1)


# -- sealing --------------------------------------------------------------------------------------


@pytest.mark.req("JQ-10", "JQ-11")
def test_what_is_due_is_sealed_by_itself_and_nobody_waits_for_it(world: World) -> None:
    go_on = threading.Event()
    world.shelf.on_write = lambda: _wait(go_on)
    world.append(b"a", b"b", b"c", b"d")
    world.embedded.upkeep()
    assert world.shelf.plans == []
    world.append(b"e")
    world.embedded.upkeep()
    assert world.shelf.written.acquire(timeout=SECONDS_MAX)
    assert world.read().rows == 5  # still from the journal
    world.append(b"f")
    go_on.set()
    under_way = world.embedded._round
    if under_way is not None:
        under_way.join(SECONDS_MAX)
    blocks = world.embedded.execute(commands.ListBlocks(table="t"))
    assert isinstance(blocks, commands.BlockList)
    assert len(blocks.firsts) == 1
    assert blocks.location == "blocks"


def test_a_failure_in_the_background_is_logged_once_in_a_row(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def make_round() -> None:
        world.embedded.upkeep()
        under_way = world.embedded._round
        if under_way is not None:
            under_way.join(SECONDS_MAX)
        world.clock.advance(600)

    world.shelf.failure = FjordError("no room there")
    world.append(b"a", b"b", b"c", b"d", b"e")
    for _ in range(3):
        make_round()
    assert len(world.shelf.plans) >= 3
    (record,) = caplog.records
    assert "no room there" in record.getMessage()
    world.shelf.failure = None
    make_round()
    world.shelf.failure = FjordError("no room again")
    world.append(b"a", b"b", b"c", b"d", b"e")
    make_round()
    assert ["no room again" in record.getMessage() for record in caplog.records] == [False, True]


def test_closing_ends_a_round_and_the_next_start_seals_the_same_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    ended = threading.Event()
    world.shelf.on_write = lambda: _wait(ended)
    world.shelf.failure = ClosedError()
    monkeypatch.setattr(world.shelf, "stop", ended.set)
    world.append(b"a", b"b", b"c", b"d", b"e")
    world.embedded.upkeep()
    assert world.shelf.written.acquire(timeout=SECONDS_MAX)
    world.embedded.close()
    engine, shelf = open_at(tmp_path, world.clock), Shelf()
    engine.attach_blocks("blocks")
    embedded = Embedded(engine, world.clock, shelf=shelf)
    assert isinstance(embedded.execute(commands.SealNow(table="t")), commands.Done)
    embedded.close()
    assert shelf.plans[0] == world.shelf.plans[0]


def _wait(event: threading.Event) -> None:
    assert event.wait(SECONDS_MAX)
