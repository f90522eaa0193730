"""Threads that wait for jobs of an embedded engine, and listeners of its jobs tables."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fjord.commands import ARRIVED, DUE, Changed, Command, ListenJobs, Next, Reply, Taken
from fjord.engine import Embedded, Engine
from fjord.errors import ClosedError, Code, DurabilityError, RefusedError
from fjord.testing import SimClock
from tests.unit.engine.job_records import TABLE, push
from tests.unit.engine.world import open_at, set_command

SECOND_US = 1_000_000
THREAD_SECONDS = 10.0  # how long a thread may take that is under way


class Worker:
    """A thread that takes jobs once."""

    def __init__(self, embedded: Embedded, engine: Engine, command: Next) -> None:
        self._embedded = embedded
        self._command = command
        self._engine = engine
        self._reply: Reply | None = None
        self._error: BaseException | None = None
        self.was_durable = False
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            reply = self._embedded.execute(self._command)
        except BaseException as error:  # noqa: BLE001 - whatever it is, `result` raises it
            self._error = error
            return
        self.was_durable = self._engine.durable_seq == self._engine.applied_seq
        self._reply = reply

    @property
    def is_waiting(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> Taken:
        """Returns what it got."""
        self._thread.join(THREAD_SECONDS)
        assert not self.is_waiting
        if self._error is not None:
            raise self._error
        assert isinstance(self._reply, Taken), self._reply
        return self._reply

    @property
    def jobs(self) -> list[bytes]:
        """Keys of the jobs that it got."""
        return self.result().keys.rows()


class World:
    """An embedded engine in virtual time; it is known when a thread is parked."""

    def __init__(self, engine: Engine, clock: SimClock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine = engine
        self.clock = clock
        self.embedded = Embedded(engine, clock)
        self.runs = 0
        self._parked = threading.Semaphore(0)
        wait, run = self.embedded._wait, engine.run

        def noted_wait(waiter: Any) -> None:
            self._parked.release()
            wait(waiter)

        def counted_run(wanted: Sequence[Command], clients: Sequence[int] = ()) -> list[Reply]:
            self.runs += 1
            return run(wanted, clients)

        monkeypatch.setattr(self.embedded, "_wait", noted_wait)
        monkeypatch.setattr(engine, "run", counted_run)
        while self.embedded.upkeep() <= clock.wall_us():  # whatever a start has to do
            pass

    def worker(self, *, wait: float = 60, lease: float = 60, **options: Any) -> Worker:
        """Returns a thread that has found nothing, and waits."""
        command = Next(
            table=TABLE,
            wait_us=round(wait * SECOND_US),
            lease_us=round(lease * SECOND_US),
            **options,
        )
        worker = Worker(self.embedded, self.engine, command)
        self.wait_parked()
        return worker

    def wait_parked(self) -> None:
        assert self._parked.acquire(timeout=THREAD_SECONDS)

    def push(self, *keys: bytes, delay: float = 0) -> Reply:
        delay_us = round(delay * SECOND_US)
        return self.embedded.execute(push(*keys, now_us=self.clock.wall_us(), delay_us=delay_us))

    def take(self, *, lease: float = 60) -> Taken:
        reply = self.embedded.execute(Next(table=TABLE, lease_us=round(lease * SECOND_US)))
        assert isinstance(reply, Taken)
        return reply

    def pass_time(self, seconds: float) -> None:
        """Lets time pass, and the one thread for upkeep have its turn."""
        self.clock.advance(seconds)
        self.embedded.upkeep()

    def due_in(self) -> float | None:
        """Returns for how long the thread for upkeep sleeps."""
        due_us = self.embedded._ticker._due_us
        return None if due_us is None else (due_us - self.clock.monotonic_us()) / SECOND_US


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    clock = SimClock()
    world = World(open_at(tmp_path, clock), clock, monkeypatch)
    yield world
    world.embedded.close()


# -- waiting --------------------------------------------------------------------------------------


@pytest.mark.req("SJ-28")
def test_a_thread_that_waits_gets_the_job_that_arrives(world: World) -> None:
    worker = world.worker()
    world.push(b"key")
    assert worker.jobs == [b"key"]
    assert worker.was_durable
    assert world.engine.job_counts()[TABLE] == (0, 1, 0)


@pytest.mark.req("FJ-12", "FJ-28")
def test_a_thread_sleeps_until_the_very_moment_and_nothing_polls(world: World) -> None:
    world.push(b"key", delay=25)
    worker = world.worker()
    assert world.due_in() == 25
    runs = world.runs
    world.pass_time(24.999)
    assert worker.is_waiting
    assert world.runs == runs
    world.pass_time(0.001)
    assert worker.jobs == [b"key"]
    assert world.runs == runs + 1


def test_one_job_wakes_one_thread(world: World) -> None:
    workers = [world.worker() for _ in range(5)]
    runs = world.runs
    world.push(b"first")
    assert workers[0].jobs == [b"first"]
    world.wait_parked()  # one has looked whether there are more
    assert world.runs - runs == 3  # the push, the job, the look
    assert all(worker.is_waiting for worker in workers[1:])
    world.push(*(b"key-%d" % number for number in range(4)))
    found = sorted(key for worker in workers[1:] for key in worker.jobs)
    assert found == [b"key-%d" % number for number in range(4)]


def test_closing_ends_waits(world: World) -> None:
    workers = [world.worker(), world.worker()]
    world.embedded.close()
    for worker in workers:
        with pytest.raises(ClosedError):
            worker.result()


def test_a_disk_that_fails_ends_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = world.worker()

    def fail() -> int:
        world.engine._fail()
        raise DurabilityError

    monkeypatch.setattr(world.engine, "sync", fail)
    with pytest.raises(DurabilityError):
        world.push(b"key", delay=25)
    with pytest.raises(DurabilityError):
        worker.result()


def test_a_thread_that_is_interrupted_leaves_its_job_to_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlucky_count = 7
    woken, pushed = threading.Event(), threading.Event()
    wait = world.embedded._wait

    def interrupted(waiter: Any) -> None:
        wait(waiter)
        if waiter.command.count == unlucky_count:
            woken.set()
            assert pushed.wait(THREAD_SECONDS)
            raise KeyboardInterrupt

    monkeypatch.setattr(world.embedded, "_wait", interrupted)
    unlucky, lucky = world.worker(count=unlucky_count), world.worker()
    world.push(b"key")
    assert woken.wait(THREAD_SECONDS)
    pushed.set()
    with pytest.raises(KeyboardInterrupt):
        unlucky.result()
    assert lucky.jobs == [b"key"]


# -- listening ------------------------------------------------------------------------------------


def heard(listener: Any) -> list[tuple[bytes, int]]:
    """Returns what a listener was told by now."""
    found: list[Changed] = []
    while (change := listener.wait(0)) is not None:
        assert (change.table, change.key) == (TABLE, b"")
        found.append(change)
    return [(change.value, change.timestamp_us) for change in found]


@pytest.mark.req("SJ-29")
def test_a_listener_is_told_of_arrivals_and_dates(world: World) -> None:
    start_us = world.clock.wall_us()
    world.push(b"early", delay=5)
    listener = world.embedded.listen(ListenJobs(table=TABLE))
    assert world.due_in() == 5
    world.push(b"a", b"b", b"c")
    world.push(b"late", delay=20)
    assert heard(listener) == [(ARRIVED, start_us)] * 2
    world.pass_time(4.999)
    assert heard(listener) == []
    world.pass_time(0.001)
    assert heard(listener) == [(DUE, start_us + 5 * SECOND_US)]
    world.pass_time(15)
    assert heard(listener) == [(DUE, start_us + 20 * SECOND_US)]
    world.pass_time(60)
    assert heard(listener) == []


def test_a_listener_that_is_closed_is_told_no_more(world: World) -> None:
    world.push(b"key", delay=5)
    first = world.embedded.listen(ListenJobs(table=TABLE))
    second = world.embedded.listen(ListenJobs(table=TABLE))
    first.close()
    world.pass_time(5)
    assert len(heard(second)) == 1
    second.close()
    world.push(b"key", delay=5)
    assert world.embedded._listeners.look_us(world.clock.wall_us()) is None
    with pytest.raises(ClosedError):
        first.wait(0)


def test_closing_ends_listeners_of_jobs(world: World) -> None:
    listener = world.embedded.listen(ListenJobs(table=TABLE))
    ended: list[list[Changed]] = []
    thread = threading.Thread(target=lambda: ended.append(list(listener)), daemon=True)
    thread.start()
    world.embedded.close()
    thread.join(THREAD_SECONDS)
    assert ended == [[]]


def test_a_table_of_another_kind_has_no_jobs_to_listen_to(world: World) -> None:
    stored = set_command({b"k": b"v"}, timestamp_us=world.clock.wall_us(), table="values")
    world.embedded.execute(stored)
    with pytest.raises(RefusedError) as caught:
        world.embedded.listen(ListenJobs(table="values"))
    assert caught.value.code is Code.WRONG_KIND


def test_other_tables_are_not_heard(world: World) -> None:
    listener = world.embedded.listen(ListenJobs(table="other"))
    world.push(b"key", delay=5)
    world.pass_time(5)
    assert listener.wait(0) is None
