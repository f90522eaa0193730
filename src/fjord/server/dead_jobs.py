"""Alerts: when jobs have died, the log and the metrics say so.

A job dies when it failed or timed out too often, or was buried by hand; a person should look.  The
numbers are compared a moment after something was written, and not at all while nothing is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from fjord.clock import Clock
from fjord.server import logs
from fjord.server.alarm import Alarm
from fjord.server.counters import Counters

# Jobs of each table: waiting, taken, dead.
Counts = Mapping[str, tuple[int, int, int]]
# Looking at all tables is worth it only so often.
_LOOK_US: Final = 1_000_000


class DeadJobs:
    """Watches how many jobs of each table are dead."""

    def __init__(
        self,
        counts: Callable[[], Counts],
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        counters: Counters,
    ) -> None:
        self._counts = counts
        self._clock = clock
        self._counters = counters
        self._known = {table: dead for table, (_, _, dead) in counts().items()}
        self._alarm = Alarm(loop, clock, self.look)

    def note_writes(self) -> None:
        """Looks in a moment."""
        self._alarm.set(self._clock.monotonic_us() + _LOOK_US)

    def look(self) -> None:
        """Says which tables have more dead jobs than at the last look."""
        found = {table: dead for table, (_, _, dead) in self._counts().items()}
        died = self._counters.jobs_died_by_table
        for table in died.keys() - found.keys():
            del died[table]
        for table, dead in found.items():
            new = dead - self._known.get(table, 0)
            if new > 0:
                self._counters.jobs_died += new
                died[table] = died.get(table, 0) + new
                logs.note(logging.WARNING, "jobs are dead", table=table, dead=dead, new=new)
        self._known = found

    def stop(self) -> None:
        """Looks for the last time."""
        self._alarm.stop()
        self.look()

    def close(self) -> None:
        self._alarm.stop()
