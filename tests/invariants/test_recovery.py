"""I17 on a real engine: what a start makes of a directory, and what the next one makes of that."""

from __future__ import annotations

import random

import pytest

from fjord import commands
from fjord.columns import Strings
from fjord.commands import Taken
from fjord.engine import Engine
from fjord.jobs import Fairness, Settings
from fjord.tables.state import Tree
from tests.invariants.checkers import digest, recovery
from tests.property.job_machine import KEYS, PLAIN, SECOND, TABLE, Machine, push_command
from tests.property.jobs_model import Push

# Every start says in META that it has taken over.
TREES = [tree for tree in Tree if tree is not Tree.META]


def digest_of(engine: Engine) -> str:
    return digest([engine.scan_index(tree, b"", None, 1_000_000) for tree in TREES])


def worked_machine(seed: int, settings: Settings) -> Machine:
    """Returns a machine whose table has jobs in all states, and more that are gone."""
    machine, dice = Machine(seed, settings), random.Random(seed)
    for number in range(60):
        machine.tick()
        pushes = [
            Push(
                key=dice.choice(KEYS) if settings.merge else b"",
                value=b"%d %d" % (number, at),
                stamp_us=machine.now_us,
                priority=dice.choice([PLAIN["priority"], 10, 200]),
                expires_us=dice.choice([0, machine.now_us + 50 * SECOND]),
            )
            for at in range(3)
        ]
        machine.ask(push_command(pushes, relative=False))
        taken = machine.ask(commands.Next(table=TABLE, count=2, lease_us=5 * SECOND))
        assert isinstance(taken, Taken)
        xids = [taken.first_xid + at for at in range(len(taken.rows))] or [1]
        machine.ask(commands.Finish(table=TABLE, xids=xids[:1]))
        machine.ask(commands.Fail(table=TABLE, xids=xids, buries=dice.random() < 0.2))
        if settings.merge:
            machine.ask(commands.Cancel(table=TABLE, keys=Strings.of([dice.choice(KEYS)])))
        machine.clock.advance(dice.choice([0, 1, 6]))
        while dice.random() < 0.5 and machine.engine.upkeep():
            pass
    machine.ask(commands.Next(table=TABLE, count=1))
    return machine


@pytest.mark.parametrize("how", ["stop", "crash", "power cut"])
@pytest.mark.parametrize(
    "settings",
    [Settings(), Settings(merge=False), Settings(fairness=Fairness.DOMAIN, timeouts_max=1)],
    ids=["merging", "plain", "fair"],
)
def test_a_start_changes_nothing_and_the_next_one_neither(settings: Settings, how: str) -> None:
    machine = worked_machine(7, settings)
    digests, counts = {"the live state": digest_of(machine.engine)}, machine.engine.job_counts()
    assert min(counts[TABLE]) > 0
    for name in ("opened", "opened again"):
        if how == "stop":
            machine.engine.close()
        else:
            machine.fall(power=how == "power cut")
        machine.start(how)
        digests[name] = digest_of(machine.engine)
    machine.engine.close()
    machine.indexes.drop()
    machine.start("lost index")
    digests["replayed"] = digest_of(machine.engine)
    assert recovery(digests) == []
    assert machine.engine.job_counts() == counts


def test_a_start_that_loses_a_job_would_be_seen() -> None:
    machine = worked_machine(7, Settings())
    before = digest_of(machine.engine)
    machine.tick()
    push = Push(key=b"one more", value=b"", stamp_us=machine.now_us)
    machine.ask(push_command([push], relative=False))
    assert recovery({"with it": digest_of(machine.engine), "without it": before}) != []
