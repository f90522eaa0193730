"""Waiting for jobs, messages or changes: who waits, and who is woken or notified.

    runs --- found nothing ---> parked <---------------------------------+
     ^                            |                                      |
     |            something came, or a date was reached            found nothing
     |                            v                                      |
     |                          woken: runs again -----------------------+
     |                            |
     |                            +--- found something, or is gone ---> over
     +--- its peer reads replies again --- aside: its peer read none, others had their turn

The engine never waits: a NEXT or READ is answered at once, with nothing if there is nothing.  These
are the rules for requests that want to wait, for the daemon's requests and Embedded's threads.
Nothing here reads a clock, locks or sends: moments are passed in, and `Waits.take_woken` returns
the requests to run again.

A job is for one worker.  Requests queue by table, and by domain if they ask for one; first come,
first served.  While no request of a queue is woken, nothing is due there.  Few are woken in vain: k
arrived jobs wake requests that ask for k jobs together.  How many jobs a date brings is not known,
nor the domains of arrived jobs: then one request is woken, and whenever the last woken request has
found something, twice as many as the time before.

Messages are for everybody: a READ that finds nothing is parked by its table alone, and any message
wakes all requests that are parked there.

Changes are matched with the listenings at the time when a group ran, and sent when it is durable,
unless a listening has ended meanwhile.  A jobs table is listened to as a whole, as if it were one
key that no value can have; the engine always reports jobs.
"""

from __future__ import annotations

import enum
import heapq
import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from fjord import commands, kinds, limits
from fjord.commands import Changed, Command, Next, Read, Refusal, Reply
from fjord.engine.engine import Engine
from fjord.engine.news import Arrival
from fjord.tables import catalog
from fjord.values import Type

K = TypeVar("K", bound=Hashable)
W = TypeVar("W", bound="Wait")

Arrivals = Mapping[str, Arrival]  # by table
TableKey = tuple[str, bytes]  # a table, and a domain or a key of it
# Listening to a jobs table uses a key that no value can have.
JOBS_KEY: Final = b""
# How many entries of a heap may be out of date before they are removed.
_STALE_MAX: Final = 64
_LOOK_US: Final = round(limits.WALL_LOOK_SECONDS_MAX * 1_000_000)


class Stage(enum.Enum):
    """The stage of a request."""

    RUNNING = enum.auto()  # for the first time, or after it was aside: it may be parked
    PARKED = enum.auto()
    WOKEN = enum.auto()  # it is run again, since there may be something
    ASIDE = enum.auto()  # its peer does not read replies
    LAST = enum.auto()  # it is run, and answered with any result
    ENDED = enum.auto()  # it is run, but its peer may be gone


@dataclass(slots=True, kw_only=True, eq=False)
class Wait:
    """A running request that may wait."""

    command: Command
    deadline_us: int  # monotonic; 0: it does not wait
    nothing: Reply | None = None  # the reply with which it was parked
    stage: Stage = Stage.RUNNING


def found_nothing(command: Command, reply: Reply) -> bool:
    """Returns whether a NEXT, or a READ without an end, found nothing, which may change."""
    if type(reply) is commands.Taken:
        return len(reply.rows) == 0
    is_empty = type(reply) is commands.Messages and reply.rows == 0
    return is_empty and type(command) is Read and command.until == 0


class Waits(Generic[W]):
    """All requests that wait for jobs or messages."""

    def __init__(self) -> None:
        self._lines: Lines[W] = Lines()
        self._readers: dict[str, dict[W, None]] = {}  # requests that wait for messages, by table
        self._deadlines: Ranked[W] = Ranked()  # of the parked ones
        self._woken: list[W] = []
        self.aside: dict[W, None] = {}
        self._is_stopped = False

    @property
    def parked(self) -> int:
        """The number of parked requests."""
        return len(self._deadlines)

    def settle(self, wait: W, reply: Reply, now_us: int, *, may_wait: bool = True) -> bool:
        """Takes the result of a run; returns whether the request is parked, else it is over."""
        if (
            wait.stage in _PARKING
            and found_nothing(wait.command, reply)
            and now_us < wait.deadline_us
            and may_wait
            and not self._is_stopped
        ):
            self._park(wait, reply)
            return True
        if wait.nothing is not None:
            self.leave(wait)
        return False

    def arrive(self, arrivals: Arrivals, wall_us: int) -> None:
        """Wakes requests that may find newly waiting jobs."""
        self._wake(self._lines.arrive(arrivals, wall_us))

    def append(self, tables: Iterable[str]) -> None:
        """Wakes all requests that wait for messages of these tables."""
        self._wake([reader for table in tables for reader in self._readers.pop(table, ())])

    def reach(self, wall_us: int) -> None:
        """Wakes requests that wait for a date that has come."""
        self._wake(self._lines.reach(wall_us))

    def expire(self, now_us: int) -> list[W]:
        """Ends the waits that have timed out; returns those that are answered with nothing.

        The others have their last run: there may be jobs for which others were woken.
        """
        over: list[W] = []
        while (wait := self._deadlines.pop(now_us)) is not None:
            self.leave(wait)
            wait.stage = Stage.LAST
            (over if isinstance(wait.command, Read) else self._woken).append(wait)
        return over

    def set_aside(self, wait: W) -> None:
        """Puts a woken request aside, since its peer takes no replies; others take its turn."""
        self.leave(wait)
        wait.stage = Stage.ASIDE
        self.aside[wait] = None

    def resume(self, wait: W) -> None:
        """Runs a request again that was aside."""
        del self.aside[wait]
        wait.stage = Stage.RUNNING
        self._woken.append(wait)

    def end(self, wait: W) -> Reply | None:
        """Ends a wait; returns its answer, None if that comes from the current run."""
        if wait.stage in _IDLE:
            self.leave(wait)
            return wait.nothing
        if wait.stage is Stage.WOKEN:
            wait.stage = Stage.ENDED
        return None

    def leave(self, wait: W) -> None:
        """Ends a wait, and wakes others in its place if it was woken."""
        self._deadlines.discard(wait)
        self.aside.pop(wait, None)
        if isinstance(wait.command, Read):
            parked = self._readers.get(wait.command.table, {})
            parked.pop(wait, None)
            if not parked:
                self._readers.pop(wait.command.table, None)
        else:
            self._wake(self._lines.leave(wait))

    def wake_all(self) -> None:
        """Wakes all parked requests, so that they see the error."""
        self._wake(self._lines.wake_all())
        self.append(list(self._readers))

    def stop(self) -> None:
        """No request is parked from now on."""
        self._is_stopped = True

    def take_woken(self) -> list[W]:
        """Returns the requests to run again, once."""
        woken, self._woken = self._woken, []
        return woken

    def deadline_us(self) -> int | None:
        """Returns when to call `expire`, by the monotonic clock."""
        return self._deadlines.first()

    def look_us(self, wall_us: int) -> int | None:
        """Returns when to call `reach`: at the next date, or soon since the clock may be set."""
        return self._lines.look_us(wall_us)

    def _park(self, wait: W, reply: Reply) -> None:
        wait.nothing = reply
        wait.stage = Stage.PARKED
        self._deadlines.put(wait, wait.deadline_us)
        if isinstance(wait.command, Read):
            self._readers.setdefault(wait.command.table, {})[wait] = None
        else:
            assert isinstance(wait.command, Next)
            assert isinstance(reply, commands.Taken)
            self._lines.park(wait, wait.command, reply.next_at_us)

    def _wake(self, waits: Iterable[W]) -> None:
        for wait in waits:
            self._deadlines.discard(wait)
            wait.stage = Stage.WOKEN
            self._woken.append(wait)


# Not being run.
_IDLE: Final = frozenset({Stage.PARKED, Stage.ASIDE})
# A request that finds nothing at such a stage may be parked.
_PARKING: Final = frozenset({Stage.RUNNING, Stage.WOKEN})


# -- waiting for jobs and messages ----------------------------------------------------------------


class _Ticket(NamedTuple):
    """The place of a request in the queue, and what it asks for."""

    number: int
    place: TableKey
    jobs: int  # how many it asks for


@dataclass(slots=True, eq=False)
class _Line(Generic[K]):
    """The requests that wait at one place."""

    parked: Ranked[K] = field(default_factory=lambda: Ranked())  # by ticket
    woken: int = 0
    width: int = 0  # how many were woken in the last round that was a guess

    def wake(self, count: int) -> list[K]:
        """Wakes up to `count` requests."""
        woken: list[K] = []
        while len(woken) < count and (waiter := self.parked.pop()) is not None:
            woken.append(waiter)
        self.woken += len(woken)
        return woken


class Lines(Generic[K]):
    """Requests that wait for jobs.  Returned ones are woken: they take, then park or leave."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[bytes, _Line[K]]] = {}
        self.tickets: dict[K, _Ticket] = {}  # of all waiting requests, parked or woken
        self._numbers = itertools.count(1)
        self._dates: Ranked[TableKey] = Ranked()  # when something is due next

    def park(self, waiter: K, command: Next, next_at_us: int) -> None:
        """Parks a request that found nothing: in its old place if it was woken, else at the end."""
        ticket = self.tickets.get(waiter)
        place = (command.table, command.domain)
        line = self._lines.setdefault(command.table, {}).setdefault(command.domain, _Line())
        if ticket is None:
            jobs = command.count or limits.NEXT_COUNT_MAX
            ticket = self.tickets[waiter] = _Ticket(next(self._numbers), place, jobs)
        else:
            line.woken -= 1
            line.width = 0
        assert waiter not in line.parked
        line.parked.put(waiter, ticket.number)
        if next_at_us:
            self._dates.put(place, next_at_us)
        else:
            self._dates.discard(place)

    def leave(self, waiter: K) -> list[K]:
        """Removes a request that found jobs, or is gone; returns those woken for it."""
        ticket = self.tickets.pop(waiter, None)
        if ticket is None:
            return []
        table, domain = ticket.place
        line = self._lines[table][domain]
        woken: list[K] = []
        if waiter in line.parked:
            line.parked.discard(waiter)
        else:
            line.woken -= 1
            if not line.woken:  # it was the last one, and did not report that nothing is there
                line.width = 2 * line.width or 1
                woken = line.wake(line.width)
        if not line.woken and not line.parked:
            self._close(table, domain)
        return woken

    def arrive(self, arrivals: Arrivals, now_us: int) -> list[K]:
        """Records newly waiting jobs; returns the requests woken for them."""
        woken: list[K] = []
        for table, arrival in arrivals.items():
            for domain, line in self._lines.get(table, {}).items():
                if arrival.first_us > now_us:
                    self._lower((table, domain), arrival.first_us)
                elif domain:
                    woken += line.wake(1)
                else:
                    woken += self._wake_for(line, arrival.rows)
        return woken

    def reach(self, now_us: int) -> list[K]:
        """Returns the requests woken because a date was reached."""
        woken: list[K] = []
        while (place := self._dates.pop(now_us)) is not None:
            woken += self._lines[place[0]][place[1]].wake(1)
        return woken

    def wake_all(self) -> list[K]:
        """Wakes and returns all parked requests."""
        lines = [line for some in self._lines.values() for line in some.values()]
        return [waiter for line in lines for waiter in line.wake(len(line.parked))]

    def look_us(self, now_us: int) -> int | None:
        """Returns when to call `reach`: at the next date, or soon since the clock may be set."""
        return _look_us(self._dates.first(), now_us)

    def _wake_for(self, line: _Line[K], jobs: int) -> list[K]:
        """Wakes as many requests as it takes to ask for so many jobs."""
        woken: list[K] = []
        while jobs > 0 and (some := line.wake(1)):
            woken += some
            jobs -= self.tickets[some[0]].jobs
        return woken

    def _lower(self, place: TableKey, date_us: int) -> None:
        known_us = self._dates.rank(place)
        if known_us is None or date_us < known_us:
            self._dates.put(place, date_us)

    def _close(self, table: str, domain: bytes) -> None:
        lines = self._lines[table]
        del lines[domain]
        if not lines:
            del self._lines[table]
        self._dates.discard((table, domain))


# -- listening ------------------------------------------------------------------------------------


def jobs_problem(engine: Engine, name: str) -> Refusal | None:
    """Returns the refusal for a table that is not a jobs table; it may be created later."""
    table = engine.tables.get(name)
    if table is None:
        return commands.name_problem(name)
    return None if table.kind is kinds.Kind.JOBS else catalog.other_kind(table)


@dataclass(slots=True, eq=False)
class Listening(Generic[K]):
    """The keys that one request listens to."""

    listener: K
    identifier: int  # of the request that began it
    keys: set[TableKey] = field(default_factory=set)
    is_over: bool = False


class Listeners(Generic[K]):
    """All listenings.

    The engine watches a key while at least one listening has it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._by_key: dict[TableKey, dict[Listening[K], None]] = {}
        self._by_listener: dict[K, dict[int, Listening[K]]] = {}
        # The next process date of each jobs table with listeners.
        self._dates: Ranked[str] = Ranked()
        self.keys = 0  # over all listenings
        self.hears_all = False  # changes of all jobs tables are reported, listeners or not

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._by_listener))

    def __contains__(self, listener: K) -> bool:
        return listener in self._by_listener

    def add(self, listener: K, identifier: int, table: str, keys: Iterable[bytes]) -> int:
        """Begins to listen to these keys; returns how many of them are new to the listening."""
        mine = self._by_listener.setdefault(listener, {})
        listening = mine.setdefault(identifier, Listening(listener, identifier))
        before = len(listening.keys)
        for key in keys:
            place = (table, key)
            listening.keys.add(place)
            others = self._by_key.setdefault(place, {})
            if not others and key != JOBS_KEY:
                self._engine.watched.add(table, key)
            others[listening] = None
        added = len(listening.keys) - before
        self.keys += added
        return added

    def end(self, listener: K, identifier: int) -> int | None:
        """Ends a listening; returns how many keys it had, None if it does not exist."""
        mine = self._by_listener.get(listener, {})
        listening = mine.pop(identifier, None)
        if listening is None:
            return None
        if not mine:
            del self._by_listener[listener]
        listening.is_over = True
        for place in listening.keys:
            self._forget(place, listening)
        self.keys -= len(listening.keys)
        return len(listening.keys)

    def drop(self, listener: K) -> None:
        """Ends all listenings of a listener."""
        for identifier in list(self._by_listener.get(listener, {})):
            self.end(listener, identifier)

    def match(self, changes: Iterable[Changed]) -> list[tuple[Listening[K], Changed]]:
        """Returns each change with the listenings that it concerns."""
        return [
            (listening, change)
            for change in changes
            for listening in self._by_key.get((change.table, change.key), ())
        ]

    def arrive(self, arrivals: Arrivals, wall_us: int) -> list[Changed]:
        """Records newly waiting jobs; returns the changes to send."""
        heard = [one for one in arrivals if self.hears_all or (one, JOBS_KEY) in self._by_key]
        for table in heard:
            self.look(table, wall_us)
        return [moment(table, commands.ARRIVED, wall_us) for table in heard]

    def look(self, table: str, wall_us: int) -> None:
        """Finds the next date of a jobs table: when it is listened to, and when jobs arrived.

        The date is reported when it comes, even if its job is gone by then: a job taken at that
        very moment is no reason to stay silent.
        """
        known_us = self._dates.rank(table)
        if known_us is not None and known_us <= wall_us:
            return  # that is reported first, and then this runs again
        date_us = self._engine.first_date_us(table, wall_us)
        if date_us is None:
            self._dates.discard(table)
        else:
            self._dates.put(table, date_us)

    def reach(self, wall_us: int) -> list[Changed]:
        """Returns the changes to send for tables whose date was reached."""
        tables = list(iter(lambda: self._dates.pop(wall_us), None))
        for table in tables:
            self.look(table, wall_us)
        return [moment(table, commands.DUE, wall_us) for table in tables]

    def look_us(self, wall_us: int) -> int | None:
        """Returns when to call `reach`: at the next date, or soon since the clock may be set."""
        return _look_us(self._dates.first(), wall_us)

    def _forget(self, place: TableKey, listening: Listening[K]) -> None:
        others = self._by_key[place]
        del others[listening]
        if others:
            return
        del self._by_key[place]
        if place[1] != JOBS_KEY:
            self._engine.watched.discard(*place)
        elif not self.hears_all:
            self._dates.discard(place[0])


def moment(table: str, what: bytes, wall_us: int) -> Changed:
    """Returns the change that is sent to listeners of a jobs table."""
    return Changed(table, JOBS_KEY, Type.STRING, what, wall_us, 0)


# -- the parts ------------------------------------------------------------------------------------


class Ranked(Generic[K]):
    """Items by rank, the smallest first; items can be re-ranked and removed."""

    def __init__(self) -> None:
        self._ranks: dict[K, int] = {}
        # Rank, a unique number, and the item; out of date if the item has another rank by now.
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
        """Removes the first item, if its rank is not larger than this, and returns it."""
        first = self.first()
        if first is None or first > rank_max:
            return None
        thing = heapq.heappop(self._heap)[2]
        del self._ranks[thing]
        return thing

    def _is_current(self, entry: tuple[int, int, K]) -> bool:
        return self._ranks.get(entry[2]) == entry[0]


def _look_us(date_us: int | None, wall_us: int) -> int | None:
    return None if date_us is None else min(date_us, wall_us + _LOOK_US)
