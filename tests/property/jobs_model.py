"""A jobs table as a plain list: what the engine is held against, written for being understood."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fjord.commands import Refusal, Reply
from fjord.errors import Code
from fjord.jobs import SLOW_FROM, Settings, State, domain_of

# Who waits for a lease that is over looks again after this.
SOON_US = 100_000


@dataclass(slots=True, kw_only=True)
class Job:
    """A job, in whatever state; `number` counts pushes that made one, as rows do."""

    number: int
    key: bytes
    value: bytes
    priority: int
    date_us: int
    inserted_us: int
    updated_us: int
    expires_us: int
    domain: bytes
    timeouts: int = 0
    state: State = State.WAITING
    xid: int = 0
    deadline_us: int = 0  # lease time
    lease_us: int = 0
    is_overtaken: bool = False  # a newer job of its key was taken while this one was
    reason: bytes = b""
    died_us: int = 0

    def is_expired(self, now_us: int) -> bool:
        return 0 < self.expires_us <= now_us

    def is_slow(self) -> bool:
        return self.priority >= SLOW_FROM

    @property
    def domain_name(self) -> bytes:
        return self.domain or domain_of(self.key)

    @property
    def rank(self) -> tuple[int, int, int]:
        return self.priority, self.date_us, self.number

    @property
    def age(self) -> tuple[int, int]:
        """Which of two jobs of a key is the newer one."""
        return self.updated_us, self.number

    def told(self) -> tuple[object, ...]:
        """Returns all that a look at it tells, but for its row."""
        fields = (self.key, self.value, self.priority, self.date_us, self.inserted_us)
        expires_us = 0 if self.is_overtaken else self.expires_us
        more = (self.updated_us, expires_us, self.domain, self.timeouts, self.xid)
        return (self.state, *fields, *more, self.reason, self.died_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """A job to push, with a date of the wall clock, or a delay; 0 is now."""

    key: bytes
    value: bytes
    stamp_us: int
    priority: int = 100
    date_us: int = 0
    expires_us: int = 0
    domain: bytes = b""


@dataclass(slots=True)
class Model:
    """All jobs of a table.  What has expired, and is not taken away yet, is not there."""

    settings: Settings
    jobs: list[Job] = field(default_factory=list)
    pushed: int = 0

    def copy(self) -> Model:
        return copy.deepcopy(self)

    # -- looking ----------------------------------------------------------------------------------

    def waiting(self, now_us: int) -> list[Job]:
        found = [job for job in self.jobs if job.state is State.WAITING]
        return sorted(
            (job for job in found if not job.is_expired(now_us)), key=lambda job: job.rank
        )

    def waiting_under(self, key: bytes, now_us: int) -> Job | None:
        found = [job for job in self.waiting(now_us) if job.key == key]
        return found[0] if found and self.settings.merge else None

    def expired(self, now_us: int) -> list[Job]:
        return [job for job in self.jobs if job.state is State.WAITING and job.is_expired(now_us)]

    def taken(self) -> list[Job]:
        return sorted((job for job in self.jobs if job.xid), key=lambda job: job.xid)

    def dead(self) -> list[Job]:
        found = [job for job in self.jobs if job.state is State.DEAD]
        return sorted(found, key=lambda job: job.number)

    def due(self, now_us: int, domain: bytes = b"") -> list[Job]:
        """Returns what may be handed out now: slow jobs only if there are no others."""
        found = [
            job
            for job in self.waiting(now_us)
            if job.date_us <= now_us and domain in (b"", job.domain_name)
        ]
        fast = [job for job in found if not job.is_slow()]
        return fast or found

    def first_date_us(self, now_us: int, domain: bytes = b"") -> int:
        """Returns the first date of those that wait, 0 if there are none."""
        found = [job for job in self.waiting(now_us) if domain in (b"", job.domain_name)]
        return min((job.date_us for job in found), default=0)

    def next_at_us(self, now_us: int, lease_now_us: int, domain: bytes = b"") -> int:
        """Returns that, or the end of a lease if it is earlier; one that is over ends soon."""
        found = [job for job in self.taken() if domain in (b"", job.domain_name)]
        ends = [max(job.deadline_us - lease_now_us, SOON_US) + now_us for job in found]
        first_us = self.first_date_us(now_us, domain)
        return min([*ends, *([first_us] if first_us else [])], default=0)

    # -- pushing ----------------------------------------------------------------------------------

    def push(self, pushes: Iterable[Push], now_us: int, *, relative: bool) -> None:
        for push in pushes:
            if self.settings.merge:
                self.drop(job for job in self.expired(now_us) if job.key == push.key)
            old = self.waiting_under(push.key, now_us)
            new = self._new(push, now_us, relative=relative)
            if old is None:
                self.pushed += 1
                self.jobs.append(new)
            elif push.stamp_us >= old.updated_us:
                self._merge(old, new)

    def _new(self, push: Push, now_us: int, *, relative: bool) -> Job:
        inserted_us = min(push.stamp_us, now_us)
        date_us = now_us + push.date_us if relative else push.date_us or now_us
        return Job(
            number=self.pushed,
            key=push.key,
            value=push.value,
            priority=push.priority,
            date_us=max(date_us, inserted_us),
            inserted_us=inserted_us,
            updated_us=push.stamp_us,
            expires_us=push.expires_us,
            domain=push.domain,
        )

    def _merge(self, old: Job, new: Job) -> None:
        latest_us = max(old.date_us, old.inserted_us + self.settings.debounce_us)
        old.date_us = min(max(old.date_us, new.date_us), latest_us)
        is_never = not old.expires_us or not new.expires_us
        old.expires_us = 0 if is_never else max(old.expires_us, new.expires_us)
        old.priority = min(old.priority, new.priority)
        old.timeouts = 0
        old.value, old.domain, old.updated_us = new.value, new.domain, new.updated_us

    # -- working ----------------------------------------------------------------------------------

    def take(self, chosen: Sequence[Job], first_xid: int, deadline_us: int, lease_us: int) -> None:
        self.overtake(chosen)
        for at, job in enumerate(chosen):
            job.state, job.xid = State.TAKEN, first_xid + at
            job.deadline_us, job.lease_us = deadline_us, lease_us

    def overtake(self, chosen: Sequence[Job]) -> None:
        """Of each key that is taken once more, the older job will not wait again."""
        for job in chosen if self.settings.merge else ():
            for other in self.taken():
                if other.key == job.key and not other.is_overtaken:
                    min(job, other, key=lambda one: one.age).is_overtaken = True

    def with_xids(self, xids: Iterable[int]) -> list[Job]:
        """Returns the taken jobs of these xids, each once."""
        by_xid = {job.xid: job for job in self.taken()}
        return [by_xid[xid] for xid in dict.fromkeys(xids) if xid in by_xid]

    def touch(self, jobs: Iterable[Job], lease_now_us: int, lease_us: int) -> None:
        for job in jobs:
            job.lease_us = lease_us or job.lease_us
            job.deadline_us = lease_now_us + job.lease_us

    def drop(self, jobs: Iterable[Job]) -> None:
        gone = {id(job) for job in jobs}
        self.jobs = [job for job in self.jobs if id(job) not in gone]

    def end_leases(self, now_us: int, lease_now_us: int) -> list[Job]:
        """Gives back the jobs whose leases are over, and returns them."""
        over = [job for job in self.taken() if job.deadline_us <= lease_now_us]
        self.give_back(over, now_us, word="timed out")
        return over

    def give_back(
        self,
        jobs: Sequence[Job],
        now_us: int,
        *,
        word: str = "",
        reason: bytes = b"",
        delay_us: int = 0,
    ) -> None:
        """Jobs wait again, with a word for what is counted; or are dead, dropped or expired."""
        gone = [job for job in jobs if job.is_overtaken or job.is_expired(now_us)]
        rest = [job for job in jobs if job not in gone]
        if self.settings.merge:
            newest = {job.key: job for job in sorted(rest, key=lambda job: job.number)}
            superseded = [
                job for job in rest if newest[job.key] is not job or self._newer_waits(job, now_us)
            ]
            gone += superseded
            rest = [job for job in rest if job not in superseded]
            keys = {job.key for job in rest}
            gone += [job for job in self.expired(now_us) if job.key in keys]
            gone += [job for job in self.waiting(now_us) if job.key in keys]  # older ones
        for job in rest:
            job.timeouts += 1 if word else 0
            if job.timeouts > self.settings.timeouts_max:
                text = f"{word} {job.timeouts} times".encode()
                self.bury([job], now_us, text + (b": " + reason if reason else b""))
            else:
                job.state, job.xid = State.WAITING, 0
                job.date_us = now_us + delay_us if delay_us else job.date_us
        self.drop(gone)

    def _newer_waits(self, job: Job, now_us: int) -> bool:
        other = self.waiting_under(job.key, now_us)
        if other is None:
            return False
        return other.age > job.age

    # -- by hand ----------------------------------------------------------------------------------

    def bury(self, jobs: Iterable[Job], now_us: int, reason: bytes) -> None:
        for job in jobs:
            job.state, job.xid, job.reason, job.died_us = State.DEAD, 0, reason, now_us

    def revive(self, jobs: Sequence[Job], now_us: int, delay_us: int) -> None:
        for job in jobs:
            job.timeouts = 0
            job.reason, job.died_us = b"", 0
        self.give_back(jobs, now_us)
        for job in self.jobs:
            if any(job is one for one in jobs):
                job.date_us = now_us + delay_us


def is_refused_by_key(reply: Reply, model: Model) -> bool:
    """Says whether jobs are not found by key here; then that must have been said."""
    if model.settings.merge:
        return False
    assert isinstance(reply, Refusal)
    assert reply.code is Code.WRONG_KIND
    return True


def fair_problem(served: Sequence[Job], ready: Sequence[Job], count: int) -> str | None:
    """Says what is wrong with an answer that should give every domain its turn."""
    lanes: dict[bytes, list[Job]] = {}
    for job in ready:
        lanes.setdefault(job.domain_name, []).append(job)
    if len(served) != min(count, len(ready)):
        return f"{len(served)} jobs came, of {len(ready)} that were ready and {count} asked for"
    got: dict[bytes, list[Job]] = {domain: [] for domain in lanes}
    for job in served:
        got[job.domain_name].append(job)
    for domain, mine in got.items():
        if mine != lanes[domain][: len(mine)]:
            return f"the jobs of {domain!r} came out of order"
    most = max(map(len, got.values()), default=0)
    for domain, mine in got.items():
        if len(mine) < most - 1 and len(mine) < len(lanes[domain]):
            return f"{domain!r} got {len(mine)} jobs while another domain got {most}"
    return None


def turns_problem(turns: Sequence[tuple[bytes | None, frozenset[bytes]]]) -> str | None:
    """Says which domain was ready all the time between two turns of another, and left out.

    `turns` has the domains in the order in which they were served, and who was ready each time;
    without a domain it only says who was ready at that moment.
    """
    last: dict[bytes, int] = {}
    for at, (domain, _) in enumerate(turns):
        if domain is None:
            continue
        if domain in last:
            stretch = turns[last[domain] : at + 1]
            waited = frozenset.intersection(*(ready for _, ready in stretch))
            left_out = waited - {one for one, _ in stretch}
            if left_out:
                return f"{left_out} had no turn between two of {domain!r}"
        last[domain] = at
    return None
