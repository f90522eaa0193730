"""A worker in a process of its own, which is killed and stopped at any moment by test_workers.py.

It writes down what it is about to ask before it asks, and what came of it after; one line each,
appended in one write, so that whoever reads the file knows what was under way when it died.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import select
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import fjord
from fjord.client.blocking.jobs import Job, Jobs
from fjord.client.jobs.records import JobBatch
from tests.invariants.histories import Event, Failed, Finished, Outcome, Taken, Touched, to_line

LEASE_SECONDS = 1.0
LEASE_US = round(LEASE_SECONDS * 1_000_000)
COUNT_MAX = 5
# A call outlives the restart of its daemon.
TIMEOUT_SECONDS = 120.0
BEGUN = "begun"


def now() -> int:
    """Monotonic microseconds: one clock for all processes of a machine."""
    return time.monotonic_ns() // 1000


class Notes:
    """The file of one worker."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def begin(self, *events: Event) -> None:
        """Notes what is about to be asked, as it will be if no answer comes."""
        if events:
            self._write({BEGUN: [to_line(event) for event in events]})

    def end(self, *events: Event) -> None:
        ended, wall_us = now(), time.time_ns() // 1000
        lines = [to_line(replace(event, ended=ended, wall_us=wall_us)) for event in events]
        if lines:
            self._append("".join(f"{line}\n" for line in lines))

    def _write(self, what: dict[str, Any]) -> None:
        self._append(json.dumps(what) + "\n")

    def _append(self, text: str) -> None:
        data = text.encode()
        assert os.write(self._file, data) == len(data)


class Worker:
    """Takes jobs, finishes most of them, fails some, and lets some wait for a while."""

    def __init__(self, jobs: Jobs, name: str, notes: Notes, progress: int) -> None:
        self._jobs = jobs
        self._name = name
        self._notes = notes
        self._progress = progress  # a pipe: one byte for each job that is done
        self._random = random.Random(name)
        self._calls = itertools.count(int(name) * 1_000_000)

    def run(self) -> None:
        while True:
            taken = self._take()
            steps = [self._finish_all, self._finish_each, self._touch_then_finish, self._fail_first]
            self._random.choice(steps)(list(taken))

    def _take(self) -> JobBatch[Job]:
        began, call = now(), next(self._calls)
        count = self._random.randint(1, COUNT_MAX)
        taken = self._jobs.next(count=count, lease=LEASE_SECONDS, wait=1)
        self._notes.end(*(self._taken(job, began, call) for job in taken))
        return taken

    def _taken(self, job: Job, began: int, call: int) -> Taken:
        return Taken(
            began=began,
            ended=began,
            call=call,
            xid=job.xid,
            row=job.row,
            key=job.key.encode(),
            value=job.value if isinstance(job.value, bytes) else b"",
            worker=self._name,
            priority=job.priority,
            process_at_us=microseconds(job.process_at.timestamp()),
            inserted_us=microseconds(job.inserted_at.timestamp()),
            timeouts=job.timeouts,
            lease_us=LEASE_US,
        )

    def _finish_all(self, jobs: Sequence[Job]) -> None:
        self._ask(jobs, lambda xid, began: Finished(began=began, ended=began, xid=xid), self._done)

    def _finish_each(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._finish_all([job])

    def _touch_then_finish(self, jobs: Sequence[Job]) -> None:
        self._ask(
            jobs,
            lambda xid, began: Touched(began=began, ended=began, xid=xid, lease_us=LEASE_US),
            lambda some: self._jobs.touch_many(some, lease=LEASE_SECONDS),
        )
        self._finish_each(jobs)

    def _fail_first(self, jobs: Sequence[Job]) -> None:
        delay = self._random.choice([0, 0.1])
        self._ask(
            jobs[:1],
            lambda xid, began: Failed(began=began, ended=began, xid=xid),
            lambda some: self._jobs.fail_many(some, delay=delay, reason="as it happens"),
        )
        self._finish_all(jobs[1:])

    def _done(self, jobs: Sequence[Job]) -> Sequence[Job]:
        late = self._jobs.done_many(jobs)
        os.write(self._progress, bytes(len(jobs) - len(late)))
        return late

    def _ask(
        self,
        jobs: Sequence[Job],
        event: Callable[[int, int], Finished | Touched | Failed],
        ask: Callable[[Sequence[Job]], Sequence[Job]],
    ) -> None:
        if not jobs:
            return
        began = now()
        events = [event(job.xid, began) for job in jobs]
        self._notes.begin(*events)
        late = {job.xid for job in ask(jobs)}
        self._notes.end(
            *(
                replace(one, outcome=Outcome.REFUSED if one.xid in late else Outcome.OK)
                for one in events
            )
        )


def microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


def connect(url: str) -> fjord.Database:
    """Connects as soon as there is a daemon, which may be about to start again."""
    while True:
        try:
            return fjord.connect(url, timeout=TIMEOUT_SECONDS)
        except fjord.UnavailableError:
            select.select([], [], [], 0.05)


def main() -> None:
    url, table, name, path, progress = sys.argv[1:]
    with connect(url) as db:
        Worker(db.jobs(table), name, Notes(path), int(progress)).run()


if __name__ == "__main__":
    main()
