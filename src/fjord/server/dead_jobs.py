"""Alerts: when jobs have died, the log and the metrics say so.

A job dies when it failed or timed out too often, or was buried by hand; a person should look.  All
that die within a moment are one line of the log; nothing is looked at while nothing is written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final, Protocol

from fjord.clock import Clock
from fjord.server import logs
from fjord.server.alarm import Alarm
from fjord.server.counters import Counters

# Jobs of each table: waiting, taken, dead.
Counts = Mapping[str, tuple[int, int, int]]


class Source(Protocol):
    """Whoever knows of jobs: the engine."""

    def job_counts(self) -> Counts: ...

    def job_deaths(self) -> Mapping[str, int]:
        """Returns how many jobs of each table have died since the start."""
        ...


# Looking at all tables is worth it only so often.
_LOOK_US: Final = 1_000_000


class DeadJobs:
    """Watches how many jobs of each table are dead."""

    def __init__(
        self,
        source: Source,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        counters: Counters,
    ) -> None:
        self._source = source
        self._clock = clock
        self._counters = counters
        self._known: Mapping[str, int] = {}
        self._alarm = Alarm(loop, clock, self.look)

    def note_writes(self) -> None:
        """Looks in a moment."""
        self._alarm.set(self._clock.monotonic_us() + _LOOK_US)

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

    def stop(self) -> None:
        """Looks for the last time."""
        self._alarm.stop()
        self.look()

    def close(self) -> None:
        self._alarm.stop()
