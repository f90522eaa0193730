"""The life of a job: the table says all that happens, and the page shows it."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from fjord import commands, jobs
from fjord.jobs import How, State
from fjord.ops import Op, Opcode
from fjord.tables import catalog
from fjord.tables.jobs import states
from fjord.tables.jobs.states import StateChange
from tests.unit.tables.job_world import MINUTE, SECOND, TABLE, Got, JobWorld, New

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts" / "lifecycle"
KEYS = [b"http://example.com/%d" % number for number in range(12)]
WAITING, TAKEN, DEAD = State
# Ops after which a job is as it was: they are said by upkeep, when leases end and segments go.
UNCHANGING = {Opcode.JOB_MOVE, Opcode.JOB_LEASE, Opcode.JOB_UNLEASE}
JOB_OPCODES = {opcode for opcode in Opcode if opcode.name.startswith("JOB_")}


class Seen(NamedTuple):
    """What an op does to a job: the first fields of a Change."""

    before: State | None
    after: State | None
    opcode: Opcode
    how: How | None


# Ops that always do the same, and what becomes of jobs by those that say where they were.
FIXED: Final = {
    Opcode.JOB_ADD: (None, WAITING),
    Opcode.JOB_REPLACE: (WAITING, WAITING),
    Opcode.JOB_TAKE: (WAITING, TAKEN),
    Opcode.JOB_TOUCH: (TAKEN, TAKEN),
    Opcode.JOB_DONE: (TAKEN, None),
}
AFTER: Final = {Opcode.JOB_WAIT: WAITING, Opcode.JOB_BURY: DEAD, Opcode.JOB_REMOVE: None}


def numbers(op: Op, name: str) -> Sequence[int]:
    column: Sequence[int] = op.column(name)
    return column


def seen_in(op: Op) -> list[Seen]:
    """Returns what an op does to each of its jobs."""
    if op.opcode in FIXED:
        return [Seen(*FIXED[op.opcode], op.opcode, None)] * op.rows
    told = zip(numbers(op, "state"), numbers(op, "how"), strict=True)
    return [Seen(State(state), AFTER[op.opcode], op.opcode, How(how)) for state, how in told]


class Life(JobWorld):
    """A world in which jobs come and go at random, and each of them is followed."""

    def __init__(self, seed: int, settings: jobs.Settings) -> None:
        self.dice = random.Random(seed)
        self.declared = settings.encode()
        self.states: dict[int, State] = {}  # by row
        self.rows: dict[int, int] = {}  # by xid
        self.seen: Counter[Seen] = Counter()
        self.unchanging: Counter[Opcode] = Counter()
        self.taken: list[Got] = []
        super().__init__()
        self.create(self.declared)

    def apply(self, op: Op) -> None:
        if op.opcode in UNCHANGING:
            self.unchanging[op.opcode] += 1
        elif op.opcode in JOB_OPCODES:
            for row, seen in zip(self.rows_of(op), seen_in(op), strict=True):
                self.follow(row, seen)
        super().apply(op)

    def rows_of(self, op: Op) -> Iterator[int]:
        if op.opcode is Opcode.JOB_ADD:
            yield from range(self.next_seq, self.next_seq + op.rows)
        elif op.opcode is Opcode.JOB_TOUCH:
            yield from (self.rows[xid] for xid in numbers(op, "xid"))
        else:
            yield from numbers(op, "row")
        if op.opcode is Opcode.JOB_TAKE:
            self.rows.update(enumerate(numbers(op, "row"), self.next_seq))

    def follow(self, row: int, seen: Seen) -> None:
        """Takes note of a change: the job must be in the state that it is said to leave."""
        assert self.states.pop(row, None) is seen.before, seen
        if seen.after is not None:
            self.states[row] = seen.after
        self.seen[seen] += 1

    # -- what happens -----------------------------------------------------------------------------

    def step(self) -> None:
        verbs: list[Callable[[], object]] = [
            *[self.push_some] * 6,
            *[self.take_some] * 5,
            *[self.finish_some] * 2,
            *[self.fail_some] * 3,
            self.take_for_good,
            self.touch_some,
            self.change_waiting,
            self.change_dead,
            self.let_time_pass,
        ]
        self.dice.choice(verbs)()
        if self.dice.random() < 0.01:
            self.pack(len(self.ops()) // 2)
        if self.dice.random() < 0.01:
            self.drop()

    def push_some(self) -> None:
        dates = (0, 0, self.now_us + 5 * SECOND)
        expiries = (0, self.now_us + 10 * SECOND, self.now_us + MINUTE)
        self.push(
            *[
                New(
                    key,
                    b"value",
                    self.dice.choice([10, 100, 220]),
                    self.dice.choice(dates),
                    self.dice.choice(expiries),
                )
                for key in self.dice.choices(KEYS, k=4)
            ]
        )

    def take_some(self) -> None:
        lease_us = self.dice.choice([5 * SECOND, 30 * SECOND])
        self.taken += self.next(self.dice.randint(1, 4), lease_us=lease_us)

    def take_for_good(self) -> None:
        self.next(2, done=True)

    def some(self) -> list[Got]:
        self.dice.shuffle(self.taken)
        return [self.taken.pop() for _ in range(min(len(self.taken), self.dice.randint(1, 3)))]

    def finish_some(self) -> None:
        if found := self.some():
            self.done(*found)

    def fail_some(self) -> None:
        if found := self.some():
            fields: dict[str, Any] = self.dice.choice([{}, {}, {"counts": False}, {"buries": True}])
            self.fail(*found, reason=b"why", **fields)

    def touch_some(self) -> None:
        if found := self.some():
            self.extend(*found)
            self.taken += found

    def change_waiting(self) -> None:
        keys = self.dice.sample(KEYS, 3)
        changes: list[Callable[[], object]] = [
            lambda: self.cancel(*keys),
            lambda: self.bury(*keys, reason=b"by hand"),
            lambda: self.reschedule(*keys, priority=5),
        ]
        self.dice.choice(changes)()

    def change_dead(self) -> None:
        rows = [one.row for one in self.peek(DEAD)]
        if rows:
            self.revive(*rows[:4])
            self.discard(*rows[4:6], 1)

    def let_time_pass(self) -> None:
        self.wait(self.dice.choice([1, 6, 40]))

    def drop(self) -> None:
        self.run(commands.DropTable(name=TABLE))
        before = 0
        while before != self.next_seq:
            before = self.next_seq
            self.run(catalog.Sweep(limit=5))
        assert self.states == {}
        self.taken.clear()
        self.create(self.declared)


def known() -> set[Seen]:
    return {Seen(*change[:4]) for change in states.CHANGES}


@pytest.fixture(scope="module")
def lives() -> list[Life]:
    """Long lives, each with its own luck."""
    found = []
    for seed in range(3):
        life = Life(seed, jobs.Settings(timeouts_max=1))
        for _ in range(2500):
            life.step()
        found.append(life)
    return found


@pytest.mark.req("SJ-11")
def test_jobs_change_as_the_table_says_and_not_otherwise(lives: list[Life]) -> None:
    seen = Counter(change for life in lives for change in life.seen)
    assert seen.keys() - known() == set()
    assert known() - seen.keys() == set()


def test_other_ops_change_no_state(lives: list[Life]) -> None:
    assert {opcode for life in lives for opcode in life.unchanging} == UNCHANGING


@pytest.mark.req("SJ-11")
def test_jobs_are_where_their_changes_have_led(lives: list[Life]) -> None:
    for life in lives:
        counted = Counter(life.states.values())
        assert tuple(counted[state] for state in State) == life.totals()
        life.check()


def test_every_op_on_jobs_changes_them_or_does_not() -> None:
    changing = {change.opcode for change in states.CHANGES}
    assert changing | UNCHANGING == JOB_OPCODES
    assert not changing & UNCHANGING


# -- the picture ----------------------------------------------------------------------------------


def test_a_picture_has_a_line_for_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    opcode = Opcode.JOB_WAIT
    changes = (
        StateChange(None, WAITING, Opcode.JOB_ADD, None, "born", ("FJ-02", "SJ-16")),
        StateChange(WAITING, WAITING, opcode, How.RESCHEDULE, "stays"),
        StateChange(DEAD, WAITING, opcode, How.REVIVE, "back"),
        StateChange(TAKEN, None, Opcode.JOB_DONE, None, "over", ("SJ-11",)),
    )
    monkeypatch.setattr(states, "CHANGES", changes)
    assert states.picture() == (
        "new    waiting   taken    dead     gone\n"
        " +------->|        |        |            JOB_ADD                born (FJ-02, SJ-16)\n"
        "          @        |        |            JOB_WAIT RESCHEDULE    stays\n"
        "          |<----------------+            JOB_WAIT REVIVE        back\n"
        "          |        +---------------->    JOB_DONE               over (SJ-11)\n"
    )


def test_the_page_has_the_picture() -> None:
    assert f"```\n{states.picture()}```\n" in (ROOT / "docs" / "tables.md").read_text()
    done = subprocess.run(
        [sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
