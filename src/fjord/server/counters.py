"""Counters of the daemon; plain integers, since some are incremented for every request."""

from __future__ import annotations

import bisect
import logging
from collections import Counter
from typing import Final

from fjord.commands import FUNCTIONS
from fjord.engine import Engine
from fjord.errors import Code
from fjord.server import logs

# Upper bounds of the buckets of a histogram, in microseconds.
STEPS_US: Final = (
    *(100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000),
    *(100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000),
)


class Histogram:
    """Counts durations by bucket."""

    def __init__(self) -> None:
        self.counts = [0] * (len(STEPS_US) + 1)  # the last one: longer than all bounds
        self.sum_us = 0

    def observe(self, took_us: int) -> None:
        self.counts[bisect.bisect_left(STEPS_US, took_us)] += 1
        self.sum_us += took_us

    @property
    def count(self) -> int:
        return sum(self.counts)


class Counters:
    """Counters since the start of the daemon."""

    def __init__(self) -> None:
        self.requests = [0] * (1 + max(FUNCTIONS))  # by function
        self.refusals: Counter[Code] = Counter()  # requests that were refused, by code
        self.closed: Counter[Code] = Counter()  # connections that were closed, by code
        self.connections = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.changes = 0  # sent to listeners
        self.wakeups = 0  # datagrams that were sent
        self.wakeups_lost = 0  # datagrams that could not be sent
        self.parked_waits = 0  # requests that wait for jobs or messages now
        self.jobs_died = 0  # jobs that died
        self.jobs_died_by_table: dict[str, int] = {}  # the same, for existing tables
        self.groups = Histogram()  # from the first command to the last reply
        self.syncs = Histogram()
        self.upkeep = Histogram()  # steps


def count_deaths(engine: Engine, counters: Counters) -> None:
    """Logs and counts the jobs that have died since the last call, so that somebody looks.

    A job dies when it failed or timed out too often, or was buried by hand.  All jobs of a table
    that died since the last call share one log line.
    """
    deaths = engine.job_deaths()
    for table, died in deaths.items():
        new = died - counters.jobs_died_by_table.get(table, 0)
        if new > 0:
            counters.jobs_died += new
            dead = engine.job_counts()[table][2]
            logs.note(logging.WARNING, "jobs are dead", table=table, dead=dead, new=new)
    counters.jobs_died_by_table = deaths
