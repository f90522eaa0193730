"""Workers that are killed and stopped at any moment, on a daemon that is killed as well.

Jobs are done exactly once, none is lost, none comes before its date, and they come in order.
Three things are held against each other: what producer and workers wrote down, what the journal
says when all is over, and the checkers of tests/invariants, which judge both together.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import fjord
from fjord.cli import journal_reports
from fjord.engine.layout import Layout
from fjord.jobs import How, State
from fjord.journal.inspect import DumpRow
from fjord.tables.jobs import layout
from tests.acceptance.daemon import Daemon
from tests.crash.job_worker import BEGUN, TIMEOUT_SECONDS, now
from tests.invariants import histories
from tests.invariants.checkers import CONCURRENT, violations

ROOT = Path(__file__).resolve().parents[2]
TABLE = "work"
WORKERS = 8
BATCH = 100
SECONDS_MAX = 120.0  # for anything that must happen; far more than it takes
PRIORITIES = (0, 10, 100, 100, 150, 200, 255)
# What the journal says is dated by the wall clock, which may be slewed a little in a round.
SLACK_US = 5_000


# -- those who work -------------------------------------------------------------------------------
# Ops that say nothing of what becomes of a job.
_SAID_OF_OTHERS = frozenset(
    {"CREATE_TABLE", "JOB_TOUCH", "JOB_LEASE", "JOB_UNLEASE", "HISTORY", "BLOCK"}
)


class Crew:
    """Worker processes; one that is killed has a successor at once."""

    def __init__(self, url: str, directory: Path) -> None:
        self._url = url
        self._directory = directory
        self._numbers = itertools.count(1)
        self._reader, self._writer = os.pipe()
        self._workers = [self._start() for _ in range(WORKERS)]
        self._stopped: list[subprocess.Popen[bytes]] = []
        self.killed = 0

    def _start(self) -> subprocess.Popen[bytes]:
        name = str(next(self._numbers))
        words = [self._url, TABLE, name, str(self._directory / f"{name}.jsonl"), str(self._writer)]
        command = [sys.executable, "-m", "tests.crash.job_worker", *words]
        return subprocess.Popen(command, cwd=ROOT, pass_fds=[self._writer])

    def kill(self, dice: random.Random) -> None:
        place = dice.randrange(WORKERS)
        end(self._workers[place])
        self._workers[place] = self._start()
        self.killed += 1

    def stop(self, dice: random.Random) -> None:
        """Lets a worker stand still: when it goes on, its leases may be over."""
        worker = dice.choice(self._workers)
        worker.send_signal(signal.SIGSTOP)
        self._stopped.append(worker)

    def go_on(self) -> None:
        while self._stopped:
            self._stopped.pop().send_signal(signal.SIGCONT)

    def wait_for(self, count: int, seconds: float = 1.0) -> int:
        """Waits until so many more jobs are done, or none is for a while; returns how many."""
        found = 0
        while found < count and select.select([self._reader], [], [], seconds)[0]:
            found += len(os.read(self._reader, count - found))
        return found

    def end(self) -> None:
        self.go_on()
        for worker in self._workers:
            assert worker.poll() is None, "a worker ended by itself"
            end(worker)
        os.close(self._reader)
        os.close(self._writer)


def end(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.wait(timeout=SECONDS_MAX)


class Producer(threading.Thread):
    """Pushes batches of jobs when it is told to, each with dates of the next seconds."""

    def __init__(self, url: str, dice: random.Random, batches: int) -> None:
        super().__init__()
        self._url = url
        self._dice = dice
        self._batches = batches
        self.wanted = threading.Semaphore(0)
        self.pushes: list[histories.Pushed] = []

    def run(self) -> None:
        with fjord.connect(self._url, timeout=TIMEOUT_SECONDS) as db:
            jobs = db.jobs(TABLE)
            for batch in range(self._batches):
                assert self.wanted.acquire(timeout=SECONDS_MAX)
                rows = [self._row(batch, number) for number in range(BATCH)]
                began = now()
                jobs.push_many(rows)
                self.pushes += [self._pushed(batch, row, began, now()) for row in rows]

    def _row(self, batch: int, number: int) -> dict[str, Any]:
        later = timedelta(seconds=self._dice.uniform(0.1, 2.0))
        return {
            "key": f"http://{number % 7}.example.com/{batch}/{number}",
            "value": b"%d/%d" % (batch, number),
            "priority": self._dice.choice(PRIORITIES),
            "process_at": datetime.now(UTC) + later if self._dice.random() < 0.8 else None,
        }

    def _pushed(self, batch: int, row: dict[str, Any], began: int, ended: int) -> histories.Pushed:
        return histories.Pushed(
            began=began,
            ended=ended,
            # Those of a batch come into being at one moment, so there is an order among them.
            producer=f"batch {batch}",
            key=row["key"].encode(),
            value=row["value"],
            priority=row["priority"],
        )


# -- what they say, and what the journal says ------------------------------------------------------


def read_notes(path: Path, ended: int) -> Iterator[histories.Event]:
    """Yields what a worker wrote; what it asked for and got no answer to is unknown."""
    pending: list[histories.Event] = []
    for line in path.read_text().splitlines(keepends=True):
        if not line.endswith("}\n"):
            continue  # it was killed while it wrote that
        if line.startswith(f'{{"{BEGUN}"'):
            pending = [histories.from_line(one) for one in json.loads(line)[BEGUN]]
        else:
            event = histories.from_line(line)
            if not isinstance(event, histories.Taken):
                pending = []
            yield event
    for event in pending:
        assert isinstance(event, histories.Finished | histories.Touched | histories.Failed)
        yield replace(event, ended=ended, outcome=histories.Outcome.UNKNOWN)


@dataclass(slots=True)
class Journal:
    """What the journal says of the table, when all is over."""

    added: list[int]  # rows
    done: list[tuple[int, int]]  # row, xid
    takes: list[histories.Taken]
    timeouts: list[histories.TimedOut]
    returns: list[histories.Failed]  # jobs of replies that found nobody, which the daemon gave back
    others: Counter[str]  # ops that should not be there

    @classmethod
    def read(cls, path: Path, values: dict[bytes, bytes], offset_us: int) -> Journal:
        found = cls([], [], [], [], [], Counter())
        for row in journal_reports.dump(Layout(str(path)), 0, 2**64 - 1, TABLE):
            assert isinstance(row, DumpRow), row
            found._note(row, values, row.wall_us - offset_us)
        return found

    def _note(self, row: DumpRow, values: dict[bytes, bytes], at: int) -> None:
        fields: dict[str, Any] = dict(row.fields)
        began, ended = at - SLACK_US, at + SLACK_US
        if row.op == "JOB_ADD":
            self.added.append(row.seq)
        elif row.op == "JOB_DONE":
            self.done.append((fields["row"], fields["xid"]))
        elif row.op == "JOB_TAKE":
            job = layout.decode(fields["image"])
            self.takes.append(
                histories.Taken(
                    began=began - (row.wall_us - fields["started_us"]),
                    ended=ended,
                    wall_us=row.wall_us,
                    call=-row.seq,
                    xid=row.seq,
                    row=job.row,
                    key=job.key,
                    value=values[job.key],
                    priority=job.priority,
                    process_at_us=job.process_at_us,
                    inserted_us=job.inserted_us,
                    timeouts=job.timeouts,
                    lease_us=fields["lease_us"],
                )
            )
        elif row.op == "JOB_WAIT" and fields["state"] == State.TAKEN:
            if fields["how"] == How.TIMEOUT:
                self.timeouts.append(histories.TimedOut(began=began, ended=ended, xid=fields["at"]))
            elif fields["how"] == How.GIVEN_BACK:
                back = histories.Failed(began=began, ended=ended, xid=fields["at"], counts=False)
                self.returns.append(back)
        elif row.op not in _SAID_OF_OTHERS:
            self.others[row.op] += 1


# -- one round ------------------------------------------------------------------------------------


class Round:
    """Jobs, workers and a daemon, and what happens to them; driven by a seed."""

    def __init__(self, path: Path, seed: int, jobs: int) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.jobs = jobs
        self._path = path
        self._dice = random.Random(seed)
        self._daemon = Daemon(path / "data")
        self._restarts: list[histories.Event] = []
        self._offset_us = time.time_ns() // 1000 - now()

    def run(self) -> tuple[histories.History, Journal, int]:
        """Returns the history, what the journal says, and how many workers were killed."""
        with self._daemon, fjord.connect(self._daemon.url, timeout=TIMEOUT_SECONDS) as db:
            db.create_jobs(TABLE, timeouts_max=254)
            crew = Crew(self._daemon.url, self._path)
            producer = Producer(self._daemon.url, self._dice, self.jobs // BATCH)
            producer.start()
            with contextlib.ExitStack() as stack:
                stack.callback(crew.end)
                self._disturb(crew, producer)
                producer.join(timeout=SECONDS_MAX)
                crew.go_on()
                self._wait_for_the_end(crew, db)
            assert db.jobs(TABLE).count() == (0, 0, 0)
        return (*self._gather(producer), crew.killed)

    def _disturb(self, crew: Crew, producer: Producer) -> None:
        """Kills and stops, between jobs that are done."""
        for step in range(self.jobs // BATCH):
            producer.wanted.release()
            for _ in range(2):
                crew.wait_for(BATCH // 3)
                crew.kill(self._dice)
            if step % 4 == 0:
                crew.go_on()
            if step % 4 == 1:
                crew.stop(self._dice)
            if step % 5 == 2:
                self._kill_daemon()

    def _kill_daemon(self) -> None:
        began, port = now(), self._daemon.port
        self._daemon.kill()
        self._daemon.start(port)
        self._restarts.append(histories.Restarted(began=began, ended=now()))

    def _wait_for_the_end(self, crew: Crew, db: fjord.Database) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while any(db.jobs(TABLE).count()):
            assert time.monotonic() < deadline, "jobs are left"
            crew.wait_for(self.jobs, seconds=0.2)

    def _gather(self, producer: Producer) -> tuple[histories.History, Journal]:
        history: histories.History = [*producer.pushes, *self._restarts]
        for path in sorted(self._path.glob("*.jsonl")):
            history += read_notes(path, now())
        values = {push.key: push.value for push in producer.pushes}
        journal = Journal.read(self._path / "data", values, self._offset_us)
        noted = {event.xid: event for event in history if isinstance(event, histories.Taken)}
        history = [event for event in history if not isinstance(event, histories.Taken)]
        history += dated(journal.takes, noted)
        history += journal.timeouts
        history += journal.returns
        return sorted(history, key=in_order), journal


def in_order(event: histories.Event) -> tuple[int, int, int]:
    """Sorts events by their end, and the jobs of one answer as they stood in it."""
    call, xid = (event.call, event.xid) if isinstance(event, histories.Taken) else (0, 0)
    return event.ended, call, xid


def dated(
    takes: list[histories.Taken], noted: dict[int, histories.Taken]
) -> Iterator[histories.Taken]:
    """Yields all that was handed out, also in replies that nobody noted.

    A worker waits for its answer, so the journal knows better when it began; and it was later
    than what the same job went through before.
    """
    previous: dict[int, int] = {}  # row to begin
    for take in takes:
        told = noted.pop(take.xid, take)
        began = max(told.began, take.began, previous.get(take.row, 0) + 1)
        previous[take.row] = began
        yield replace(told, began=began)
    assert noted == {}, "what was handed out is in the journal"


def check(path: Path, seed: int, jobs: int) -> Counter[str]:
    """Runs a round and asserts all promises; returns what happened in it."""
    history, journal, killed = Round(path, seed, jobs).run()
    found = violations(history, rules=CONCURRENT)
    assert found == [], f"seed {seed}: {len(found)} violations, the first: {found[0]}"
    finished = [event for event in history if isinstance(event, histories.Finished)]
    rows = {take.xid: take.row for take in journal.takes}
    acknowledged = [event.xid for event in finished if event.outcome is histories.Outcome.OK]
    unknown = {rows[event.xid] for event in finished if event.outcome is histories.Outcome.UNKNOWN}
    done = {xid: row for row, xid in journal.done}
    assert len(journal.added) == jobs, "every job was added once"
    assert sorted(done.values()) == sorted(journal.added), "every job was done"
    assert len(journal.done) == jobs, "no job was done twice"
    assert len(acknowledged) == len(set(acknowledged)), "no job was acknowledged twice"
    assert done.keys() >= set(acknowledged), "what was acknowledged is durable"
    assert set(journal.added) - {rows[xid] for xid in acknowledged} <= unknown, "nobody else"
    assert early_ends(history) == [], f"seed {seed}: a lease was over too early"
    assert journal.others == Counter(), "nothing was dropped, buried or moved"
    refused = [event for event in finished if event.outcome is histories.Outcome.REFUSED]
    seen = {
        event.xid for event in history if isinstance(event, histories.Taken) and event.call >= 0
    }
    return Counter(
        done=len(acknowledged),
        unknown=len(unknown),
        stale=len(refused),
        timeouts=len(journal.timeouts),
        given_back=len(journal.returns),
        lost_replies=len(journal.takes) - len(seen),
        workers_killed=killed,
        restarts=sum(isinstance(event, histories.Restarted) for event in history),
    )


def early_ends(history: histories.History) -> list[histories.TimedOut]:
    """Returns leases that were over before their time; what extended them counts."""
    until: dict[int, int] = {}
    for event in history:
        extends = isinstance(event, histories.Touched) and event.outcome is histories.Outcome.OK
        if isinstance(event, histories.Taken | histories.Touched) and (
            extends or isinstance(event, histories.Taken)
        ):
            until[event.xid] = max(until.get(event.xid, 0), event.began + event.lease_us)
    ends = [event for event in history if isinstance(event, histories.TimedOut)]
    return [event for event in ends if event.ended < until[event.xid]]


@pytest.mark.req("FJ-05", "FJ-06", "FJ-13", "FJ-18")
@pytest.mark.req("SJ-07", "SJ-09", "SJ-11", "SJ-12", "SJ-14", "SJ-28")
def test_jobs_are_done_once_whoever_is_killed(tmp_path: Path) -> None:
    happened = check(tmp_path, seed=1, jobs=2_000)
    assert happened["workers_killed"] >= 30
    assert happened["restarts"] >= 4
    assert happened["timeouts"] > 0, "no lease was ever over: the test shows little"


@pytest.mark.soak
def test_rounds_without_end_do_every_job_once(tmp_path: Path, soak_seconds: float) -> None:
    deadline = time.monotonic() + soak_seconds
    total: Counter[str] = Counter()
    for seed in itertools.count(1_000):
        total += check(tmp_path / str(seed), seed, jobs=2_000)
        print(f"seed {seed}: {dict(total)}")
        if time.monotonic() > deadline:
            break
    assert total["done"] > 0
