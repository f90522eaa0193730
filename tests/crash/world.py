"""A simulated world for crash tests: scripts of commands, a plain dict as model, one seed each."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from fjord.columns import Strings
from fjord.commands import Command, Delete, Done, Entries, Get, Set
from fjord.engine import Engine, EngineSettings, open_engine
from fjord.engine.memory import TREE_COUNT
from fjord.index.memory import MemoryIndexes
from fjord.testing import SimClock, SimCrash, SimDisk

TABLE = "default"
KEYS = [b"key-%02d" % number for number in range(16)]
SEGMENT_BYTES = 64 * 1024
Model = dict[bytes, bytes]


@dataclass(frozen=True)
class Step:
    """One command of a script: values for keys, or None to delete them."""

    keys: tuple[bytes, ...]
    values: tuple[bytes, ...] | None

    def command(self, timestamp_us: int) -> Command:
        keys = Strings.of(self.keys)
        if self.values is None:
            return Delete(table=TABLE, keys=keys, timestamp_us=timestamp_us)
        return Set(
            table=TABLE,
            keys=keys,
            types=b"\1" * len(self.keys),
            values=Strings.of(self.values),
            timestamps_us=[timestamp_us] * len(self.keys),
        )

    def change(self, model: Model) -> Model:
        if self.values is None:
            return {key: value for key, value in model.items() if key not in self.keys}
        return {**model, **dict(zip(self.keys, self.values, strict=True))}


def make_script(seed: int, length: int) -> list[Step]:
    """Returns steps of one to five keys, with values from nothing to several sectors."""
    dice = random.Random(seed)
    steps = []
    for _ in range(length):
        keys = tuple(dice.sample(KEYS, dice.choice([1, 1, 1, 5])))
        sizes = [dice.choice([0, 10, 100, 700, 3000]) for _ in keys]
        values = None if dice.random() < 0.2 else tuple(map(dice.randbytes, sizes))
        steps.append(Step(keys, values))
    return steps


class World:
    """A machine: its disk, its clock, and an index that lives as long as the page cache."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.clock = SimClock()
        self.indexes = MemoryIndexes(TREE_COUNT)
        self.acknowledged: Model = {}
        self.attempted: Model = {}  # what would hold if the step under way counted

    def settings(self) -> EngineSettings:
        return EngineSettings(
            disk=self.disk,
            clock=self.clock,
            indexes=self.indexes,
            segment_bytes=SEGMENT_BYTES,
            rebuild_rows=100,
        )

    def open(self) -> Engine:
        return open_engine("/data", self.settings())

    def play(self, engine: Engine, script: Sequence[Step]) -> None:
        """Runs a script; a step counts as acknowledged when its sync has returned."""
        for step in script:
            self.clock.advance(0.001)
            self.attempted = step.change(self.acknowledged)
            (reply,) = engine.run([step.command(self.clock.wall_us())])
            assert isinstance(reply, Done), reply
            engine.sync()
            self.acknowledged = self.attempted

    def play_until_crash(self, script: Sequence[Step]) -> bool:
        """Opens, runs the script and closes; says whether the machine lived to the end."""
        try:
            engine = self.open()
            self.play(engine, script)
            engine.close()
        except SimCrash:
            return False
        return True

    def check(self, engine: Engine) -> None:
        """Asserts that the state is what was acknowledged, or one whole step more."""
        found = read_all(engine)
        assert found in (self.acknowledged, self.attempted)
        self.acknowledged = self.attempted = found


def read_all(engine: Engine) -> Model:
    (reply,) = engine.run([Get(table=TABLE, keys=Strings.of(KEYS))])
    assert isinstance(reply, Entries), reply
    rows = zip(KEYS, reply.types, reply.values.rows(), strict=True)
    return {key: value for key, type_, value in rows if type_ != Entries.MISSING}


def count_calls(script: Sequence[Step]) -> int:
    """Returns how many numbered calls the script makes on a healthy disk."""
    world = World(SimDisk())
    assert world.play_until_crash(script)
    return len(world.disk.calls)
