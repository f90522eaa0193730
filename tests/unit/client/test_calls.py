"""Calls: a command, and what its reply means to the user."""

from __future__ import annotations

import asyncio

import pytest

from fjord.client.calls import Call, Steps, expect_rows
from fjord.commands import Command, Done, Nop, Refusal, Reply
from fjord.errors import Code, ExistsError, RefusedError, RemoteProtocolError
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
