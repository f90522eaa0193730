"""A life of streams, cut at every call that changes the disk: it goes on from a whole step.

Steps are transactions over several tables, subscribers that move, snapshots that come and go, and
steps of upkeep.  The same seed makes the same life, so the states after each step of a life without
a crash are what may be found after one with it; and a snapshot shows what it showed before.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from fjord import commands
from fjord.columns import Strings
from fjord.commands import Command, Opened, Page, Replies, Subscribers
from fjord.streams import Start
from fjord.testing import SimCrash, SimDisk
from tests.crash.stream_world import AGED, KV, LATEST, LOG, Numbers, Seen, World, set_command
from tests.unit.engine.shore import append_command

STEPS = 100
NAMES = ["one", "two"]


class Life(World):
    """Streams to which all sorts of things happen."""

    def __init__(self, disk: SimDisk, seed: int) -> None:
        super().__init__(disk)
        self.dice = random.Random(seed)
        self.numbers = Numbers(seed)
        self.snapshots: dict[int, list[object]] = {}  # what each of those that are open shows
        self.states: list[Seen] = []

    def live(self, *, sees: bool) -> int:
        """Lives to the end or to a crash; returns the number of whole steps."""
        steps = 0
        try:
            while steps < STEPS:
                self.clock.advance(0.001)
                self.dice.choice(ACTIONS)(self)
                steps += 1
                if sees:
                    self.states.append(self.seen())
            self.engine.close()
        except SimCrash:
            return steps
        return steps

    # -- steps ------------------------------------------------------------------------------------

    def write(self) -> None:
        self.append(self.dice.choice([LOG, AGED, LATEST]), self.numbers.rows())

    def write_late(self) -> None:
        """Some of these messages are older than what is there."""
        command = append_command(LATEST, self.numbers.rows())
        now_us = self.clock.wall_us()
        command.timestamps_us = [now_us - self.dice.randrange(50_000) for _ in command.types]
        self.ask(command)

    def transact(self) -> None:
        """Consumes and produces, and changes a value, all at once."""
        key, value = self.numbers.row()
        found: list[Command] = [
            append_command(LOG, self.numbers.rows()),
            append_command(LATEST, self.numbers.rows()),
            set_command(key, value, self.clock.wall_us()),
            commands.Subscribe(table=LOG, name="one", start=Start.BEGINNING),
            commands.Seek(table=LOG, name="one", start=Start.END),
        ]
        self.ask(commands.Batch(commands=found))

    def erase(self) -> None:
        self.ask(commands.Erase(table=LATEST, keys=Strings.of([b"a", b"b"])))

    def subscribe(self) -> None:
        start = self.dice.choice([Start.BEGINNING, Start.END])
        name = self.dice.choice(NAMES)
        self.ask(commands.Subscribe(table=LOG, name=name, start=start))

    def move(self) -> None:
        """Acknowledges all that there is, for a subscriber that is made the first time."""
        found = self.ask(commands.ListSubscribers(table=AGED, start="two"))
        assert isinstance(found, Subscribers)
        if len(found.names):
            seq, epoch = self.engine.applied_seq, found.epochs[0]
            self.ask(commands.Acknowledge(table=AGED, name="two", seq=seq, epoch=epoch))
        else:
            self.ask(commands.Subscribe(table=AGED, name="two", start=Start.BEGINNING))

    def open_snapshot(self) -> None:
        reply = self.ask(commands.OpenSnapshot())
        assert isinstance(reply, Opened)
        self.snapshots[reply.snapshot] = self.shown(reply.snapshot)

    def close_snapshot(self) -> None:
        for snapshot in list(self.snapshots)[:1]:
            del self.snapshots[snapshot]  # it may be gone from here on
            self.ask(commands.CloseSnapshot(snapshot=snapshot))

    def keep_house(self) -> None:
        self.upkeep()
        self.pack()

    def shown(self, snapshot: int) -> list[object]:
        ranges = [commands.Range(table=table) for table in (KV, LATEST)]
        reply = self.ask(commands.AsOf(snapshot=snapshot, commands=ranges))
        assert isinstance(reply, Replies)
        found: list[object] = []
        for page in reply.replies:
            assert isinstance(page, Page)
            found.append((page.keys.rows(), page.entries.values.rows()))
        return found


ACTIONS: list[Callable[[Life], None]] = [
    *[Life.write] * 4,
    Life.write_late,
    *[Life.transact] * 3,
    Life.erase,
    Life.subscribe,
    Life.move,
    Life.open_snapshot,
    Life.close_snapshot,
    Life.keep_house,
]


def begun(seed: int) -> Life:
    life = Life(SimDisk(seed), seed)
    life.open()
    life.create()
    return life


@pytest.mark.req("KY-14", "KY-16", "KY-17", "KY-30")
@pytest.mark.parametrize(("seed", "kind"), [(1, "power_cut"), (2, "process_crash")])
def test_a_crash_at_any_call_keeps_whole_steps(seed: int, kind: str) -> None:
    whole = begun(seed)
    began = len(whole.disk.calls)
    before = whole.seen()
    assert whole.live(sees=True) == STEPS
    states = [before, *whole.states]
    calls = len(whole.disk.calls) - began
    for point in range(seed, calls, 2):
        life = begun(seed)
        life.disk.crash_after(point)
        steps = life.live(sees=False)
        life.crash(kind)
        found = life.seen()
        assert found in states[steps : steps + 2]
        assert {one: life.shown(one) for one in life.snapshots} == life.snapshots
        life.check_index()
        life.engine.close()
        life.open()
        assert life.seen() == found
