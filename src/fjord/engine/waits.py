"""Who waits for jobs or for messages, and who is woken when there may be some.

    takes for the first time --- found nothing ---> parked <--------------------+
                                                      |                         |
                            jobs arrived, or a date was reached           found nothing
                                                      v                         |
                                                    woken: takes again ---------+
                                                      |
                                                      +--- found jobs, or is gone ---> over

The engine never waits: a NEXT is answered at once, with nothing if nothing is due.  These are the
rules for those who want to wait, used by the server for requests and by Embedded for threads.

Waiters stand in line by table, and by domain if they ask for one; first come, first served.
While nobody of a line is woken, nothing is due there.  Few are woken in vain: k jobs that arrived
wake so many that these ask for k jobs together.  How many jobs a date brings is not known, nor
whose domain jobs are of that arrived: then one is woken, and whenever the last of the woken has
found something, twice as many as the time before.

Messages are for everybody: a READ that finds nothing is parked by its table alone, and whatever
comes wakes all that are parked there.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, Generic, Protocol, TypeVar

from fjord import kinds, limits
from fjord.commands import (
    DUE,
    Changed,
    Command,
    Messages,
    Next,
    Read,
    Refusal,
    Reply,
    Taken,
    name_problem,
)
from fjord.engine.dates import Arrival
from fjord.tables import catalog
from fjord.tables.state import Table
from fjord.values import Type

K = TypeVar("K", bound=Hashable)
W = TypeVar("W", bound="Waiter")
R = TypeVar("R", bound=Hashable)

Place = tuple[str, bytes]  # a table, and the domain that is asked for
# Jobs tables are listened to as a whole, under a key that no value can have.
JOBS_KEY: Final = b""
# So many entries of a heap may be out of date before they are swept.
_STALE_MAX: Final = 64
_LOOK_US: Final = round(limits.WALL_LOOK_SECONDS_MAX * 1_000_000)


class Waiter(Protocol):
    """Whoever waits: a request, or a thread."""

    @property
    def command(self) -> Next: ...

    def __hash__(self) -> int: ...


Arrivals = Mapping[str, Arrival]  # by table


def jobs_problem(tables: Mapping[str, Table], name: str) -> Refusal | None:
    """Says that a table has no jobs to wait for, or None; one that is not there yet may have."""
    table = tables.get(name)
    return name_problem(name) if table is None else catalog.wrong_kind(table, kinds.Kind.JOBS)


def is_empty(reply: Reply) -> bool:
    """Says that a NEXT found nothing, which may change."""
    return type(reply) is Taken and len(reply.rows) == 0


def is_read_empty(command: Command, reply: Reply) -> bool:
    """Says that a READ found nothing, which may change: it asks for whatever there is."""
    return (
        type(reply) is Messages and reply.rows == 0 and type(command) is Read and command.until == 0
    )


def moment(table: str, what: bytes, now_us: int) -> Changed:
    """Returns what listeners of a jobs table are told."""
    return Changed(table, JOBS_KEY, Type.STRING, what, now_us, 0)


class Ranked(Generic[K]):
    """Things by rank, the smallest first; each may get another rank, or be taken away."""

    def __init__(self) -> None:
        self._ranks: dict[K, int] = {}
        # Rank, a number that differs, and the thing; out of date if its rank is another by now.
        self._heap: list[tuple[int, int, K]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._ranks)

    def __contains__(self, thing: K) -> bool:
        return thing in self._ranks

    def rank(self, thing: K) -> int | None:
        return self._ranks.get(thing)

    def put(self, thing: K, rank: int) -> None:
        if self._ranks.get(thing) == rank:
            return
        self._ranks[thing] = rank
        heapq.heappush(self._heap, (rank, next(self._numbers), thing))
        if len(self._heap) > 2 * len(self._ranks) + _STALE_MAX:
            self._heap = [entry for entry in self._heap if self._is_current(entry)]
            heapq.heapify(self._heap)

    def discard(self, thing: K) -> None:
        self._ranks.pop(thing, None)

    def first(self) -> int | None:
        """Returns the smallest rank, None if there is nothing."""
        heap = self._heap
        while heap and not self._is_current(heap[0]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop(self, rank_max: float = float("inf")) -> K | None:
        """Takes the first thing away, if its rank is not larger than this."""
        first = self.first()
        if first is None or first > rank_max:
            return None
        thing = heapq.heappop(self._heap)[2]
        del self._ranks[thing]
        return thing

    def _is_current(self, entry: tuple[int, int, K]) -> bool:
        return self._ranks.get(entry[2]) == entry[0]


class _Line(Generic[W]):
    """Who waits at one place."""

    __slots__ = ("parked", "width", "woken")

    def __init__(self) -> None:
        self.parked: Ranked[W] = Ranked()  # by ticket
        self.woken = 0
        self.width = 0  # how many were woken in the last round that was a guess


class Waits(Generic[W]):
    """All lines.  Whoever is returned has been woken: it takes again, then parks or leaves."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[bytes, _Line[W]]] = {}
        self.tickets: dict[W, int] = {}  # of all who wait, parked or woken
        self._numbers = itertools.count(1)
        self._dates: Ranked[Place] = Ranked()  # when something is due next

    def park(self, waiter: W, next_at_us: int) -> None:
        """Takes in one that found nothing: in its old place if it was woken, else behind all."""
        place = _place(waiter)
        line = self._lines.setdefault(place[0], {}).setdefault(place[1], _Line())
        ticket = self.tickets.get(waiter)
        if ticket is None:
            ticket = self.tickets[waiter] = next(self._numbers)
        else:
            line.woken -= 1
            line.width = 0
        assert waiter not in line.parked
        line.parked.put(waiter, ticket)
        if next_at_us:
            self._dates.put(place, next_at_us)
        else:
            self._dates.discard(place)

    def leave(self, waiter: W) -> list[W]:
        """Takes leave of one that found jobs, or is gone; returns who is woken for that."""
        if self.tickets.pop(waiter, None) is None:
            return []
        table, domain = _place(waiter)
        line = self._lines[table][domain]
        woken: list[W] = []
        if waiter in line.parked:
            line.parked.discard(waiter)
        else:
            line.woken -= 1
            if not line.woken:  # it was the last, and did not say that nothing is there
                line.width = 2 * line.width or 1
                woken = _wake(line, line.width)
        if not line.woken and not line.parked:
            self._close(table, domain)
        return woken

    def arrive(self, arrivals: Arrivals, now_us: int) -> list[W]:
        """Takes note of jobs that began to wait; returns who is woken."""
        woken: list[W] = []
        for table, arrival in arrivals.items():
            for domain, line in self._lines.get(table, {}).items():
                if arrival.first_us > now_us:
                    self._lower((table, domain), arrival.first_us)
                elif domain:
                    woken += _wake(line, 1)
                else:
                    woken += _wake_for(line, arrival.rows)
        return woken

    def reach(self, now_us: int) -> list[W]:
        """Returns who is woken because a date was reached."""
        woken: list[W] = []
        while (place := self._dates.pop(now_us)) is not None:
            woken += _wake(self._lines[place[0]][place[1]], 1)
        return woken

    def rouse(self) -> list[W]:
        """Returns all that are parked: they are woken to find out by themselves what is wrong."""
        woken: list[W] = []
        for lines in self._lines.values():
            for line in lines.values():
                woken += _wake(line, len(line.parked))
        return woken

    def look_us(self, now_us: int) -> int | None:
        """Returns when to call `reach`: at the next date, or soon if the clock may be set."""
        return _look_us(self._dates.first(), now_us)

    def _lower(self, place: Place, date_us: int) -> None:
        known_us = self._dates.rank(place)
        if known_us is None or date_us < known_us:
            self._dates.put(place, date_us)

    def _close(self, table: str, domain: bytes) -> None:
        lines = self._lines[table]
        del lines[domain]
        if not lines:
            del self._lines[table]
        self._dates.discard((table, domain))


def _place(waiter: Waiter) -> Place:
    return waiter.command.table, waiter.command.domain


def _wake(line: _Line[W], count: int) -> list[W]:
    """Wakes so many, as far as there are."""
    woken: list[W] = []
    while len(woken) < count and (waiter := line.parked.pop()) is not None:
        woken.append(waiter)
    line.woken += len(woken)
    return woken


def _wake_for(line: _Line[W], jobs: int) -> list[W]:
    """Wakes as many as it takes to ask for so many jobs."""
    woken: list[W] = []
    while jobs > 0 and (some := _wake(line, 1)):
        woken += some
        jobs -= some[0].command.count or limits.NEXT_COUNT_MAX
    return woken


class Readers(Generic[R]):
    """Who waits for messages, by table."""

    def __init__(self) -> None:
        self._parked: dict[str, dict[R, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._parked.values()))

    def park(self, table: str, reader: R) -> None:
        self._parked.setdefault(table, {})[reader] = None

    def leave(self, table: str, reader: R) -> None:
        """Takes leave of one, if it is parked."""
        parked = self._parked.get(table, {})
        parked.pop(reader, None)
        if not parked:
            self._parked.pop(table, None)

    def wake(self, tables: Iterable[str]) -> list[R]:
        """Returns all who wait for messages of these tables; they are parked no more."""
        return [reader for table in tables for reader in self._parked.pop(table, ())]

    def rouse(self) -> list[R]:
        """Returns all that are parked, and parks nobody."""
        return self.wake(list(self._parked))


def _look_us(date_us: int | None, now_us: int) -> int | None:
    return None if date_us is None else min(date_us, now_us + _LOOK_US)


class Dates:
    """The next process date of each table that somebody listens to.

    A date that was taken note of is told of when it comes, even if its job is gone by then:
    whoever took it at that very moment is no reason to say nothing.
    """

    def __init__(self, first_date_us: Callable[[str, int], int | None]) -> None:
        self._first_date_us = first_date_us  # of a table, after a moment
        self._dates: Ranked[str] = Ranked()

    def look(self, table: str, now_us: int) -> None:
        """Takes note of a table's next date: when it is listened to, and when jobs arrived."""
        known_us = self._dates.rank(table)
        if known_us is not None and known_us <= now_us:
            return  # that is told of first, and then there is another look
        date_us = self._first_date_us(table, now_us)
        if date_us is None:
            self._dates.discard(table)
        else:
            self._dates.put(table, date_us)

    def forget(self, table: str) -> None:
        self._dates.discard(table)

    def reach(self, now_us: int) -> list[Changed]:
        """Returns what is to be told of tables whose date was reached."""
        tables: list[str] = []
        while (table := self._dates.pop(now_us)) is not None:
            tables.append(table)
        for table in tables:
            self.look(table, now_us)
        return [moment(table, DUE, now_us) for table in tables]

    def look_us(self, now_us: int) -> int | None:
        """Returns when to call `reach`: at the next date, or soon if the clock may be set."""
        return _look_us(self._dates.first(), now_us)
