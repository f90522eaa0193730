"""Worker loops without a shell: where they are, what they leave, what they say of jobs."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from fjord.client.jobs.records import TakenJob
from fjord.client.jobs.work import Shift, Tally
from fjord.commands import Fail, Next
from fjord.jobs import How
from tests.unit.client.job_samples import acted, make_calls, taken_batch, taken_of

SECOND_US = 1_000_000


def shift_of(**options: Any) -> Shift[TakenJob]:
    return Shift(make_calls(), TakenJob, options)  # type: ignore[arg-type]


def left_by(shift: Shift[TakenJob]) -> list[object]:
    return [call.command for call in shift.leave()]


# -- shifts ---------------------------------------------------------------------------------------


def test_a_worker_that_is_woken_asks_and_does_not_wait_on_the_server() -> None:
    shift = shift_of(wake=17997, poll=0.5)
    assert shift.next_call.command == Next(table="t", count=1)
    assert shift.poll == 0.5
    assert shift_of(wake="127.0.0.1:17997").poll == 30


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"poll": 5}, "poll needs wake"),
        ({"wake": 5, "wait": 5}, "give poll, not wait"),
        ({"wake": "192.0.2.1:5"}, "loopback addresses only"),
        ({"wake": ""}, "not an address for wake-ups"),
        ({"wake": 5, "poll": 0}, r"poll is from 0\.01 to 3600 seconds, not 0"),
        ({"wake": 5, "poll": 3601}, r"poll is from 0\.01 to 3600 seconds, not 3601"),
        ({"wake": 5, "poll": None}, r"poll is from 0\.01 to 3600 seconds, not None"),
    ],
    ids=str,
)
def test_how_to_be_woken_is_checked(options: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        shift_of(**options)


def test_a_worker_that_is_told_to_stop_gives_back_what_it_has_not_begun() -> None:
    event = threading.Event()
    shift = shift_of(batch=3, stop=event)
    handed = []
    for job in shift.hand_out(taken_batch(b"a", b"b", b"c")):
        handed.append(job.key)
        job.outcome = How.DONE
        event.set()
    assert handed == ["a"]
    assert left_by(shift) == [Fail(table="t", xids=[71, 72], counts=False)]


# -- handlers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timeouts", "seconds"), [(0, 1), (1, 2), (5, 32), (8, 256), (9, 300), (254, 300)]
)
def test_a_failed_job_waits_twice_as_long_each_time(timeouts: int, seconds: int) -> None:
    (job,) = make_calls().next(TakenJob, 1).result(taken_of(b"a", timeouts=timeouts))
    call = Tally(make_calls(), None).failed(job, ValueError("no"))
    assert call is not None
    assert call.command == Fail(
        table="t", xids=[70], delay_us=seconds * SECOND_US, reason=b"ValueError('no')"
    )
    with pytest.raises(ValueError, match="retry_delay"):
        Tally(make_calls(), -1)


def test_failures_and_lost_leases_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    tally = Tally(make_calls(), None)
    (job,) = taken_batch(b"a")
    call = tally.failed(job, ValueError("no"))
    assert call is not None
    call.result(acted(0))
    tally.count(job)
    assert tally.done == 0
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "job 'a' failed: ValueError('no')" in caplog.text
    assert "the lease of job 'a' expired" in caplog.text


def test_a_handler_that_settled_its_job_has_the_last_word() -> None:
    tally = Tally(make_calls(), None)
    (job,) = taken_batch(b"a")
    job.outcome = How.FAIL
    assert tally.finished(job) is None
    assert tally.failed(job, ValueError("no")) is None
    tally.count(job)
    assert tally.done == 0
