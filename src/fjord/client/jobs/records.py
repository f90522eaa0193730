"""Jobs as users see them: taken jobs, read-only jobs, counts and generations.

Taken jobs stay columns; an object is made on demand, and outcomes are kept with the columns.  Keys
and domains are text, in which other bytes than UTF-8 are escaped as in `entries`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import repeat
from typing import Any, NamedTuple, TypeVar, overload

from fjord.client.calls import Call, check_whole, read_numbers
from fjord.client.entries import Key, date, date_or_none, decode_key, decode_value, encode_domain
from fjord.client.pages import PageWalk
from fjord.client.schemas import Schemas
from fjord.commands import ARRIVED, DUE, Changed, CountJobs, JobPage, Peek, Reply, Taken
from fjord.errors import Code, RemoteProtocolError
from fjord.jobs import How, State, domain_of
from fjord.values import ROW

AnyJob = TypeVar("AnyJob", bound="TakenJob")


class Counts(NamedTuple):
    """The number of jobs of a table, by state."""

    waiting: int
    taken: int
    dead: int


class Moment(NamedTuple):
    """An event of a jobs table."""

    kind: str  # "arrived": jobs began to wait; "due": a process date was reached
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """The result of `redrive`."""

    matched: int
    revived: int  # 0 in a dry run
    dropped: int  # expired, or a newer job of their key waits
    # The others were no longer dead, since somebody else was faster.
    rows: Sequence[int]  # of all matching jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """The result of `discard`."""

    matched: int
    discarded: int
    rows: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInfo:
    """A job that is not taken by the caller."""

    key: str
    value: Any  # a dict, in a table with declared columns
    priority: int
    domain: str
    state: State
    timeouts: int  # how often it failed or timed out
    process_at: datetime
    inserted_at: datetime  # by the clock of the first push
    updated_at: datetime  # by the clock of the last push
    expires_at: datetime | None  # None: never
    row: int  # its permanent number
    xid: int  # of its lease; 0 if it is not taken
    lease_until: datetime | None  # if it is taken


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadJob(JobInfo):
    """A job that failed too often, or was buried."""

    reason: str
    died_at: datetime


class Lease(NamedTuple):
    """The lease of a taken job."""

    until_us: int  # when it expires; 0: there is none
    length_us: int  # by which `touch` renews it


class TakenJob:
    """A job that this worker holds until its lease expires: common to all shells."""

    __slots__ = ("__weakref__", "_batch", "_place")

    def __init__(self, batch: JobBatch[AnyJob], place: int) -> None:
        self._batch: JobBatch[Any] = batch
        self._place = place

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r} xid {self.xid}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TakenJob) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[str, int, int]:
        # The row distinguishes jobs without an xid, which were done at once.
        return self.table, self.xid, self.row

    @property
    def outcome(self) -> How | None:
        """What was reported: DONE, FAIL, GIVEN_BACK, or TIMEOUT if the report was too late."""
        return self._batch.outcome_of(self._place)

    @outcome.setter
    def outcome(self, how: How) -> None:
        self._batch.note([self._place], how, 0)

    @property
    def is_settled(self) -> bool:
        """Whether it was reported done or failed, and the server has replied."""
        return self.outcome is not None

    @property
    def table(self) -> str:
        return self._batch.table

    @property
    def key(self) -> str:
        return decode_key(self._batch.keys[self._place])

    @property
    def value(self) -> Any:
        """What was pushed; a dict, in a table with declared columns."""
        return self._batch.value_of(self._place)

    @property
    def priority(self) -> int:
        return self._batch.taken.priorities[self._place]

    @property
    def domain(self) -> str:
        """The given domain, or the host of the URI in the key."""
        return _domain(self._batch.taken.domains[self._place], self._batch.keys[self._place])

    @property
    def timeouts(self) -> int:
        """How often it failed or timed out before."""
        return self._batch.taken.timeouts[self._place]

    @property
    def process_at(self) -> datetime:
        return date(self._batch.taken.process_at_us[self._place])

    @property
    def inserted_at(self) -> datetime:
        return date(self._batch.taken.inserted_us[self._place])

    @property
    def updated_at(self) -> datetime:
        return date(self._batch.taken.updated_us[self._place])

    @property
    def expires_at(self) -> datetime | None:
        return date_or_none(self._batch.taken.expires_at_us[self._place])

    @property
    def row(self) -> int:
        """Its permanent number."""
        return self._batch.taken.rows[self._place]

    @property
    def xid(self) -> int:
        """The number of this lease; 0 if it was taken with done=True."""
        first_xid = self._batch.taken.first_xid
        return first_xid + self._place if first_xid else 0

    @property
    def lease_until(self) -> datetime | None:
        """When its lease expires, if the clock is not changed; None if there is no lease."""
        return date_or_none(self._batch.lease_of(self._place).until_us)

    @property
    def lease_us(self) -> int:
        """The length of its lease, as far as this client knows."""
        return self._batch.lease_of(self._place).length_us

    def note(self, outcome: How | int | None, now_us: int) -> None:
        self._batch.note([self._place], outcome, now_us)


class JobBatch(Sequence[AnyJob]):
    """The jobs that `next` returns: a possibly empty sequence that makes its objects on demand.

    Each access makes a new object; objects of the same lease are equal and share their state.
    """

    def __init__(
        self,
        table: str,
        taken: Taken,
        make: Callable[[JobBatch[AnyJob], int], AnyJob],
        now_us: int,
        *,
        lease_us: int = 0,
        schemas: Schemas,
    ) -> None:
        """Makes a batch of jobs that were just taken.

        Args:
            table: its name.
            taken: the columns.
            make: makes the object of one place.
            now_us: this client's clock.
            lease_us: the requested length; 0: the table's setting, computed from the dates.
            schemas: the columns of the table.
        """
        self.schemas = schemas
        self.table = table
        self.taken = taken
        self._lease = Lease(taken.until_us, lease_us or max(0, taken.until_us - now_us))
        self._leases: dict[int, Lease] = {}
        self._outcome: How | None = None
        self._outcomes: dict[int, How | None] = {}
        self._make = make

    def __repr__(self) -> str:
        if self:
            return f"<{type(self).__name__} of {len(self)}>"
        return f"<{type(self).__name__} of 0, next at {self.next_at}>"

    @property
    def next_at(self) -> datetime | None:
        """If the batch is empty: when the next job is due or given back; None if there is none."""
        return date_or_none(self.taken.next_at_us)

    @property
    def xids(self) -> range:
        """The numbers of the leases; empty if the jobs were taken with done=True."""
        first_xid = self.taken.first_xid
        return range(first_xid, first_xid + len(self) if first_xid else 0)

    @cached_property
    def keys(self) -> list[bytes]:
        """The column of keys."""
        return self.taken.keys.rows()

    @cached_property
    def values(self) -> list[bytes]:
        """The column of values; `taken.types` has their types."""
        return self.taken.values.rows()

    @cached_property
    def _decoded(self) -> list[Any]:
        return self.schemas.decode_all(self.taken.types, self.values)

    @property
    def lacks_columns(self) -> bool:
        """Whether columns must be fetched from the server before rows can be read."""
        return ROW in self.taken.types and self.schemas.lacks(self.taken.types, self.values)

    def value_of(self, place: int) -> Any:
        """Returns the value of a job; rows are all decoded together."""
        type_ = self.taken.types[place]
        return self._decoded[place] if type_ == ROW else decode_value(type_, self.values[place])

    def __len__(self) -> int:
        return len(self.taken.types)

    @overload
    def __getitem__(self, place: int) -> AnyJob: ...
    @overload
    def __getitem__(self, place: slice) -> list[AnyJob]: ...
    def __getitem__(self, place: int | slice) -> AnyJob | list[AnyJob]:
        places = range(len(self.taken.types))[place]
        if isinstance(places, range):
            return [self._make(self, one) for one in places]
        return self._make(self, places)

    def __iter__(self) -> Iterator[AnyJob]:
        return map(self._make, repeat(self), range(len(self)))

    # -- outcomes ---------------------------------------------------------------------------------

    def outcome_of(self, place: int) -> How | None:
        """Returns what was reported of a job, or None."""
        return self._outcomes.get(place, self._outcome)

    def lease_of(self, place: int) -> Lease:
        """Returns the lease of a job, as far as this client knows."""
        return self._leases.get(place, self._lease)

    def note(self, places: Iterable[int], outcome: How | int | None, now_us: int) -> None:
        """Notes the outcome of some jobs.

        Args:
            places: of the jobs.
            outcome: done or failed; or the length of a lease that begins now, 0 for the previous
                length; None: the report was too late, and an earlier outcome stays.
            now_us: this client's clock, for a lease.
        """
        for place in places:
            if outcome is None:
                self._outcomes[place] = self.outcome_of(place) or How.TIMEOUT
            elif isinstance(outcome, How):
                self._outcomes[place] = outcome
            else:
                length_us = outcome or self.lease_of(place).length_us
                self._leases[place] = Lease(now_us + length_us, length_us)

    def note_all(self, outcome: How | int, late: Iterable[int], now_us: int) -> None:
        """Notes the outcome of all jobs except those that were too late."""
        self.note(late, None, now_us)
        if isinstance(outcome, How):
            self._outcomes = {place: self._outcomes[place] for place in late}
            self._outcome = outcome
            return
        lost = {place: self.lease_of(place) for place in late}
        self._leases = {} if outcome else self._leases
        self.note(self._leases, outcome, now_us)
        length_us = outcome or self._lease.length_us
        self._lease = Lease(now_us + length_us, length_us)
        self._leases.update(lost)


# -- replies --------------------------------------------------------------------------------------


def read_jobs(page: JobPage, state: State, schemas: Schemas) -> list[JobInfo]:
    """Returns waiting or taken jobs of a page."""
    return [JobInfo(**_fields(page, row, state, schemas)) for row in range(len(page.types))]


def read_dead(page: JobPage, rows: Iterable[int], schemas: Schemas) -> list[DeadJob]:
    """Returns some of the dead jobs of a page."""
    return [
        DeadJob(
            **_fields(page, row, State.DEAD, schemas),
            reason=page.reasons[row].decode(errors="replace"),
            died_at=date(page.moments_us[row]),
        )
        for row in rows
    ]


def _fields(page: JobPage, row: int, state: State, schemas: Schemas) -> dict[str, Any]:
    key = page.keys[row]
    return {
        "key": decode_key(key),
        "value": schemas.decode(page.types[row], page.values[row]),
        "priority": page.priorities[row],
        "domain": _domain(page.domains[row], key),
        "state": state,
        "timeouts": page.timeouts[row],
        "process_at": date(page.process_at_us[row]),
        "inserted_at": date(page.inserted_us[row]),
        "updated_at": date(page.updated_us[row]),
        "expires_at": date_or_none(page.expires_at_us[row]),
        "row": page.rows[row],
        "xid": page.xids[row],
        "lease_until": date(page.moments_us[row]) if state is State.TAKEN else None,
    }


def _domain(given: bytes, key: bytes) -> str:
    return decode_key(given or domain_of(key))


def read_moment(changed: Changed) -> Moment:
    """Returns the event of a change.

    Raises:
        RemoteProtocolError: if its kind is unknown.
    """
    if changed.value not in (ARRIVED, DUE):
        raise RemoteProtocolError(Code.BAD_VALUE, f"a moment of the kind {changed.value!r}")
    return Moment(changed.value.decode(), date(changed.timestamp_us))


# -- walking through the jobs of one state ---------------------------------------------------------


Found = TypeVar("Found")


class JobWalk(PageWalk[Found]):
    """Walks through the jobs of one state."""

    def __init__(
        self,
        table: str,
        state: State,
        read: Callable[[JobPage], list[Found]],
        *,
        limit: int | None = None,
        domain: Key | None = None,
        is_sparse: bool = False,
    ) -> None:
        if limit is not None and check_whole("count", limit) < 1:
            raise ValueError(f"count must be 1 or more, not {limit}")
        command = Peek(table=table, state=state, domain=encode_domain(domain))
        super().__init__(command, read, limit, is_sparse=is_sparse)


# -- generations of a jobs table with a period ----------------------------------------------------


_PREFIX = "generation."


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A generation of a table with a period."""

    number: int  # 1 for the first
    began_at: datetime
    first_row: int  # its jobs are those from here up to the next generation
    schema: int  # the number of its schema
    jobs: int  # waiting, taken and dead ones
    is_current: bool  # pushed jobs go here; the others only drain


def generations(table: str) -> Call[list[Generation]]:
    """Returns the call that asks for the generations of a table, the oldest first."""
    return Call(CountJobs(table=table, generations=True), _read_generations)


def _read_generations(reply: Reply) -> list[Generation]:
    listed: dict[int, dict[str, int]] = {}
    for name, value in read_numbers(reply).items():
        if name.startswith(_PREFIX):
            number, _, what = name.removeprefix(_PREFIX).partition(".")
            if not number.isdecimal():
                raise RemoteProtocolError(Code.BAD_BATCH, f"a generation {number[:40]!r}")
            listed.setdefault(int(number), {})[what] = value
    try:
        return [
            Generation(
                number=number,
                began_at=date(numbers["began_us"]),
                first_row=numbers["first_row"],
                schema=numbers["schema"],
                jobs=numbers["jobs"],
                is_current=number == max(listed),
            )
            for number, numbers in sorted(listed.items())
        ]
    except KeyError as error:
        text = f"numbers of a generation without {error.args[0]}"
        raise RemoteProtocolError(Code.BAD_BATCH, text) from None
