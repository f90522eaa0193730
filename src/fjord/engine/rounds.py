"""Sealing: what is old enough leaves the journal for cold blocks, in rounds, one at a time.

    plan (a range is fixed) -> durable -> blocks are written, elsewhere -> the engine is told
    what retention lets go -> durable -> its files are removed -> the engine is told

Every step can be the last one: a range that is fixed is planned again as it was, and files that
were to go are named again.  Blocks are written by whoever has the shelf, slowly, and never while
the engine waits.  The server and Embedded make rounds on a thread of their own; each knows how a
call gets its turn on the engine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from fjord.clock import Clock
from fjord.commands import Done, Refusal, Reply, SealNow
from fjord.engine.engine import Engine
from fjord.errors import ClosedError, Code, FjordError
from fjord.history import Block, SealPlan
from fjord.tables.streams import history

T = TypeVar("T")

# After a failure the next round begins so much later, then twice as much each time.
_REST_US_FIRST: Final = 1_000_000
_REST_US_MAX: Final = 300 * 1_000_000

# Makes a call on the engine in its turn; returns when what it wrote is durable.
Turn = Callable[[Callable[[], None]], None]


def in_turn(turn: Turn, call: Callable[[], T]) -> T:
    """Returns what a call on the engine returns, once everything is durable that it has seen."""
    found: list[T] = []
    turn(lambda: found.append(call()))
    return found[0]


class Shelf(Protocol):
    """Where blocks are kept; its calls may take long."""

    def write(self, journal: str, plan: SealPlan) -> list[Block]:
        """Writes blocks, durably; the same ones again if they are there."""

    def remove(self, blocks: Sequence[Block], *, wipes: bool = False) -> None:
        """Removes the files of blocks, as far as they are there; `wipes`: overwritten before."""

    def stop(self) -> None:
        """Ends a write that is under way, with an error, and every later one."""


class Rounds:
    """Rounds of sealing; any thread may ask for one."""

    def __init__(self, engine: Engine, shelf: Shelf, turn: Turn, clock: Clock) -> None:
        self._engine = engine
        self._plans = engine.sealing
        self._shelf = shelf
        self._turn = turn
        self._clock = clock
        self._one = threading.Lock()  # held while a round is under way
        self._rest_us = 0  # after the last failure
        self._rests_until_us = 0  # monotonic
        self._is_stopped = False
        self.blocks = 0  # written since the start
        self.failures = 0  # rounds that failed since the start

    def due_us(self) -> int | None:
        """Returns the wall time when a round is due; None while there is nothing to seal."""
        due_us = self._plans.due_us()
        if due_us is None or self._is_stopped:
            return None
        rest_us = self._rests_until_us - self._clock.monotonic_us()
        return max(due_us, self._clock.wall_us() + rest_us) if rest_us > 0 else due_us

    def round(self) -> None:
        """Seals what is due, and lets go what need not be kept any more.

        Raises:
            Exception: whatever went wrong; the next round is due after a rest.
        """
        with self._one:
            self._note_failure(self._round)

    def seal(self, command: SealNow) -> Reply:
        """Seals all that is durable now; the answer is for whoever asked."""
        problem = self._problem(command.table) if command.table else None
        if problem is not None:
            return problem
        try:
            with self._one:
                self._note_failure(lambda: self._seal_all(command.table))
        except ClosedError:
            raise
        except (FjordError, OSError) as error:
            return Refusal(code=Code.FAILED, text=f"sealing failed: {error}")
        return Done(master=self._engine.master, seq=self._engine.durable_seq)

    def stop(self) -> None:
        """Ends the round that is under way; the next start seals the same range again."""
        self._is_stopped = True
        self._shelf.stop()

    def join(self) -> None:
        """Returns when no round is under way."""
        with self._one:
            pass

    def stats(self) -> dict[str, int]:
        return {"sealed_blocks": self.blocks, "seal_failures": self.failures}

    # -- one round --------------------------------------------------------------------------------

    def _problem(self, name: str) -> Refusal | None:
        """Says why there is nothing to seal of a table, ever."""
        table = self._engine.tables.get(name)
        if table is None:
            return Refusal(code=Code.NOT_FOUND, text=f"there is no table {name}")
        if history.has_history(table, jobs_too=True):
            return None
        text = f"table {name} is a {table.kind} table without history to seal"
        return Refusal(code=Code.WRONG_KIND, text=text)

    def _note_failure(self, call: Callable[[], None]) -> None:
        self._rests_until_us = 0
        try:
            call()
        except Exception:
            if not self._is_stopped:
                self.failures += 1
                self._rest_us = min(_REST_US_MAX, 2 * self._rest_us or _REST_US_FIRST)
                self._rests_until_us = self._clock.monotonic_us() + self._rest_us
            raise
        self._rest_us = 0

    def _round(self) -> None:
        self._turn(lambda: None)  # only what is durable is planned
        plan = in_turn(self._turn, self._plans.plan_seal)
        if plan is not None:
            self._write(plan)
        if not self._retire() and plan is None:  # it is not tried on and on
            self._rests_until_us = self._clock.monotonic_us() + _REST_US_FIRST

    def _seal_all(self, table: str) -> None:
        """Seals plan by plan, as far as there was something when it began."""
        self._turn(lambda: None)  # only what is durable is planned
        end_seq = self._engine.durable_seq
        plan_now = partial(self._plans.plan_seal, table, now=True)
        while (plan := in_turn(self._turn, plan_now)) is not None:
            self._write(plan)
            if all(one.last >= end_seq for one in plan.ranges):
                break
        self._retire()

    def _write(self, plan: SealPlan) -> None:
        if self._is_stopped:
            raise ClosedError
        blocks = self._shelf.write(self._engine.journal.directory, plan)
        self._turn(lambda: self._plans.finish_seal(plan, blocks))
        self.blocks += len(blocks)

    def _retire(self) -> bool:
        """Removes what need not be kept; says whether there was something."""
        blocks = in_turn(self._turn, self._plans.plan_retirement)
        if blocks:
            self._shelf.remove(blocks, wipes=self._engine.memory.is_secure)
            self._turn(lambda: self._plans.finish_retirement(blocks))
        return bool(blocks)
