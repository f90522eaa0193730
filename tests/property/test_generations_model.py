"""The model of jobs, on a table with a period: it has generations, and is declared anew at times.

To who pushes and works it is one table; only a push that is merged with a job of an old generation
gives that a new place, behind all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from fjord import commands
from fjord.commands import Command, Done, Numbers
from fjord.jobs import Drained, Period, Settings
from fjord.kinds import Kind
from tests.property.job_machine import HALF_US, SECOND, TABLE, Machine, Wanted, pushes_of
from tests.property.jobs_model import Job, Model
from tests.property.test_jobs_model import HOUR, JobsMachine

PERIODS = [Period.HOUR, Period.DAY, Period.MONTH]


@dataclass(slots=True)
class Generations(Model):
    """A model that knows which jobs are of the current generation."""

    began: int = 0  # the first number of it
    number: int = 1

    def _merge(self, old: Job, new: Job) -> None:
        Model._merge(self, old, new)
        if old.number < self.began:
            old.number = self.pushed
            self.pushed += 1


class GenerationsMachine(JobsMachine):
    """The same table, with a period."""

    @initialize(
        seed=st.integers(0, 2**32),
        period=st.sampled_from(PERIODS),
        drained=st.sampled_from(Drained),
        timeouts=st.sampled_from([0, 2, 5]),
    )
    def start(self, seed: int, period: Period, drained: Drained, timeouts: int) -> None:
        chosen = Settings(
            lease_us=60 * SECOND + HALF_US,
            timeouts_max=timeouts,
            debounce_us=HOUR * SECOND,
            period=period,
            drained=drained,
        )
        self.machine = Machine(seed, chosen)
        self.book = self.machine.book
        self.model = Generations(chosen)
        self.pushes = 0
        self.turns = []
        self.xids = [1]

    @rule(rows=pushes_of, relative=st.booleans(), how=st.just("many"))
    def push(self, rows: list[Wanted], relative: bool, how: str) -> None:
        self.look()
        super().push(rows, relative, how)

    def unanswered(
        self, what: str, rows: Sequence[Wanted]
    ) -> tuple[Command, Callable[[Model], None]]:
        self.look()
        return super().unanswered(what, rows[:1])

    @rule(period=st.sampled_from(PERIODS))
    def declare_anew(self, period: Period) -> None:
        chosen = replace(self.model.settings, period=period)
        command = commands.CreateTable(
            name=TABLE, kind=Kind.JOBS.number, settings=chosen.encode(), changes=True
        )
        assert isinstance(self.machine.ask(command), Done)
        self.model.settings = chosen

    def look(self) -> None:
        """Lets the model know of generations that have begun."""
        assert isinstance(self.model, Generations)
        last = max(self.told())
        if last > self.model.number:
            self.model.number, self.model.began = last, self.model.pushed

    def told(self) -> dict[int, int]:
        """Returns how many jobs each generation has, by its number."""
        reply = self.machine.ask(commands.CountJobs(table=TABLE, generations=True))
        assert isinstance(reply, Numbers)
        names = [name.split(b".") for name in reply.names.rows()]
        found = zip(names, reply.values, strict=True)
        return {int(name[1]): value for name, value in found if name[-1] == b"jobs"}

    @invariant()
    def generations_add_up(self) -> None:
        assert sum(self.told().values()) == sum(self.machine.engine.job_counts()[TABLE])


GenerationsMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, derandomize=True
)
TestGenerations = GenerationsMachine.TestCase
