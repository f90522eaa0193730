"""Worker loops without a shell: where they are, what they leave, what they say of jobs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from typing import Any

import pytest

from fjord.client.jobs.records import TakenJob
from fjord.client.jobs.work import Shift, Tally, WorkOptions, lose
from fjord.commands import Fail, Finish, Next
from fjord.errors import UnavailableError
from fjord.jobs import How
from tests.unit.client.job_samples import ACTED, acted, make_calls, taken_batch, taken_of

SECOND_US = 1_000_000


def shift_of(**options: Any) -> Shift[TakenJob]:
    return Shift(make_calls(), TakenJob, options)  # type: ignore[arg-type]


def left_by(shift: Shift[TakenJob]) -> list[object]:
    return [call.command for call in shift.leave()]


# -- shifts ---------------------------------------------------------------------------------------


def test_a_worker_takes_one_job_at_a_time_and_waits_on_the_server() -> None:
    assert shift_of().next_call.command == Next(table="t", count=1, wait_us=30 * SECOND_US)
    options: WorkOptions = {"lease": 60, "domain": "d", "batch": 10, "wait": 5}
    assert Shift(make_calls(), TakenJob, options).next_call.command == Next(
        table="t", count=10, domain=b"d", lease_us=60 * SECOND_US, wait_us=5 * SECOND_US
    )


@pytest.mark.parametrize("wait", [0, None, -1, 3601])
def test_a_worker_does_not_poll(wait: Any) -> None:
    with pytest.raises(ValueError, match="wait"):
        shift_of(wait=wait)


def test_a_worker_that_is_woken_asks_and_does_not_wait_on_the_server() -> None:
    shift = shift_of(wake=17997, poll=0.5)
    assert shift.next_call.command == Next(table="t", count=1)
    assert shift.poll == 0.5
    assert shift_of(wake="127.0.0.1:17997").poll == 30


def test_a_worker_that_is_woken_hears_its_table_only() -> None:
    heard: list[tuple[Any, Any]] = []

    def hear(address: str | int, *, tables: list[str]) -> contextlib.nullcontext[None]:
        heard.append((address, tables))
        return contextlib.nullcontext()

    with shift_of(wake=17997).listen(hear), shift_of().listen(hear) as nobody:
        assert nobody is None
    assert heard == [(17997, ["t"])]


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


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"stop": True}, "stop is an event, or a function that says whether to end, not bool"),
        ({"batch": 1.5}, "batch is a whole number, not float"),
        ({"lease": "60"}, "lease is a number of seconds"),
    ],
    ids=str,
)
def test_what_is_of_another_type_is_named(wrong: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        shift_of(**wrong)


def test_a_batch_has_at_least_one_job() -> None:
    with pytest.raises(ValueError, match="batch is 1 or more, not 0"):
        shift_of(batch=0)


def test_unknown_options_are_named() -> None:
    with pytest.raises(TypeError, match="work has no leese"):
        shift_of(leese=5)


@pytest.mark.parametrize("kind", [threading.Event, asyncio.Event])
def test_a_worker_stops_when_it_is_told_to(kind: Any) -> None:
    event = kind()
    by_event, by_function = shift_of(stop=event), shift_of(stop=event.is_set)
    assert not shift_of().is_over()
    assert not by_event.is_over()
    assert not by_function.is_over()
    event.set()
    assert by_event.is_over()
    assert by_function.is_over()


def test_a_batch_that_is_worked_to_its_end_leaves_nothing() -> None:
    shift = shift_of(batch=2)
    for job in shift.hand_out(taken_batch(b"a", b"b")):
        job.outcome = How.DONE
    assert left_by(shift) == []
    assert list(shift.hand_out(shift.next_call.result(taken_of()))) == []
    assert left_by(shift) == []


def test_a_worker_that_leaves_has_failed_its_job_and_gives_the_others_back() -> None:
    shift = shift_of(batch=3)
    next(shift.hand_out(taken_batch(b"a", b"b", b"c")))
    assert left_by(shift) == [
        Fail(table="t", xids=[70], reason=b"the worker left its loop"),
        Fail(table="t", xids=[71, 72], counts=False),
    ]
    assert left_by(shift) == []


def test_a_job_that_is_settled_is_not_failed_on_leaving() -> None:
    shift = shift_of(batch=2)
    job = next(shift.hand_out(taken_batch(b"a", b"b")))
    job.outcome = How.FAIL
    assert left_by(shift) == [Fail(table="t", xids=[71], counts=False)]


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


def test_a_job_whose_handler_returns_is_done() -> None:
    tally = Tally(make_calls(), None)
    (job,) = taken_batch(b"a")
    call = tally.finished(job)
    assert call is not None
    assert call.command == Finish(table="t", xids=[70])
    call.result(ACTED)
    tally.count(job)
    assert tally.done == 1
    assert tally.finished(job) is None


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


@pytest.mark.parametrize(("delay", "delay_us"), [(0, 0), (7.5, 7_500_000)])
def test_a_worker_may_say_how_long_a_failed_job_waits(delay: float, delay_us: int) -> None:
    (job,) = make_calls().next(TakenJob, 1).result(taken_of(b"a", timeouts=5))
    call = Tally(make_calls(), delay).failed(job, ValueError("x" * 1000))
    assert call is not None
    assert isinstance(call.command, Fail)
    assert call.command.delay_us == delay_us
    assert len(call.command.reason) == 500
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


def test_a_job_that_cannot_be_given_back_is_noted_on_what_ended_the_worker() -> None:
    (job,) = taken_batch(b"a")
    interruption = KeyboardInterrupt()
    lose(job, interruption, UnavailableError("nobody there"))
    assert interruption.__notes__ == ["job 'a' could not be given back: nobody there"]
    assert job.outcome is How.TIMEOUT
