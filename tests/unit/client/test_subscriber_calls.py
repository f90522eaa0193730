"""What a subscriber makes of marks, epochs and what others do."""

from __future__ import annotations

from typing import Any

import pytest

from fjord.client.calls import Call, Result
from fjord.client.messages import MessageBatch, ReadBy
from fjord.client.subscribers import SubscriberCalls
from fjord.commands import Refusal, Reply
from fjord.errors import Code, StaleError
from tests.unit.client.runners import runner
from tests.unit.client.shell_calls import Recorder
from tests.unit.client.stream_samples import (
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


def test_a_peek_looks_at_the_mark_and_leaves_reads_where_they_are() -> None:
    told = Told(
        messages(b"a", b"b", until=9, ended=False),
        subscribers((b"s", 5, 2, False)),
        messages(b"a", until=9, ended=False),
        messages(b"c", first=8, after=9),
        subscribers((b"s", 9, 2, False)),
        messages(after=9),
    )
    told.read(2)
    assert told._runner.follow(told.calls.peek()) == message(6, b"a")
    told.read()
    assert told._runner.follow(told.calls.peek()) is None
    assert told.sent == [
        read_of(count=2),
        WHERE,
        read_of(5, until=9, count=1, once=True),
        read_of(7, until=9),
        WHERE,
        read_of(9, count=1, once=True),
    ]


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
