"""What jobs bring about beside replies: waits end, listeners are told, operators are alarmed.

The committer calls `note` when commands or upkeep ran, and `go_on` when the replies were given:
whoever found nothing is parked by then, so that it is woken by what came behind it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fjord.clock import Clock
from fjord.commands import ARRIVED, Changed, Refusal
from fjord.engine.dates import Arrival
from fjord.engine.waits import Arrivals, Dates, jobs_problem, moment
from fjord.server import logs
from fjord.server.alarm import Alarm
from fjord.server.counters import Counters
from fjord.server.listeners import Listeners
from fjord.server.origin import Submit
from fjord.server.waiting import Waiting
from fjord.server.wakeups import Wakeups
from fjord.wire.wakeups import What

# Jobs of each table: waiting, taken, dead.
Counts = Mapping[str, tuple[int, int, int]]


class Deaths(Protocol):
    """What is asked about dead jobs: the engine."""

    def job_counts(self) -> Counts: ...

    def job_deaths(self) -> Mapping[str, int]:
        """Returns how many jobs of each table have died since the start."""
        ...


class DeadJobs:
    """Says in the log and in the metrics when jobs have died: a person should look.

    A job dies when it failed or timed out too often, or was buried by hand.  All that die within a
    moment are one line of the log.
    """

    def __init__(self, source: Deaths, counters: Counters) -> None:
        self._source = source
        self._counters = counters
        self._known: Mapping[str, int] = {}

    def look(self) -> None:
        """Says in which tables jobs have died since the last look."""
        deaths = self._source.job_deaths()
        for table, died in deaths.items():
            new = died - self._known.get(table, 0)
            if new > 0:
                self._counters.jobs_died += new
                dead = self._source.job_counts()[table][2]
                logs.note(logging.WARNING, "jobs are dead", table=table, dead=dead, new=new)
        self._counters.jobs_died_by_table = dict(deaths)
        self._known = deaths


class Source(Deaths, Protocol):
    """Whoever knows of jobs: the engine."""

    @property
    def tables(self) -> Mapping[str, Any]: ...

    def first_date_us(self, table: str, after_us: int, /) -> int | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What it works with."""

    source: Source
    loop: asyncio.AbstractEventLoop
    clock: Clock
    counters: Counters
    listeners: Listeners
    submit: Submit
    tell: Callable[[Sequence[Changed]], None]  # as soon as everything is durable
    on_failure: Callable[[Exception], None]
    wakeups: Wakeups | None = None  # None: none are sent


class JobEvents:
    """Follows what becomes of jobs."""

    def __init__(self, parts: Parts) -> None:
        source, loop, clock = parts.source, parts.loop, parts.clock
        self._source = source
        self._clock = clock
        self._listeners = parts.listeners
        self._tell = parts.tell
        self._wakeups = parts.wakeups
        self._on_failure = parts.on_failure
        self.waiting = Waiting(parts.submit, loop, clock, parts.counters)
        self._dead = DeadJobs(source, parts.counters)
        self._dates = Dates(source.first_date_us)
        self._alarm = Alarm(loop, clock, self._tell_dates)
        self.arrivals: dict[str, Arrival] = {}  # of which nobody who waits knows yet

    def note(self, arrivals: Arrivals) -> Sequence[Changed]:
        """Takes note of jobs that came; returns what listeners are told once they are durable."""
        for table, arrival in arrivals.items():
            known = self.arrivals.get(table)
            self.arrivals[table] = arrival.joined(known) if known else arrival
        if self._wakeups is None and not self._listeners.keys:
            return ()
        now_us = self._clock.wall_us()
        heard = [table for table in arrivals if self._is_heard(table)]
        for table in heard:
            self._dates.look(table, now_us)
            if self._wakeups is not None and arrivals[table].first_us <= now_us:
                self._wakeups.note(table, What.ARRIVED)  # else it will be due
        self._plan()
        return [moment(table, ARRIVED, now_us) for table in heard]

    def look(self) -> None:
        """Says whether jobs have died, a moment after something was written."""
        self._dead.look()

    def go_on(self) -> None:
        """Wakes who waits for what came."""
        arrivals, self.arrivals = self.arrivals, {}
        self.waiting.go_on(arrivals)

    def problem(self, table: str) -> Refusal | None:
        """Says why nobody can listen to a table, or None; one that is not there yet will be."""
        return jobs_problem(self._source.tables, table)

    def listen(self, table: str) -> None:
        """Begins to tell of dates of a table, since somebody listens to it."""
        self._dates.look(table, self._clock.wall_us())
        self._plan()

    def release(self) -> None:
        """Goes on with waits that were set aside."""
        self.waiting.release()

    def stop(self) -> None:
        """Lets nobody wait any more."""
        self.waiting.stop()
        self._dead.look()
        self._alarm.stop()

    def close(self) -> None:
        self.waiting.close()
        self._alarm.stop()

    def _is_heard(self, table: str) -> bool:
        """Says whether anybody is told of a table: who listens, or everybody, by wake-ups."""
        return self._wakeups is not None or self._listeners.has_jobs(table)

    def _plan(self) -> None:
        look_us = self._dates.look_us(self._clock.wall_us())
        if look_us is not None:
            self._alarm.set_wall(look_us)

    def _tell_dates(self) -> None:
        try:
            changes = self._dates.reach(self._clock.wall_us())
        except Exception as error:  # noqa: BLE001 - as for a group of commands
            self._on_failure(error)
            return
        for change in changes:
            if not self._is_heard(change.table):
                self._dates.forget(change.table)
            if self._wakeups is not None:
                self._wakeups.note(change.table, What.DUE)
        self._plan()
        if changes:
            self._tell(changes)
