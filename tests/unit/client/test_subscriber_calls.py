"""What a subscriber makes of marks, epochs and what others do."""

from __future__ import annotations

from typing import Any

import pytest

from fjord.client.calls import Call, Result
from fjord.client.messages import MessageBatch, ReadBy
from fjord.client.subscribers import SubscriberCalls
from fjord.commands import Refusal, Reply, Rest
from fjord.errors import Code, NotFoundError, StaleError
from tests.unit.client.runners import runner
from tests.unit.client.shell_calls import Recorder
from tests.unit.client.stream_samples import (
    POSITION,
    WHERE,
    ack_of,
    message,
    messages,
    position,
    read_of,
    subscriber_calls,
    subscribers,
)

STALE = Refusal(code=Code.STALE_EPOCH, text="it is elsewhere")


class Told:
    """A subscriber that is answered as a test says."""

    def __init__(self, *replies: Reply, **changes: Any) -> None:
        self.calls: SubscriberCalls = subscriber_calls(**changes)
        self._recorder = Recorder(list(replies))
        self._runner = runner(self._recorder.answer)

    @property
    def sent(self) -> list[Any]:
        return self._recorder.sent

    def run(self, call: Call[Result], /) -> Result:
        return call.result(self._recorder.answer(call.command))

    def read(self, count: int = 1000) -> MessageBatch:
        return self._runner.follow(self.calls.read(count, None))

    def ack(self, processed: Any) -> None:
        self._runner.follow(self.calls.ack(processed))

    def pop(self) -> Any:
        return self._runner.follow(self.calls.pop(None))


def test_a_batch_carries_the_epoch_in_which_it_was_read() -> None:
    told = Told(messages(b"a"), position(0, epoch=3), STALE)
    batch = told.read()
    told.run(told.calls.seek("beginning"))
    with pytest.raises(StaleError):
        told.ack(batch)
    assert told.sent[2] == ack_of(6, epoch=2)


def test_who_was_moved_by_others_reads_from_the_mark() -> None:
    told = Told(
        messages(b"a"),
        STALE,
        subscribers((b"s", 2, 7, False)),
        messages(b"z", first=3),
        position(3),
    )
    with pytest.raises(StaleError, match="it is elsewhere"):
        told.ack(told.read())
    told.ack(told.read())
    assert told.sent[2:] == [WHERE, read_of(2), ack_of(3, epoch=7)]


def test_of_a_deleted_subscriber_nothing_is_read() -> None:
    for answer in (subscribers(), subscribers((b"t", 2, 7, False))):
        told = Told(answer)
        told.calls.lose()
        with pytest.raises(NotFoundError, match="subscriber s of stream t no longer exists"):
            told.read()


def test_one_that_sleeps_is_woken_by_a_read() -> None:
    told = Told(POSITION, messages(after=5), POSITION, POSITION, messages(after=5), asleep=True)
    told.read()
    told.run(told.calls.rest(asleep=True))
    told.read()
    wake, sleep = (Rest(table="t", name="s", asleep=asleep) for asleep in (False, True))
    assert told.sent == [wake, read_of(5), sleep, wake, read_of(5)]


# -- pop ------------------------------------------------------------------------------------------


def test_each_pop_expects_the_mark_of_the_one_before() -> None:
    told = Told(
        messages(b"a", until=9, ended=False),
        position(6),
        messages(b"b", first=7, after=9),
        position(9),
    )
    assert (told.pop(), told.pop()) == (message(6, b"a"), message(7, b"b"))
    assert told.sent == [
        read_of(count=1, once=True),
        ack_of(6, expected=5),
        read_of(6, count=1, once=True),
        ack_of(9, expected=6),
    ]


def test_a_message_that_somebody_else_has_popped_is_not_given_out() -> None:
    told = Told(
        messages(b"a", until=9, ended=False),
        STALE,
        subscribers((b"s", 6, 2, False)),
        messages(b"b", first=7, after=9),
        position(9),
    )
    assert told.pop() == message(7, b"b")
    assert told.sent[2:] == [WHERE, read_of(6, count=1, once=True), ack_of(9, expected=6)]


# -- what cannot be meant -------------------------------------------------------------------------


def test_what_somebody_else_has_read_is_not_acknowledged() -> None:
    told = Told()
    for batch in (
        MessageBatch("other", messages(b"a"), ReadBy("s", 2)),
        MessageBatch("t", messages(b"a"), ReadBy("other", 2)),
    ):
        with pytest.raises(ValueError, match="this is subscriber s of t, but the batch was read"):
            told.ack(batch)
    assert told.sent == []
