"""What a start does beside serving: it looks for blocks, and loads ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from fjord.blocks.child import NodeBlocks
from fjord.columns import Strings
from fjord.commands import Command, InBlock, ListSubscribers, Read, Refusal, Reply, Subscribers
from fjord.engine import Engine
from fjord.engine.cold import LazyCold
from fjord.errors import Code
from fjord.history import Block
from fjord.kinds import Kind
from fjord.server.sealer import ColdBlocks, WarmUp
from fjord.tables.state import Table
from fjord.testing import SimClock
from tests.unit.engine.test_cold import Blocks, messages

NOW_US = SimClock().wall_us()
LAST = 1000


def table(name: str, kind: Kind = Kind.STREAM, settings: bytes = b"") -> Table:
    return Table(id=7, name=name, kind=kind, settings=settings)


class World:
    """A source with tables, blocks and subscribers, and a reader that has all parts."""

    def __init__(self) -> None:
        self.tables: dict[str, Any] = {"t": table("t")}
        self.subscribers: list[tuple[str, int, int, int]] = []  # name, seq, moved, asleep
        self.lost: list[str] = []
        self.listed: list[str] = []  # tables whose subscribers were asked for
        self.cold = Blocks(*[messages(5, 1)] * 1000)
        self.sealing = self
        self.turns = 0
        self.is_hot = False  # reads are answered from the journal

    def blocks(self, table: str) -> list[Block]:
        return [
            Block(7, 1, 500, 500, 10, 1, 2, 3, f"{table}-7/1"),
            Block(7, 501, LAST, 500, 10, 1, 2, 3, f"{table}-7/2"),
        ]

    def missing(self, blocks: Sequence[Block]) -> list[str]:
        return [block.name for block in blocks if block.name in self.lost]

    def turn(self, call: Callable[[], None]) -> None:
        self.turns += 1
        call()

    def run(self, wanted: Sequence[Command]) -> list[Reply]:
        (command,) = wanted
        if isinstance(command, Read):
            if self.is_hot:
                return [messages(20, 1)]
            return [
                InBlock(
                    table=7, first=1, last=500, name="t-7/1", after=command.after, until=2000, crc=3
                )
            ]
        assert isinstance(command, ListSubscribers)
        self.listed.append(command.table)
        if command.table != "t":
            return [Refusal(code=Code.WRONG_KIND, text="")]
        return [self._page(command.start)]

    def _page(self, start: str) -> Subscribers:
        found = sorted(one for one in self.subscribers if one[0] >= start)
        page, rest = found[:1000], found[1000:]
        return Subscribers(
            names=Strings.of([one[0].encode() for one in page]),
            seqs=[one[1] for one in page],
            epochs=[0] * len(page),
            moved_us=[one[2] for one in page],
            asleep=bytes(one[3] for one in page),
            next_name=rest[0][0] if rest else "",
        )

    def warm_up(self) -> list[str]:
        """Returns for whom something was loaded."""
        blocks = ColdBlocks(cast(NodeBlocks, self), LazyCold(lambda: self.cold))
        WarmUp(cast(Engine, self), blocks, self.turn, SimClock()).run()
        return [one[1].subscriber for one in self.cold.asked if isinstance(one[1], Read)]


@pytest.mark.req("JQ-13")
def test_what_active_subscribers_read_next_is_loaded() -> None:
    world = World()
    world.subscribers = [
        ("awake", 10, NOW_US - 5, 0),
        ("asleep", 10, NOW_US - 5, 1),
        ("long gone", 10, NOW_US - 2 * 3600 * 1_000_000, 0),
        ("at the end", LAST, NOW_US - 5, 0),
        ("newer", 600, NOW_US - 1, 0),
    ]
    assert world.warm_up() == ["newer", "awake"]


def test_a_bounded_number_of_subscribers_is_looked_at_and_loaded_for() -> None:
    world = World()
    world.subscribers = [(f"s{number:06}", 10, NOW_US - number, 0) for number in range(50_000)]
    assert world.warm_up() == [f"s{number:06}" for number in range(32)]
    assert world.turns < 100


@pytest.mark.req("JQ-13")
def test_blocks_that_are_missing_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.tables["u"] = table("u")
    world.lost = ["t-7/2", "u-7/1", "u-7/2"]
    world.warm_up()
    (record,) = caplog.records
    assert record.message == "blocks are missing"
    assert record.fields == {"count": 3, "first": "t-7/2, u-7/1, u-7/2"}  # type: ignore[attr-defined] # set by `logs`


def test_a_subscriber_that_reads_from_the_journal_needs_no_block() -> None:
    world = World()
    world.subscribers = [("awake", 10, NOW_US - 5, 0)]
    world.is_hot = True
    assert world.warm_up() == []
    world.is_hot = False
    assert world.warm_up() == ["awake"]
