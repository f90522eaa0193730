"""Calls: a command, and what its reply means to the user."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fjord.client.calls import Call, Steps, expect_rows
from fjord.client.history import as_arrow, scan_of
from fjord.client.jobs.records import TakenJob
from fjord.client.jobs.work import Shift
from fjord.columns import Strings
from fjord.commands import Command, Done, Nop, Numbers, Refusal, Reply, Scan
from fjord.errors import Code, ExistsError, LocalProtocolError, RefusedError, RemoteProtocolError
from tests.unit.client import job_samples, shell_calls, stream_samples
from tests.unit.client.job_samples import NOW
from tests.unit.client.runners import async_runner, runner

TOKEN = Done(master=b"m" * 16, seq=5)


def seq_of(reply: Reply) -> int:
    assert isinstance(reply, Done)
    return reply.seq


def test_a_refusal_is_raised_and_not_read() -> None:
    with pytest.raises(ExistsError, match="EXISTS: it is there"):
        Call(Nop(), seq_of).result(Refusal(code=Code.EXISTS, text="it is there"))
    with pytest.raises(RefusedError):
        Call(Nop(), seq_of).result(Refusal(code=Code.QUOTA, text="enough"))


def test_a_reply_with_other_rows_is_the_peers_mistake() -> None:
    expect_rows(2, 2)
    with pytest.raises(RemoteProtocolError, match="3 rows, not 2"):
        expect_rows(3, 2)


JOBS: Any = job_samples.make_calls()
KV: Any = shell_calls.make_calls()
STREAM: Any = stream_samples.stream_calls()
ACTED_ON_NONE = job_samples.acted(1)
SCAN = Scan(table="t", start_seq=5, end_seq=0)
SOME = Numbers(names=Strings.of([b"waiting"]), values=[5])


def shift(**options: Any) -> object:
    return Shift(JOBS, TakenJob, options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("act", "error", "text"),
    [
        (lambda: JOBS.cancel("k").result(ACTED_ON_NONE), RemoteProtocolError, "row 1 of 1"),
        (lambda: JOBS.done_many([70]).result(ACTED_ON_NONE), RemoteProtocolError, "row 1 of 1"),
        (lambda: STREAM.delete("k").result(ACTED_ON_NONE), RemoteProtocolError, "row 1 of 1"),
        (lambda: JOBS.count().result(SOME), RemoteProtocolError, "without taken"),
        (lambda: JOBS.next_at(None).result(SOME), RemoteProtocolError, "without next_at_us"),
        (lambda: JOBS.cancel_many("abc"), TypeError, "several keys must be a list"),
        (lambda: STREAM.delete_many(b"k"), TypeError, "several keys must be a list"),
        (lambda: JOBS.push_many([{"key": "a"}], priority=5), TypeError, "takes either a list"),
        (lambda: JOBS.fail_many([70], resaon="why"), TypeError, "fail has no resaon"),
        (lambda: KV.set("a", 1, expires_at=NOW.replace(year=1969)), LocalProtocolError, "future"),
        (lambda: KV.set("a", 1, tll=5), TypeError, "tll"),
        (lambda: STREAM.append_many([b"a", b"b"], ["k"]), ValueError, "keys: 1 for 2 values"),
        (lambda: STREAM.append_many([b"a"], "k"), TypeError, "keys must be a list"),
        (lambda: STREAM.append_many(b"abc", None), TypeError, "values must be a list"),
        (lambda: STREAM.append_many(["\ud800"], None), LocalProtocolError, "not UTF-8"),
        (lambda: scan_of("t", 5, 9, ops="A", key_prefix=""), TypeError, "ops is a list"),
        (lambda: as_arrow(SCAN, "seq", is_remote=True), TypeError, "columns is a list"),
        (lambda: shift(wait=0), ValueError, "does not poll"),
        (lambda: shift(batch=0), ValueError, "batch is 1 or more, not 0"),
        (lambda: shift(stop=True), TypeError, "stop is an event, or a function"),
        (lambda: shift(leese=5), TypeError, "work has no leese"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    act: Callable[[], object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        act()


# -- several calls --------------------------------------------------------------------------------


def counted(tries: int) -> Steps[list[int]]:
    """Asks until it was answered, as often as it may; then once more."""
    found: list[int] = []
    while not found:
        try:
            found.append((yield Call(Nop(), seq_of)))
        except ExistsError:
            if not (tries := tries - 1):
                raise
    found.append((yield Call(Nop(), seq_of)))
    return found


def nothing() -> Steps[int]:
    yield from ()
    return 7


class Answers:
    """Answers calls in turn, for both kinds of shells."""

    def __init__(self, *replies: Reply) -> None:
        self.left = list(replies)

    def answer(self, command: Command) -> Reply:
        return self.left.pop(0)


REFUSAL = Refusal(code=Code.EXISTS, text="it is there")


def test_steps_are_given_results_and_errors() -> None:
    replies = (REFUSAL, TOKEN, TOKEN)
    assert runner(Answers(*replies).answer).follow(counted(2)) == [5, 5]
    assert asyncio.run(async_runner(Answers(*replies).answer).follow(counted(2))) == [5, 5]


def test_an_error_that_the_steps_do_not_expect_ends_them() -> None:
    for replies in ((REFUSAL, REFUSAL, TOKEN), (TOKEN, REFUSAL)):
        answers, others = Answers(*replies), Answers(*replies)
        with pytest.raises(ExistsError):
            runner(answers.answer).follow(counted(2))
        with pytest.raises(ExistsError):
            asyncio.run(async_runner(others.answer).follow(counted(2)))
        assert len(answers.left) == len(others.left) == len(replies) - 2
