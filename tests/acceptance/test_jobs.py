"""Jobs through the client and a real daemon: waiting, listening, retries, restarts."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeVar

import pytest

import fjord
import fjord.aio
from fjord.client.blocking.jobs import Job
from fjord.client.jobs.records import JobBatch
from tests.acceptance.cutting import CuttingProxy
from tests.acceptance.daemon import Daemon
from tests.acceptance.test_retry import cut_everywhere

SECONDS_MAX = 60.0
Result = TypeVar("Result")


@pytest.fixture
def proxy(daemon: Daemon) -> Iterator[CuttingProxy]:
    with CuttingProxy(daemon.port) as one:
        yield one


# -- waiting --------------------------------------------------------------------------------------


def begin(call: Callable[[], Result]) -> Future[Result]:
    """Runs a call in a thread of its own."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(call)
    pool.shutdown(wait=False)
    return future


def parked(db: fjord.Database, count: int = 1) -> None:
    """Returns when so many requests wait in the daemon for jobs."""
    for _ in range(10_000):
        if db.stats()["parked_waits"] == count:
            return
    raise AssertionError(f"there are {db.stats()['parked_waits']} who wait")


@pytest.mark.req("FJ-12", "FJ-28")
def test_a_wait_ends_with_a_push(daemon: Daemon, db: fjord.Database) -> None:
    with fjord.connect(daemon.url) as other:
        waiting = begin(lambda: other.jobs("wakes").next(wait=SECONDS_MAX))
        parked(db)
        db.jobs("wakes").push("key", b"v")
        (job,) = waiting.result(timeout=SECONDS_MAX)
        assert job.value == b"v"
        job.done()


@pytest.mark.req("FJ-05", "FJ-11", "FJ-12")
def test_a_wait_ends_when_a_date_is_reached(db: fjord.Database) -> None:
    jobs = db.jobs("dated")
    jobs.push("key", delay=0.4)
    due = jobs.next_at()
    assert due is not None
    (job,) = jobs.next(wait=SECONDS_MAX)
    now = datetime.now(UTC)
    assert due <= now < due + timedelta(seconds=SECONDS_MAX / 2)
    assert job.process_at == due


@pytest.mark.req("FJ-13", "SJ-12")
def test_a_wait_ends_when_a_lease_is_over(db: fjord.Database) -> None:
    jobs = db.jobs("leased")
    jobs.push("key")
    (first,) = jobs.next(lease=0.3)
    (again,) = jobs.next(wait=SECONDS_MAX)
    assert (again.key, again.timeouts) == ("key", 1)
    with pytest.raises(fjord.StaleError):
        first.done()
    again.done()


GIVE_BACK: Final[dict[str, Callable[[fjord.Jobs, Job], object]]] = {
    "given-back": lambda jobs, job: job.fail(count=False),
    "failed-for-a-while": lambda jobs, job: job.fail(delay=0.2),
    "kicked": lambda jobs, job: jobs.kick("other"),
    "rescheduled": lambda jobs, job: jobs.reschedule("other", delay=0.2),
    "redriven": lambda jobs, job: jobs.bury("other") and jobs.redrive(),
}


@pytest.mark.parametrize("how", GIVE_BACK)
def test_a_wait_ends_when_a_job_waits_again(daemon: Daemon, db: fjord.Database, how: str) -> None:
    jobs = db.jobs(how)
    jobs.push("key")
    (job,) = jobs.next()
    jobs.push("other", delay=3600)
    with fjord.connect(daemon.url) as other:
        waiting = begin(lambda: other.jobs(how).next(wait=SECONDS_MAX))
        parked(db)
        GIVE_BACK[how](jobs, job)
        assert len(waiting.result(timeout=SECONDS_MAX)) == 1


@pytest.mark.req("SJ-28")
def test_each_of_many_who_wait_gets_a_job_of_its_own(daemon: Daemon, db: fjord.Database) -> None:
    def take() -> str:
        with fjord.connect(daemon.url) as own:
            (job,) = own.jobs("crowd").next(wait=SECONDS_MAX)
            job.done()
            return job.key

    with ThreadPoolExecutor(12) as pool:
        crowd = [pool.submit(take) for _ in range(12)]
        parked(db, 12)
        for number in range(12):
            db.jobs("crowd").push(f"key-{number}")
        keys = sorted(one.result(timeout=SECONDS_MAX) for one in crowd)
    assert keys == sorted(f"key-{number}" for number in range(12))
    assert db.jobs("crowd").count() == (0, 0, 0)


def test_who_hangs_up_while_it_waits_takes_no_job_away(daemon: Daemon, db: fjord.Database) -> None:
    async def wait_a_little() -> None:
        async with await fjord.aio.connect(daemon.url) as other:
            waiting = asyncio.create_task(other.jobs("gone").next(wait=SECONDS_MAX))
            await asyncio.to_thread(parked, db)
            waiting.cancel()

    for _ in range(3):
        asyncio.run(wait_a_little())
        parked(db, 0)
    db.jobs("gone").push("key")
    (job,) = db.jobs("gone").next(wait=SECONDS_MAX)
    assert job.timeouts == 0


# -- listening ------------------------------------------------------------------------------------


@pytest.mark.req("SJ-29")
def test_a_listener_is_told_of_arrivals_and_of_dates(db: fjord.Database) -> None:
    jobs = db.jobs("heard")
    with jobs.listen() as moments:
        jobs.push("key", delay=0.3)
        due = jobs.next_at()
        arrived = moments.wait(timeout=SECONDS_MAX)
        reached = moments.wait(timeout=SECONDS_MAX)
        now = datetime.now(UTC)
        assert arrived is not None
        assert reached is not None
        assert due is not None
        assert (arrived.kind, reached.kind) == ("arrived", "due")
        assert due <= now < due + timedelta(seconds=SECONDS_MAX / 2)
        assert moments.wait(timeout=0.2) is None


# -- connections that break -----------------------------------------------------------------------


def test_a_failure_that_is_cut_anywhere_counts_once(
    proxy: CuttingProxy, db: fjord.Database
) -> None:
    jobs = db.create_jobs("failed", timeouts_max=254)
    jobs.push("key")
    with fjord.connect(proxy.url) as cut:
        numbers = itertools.count()

        def fail() -> None:
            number = next(numbers)
            if number % 200 == 199:  # the counter has one byte
                jobs.cancel("key")
                jobs.push("key")
            (job,) = jobs.next()
            assert cut.jobs("failed").fail_many([job.xid], reason="r") == []
            after = jobs.get("key")
            assert after is not None
            assert after.timeouts == job.timeouts + 1

        assert cut_everywhere(proxy, fail) > 100


def test_jobs_of_a_reply_that_is_cut_come_back(proxy: CuttingProxy, db: fjord.Database) -> None:
    keys = {f"key-{number}" for number in range(1000)}
    db.jobs("replies").push_many(keys=sorted(keys))
    done: list[str] = []

    def finish(batch: JobBatch[Job]) -> None:
        done.extend(job.key for job in batch)
        assert db.jobs("replies").done_many(batch.xids) == []

    with fjord.connect(proxy.url) as cut:
        assert cut_everywhere(proxy, lambda: finish(cut.jobs("replies").next(lease=2))) > 100
    while any(db.jobs("replies").count()):
        finish(db.jobs("replies").next(count=1000, wait=SECONDS_MAX))
    assert sorted(done) == sorted(keys)


# -- restarts -------------------------------------------------------------------------------------


@pytest.mark.req("FJ-18", "SJ-12")
def test_leases_dates_and_the_dead_outlive_a_kill(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as own:
        with fjord.connect(own.url) as db:
            jobs = db.create_jobs("kept", fairness="domain", timeouts_max=0)
            jobs.push_many(keys=["http://a/long", "http://b/short", "http://c/dead"])
            taken = {job.domain: job for job in jobs.next(count=3, lease=600)}
            taken["b"].touch(lease=1)
            taken["c"].fail(reason="gone")
            jobs.push("http://d/later", delay=3600, priority=3)
            due = jobs.next_at(domain="d")
        own.kill()
        own.start()
        with fjord.connect(own.url) as db:
            jobs = db.jobs("kept")
            assert jobs.next_at(domain="d") == due
            dead = {one.key: one.reason for one in jobs.dead()}
            assert dead["http://c/dead"] == "failed 1 times: gone"
            assert jobs.done_many([taken["a"].xid]) == []
            while jobs.count().dead < 2:  # the short lease is over by and by
                assert len(jobs.next(wait=0.1)) == 0
            assert jobs.done_many([taken["b"].xid]) == [taken["b"].xid]
            assert jobs.count() == (1, 0, 2)
