"""What users see of jobs: those that a worker has taken, those that are only looked at, and counts.

Jobs that were taken stay the columns that they came in; an object is made only for those that are
looked at.  Keys and domains are text, in which bytes that are no UTF-8 are escaped as in
`entries`, so that they can be given back as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeVar, overload

from fjord.client.entries import date, date_or_none, decode_key, decode_value
from fjord.commands import Changed, JobPage, Taken
from fjord.errors import Code, RemoteProtocolError
from fjord.job_commands import ARRIVED, DUE
from fjord.jobs import How, State, domain_of
from fjord.values import Value

AnyJob = TypeVar("AnyJob", bound="TakenJob")


class Counts(NamedTuple):
    """How many jobs of a table there are, by what they do."""

    waiting: int
    taken: int
    dead: int


class Moment(NamedTuple):
    """What a listener is told of a jobs table."""

    kind: str  # "arrived": jobs began to wait; "due": a process date was reached
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """What became of dead jobs that should wait again."""

    matched: int
    revived: int  # fewer than matched if others were faster, none in a dry run
    rows: Sequence[int]  # of those that matched


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """What became of dead jobs that should be thrown away."""

    matched: int
    discarded: int
    rows: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInfo:
    """A job that was only looked at."""

    key: str
    value: Value
    priority: int
    domain: str
    state: State
    timeouts: int  # how often it failed, or its worker took too long
    process_at: datetime
    inserted_at: datetime  # the clock of whoever pushed it first
    updated_at: datetime  # the clock of whoever pushed it last
    expires_at: datetime | None  # None: never
    row: int  # the number that it has for as long as it lives
    xid: int  # that of its worker, 0 if it is not taken
    lease_until: datetime | None  # if it is taken


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadJob(JobInfo):
    """A job that failed too often, or was buried."""

    reason: str
    died_at: datetime


class TakenJob:
    """A job that this worker has until its lease is over: what all shells have in common."""

    __slots__ = ("_batch", "_place", "_until_us", "outcome")

    def __init__(self, batch: JobBatch[AnyJob], place: int) -> None:
        self._batch = batch
        self._place = place
        self._until_us = 0  # as it was taken
        #: What was said of it: DONE, FAIL, GIVEN_BACK, or TIMEOUT if that came too late.
        self.outcome: How | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r} xid {self.xid}>"

    @property
    def is_settled(self) -> bool:
        """Whether it was said to be done or failed, and the server has answered."""
        return self.outcome is not None

    @property
    def table(self) -> str:
        return self._batch.table

    @property
    def key(self) -> str:
        return decode_key(self._batch.keys[self._place])

    @property
    def value(self) -> Value:
        return decode_value(self._batch.taken.types[self._place], self._batch.values[self._place])

    @property
    def priority(self) -> int:
        return self._batch.taken.priorities[self._place]

    @property
    def domain(self) -> str:
        """The domain as it was given, or that of the URI in the key."""
        return _domain(self._batch.taken.domains[self._place], self._batch.keys[self._place])

    @property
    def timeouts(self) -> int:
        """How often it failed before, or its worker took too long."""
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
        """The number that it has for as long as it lives."""
        return self._batch.taken.rows[self._place]

    @property
    def xid(self) -> int:
        """The number of this lease; 0 if it was taken with done=True."""
        first_xid = self._batch.taken.first_xid
        return first_xid + self._place if first_xid else 0

    @property
    def lease_until(self) -> datetime | None:
        """When its lease is over, if no clock is set meanwhile; None if there is no lease."""
        return date_or_none(self._until_us or self._batch.taken.until_us)

    @property
    def lease_us(self) -> int:
        """How long it was taken for, as far as this client can tell."""
        return self._batch.lease_us

    def extend_until(self, until_us: int) -> None:
        """Takes notice of a longer lease."""
        self._until_us = until_us


class JobBatch(Sequence[AnyJob]):
    """The jobs that `next` returns: a sequence, perhaps empty, that makes its objects on demand."""

    __slots__ = ("_keys", "_make", "_values", "lease_us", "table", "taken")

    def __init__(
        self,
        table: str,
        taken: Taken,
        make: Callable[[JobBatch[AnyJob], int], AnyJob],
        now_us: int,
    ) -> None:
        self.table = table
        self.taken = taken  # the columns
        self.lease_us = max(0, taken.until_us - now_us)
        self._make = make
        self._keys: list[bytes] | None = None
        self._values: list[bytes] | None = None

    def __repr__(self) -> str:
        if self:
            return f"<{type(self).__name__} of {len(self)}>"
        return f"<{type(self).__name__} of 0, next at {self.next_at}>"

    @property
    def next_at(self) -> datetime | None:
        """If there are no jobs: when the next one is due, or given back; None if there is none."""
        return date_or_none(self.taken.next_at_us)

    @property
    def xids(self) -> range:
        """The numbers of the leases; nothing if the jobs were taken with done=True."""
        first_xid = self.taken.first_xid
        return range(first_xid, first_xid + len(self) if first_xid else 0)

    @property
    def keys(self) -> list[bytes]:
        """The column of keys, as they were pushed."""
        if self._keys is None:
            self._keys = self.taken.keys.rows()
        return self._keys

    @property
    def values(self) -> list[bytes]:
        """The column of values; `taken.types` says of which types they are."""
        if self._values is None:
            self._values = self.taken.values.rows()
        return self._values

    def __len__(self) -> int:
        return len(self.taken.types)

    @overload
    def __getitem__(self, place: int) -> AnyJob: ...
    @overload
    def __getitem__(self, place: slice) -> list[AnyJob]: ...
    def __getitem__(self, place: int | slice) -> AnyJob | list[AnyJob]:
        places = range(len(self))[place]
        if isinstance(places, range):
            return [self._make(self, one) for one in places]
        return self._make(self, places)

    def __iter__(self) -> Iterator[AnyJob]:
        return (self._make(self, place) for place in range(len(self)))


# -- replies --------------------------------------------------------------------------------------


def read_jobs(page: JobPage, state: State) -> list[JobInfo]:
    """Returns waiting or taken jobs of a page."""
    return [JobInfo(**_fields(page, row, state)) for row in range(len(page.types))]


def read_dead(page: JobPage) -> list[DeadJob]:
    return [
        DeadJob(
            **_fields(page, row, State.DEAD),
            reason=page.reasons[row].decode(errors="replace"),
            died_at=date(page.moments_us[row]),
        )
        for row in range(len(page.types))
    ]


def _fields(page: JobPage, row: int, state: State) -> dict[str, Any]:
    key = page.keys[row]
    return {
        "key": decode_key(key),
        "value": decode_value(page.types[row], page.values[row]),
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
    """Returns what a listener is told.

    Raises:
        RemoteProtocolError: if it is of a kind that this program does not know.
    """
    if changed.value not in (ARRIVED, DUE):
        raise RemoteProtocolError(Code.BAD_VALUE, f"a moment of the kind {changed.value!r}")
    return Moment(changed.value.decode(), date(changed.timestamp_us))
