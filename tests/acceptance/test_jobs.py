"""Jobs through the client and a real daemon: waiting, listening, retries, restarts."""

from __future__ import annotations

import asyncio
import itertools
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

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


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("jobs") / "data") as one:
        yield one


@pytest.fixture
def db(daemon: Daemon) -> Iterator[fjord.Database]:
    with fjord.connect(daemon.url) as one:
        yield one


@pytest.fixture
def proxy(daemon: Daemon) -> Iterator[CuttingProxy]:
    with CuttingProxy(daemon.port) as one:
        yield one


# -- the life of a job ----------------------------------------------------------------------------


@pytest.mark.req("FJ-28", "SJ-11", "SJ-28")
def test_a_job_lives_and_is_gone(db: fjord.Database) -> None:
    pages = db.jobs("life")
    pages.push("http://example.com/a", b"data", priority=fjord.Priority.IMPORTANT)
    assert pages.count() == (1, 0, 0)
    (job,) = pages.next(lease=60)
    assert (job.key, job.value, job.priority) == ("http://example.com/a", b"data", 10)
    assert (job.domain, job.timeouts, job.expires_at) == ("example.com", 0, None)
    assert pages.count() == (0, 1, 0)
    assert len(pages.next()) == 0
    job.touch(lease=120)
    job.done()
    assert pages.count() == (0, 0, 0)
    for late in (job.done, job.touch, job.fail):
        with pytest.raises(fjord.StaleError, match="STALE_XID"):
            late()


@pytest.mark.req("FJ-03", "FJ-06", "FJ-10", "SJ-07", "SJ-09")
def test_jobs_come_by_priority_then_date_and_slow_ones_last(db: fjord.Database) -> None:
    jobs = db.jobs("order")
    now = datetime.now(UTC)
    jobs.push_many(
        [
            {"key": "slow", "priority": 200},
            {"key": "second", "priority": 20, "process_at": now + timedelta(milliseconds=550)},
            {"key": "later", "priority": 0, "delay": 3600},
            {"key": "third", "priority": 30},
            {"key": "first", "priority": 20, "process_at": now + timedelta(milliseconds=500)},
        ]
    )
    db.jobs("meanwhile").push("key", delay=0.6)
    assert len(db.jobs("meanwhile").next(wait=SECONDS_MAX)) == 1  # all but one are due by now
    assert [job.key for job in jobs.next(count=10)] == ["first", "second", "third"]
    assert [job.key for job in jobs.next(count=10)] == ["slow"]
    assert jobs.next(count=10).next_at == jobs.next_at()


@pytest.mark.req("FJ-04", "FJ-32", "SJ-16", "SJ-27")
def test_a_key_waits_once_and_once_more_while_it_is_worked_on(db: fjord.Database) -> None:
    jobs = db.jobs("merged", timeouts_max=0)
    jobs.push("key", "old", priority=50)
    jobs.push("key", "new", priority=70)
    (first,) = jobs.next(count=5)
    assert (first.value, first.priority) == ("new", 50)
    jobs.push("key", "newer")
    (second,) = jobs.next(count=5)
    assert second.value == "newer"
    jobs.push("key", "newest")
    second.fail()  # dropped, though it would be dead otherwise: a newer one waits
    first.done()
    (third,) = jobs.next(count=5)
    assert third.value == "newest"
    third.done()
    assert jobs.count() == (0, 0, 0)


@pytest.mark.req("FJ-02")
def test_without_merging_it_is_a_plain_queue(db: fjord.Database) -> None:
    queue = db.create_jobs("plain", merge=False)
    queue.push_many(values=[b"1", b"2", b"3"])
    queue.push("", b"4")
    taken = queue.next(count=10)
    assert [job.value for job in taken] == [b"1", b"2", b"3", b"4"]
    assert queue.done_many(taken) == []


@pytest.mark.req("SJ-14", "SJ-15")
def test_a_job_that_fails_too_often_is_dead_until_it_is_redriven(db: fjord.Database) -> None:
    jobs = db.create_jobs("fails", timeouts_max=1)
    jobs.push("key")
    for _ in range(2):
        (job,) = jobs.next()
        job.fail(reason="no luck")
    (dead,) = jobs.dead()
    assert (dead.key, dead.reason) == ("key", "failed 2 times: no luck")
    assert jobs.redrive(reason="luck").revived == 1
    (again,) = jobs.next()
    assert again.timeouts == 0
    again.done()


def test_what_was_done_and_its_result_are_one(db: fjord.Database) -> None:
    jobs = db.jobs("together")
    jobs.push("in")
    (job,) = jobs.next()
    with db.transaction() as tx:
        tx.kv("results").set("in", 1)
        tx.jobs("together").done_many([job])
        tx.jobs("follow-up").push("out")
    assert db.kv("results").get("in") == 1
    assert jobs.count() == (0, 0, 0)
    assert db.jobs("follow-up").count() == (1, 0, 0)


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


@pytest.mark.parametrize(
    ("prepare", "give_back"),
    [
        pytest.param(lambda jobs: None, lambda jobs, job: job.fail(count=False), id="given back"),
        pytest.param(
            lambda jobs: None, lambda jobs, job: job.fail(delay=0.2), id="failed for a while"
        ),
        pytest.param(
            lambda jobs: jobs.push("other", delay=3600),
            lambda jobs, job: jobs.kick("other"),
            id="kicked",
        ),
        pytest.param(
            lambda jobs: jobs.push("other", delay=3600),
            lambda jobs, job: jobs.reschedule("other", delay=0.2),
            id="rescheduled",
        ),
        pytest.param(
            lambda jobs: jobs.push("other", delay=3600) or jobs.bury("other"),
            lambda jobs, job: jobs.redrive(),
            id="redriven",
        ),
    ],
)
def test_a_wait_ends_when_a_job_waits_again(
    daemon: Daemon,
    request: pytest.FixtureRequest,
    prepare: Callable[[fjord.Jobs], object],
    give_back: Callable[[fjord.Jobs, Job], object],
) -> None:
    name = request.node.callspec.id.replace(" ", "-")
    with fjord.connect(daemon.url) as db, fjord.connect(daemon.url) as other:
        jobs = db.jobs(name)
        jobs.push("key")
        (job,) = jobs.next()
        prepare(jobs)
        waiting = begin(lambda: other.jobs(name).next(wait=SECONDS_MAX))
        parked(db)
        give_back(jobs, job)
        assert len(waiting.result(timeout=SECONDS_MAX)) == 1


@pytest.mark.req("FJ-28")
def test_a_wait_that_is_over_says_when_the_next_job_is_due(db: fjord.Database) -> None:
    jobs = db.jobs("over")
    begun = time.monotonic()
    assert jobs.next(wait=0.3).next_at is None
    assert 0.3 <= time.monotonic() - begun < 10
    jobs.push("key", delay=3600)
    assert jobs.next(wait=0.1).next_at == jobs.next_at()


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


def test_who_waits_holds_up_nobody(daemon: Daemon, db: fjord.Database) -> None:
    with fjord.connect(daemon.url) as other:
        waiting = begin(lambda: other.jobs("quiet").next(wait=SECONDS_MAX))
        parked(db)
        for number in range(50):
            db.kv("busy").set("number", number)
        assert not waiting.done()
        db.jobs("quiet").push("end")
        assert len(waiting.result(timeout=SECONDS_MAX)) == 1


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


def test_a_daemon_that_stops_answers_those_who_wait(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as own, fjord.connect(own.url) as db:
        db.jobs("stops").push("later", delay=3600)
        waiting = begin(lambda: db.jobs("stops").next(wait=SECONDS_MAX))
        with fjord.connect(own.url) as other:
            parked(other)
        assert own.stop() == 0
        assert len(waiting.result(timeout=SECONDS_MAX)) == 0
        own.start()


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


@pytest.mark.req("SJ-29")
def test_a_listener_hears_of_a_table_that_is_not_there_yet(daemon: Daemon) -> None:
    async def main() -> list[str]:
        async with await fjord.aio.connect(daemon.url) as db:
            jobs = db.jobs("unborn")
            kinds = []
            async with jobs.listen() as moments:
                await jobs.push_many(keys=["a", "b"], delay=0.2)
                async for moment in moments:
                    kinds.append(moment.kind)
                    if moment.kind == "due":
                        return kinds
        return []

    assert asyncio.run(main()) == ["arrived", "due"]


# -- connections that break -----------------------------------------------------------------------


def test_a_push_that_is_cut_anywhere_is_applied_once(
    daemon: Daemon, proxy: CuttingProxy, db: fjord.Database
) -> None:
    queue = db.create_jobs("pushed", merge=False)
    with fjord.connect(proxy.url) as cut:
        expected = itertools.count(1)

        def push() -> None:
            cut.jobs("pushed").push("key", b"v")
            assert queue.count().waiting == next(expected)

        assert cut_everywhere(proxy, push) > 100


def test_a_done_that_is_cut_anywhere_is_applied_once(
    proxy: CuttingProxy, db: fjord.Database
) -> None:
    db.jobs("finished").push_many(keys=[f"key-{number}" for number in range(1000)])
    with fjord.connect(proxy.url) as cut:

        def finish() -> None:
            (job,) = db.jobs("finished").next()
            before = db.jobs("finished").count()
            assert cut.jobs("finished").done_many([job.xid]) == []
            assert db.jobs("finished").count().taken == before.taken - 1

        assert cut_everywhere(proxy, finish) > 100


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


def test_a_worker_goes_on_through_a_kill(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as own, fjord.connect(own.url) as db:
        jobs = db.jobs("loop")
        jobs.push_many(keys=[f"key-{number}" for number in range(60)])
        stop, done = threading.Event(), []

        def handle(job: Job) -> None:
            done.append(job.key)
            if len(done) in (15, 35):
                port = own.port
                own.kill()
                own.start(port)
            if len(done) == 60:
                stop.set()

        assert jobs.run(handle, stop=stop, wait=1) == 60
        assert len(set(done)) == 60
        assert jobs.count() == (0, 0, 0)


def test_the_jobs_of_the_readme_run_as_they_stand(db: fjord.Database) -> None:
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text()
    (code,) = [
        one for one in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "db.jobs(" in one
    ]
    exec(compile(code, "README.md", "exec"), {"db": db})  # noqa: S102 - our own page
    assert db.jobs("pages").count() == (0, 0, 0)


def test_the_example_tells_its_story() -> None:
    example = Path(__file__).resolve().parents[2] / "examples" / "jobs.py"
    done = subprocess.run(
        [sys.executable, example], capture_output=True, text=True, check=False, timeout=SECONDS_MAX
    )
    assert (done.returncode, done.stderr) == (0, "")
    for line in (
        "    20  http://example.com/new version 3",
        "   the first worker comes back: STALE_XID",
        "   left: Counts(waiting=0, taken=0, dead=0)",
    ):
        assert line in done.stdout.splitlines()
