"""A jobs table on a simulated machine, and the book that is kept of what happens to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from fjord import commands
from fjord.columns import Strings
from fjord.commands import Command, CreateTable, Done, JobPage, Replies, Reply, Taken
from fjord.engine import Engine, EngineSettings, doctor, open_engine
from fjord.engine.memory import TREE_COUNT
from fjord.index.memory import MemoryIndexes
from fjord.jobs import Fairness, State
from fjord.jobs import Settings as JobSettings
from fjord.journal.reader import Journal
from fjord.kinds import Kind
from fjord.testing import SimClock, SimDisk
from tests.invariants import histories
from tests.invariants.checkers import Terms, violations
from tests.invariants.histories import Event, Outcome, Violation
from tests.property.jobs_model import Job, Model, Push
from tests.unit.engine.world import check_tokens

TABLE = "jobs"
SECOND = 1_000_000
KEYS = [b"http://a.example/1", b"http://a.example/2", b"http://b.example/1", b"plain", b"\0\xff"]
DOMAINS = [b"a.example", b"b.example", b"given", b"nowhere"]
# A half millisecond more, so that nothing ends at the very moment at which somebody looks.
HALF_US = 500

keys_of = st.lists(st.sampled_from(KEYS), min_size=1, max_size=4)
pushes_of = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(KEYS),
            "priority": st.sampled_from([0, 50, 100, 100, 199, 200, 255]),
            "date": st.sampled_from([0, 0, 0, 5, 60, 4000]),
            "life": st.sampled_from([0, 0, 0, 0, 10, 5000]),
            "late": st.sampled_from([0, 0, 0, 0, 7, -30]),
            "domain": st.sampled_from([b"", b"", b"given"]),
        }
    ),
    min_size=1,
    max_size=5,
)
Wanted = dict[str, Any]  # one of these
PLAIN: Wanted = {"priority": 100, "date": 0, "life": 0, "late": 0, "domain": b""}
picks_of = st.lists(st.integers(0, 9), min_size=1, max_size=4)


class Machine:
    """Disk, clock, engine and one table."""

    def __init__(self, seed: int, settings: JobSettings) -> None:
        self.disk = SimDisk(seed)
        self.clock = SimClock()
        self.indexes = MemoryIndexes(TREE_COUNT)
        self._settings = EngineSettings(
            disk=self.disk,
            clock=self.clock,
            indexes=self.indexes,
            segment_bytes=64 * 1024,
            rebuild_rows=10,
        )
        self.engine: Engine = open_engine("/data", self._settings)
        self.book = Book(self.clock, settings)
        create = CreateTable(name=TABLE, kind=Kind.JOBS.number, settings=settings.encode())
        assert isinstance(self.ask(create), Done)

    @property
    def now_us(self) -> int:
        return self.clock.wall_us()

    def tick(self) -> None:
        self.clock.advance(0.001)

    def ask(self, command: Command) -> Reply:
        """Runs a command; its answer may be told."""
        (reply,) = self.engine.run([command])
        check_tokens(self.engine, [reply])
        self.engine.sync()
        return reply

    def ask_all(self, found: Sequence[Command], *, batch: bool) -> list[Reply]:
        if not batch:
            replies = self.engine.run(list(found))
            check_tokens(self.engine, replies)
            self.engine.sync()
            return replies
        reply = self.ask(commands.Batch(commands=list(found)))
        assert isinstance(reply, Replies)
        check_tokens(self.engine, reply.replies)
        return list(reply.replies)

    def page(self, state: State) -> JobPage:
        reply = self.ask(commands.Peek(table=TABLE, state=state))
        assert isinstance(reply, JobPage)
        assert not reply.next_start
        return reply

    def leases_left_us(self) -> list[int]:
        """Returns how long the leases of taken jobs still last, in the order of their xids."""
        return [moment_us - self.now_us for moment_us in self.page(State.TAKEN).moments_us]

    def look(self) -> None:
        """Writes down all jobs that are there."""
        rows = []
        for state in State:
            page = self.page(state)
            columns = (page.rows, page.keys.rows(), page.values.rows())
            rows += [histories.Row(state, *row) for row in zip(*columns, strict=True)]
        self.book.note(histories.Looked, rows=tuple(rows))

    def told(self) -> list[tuple[object, ...]]:
        """Returns all jobs that the engine shows, by row."""
        found: list[tuple[int, tuple[object, ...]]] = []
        for state in State:
            page = self.page(state)
            deaths = page.moments_us if state is State.DEAD else [0] * len(page.rows)
            columns = zip(
                [state] * len(page.rows),
                page.keys.rows(),
                page.values.rows(),
                page.priorities,
                page.process_at_us,
                page.inserted_us,
                page.updated_us,
                page.expires_at_us,
                page.domains.rows(),
                page.timeouts,
                page.xids,
                page.reasons.rows(),
                deaths,
                strict=True,
            )
            found += zip(page.rows, columns, strict=True)
        assert len({row for row, _ in found}) == len(found)
        return [columns for _, columns in sorted(found, key=lambda item: item[0])]

    def check_index(self) -> None:
        """The index is what a replay of the journal comes to (I17)."""
        found = doctor.diagnose(
            Journal(self.disk, "/data/journal"), self.indexes.open(), self._settings, shown=3
        )
        assert not found.difference_count, found.differences

    def fall(self, *, power: bool) -> None:
        """The process dies, or the whole machine; what was not synced may be gone."""
        (self.disk.power_cut if power else self.disk.process_crash)()

    def start(self, how: str) -> None:
        """Begins again, and holds the index against a replay of the journal."""
        self.engine = open_engine("/data", self._settings)
        self.book.note(histories.Restarted, how=how)
        self.check_index()

    def pack_oldest(self) -> None:
        """Packs until there is one segment less, if there are several."""
        segments = len(self.engine.journal.segments)
        while segments > 1 and len(self.engine.journal.segments) == segments:
            assert self.engine._packer.step()
        self.engine.sync()
        self.check_index()


class Book:
    """The history of the table: one thing after the other."""

    def __init__(self, clock: SimClock, settings: JobSettings) -> None:
        self._clock = clock
        self._terms = Terms(
            merges=settings.merge,
            by_domain=settings.fairness is Fairness.DOMAIN,
            debounce_us=settings.debounce_us,
        )
        self.history: list[Event] = []

    def note(self, kind: type[Event], **fields: Any) -> None:
        at = 2 * len(self.history)
        self.history.append(kind(began=at, ended=at + 1, wall_us=self._clock.wall_us(), **fields))

    def note_push(self, push: Push, reply: Done, *, relative: bool) -> None:
        now_us = self._clock.wall_us()
        self.note(
            histories.Pushed,
            key=push.key,
            value=push.value,
            master=reply.master,
            seq=reply.seq,
            stamp_us=push.stamp_us,
            priority=push.priority,
            process_at_us=now_us + push.date_us if relative else push.date_us,
            expires_at_us=push.expires_us,
        )

    def note_taken(self, reply: Taken, chosen: Sequence[Job], *, done: bool) -> None:
        at = 2 * len(self.history)
        for position, job in enumerate(chosen):
            self.history.append(
                histories.Taken(
                    began=at,
                    ended=at + 1,
                    wall_us=self._clock.wall_us(),
                    call=at + 1,
                    xid=0 if done else reply.first_xid + position,
                    row=reply.rows[position],
                    key=job.key,
                    value=job.value,
                    domain=job.domain_name,
                    priority=job.priority,
                    process_at_us=job.date_us,
                    inserted_us=job.inserted_us,
                    expires_at_us=job.expires_us,
                    timeouts=job.timeouts,
                    done=done,
                )
            )

    def note_fates(self, jobs: Sequence[Job], model: Model) -> None:
        """Writes down which jobs were dropped, as they expired or as there is a newer one."""
        there = {id(job) for job in model.jobs}
        for job in jobs:
            if id(job) not in there:
                newer = model.waiting_under(job.key, self._clock.wall_us())
                how = histories.SUPERSEDED if newer or job.is_overtaken else "expired"
                self.note(histories.Removed, key=job.key, how=how)

    def note_unanswered(self, command: Command) -> None:
        """Writes down a command of which nobody knows whether it was run."""
        outcome = Outcome.UNKNOWN
        if isinstance(command, commands.Push):
            for key, value, stamp_us in zip(
                command.keys.rows(), command.values.rows(), command.timestamps_us, strict=True
            ):
                self.note(
                    histories.Pushed, key=key, value=value, stamp_us=stamp_us, outcome=outcome
                )
        elif isinstance(command, commands.Finish):
            for xid in command.xids:
                self.note(histories.Finished, xid=xid, outcome=outcome)
        elif isinstance(command, commands.Cancel):
            for key in command.keys.rows():
                self.note(histories.Removed, key=key, how="cancelled", outcome=outcome)

    def violations(self) -> list[Violation]:
        return violations(self.history, self._terms)


def push_command(pushes: Sequence[Push], *, relative: bool) -> commands.Push:
    return commands.Push(
        table=TABLE,
        keys=Strings.of([push.key for push in pushes]),
        domains=Strings.of([push.domain for push in pushes]),
        types=b"\1" * len(pushes),
        values=Strings.of([push.value for push in pushes]),
        priorities=bytes(push.priority for push in pushes),
        process_at_us=[push.date_us for push in pushes],
        expires_at_us=[push.expires_us for push in pushes],
        timestamps_us=[push.stamp_us for push in pushes],
        relative=relative,
    )
