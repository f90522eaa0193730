"""Calls of a jobs table: what is refused before it is sent, and what becomes of jobs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fjord import limits
from fjord.client.calls import Call, Result
from fjord.client.jobs.calls import JobCalls, encode_reason
from fjord.client.jobs.records import JobBatch, TakenJob
from fjord.clock import Stamps
from fjord.commands import Fail, Finish
from fjord.errors import Code, RemoteProtocolError, StaleError
from fjord.jobs import How
from fjord.testing import SimClock
from tests.unit.client.job_samples import ACTED, NOW, acted, make_calls, taken_batch, taken_of
from tests.unit.client.scripted import NOW_US
from tests.unit.engine.world import open_at

# -- taking ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"wait": 3601}, "wait is at most 3600"),
        ({"wait": -1}, "wait is 0 seconds or more"),
        ({"lease": 0}, "lease must be more than 0"),
        ({"lease": float("nan")}, "lease is a number"),
    ],
)
def test_what_next_cannot_mean_is_refused(wrong: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make_calls().next(TakenJob, 1, **wrong)


@pytest.mark.parametrize("count", [0, -1])
def test_at_least_one_job_is_asked_for(count: int) -> None:
    with pytest.raises(ValueError, match="1 or more"):
        make_calls().next(TakenJob, count)
    with pytest.raises(ValueError, match="1 or more"):
        make_calls().peek(count, None)


def test_more_jobs_than_were_asked_for_are_the_peers_mistake() -> None:
    with pytest.raises(RemoteProtocolError, match="2 jobs, not 1 at most"):
        make_calls().next(TakenJob, 1).result(taken_of(b"k", b"l"))


def test_one_job_that_is_too_late_is_an_error() -> None:
    calls = make_calls()
    for say in (calls.done_one, calls.fail_one, lambda job: calls.touch_one(job, 60)):
        (job,) = taken_batch(b"a")
        with pytest.raises(StaleError, match=r"job 'a' \(xid 70\) was over") as caught:
            say(job).result(acted(0))
        assert caught.value.code is Code.STALE_XID
        assert job.outcome is How.TIMEOUT


# -- settling -------------------------------------------------------------------------------------


@pytest.mark.req("SJ-13")
def test_client_and_server_agree_on_how_long_a_lease_lasts(tmp_path: Path) -> None:
    clock = SimClock(NOW_US)
    engine = open_at(tmp_path, clock)
    calls = JobCalls("t", Stamps(clock))

    def run(call: Call[Result]) -> Result:
        return call.result(engine.run([call.command])[0])

    run(calls.push("k", None))
    batch = run(calls.next(TakenJob, 1, lease=5))
    for touch, seconds in (
        (None, 5),
        (calls.touch_one(batch[0], 50), 50),
        (calls.touch_one(batch[0], None), 50),
        (calls.touch_many(batch, 20), 20),
        (calls.touch_many(batch, None), 20),
    ):
        if touch is not None:
            clock.advance(1)
            run(touch)
        walk = calls.taken(1).next_call()
        assert walk is not None
        ((shown,), until) = run(walk), batch[0].lease_until
        assert batch[0].lease_us == seconds * 1_000_000
        assert shown.lease_until is not None
        assert until is not None
        assert abs(until - shown.lease_until) < timedelta(milliseconds=1)
        now = NOW + timedelta(microseconds=clock.wall_us() - NOW_US, seconds=seconds)
        assert abs(until - now) < timedelta(milliseconds=1)
    engine.close()


def test_a_batch_that_is_done_is_settled() -> None:
    made: list[int] = []

    def make(batch: JobBatch[TakenJob], place: int) -> TakenJob:
        made.append(place)
        return TakenJob(batch, place)

    batch = make_calls().next(make, 3).result(taken_of(b"a", b"b", b"c"))
    make_calls().done_many(batch).result(ACTED)
    assert made == []
    assert [job.outcome for job in batch] == [How.DONE] * 3
    batch = make_calls().next(make, 3).result(taken_of(b"a", b"b", b"c"))
    assert make_calls().fail_many(batch, count=False).result(acted(1)) == [batch[1]]
    assert [job.outcome for job in batch] == [How.GIVEN_BACK, How.TIMEOUT, How.GIVEN_BACK]


def test_a_job_that_is_named_twice_is_done_once() -> None:
    batch = taken_batch(b"a", b"b")
    first, second = batch
    given: list[Any] = [first, second, first, 70]
    call = make_calls().done_many(given)
    assert call.command == Finish(table="t", xids=[70, 71])
    assert call.result(acted(1)) == [second]
    assert [first.outcome, second.outcome] == [How.DONE, How.TIMEOUT]
    given = [80, 70, first]
    assert make_calls().done_many(given).result(acted(1)) == [70]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (["x"], "a Job, or its xid, which is a whole number, not str"),
        ([1.5], "whole number, not float"),
        ([True], "whole number, not bool"),
        ("abc", "jobs is the result of next.., or a list of jobs or xids, not str"),
        (70, "a list of jobs or xids, not int"),
        (taken_batch(b"a")[0], "a list of jobs or xids, not TakenJob"),
    ],
    ids=str,
)
def test_what_is_no_job_is_named(wrong: Any, text: str) -> None:
    calls = make_calls()
    for settle in (calls.done_many, calls.fail_many, lambda jobs: calls.touch_many(jobs, None)):
        with pytest.raises(TypeError, match=text):
            settle(wrong)


def test_jobs_that_are_done_already_are_not_done_again() -> None:
    batch = make_calls().next(TakenJob, 2, done=True).result(taken_of(b"k", b"l", first_xid=0))
    for again in (batch, list(batch), [0]):
        with pytest.raises(ValueError, match="taken with done=True"):
            make_calls().done_many(again)


@pytest.mark.parametrize("xid", [-1, 2**64])
def test_an_xid_is_a_number_of_64_bits(xid: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        make_calls().fail_many([5, xid])


def test_jobs_of_another_table_are_not_taken_for_ones_of_this() -> None:
    batch = taken_batch(b"k")
    batch.table = "other"
    for jobs in (batch, list(batch)):
        with pytest.raises(ValueError, match="of table other"):
            make_calls().done_many(jobs)


@pytest.mark.parametrize(
    ("reason", "data"),
    [
        ("why", b"why"),
        ("x" * 2000, b"x" * limits.REASON_BYTES_MAX),
        ("x" + "é" * 1000, b"x" + "é".encode() * 511),
        ("\udcff", rb"\udcff"),
    ],
    ids=["short", "long", "cut-between-letters", "no-utf8"],
)
def test_a_reason_is_cut_to_what_is_kept(reason: str, data: bytes) -> None:
    assert encode_reason(reason) == data
    command = make_calls().fail_many([70], reason=reason).command
    assert isinstance(command, Fail)
    assert command.reason == data


# -- by key and looking ---------------------------------------------------------------------------


def test_rescheduling_needs_something_to_change() -> None:
    with pytest.raises(ValueError, match="give a priority"):
        make_calls().reschedule("k")
    with pytest.raises(ValueError, match="either"):
        make_calls().reschedule("k", delay=1, process_at=NOW)
    with pytest.raises(ValueError, match="from 0 to 255"):
        make_calls().reschedule("k", priority=256)


def test_revived_and_discarded_ones_are_counted() -> None:
    assert make_calls().revive([5, 6, 7], None).result(acted(0, dropped=[2])) == (1, 1)
    assert make_calls().discard([5, 6, 7]).result(acted(0, 1, 2)) == (0, 0)
