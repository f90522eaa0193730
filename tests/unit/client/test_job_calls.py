"""Calls of a jobs table: what is refused before it is sent, and what becomes of jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fjord import limits
from fjord.client.job_calls import encode_reason
from fjord.client.job_entries import TakenJob
from fjord.columns import Strings
from fjord.commands import Fail, Finish, Next, Numbers, Push
from fjord.errors import Code, RemoteProtocolError, StaleError
from fjord.jobs import How
from tests.unit.client.job_samples import (
    ACTED,
    CREATED,
    MINUTE,
    NOW,
    acted,
    make_calls,
    numbers_of,
    page_of,
    taken_batch,
    taken_of,
)
from tests.unit.client.scripted import NOW_US, TOKEN

JUST_AFTER = timedelta(microseconds=10)


def test_a_table_is_declared_with_its_settings() -> None:
    call = make_calls().create({"lease": 60})
    assert call.command == CREATED
    call.result(TOKEN)


def test_each_push_is_later_than_the_one_before() -> None:
    calls = make_calls()
    stamps = []
    for call in (calls.push("a", 1), calls.push_many([{"key": "a"}]), calls.push("a", 1)):
        assert isinstance(call.command, Push)
        stamps.append(call.command.timestamps_us[0])
    assert stamps == [NOW_US, NOW_US + 1, NOW_US + 2]


def test_dicts_and_columns_do_not_go_together() -> None:
    with pytest.raises(TypeError, match="not both"):
        make_calls().push_many([{"key": "a"}], priority=5)


# -- taking ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"wait": 3601}, "wait is at most 3600"),
        ({"wait": -1}, "wait is 0 seconds or more"),
        ({"lease": 0}, "lease is more than 0"),
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
    with pytest.raises(ValueError, match="at least one"):
        make_calls().peek(count, None)


def test_more_jobs_than_were_asked_for_are_the_peers_mistake() -> None:
    with pytest.raises(RemoteProtocolError, match="2 jobs, not 1 at most"):
        make_calls().next(TakenJob, 1).result(taken_of(b"k", b"l"))


def test_a_call_can_be_run_again() -> None:
    call = make_calls().next(TakenJob, 1, wait=30)
    first, second = call.result(taken_of(b"k")), call.result(taken_of(b"l"))
    assert isinstance(call.command, Next)
    assert [first[0].key, second[0].key] == ["k", "l"]


# -- settling -------------------------------------------------------------------------------------


def test_a_batch_is_done_without_an_object_for_each_job() -> None:
    batch = taken_batch(b"a", b"b", b"c")
    call = make_calls().done_many(batch)
    assert call.command == Finish(table="t", xids=range(70, 73))
    assert [job.key for job in call.result(acted(1))] == ["b"]


def test_jobs_know_what_became_of_them() -> None:
    jobs = list(taken_batch(b"a", b"b"))
    assert make_calls().done_many(jobs).result(acted(1)) == [jobs[1]]
    assert [job.outcome for job in jobs] == [How.DONE, How.TIMEOUT]
    jobs = list(taken_batch(b"a", b"b"))
    assert make_calls().fail_many(jobs).result(ACTED) == []
    assert [job.outcome for job in jobs] == [How.FAIL, How.FAIL]
    (job,) = taken_batch(b"a")
    make_calls().fail_many([job], count=False).result(ACTED)
    assert job.outcome is How.GIVEN_BACK


def test_nothing_is_settled_before_the_answer() -> None:
    (job,) = taken_batch(b"a")
    calls = make_calls()
    for call in (calls.done_one(job), calls.touch_one(job, None), calls.fail_one(job)):
        with pytest.raises(RemoteProtocolError):
            call.result(TOKEN)
        assert not job.is_settled


def test_one_job_that_is_too_late_is_an_error() -> None:
    calls = make_calls()
    for say in (calls.done_one, calls.fail_one, lambda job: calls.touch_one(job, 60)):
        (job,) = taken_batch(b"a")
        with pytest.raises(StaleError, match=r"job 'a' \(xid 70\) was over") as caught:
            say(job).result(acted(0))
        assert caught.value.code is Code.STALE_XID
        assert job.outcome is How.TIMEOUT


def test_a_touched_job_has_its_lease_for_longer() -> None:
    (job,) = taken_batch(b"a")
    make_calls().touch_one(job, 600).result(ACTED)
    assert job.lease_until is not None
    assert NOW + 10 * MINUTE <= job.lease_until < NOW + 10 * MINUTE + JUST_AFTER
    make_calls().touch_one(job, None).result(ACTED)
    assert NOW + MINUTE <= job.lease_until < NOW + MINUTE + JUST_AFTER
    assert not job.is_settled


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


def test_an_unknown_option_of_a_failure_is_named() -> None:
    unknown: Any = {"resaon": "why"}
    with pytest.raises(TypeError, match="fail has no resaon"):
        make_calls().fail_many([70], **unknown)


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


@pytest.mark.parametrize("key", ["abc", b"abc"])
def test_a_single_key_is_not_taken_for_many(key: Any) -> None:
    with pytest.raises(TypeError, match="a list"):
        make_calls().cancel_many(key)


def test_a_missing_row_that_was_not_asked_for_is_the_peers_mistake() -> None:
    for call in (make_calls().cancel("k"), make_calls().done_many([70]), make_calls().discard([5])):
        with pytest.raises(RemoteProtocolError, match="row 1 of 1"):
            call.result(acted(1))


def test_numbers_that_are_not_there_are_the_peers_mistake() -> None:
    some = Numbers(names=Strings.of([b"waiting"]), values=[5])
    with pytest.raises(RemoteProtocolError, match="without taken"):
        make_calls().count().result(some)
    with pytest.raises(RemoteProtocolError, match="without next_at_us"):
        make_calls().next_at(None).result(some)
    assert make_calls().count().result(numbers_of()) == (5, 2, 1)


def test_revived_and_discarded_ones_are_counted() -> None:
    assert make_calls().revive([5, 6, 7], None).result(acted(0)) == 2
    assert make_calls().discard([5, 6, 7]).result(acted(0, 1, 2)) == 0


def test_a_job_is_found_by_its_key() -> None:
    found = make_calls().get("k").result(page_of(b"k"))
    assert found is not None
    assert found.key == "k"
