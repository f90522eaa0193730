"""Jobs against a plain list, with clock jumps, crashes, power cuts and packing among the rules.

Every step is also written down as a history, and all checkers of `tests.invariants` judge it when
the run is over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fjord import commands
from fjord.columns import Strings
from fjord.commands import Acted, Command, Done, JobPage, Numbers, Reply, Taken
from fjord.jobs import Fairness, Settings, State
from fjord.testing import SimCrash
from tests.invariants import histories
from tests.property import jobs_model as models
from tests.property.job_machine import (
    DOMAINS,
    HALF_US,
    KEYS,
    PLAIN,
    SECOND,
    TABLE,
    Machine,
    Wanted,
    keys_of,
    picks_of,
    push_command,
    pushes_of,
)
from tests.property.jobs_model import Job, Model, Push

HOUR, YEAR = 3600, 365 * 24 * 3600
old_of = st.sampled_from([False, False, False, True])  # xids that were given out before


class JobsMachine(RuleBasedStateMachine):
    """One table, one model of it, and one history."""

    @initialize(
        seed=st.integers(0, 2**32),
        merge=st.sampled_from([True, True, False]),
        fairness=st.sampled_from([Fairness.NONE, Fairness.NONE, Fairness.DOMAIN]),
        timeouts=st.sampled_from([0, 2, 5]),
        debounce=st.sampled_from([0, 60, HOUR]),
    )
    def start(
        self, seed: int, merge: bool, fairness: Fairness, timeouts: int, debounce: int
    ) -> None:
        chosen = Settings(
            merge=merge,
            fairness=fairness,
            lease_us=60 * SECOND + HALF_US,
            timeouts_max=timeouts,
            debounce_us=debounce * SECOND,
        )
        self.machine = Machine(seed, chosen)
        self.book = self.machine.book
        self.model = Model(chosen)
        self.pushes = 0
        self.turns: list[tuple[bytes | None, frozenset[bytes]]] = []  # see turns_problem
        self.xids = [1]  # that were ever given out

    # -- pushing ----------------------------------------------------------------------------------

    @rule(rows=pushes_of, relative=st.booleans(), how=st.sampled_from(["one", "many", "batch"]))
    def push(self, rows: list[Wanted], relative: bool, how: str) -> None:
        self.machine.tick()
        pushes = [self.push_of(row, relative=relative) for row in rows]
        if how == "one":
            replies = [self.machine.ask(push_command(pushes, relative=relative))] * len(pushes)
        else:
            single = [push_command([push], relative=relative) for push in pushes]
            replies = self.machine.ask_all(single, batch=how == "batch")
        self.model.push(pushes, self.now_us, relative=relative)
        for push, reply in zip(pushes, replies, strict=True):
            assert isinstance(reply, Done)
            self.book.note_push(push, reply, relative=relative)
        values = {push.value for push in pushes}
        dates = [job.date_us for job in self.model.waiting(self.now_us) if job.value in values]
        arrivals = self.machine.engine.take_news().arrivals
        if dates:
            assert arrivals[TABLE].rows >= len(dates)
            assert arrivals[TABLE].first_us <= min(dates)

    def push_of(self, row: Wanted, *, relative: bool) -> Push:
        """Returns a push with a value of its own."""
        self.pushes += 1
        now_us, delay_us, life = self.now_us, row["date"] * SECOND, row["life"]
        return Push(
            key=row["key"],
            value=b"%d" % self.pushes,
            stamp_us=now_us - row["late"] * SECOND,
            priority=row["priority"],
            date_us=delay_us if relative or not delay_us else now_us + delay_us,
            expires_us=now_us + delay_us + life * SECOND + HALF_US if life else 0,
            domain=row["domain"],
        )

    # -- working ----------------------------------------------------------------------------------

    @rule(
        count=st.sampled_from([1, 1, 2, 3, 10, 0]),
        lease=st.sampled_from([0, 0, 10, 4000]),
        domain=st.sampled_from([b"", b"", *DOMAINS]),
        done=st.sampled_from([False, False, False, True]),
    )
    def next(self, count: int, lease: int, domain: bytes, done: bool) -> None:
        self.machine.tick()
        is_fair = self.model.settings.fairness is Fairness.DOMAIN
        domain = domain if is_fair else b""
        lease_us = lease * SECOND + HALF_US if lease else 0
        reply = self.machine.ask(
            commands.Next(table=TABLE, count=count, lease_us=lease_us, domain=domain, done=done)
        )
        assert isinstance(reply, Taken)
        ready = self.model.due(self.now_us, domain)
        chosen = self.check_taken(reply, ready)
        if is_fair and not domain:
            assert models.fair_problem(chosen, ready, count or 10_000) is None
            self.note_turns(chosen, ready)
        else:
            assert chosen == ready[: count or 10_000]
        if not chosen and not self.model.expired(self.now_us):
            lease_us = self.machine.engine.lease_us
            assert reply.next_at_us == self.model.next_at_us(self.now_us, lease_us, domain)
        self.book.note_taken(reply, chosen, done=done)
        length_us = lease_us or self.model.settings.lease_us
        deadline_us = self.machine.engine.lease_us + length_us
        self.model.take(chosen, reply.first_xid, deadline_us, length_us)
        self.xids += [] if done else [job.xid for job in chosen]
        if done:
            self.model.drop(chosen)
        self.adopt_deadlines()

    @rule(keys=keys_of, count=st.sampled_from([1, 2, 10]))
    def push_and_take(self, keys: list[bytes], count: int) -> None:
        """Work that is due at once, and somebody who takes it."""
        rows = [{**PLAIN, "key": key} for key in keys]
        self.push(rows, relative=False, how="one")
        self.next(count, lease=0, domain=b"", done=False)

    def check_taken(self, reply: Taken, ready: Sequence[Job]) -> list[Job]:
        """Asserts that jobs were handed out as they are; returns those of the model."""
        by_value = {job.value: job for job in ready}
        chosen = [by_value[value] for value in reply.values.rows()]
        told = zip(
            reply.keys.rows(),
            reply.priorities,
            reply.process_at_us,
            reply.inserted_us,
            reply.updated_us,
            reply.expires_at_us,
            reply.domains.rows(),
            reply.timeouts,
            strict=True,
        )
        assert list(told) == [
            (
                job.key,
                job.priority,
                job.date_us,
                job.inserted_us,
                job.updated_us,
                job.expires_us,
                job.domain,
                job.timeouts,
            )
            for job in chosen
        ]
        return chosen

    def note_turns(self, chosen: Sequence[Job], ready: Sequence[Job]) -> None:
        for at, job in enumerate(chosen):
            left = [other for other in ready if other not in chosen[:at]]
            self.turns.append((job.domain_name, frozenset(one.domain_name for one in left)))

    @rule(picks=picks_of, old=old_of)
    def finish(self, picks: list[int], old: bool) -> None:
        xids, jobs = self.pick(picks, old=old)
        self.check_acted(self.machine.ask(commands.Finish(table=TABLE, xids=xids)), xids)
        for job in jobs:
            self.book.note(histories.Finished, xid=job.xid)
        self.model.drop(jobs)

    @rule(picks=picks_of, old=old_of, lease=st.sampled_from([0, 0, 30, 4000]))
    def touch(self, picks: list[int], old: bool, lease: int) -> None:
        xids, jobs = self.pick(picks, old=old)
        lease_us = lease * SECOND + HALF_US if lease else 0
        command = commands.Extend(table=TABLE, xids=xids, lease_us=lease_us)
        self.check_acted(self.machine.ask(command), xids)
        self.model.touch(jobs, self.machine.engine.lease_us, lease_us)
        self.adopt_deadlines()
        for job in jobs:
            self.book.note(histories.Touched, xid=job.xid, lease_us=job.lease_us)

    def adopt_deadlines(self) -> None:
        """A lease may be a microsecond longer than was asked for."""
        expected = self.model.taken()
        for job, left_us in zip(expected, self.machine.leases_left_us(), strict=True):
            deadline_us = self.machine.engine.lease_us + left_us
            assert 0 <= deadline_us - job.deadline_us <= 1
            job.deadline_us = deadline_us

    @rule(
        picks=picks_of,
        old=old_of,
        delay=st.sampled_from([0, 0, 30]),
        how=st.sampled_from(["counts", "counts", "given back", "buries"]),
    )
    def fail(self, picks: list[int], old: bool, delay: int, how: str) -> None:
        xids, jobs = self.pick(picks, old=old)
        says = {"counts": how == "counts", "buries": how == "buries"}
        command = commands.Fail(
            table=TABLE, xids=xids, delay_us=delay * SECOND, reason=b"because", **says
        )
        self.check_acted(self.machine.ask(command), xids)
        for job in jobs:
            self.book.note(histories.Failed, xid=job.xid, **says)
        if how == "buries":
            self.model.bury(jobs, self.now_us, b"because")
        else:
            word = "failed" if how == "counts" else ""
            self.model.give_back(
                jobs, self.now_us, word=word, reason=b"because", delay_us=delay * SECOND
            )
        self.book.note_fates(jobs, self.model)

    def pick(self, picks: Sequence[int], *, old: bool) -> tuple[list[int], list[Job]]:
        """Returns xids: of jobs that are out, if there are any, or of any that ever were."""
        out = [job.xid for job in self.model.taken()]
        source = self.xids if old or not out else out
        xids = [source[pick % len(source)] for pick in picks]
        return xids, self.model.with_xids(xids)

    def check_acted(self, reply: Reply, xids: Sequence[int]) -> None:
        assert isinstance(reply, Acted)
        out = {job.xid for job in self.model.taken()}
        missing = [at for at, xid in enumerate(xids) if xid not in out or xid in xids[:at]]
        assert list(reply.missing) == missing

    # -- by hand ----------------------------------------------------------------------------------

    @rule(
        keys=keys_of,
        what=st.sampled_from(["cancel", "bury", "reschedule", "reschedule"]),
        priority=st.sampled_from([None, 0, 100, 220]),
        date=st.sampled_from([None, 0, 20, 5000]),
        relative=st.booleans(),
    )
    def change_by_hand(
        self, keys: list[bytes], what: str, priority: int | None, date: int | None, relative: bool
    ) -> None:
        self.machine.tick()
        if what == "reschedule":
            self.reschedule(keys, priority, date, relative=relative)
        elif what == "bury":
            command = commands.Bury(table=TABLE, keys=Strings.of(keys), reason=b"by hand")
            jobs = self.change(command, keys)
            self.model.bury(jobs, self.now_us, b"by hand")
            self.note_removed(jobs, "buried")
        else:
            jobs = self.change(commands.Cancel(table=TABLE, keys=Strings.of(keys)), keys)
            self.model.drop(jobs)
            self.note_removed(jobs, "cancelled")

    def reschedule(
        self, keys: list[bytes], priority: int | None, date: int | None, *, relative: bool
    ) -> None:
        now_us, date_us = self.now_us, None
        if date is not None:
            date_us = date * SECOND if relative or not date else now_us + date * SECOND
        command = commands.Reschedule(
            table=TABLE,
            keys=Strings.of(keys),
            priority=priority,
            process_at_us=date_us,
            relative=relative,
        )
        for job in self.change(command, keys):
            job.priority = job.priority if priority is None else priority
            job.date_us = job.date_us if date is None else now_us + date * SECOND
            self.book.note(histories.Rescheduled, key=job.key)

    def note_removed(self, jobs: Sequence[Job], how: str) -> None:
        for job in jobs:
            self.book.note(histories.Removed, key=job.key, how=how)

    def change(self, command: Command, keys: Sequence[bytes]) -> list[Job]:
        """Runs a command on waiting jobs, and returns those that it was about."""
        reply = self.machine.ask(command)
        if models.is_refused_by_key(reply, self.model):
            return []
        found = {key: self.model.waiting_under(key, self.now_us) for key in keys}
        assert isinstance(reply, Acted)
        assert list(reply.missing) == [
            at for at, key in enumerate(keys) if found[key] is None or key in keys[:at]
        ]
        return [job for job in found.values() if job is not None]

    @precondition(lambda self: self.model.dead())
    @rule(picks=picks_of, delay=st.sampled_from([0, 40]), discards=st.booleans())
    def raise_the_dead(self, picks: list[int], delay: int, discards: bool) -> None:
        dead, rows = self.model.dead(), self.machine.page(State.DEAD).rows
        chosen = dict.fromkeys(pick % len(dead) for pick in picks)
        wanted = [*[rows[pick] for pick in chosen], 10**12]
        jobs = [dead[pick] for pick in chosen]
        if discards:
            reply = self.machine.ask(commands.Discard(table=TABLE, rows=wanted))
            self.model.drop(jobs)
            self.note_removed(jobs, histories.DISCARDED)
        else:
            command = commands.Revive(table=TABLE, rows=wanted, delay_us=delay * SECOND)
            reply = self.machine.ask(command)
            self.model.revive(jobs, self.now_us, delay * SECOND)
            for pick, job in zip(chosen, jobs, strict=True):
                self.book.note(histories.Revived, row=rows[pick], key=job.key)
            self.book.note_fates(jobs, self.model)
        assert isinstance(reply, Acted)
        assert list(reply.missing) == [len(jobs)]

    # -- what happens to a node -------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0, 1, 9, 11, 61, 61, 4001]), upkeep=st.booleans())
    def wait(self, seconds: int, upkeep: bool) -> None:
        self.machine.clock.advance(seconds)
        if upkeep or not seconds:
            self.upkeep()

    @rule(
        seconds=st.sampled_from([HOUR, -HOUR, YEAR, -YEAR]),
        back=st.sampled_from([True, True, True, False]),
    )
    def set_the_clock(self, seconds: int, back: bool) -> None:
        """What has expired is taken away first: it would live again if the clock went back."""
        self.turns.clear()  # nobody promises whose turn it is then
        self.upkeep()
        self.machine.clock.jump(seconds)
        if back:
            self.upkeep()
            self.machine.clock.jump(-seconds)

    def upkeep(self) -> None:
        while self.machine.engine.upkeep():
            pass
        self.machine.engine.sync()
        xids = {job.number: job.xid for job in self.model.taken()}
        over = self.model.end_leases(self.now_us, self.machine.engine.lease_us)
        for job in over:
            self.book.note(histories.TimedOut, xid=xids[job.number])
        self.book.note_fates(over, self.model)
        expired = self.model.expired(self.now_us)
        self.model.drop(expired)
        self.note_removed(expired, "expired")

    @rule(what=st.sampled_from(["crash", "power cut", "stop", "lost index", "segment", "pack"]))
    def disturb(self, what: str) -> None:
        if what == "segment":
            self.machine.engine.begin_segment()
            return
        if what == "pack":
            self.machine.pack_oldest()
            return
        if what in ("crash", "power cut"):
            self.machine.fall(power=what == "power cut")
        else:
            self.machine.engine.close()
        if what == "lost index":
            self.machine.indexes.drop()
        self.restart(what)

    @rule(
        calls=st.integers(1, 4),
        power=st.booleans(),
        what=st.sampled_from(["push", "finish", "cancel"]),
        rows=pushes_of,
    )
    def crash_in_the_middle(self, calls: int, power: bool, what: str, rows: list[Wanted]) -> None:
        """A command that was never answered was run, or was not; nothing in between."""
        self.machine.tick()
        command, change = self.unanswered(what, rows)
        self.machine.disk.crash_after(calls)
        with contextlib.suppress(SimCrash):
            self.machine.engine.run([command])
            self.machine.engine.sync()
        self.machine.fall(power=power)
        after = self.model.copy()
        change(after)
        self.restart("crash")
        if self.machine.told() == self.expected(after):
            self.model = after
        self.book.note_unanswered(command)

    def unanswered(
        self, what: str, rows: Sequence[Wanted]
    ) -> tuple[Command, Callable[[Model], None]]:
        """Returns a command, and what it does to a model."""
        now_us = self.now_us
        if what == "push" or (what == "cancel" and not self.model.settings.merge):
            pushes = [self.push_of(row, relative=False) for row in rows]
            command = push_command(pushes, relative=False)
            return command, lambda model: model.push(pushes, now_us, relative=False)
        if what == "finish":
            xids = [job.xid for job in self.model.taken()][:3] or [1]
            finish = commands.Finish(table=TABLE, xids=xids)
            return finish, lambda model: model.drop(model.with_xids(xids))
        keys = [row["key"] for row in rows]
        cancel = commands.Cancel(table=TABLE, keys=Strings.of(keys))
        return cancel, lambda model: model.drop(
            [job for key in keys if (job := model.waiting_under(key, now_us)) is not None]
        )

    def restart(self, how: str) -> None:
        self.turns.clear()  # whose turn it was is not remembered
        self.machine.start(how)

    # -- what must hold ---------------------------------------------------------------------------

    @invariant()
    def jobs_are_those_of_the_model(self) -> None:
        assert self.machine.told() == self.expected(self.model)

    def expected(self, model: Model) -> list[tuple[object, ...]]:
        jobs = [*model.waiting(self.now_us), *model.taken(), *model.dead()]
        return [job.told() for job in sorted(jobs, key=lambda job: job.number)]

    @invariant()
    def pages_are_in_order(self) -> None:
        if self.model.settings.fairness is Fairness.NONE:
            waiting = [job.value for job in self.model.waiting(self.now_us)]
            assert self.machine.page(State.WAITING).values.rows() == waiting
        lease_us, expected = self.machine.engine.lease_us, self.model.taken()
        assert list(self.machine.page(State.TAKEN).xids) == [job.xid for job in expected]
        assert self.machine.leases_left_us() == [job.deadline_us - lease_us for job in expected]

    @invariant()
    def keys_are_found(self) -> None:
        page = self.machine.ask(commands.Find(table=TABLE, keys=Strings.of(KEYS)))
        if models.is_refused_by_key(page, self.model):
            return
        assert isinstance(page, JobPage)
        found = [self.model.waiting_under(key, self.now_us) for key in KEYS]
        assert page.values.rows() == [job.value for job in found if job is not None]

    @invariant()
    def counts_are_right(self) -> None:
        reply = self.machine.ask(commands.CountJobs(table=TABLE))
        assert isinstance(reply, Numbers)
        *counts, next_at_us = reply.values
        live, over = self.model.waiting(self.now_us), self.model.expired(self.now_us)
        assert len(live) <= counts[0] <= len(live) + len(over)
        assert counts[1:] == [len(self.model.taken()), len(self.model.dead())]
        engine = self.machine.engine
        assert list(engine.job_counts().get(TABLE, (0, 0, 0))) == counts
        stats = engine.stats()
        assert [stats[f"jobs_{state}"] for state in ("waiting", "taken", "dead")] == counts
        possible = {
            self.model.next_at_us(self.now_us, engine.lease_us),
            *(job.date_us for job in over),
        }
        if self.model.settings.fairness is Fairness.DOMAIN:
            # Where several domains are ready, it is the date of whoever has its turn.
            possible |= {job.date_us for job in live if job.date_us <= self.now_us}
        assert next_at_us in possible

    @invariant()
    def the_next_date_is_known(self) -> None:
        now_us = self.now_us
        if self.model.expired(now_us) or self.model.settings.fairness is Fairness.DOMAIN:
            return
        later = [job.date_us for job in self.model.waiting(now_us) if job.date_us > now_us]
        assert self.machine.engine.first_date_us(TABLE, now_us) == min(later, default=None)

    @invariant()
    def every_domain_has_its_turn(self) -> None:
        ready = self.model.due(self.now_us)
        self.turns.append((None, frozenset(job.domain_name for job in ready)))
        assert models.turns_problem(self.turns) is None

    def teardown(self) -> None:
        if hasattr(self, "machine"):
            self.machine.look()
            found = self.book.violations()
            assert not found, "\n".join(map(str, found))

    @property
    def now_us(self) -> int:
        return self.machine.now_us


JobsMachine.TestCase.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, derandomize=True
)
TestJobs = JobsMachine.TestCase
