"""What a subscriber makes of marks, epochs and what others do."""

from __future__ import annotations

from typing import Any

import pytest

from fjord.client.calls import Call, Result
from fjord.client.messages import MessageBatch, ReadBy
from fjord.client.subscribers import SubscriberCalls, first_of, subscribe
from fjord.commands import Refusal, Reply, Rest, Subscribe
from fjord.errors import Code, NotFoundError, RefusedError, RemoteProtocolError, StaleError
from fjord.streams import Start
from tests.unit.client.runners import runner
from tests.unit.client.shell_calls import Recorder
from tests.unit.client.stream_samples import (
    POSITION,
    WHERE,
    ack_of,
    message,
    messages,
    numbers,
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


def test_a_subscriber_begins_at_its_mark() -> None:
    call = subscribe("t", "s", "end")
    assert call.command == Subscribe(table="t", name="s", start=Start.END)
    calls = call.result(position(7))
    assert (calls.table, calls.name) == ("t", "s")
    assert next(calls.read(10, None)).command == read_of(7, count=10)


def test_a_batch_is_acknowledged_to_where_reading_goes_on() -> None:
    told = Told(messages(b"a", after=9), position(9), messages(after=9))
    told.ack(told.read())
    told.read()
    assert told.sent == [read_of(5), ack_of(9), read_of(9)]


def test_what_others_have_processed_is_not_read() -> None:
    told = Told(messages(b"a", after=9, until=40, ended=False), position(30), messages(after=40))
    told.ack(told.read())
    told.read()
    assert told.sent[2] == read_of(30, until=40)


def test_a_batch_carries_the_epoch_in_which_it_was_read() -> None:
    told = Told(messages(b"a"), position(0, epoch=3), STALE)
    batch = told.read()
    told.run(told.calls.seek("beginning"))
    with pytest.raises(StaleError):
        told.ack(batch)
    assert told.sent[2] == ack_of(6, epoch=2)


def test_after_a_seek_reading_begins_there() -> None:
    told = Told(messages(b"a", until=20, ended=False), position(0, epoch=3), messages(after=0))
    told.read()
    told.run(told.calls.seek("beginning"))
    batch = told.read()
    assert told.sent[2] == read_of(0)
    assert batch.read_by == ReadBy("s", 3)


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


def test_a_pop_begins_at_the_mark_whatever_was_read() -> None:
    told = Told(
        messages(b"a", b"b", until=9, ended=False),
        messages(b"a", until=9, ended=False),
        position(6),
    )
    told.read(2)
    assert told.pop() == message(6, b"a")
    assert told.sent == [
        read_of(count=2),
        read_of(5, until=9, count=1, once=True),
        ack_of(6, expected=5),
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


def test_a_pop_that_is_refused_gives_nothing_out() -> None:
    told = Told(messages(b"a"), Refusal(code=Code.DISK_FULL, text="full"))
    with pytest.raises(RefusedError, match="full"):
        told.pop()
    assert len(told.sent) == 2


# -- transactions ---------------------------------------------------------------------------------


def test_pledges_of_one_transaction_build_on_each_other() -> None:
    told = Told(messages(b"a", until=9, ended=False), messages(b"b", first=7, after=9))
    batches = [told.read(1), told.read(1)]
    commands = [told.calls.pledge(batch).command for batch in batches]
    assert commands == [ack_of(6, expected=5), ack_of(9, expected=6)]
    assert told.calls.pledge(5).command == ack_of(5, expected=9)


def test_after_a_failed_transaction_reading_begins_at_the_mark() -> None:
    told = Told(messages(b"a"), subscribers((b"s", 5, 2, False)), messages(b"a"))
    told.calls.pledge(told.read())
    told.calls.lose()
    batch = told.read()
    assert told.sent[1:] == [WHERE, read_of(5)]
    assert told.calls.pledge(batch).command == ack_of(6, expected=5)


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


def test_a_batch_that_was_read_without_a_name_can_be_acknowledged() -> None:
    told = Told(position(6))
    told.ack(MessageBatch("t", messages(b"a")))
    assert told.sent == [ack_of(6)]


@pytest.mark.parametrize("seq", [-1, 2**63])
def test_what_is_no_seq_is_not_acknowledged(seq: int) -> None:
    with pytest.raises(ValueError, match="seq, 0 or more"):
        Told().ack(seq)


def test_a_lag_without_its_number_is_the_peers_mistake() -> None:
    with pytest.raises(RemoteProtocolError, match="without messages"):
        subscriber_calls().lag().result(numbers(seqs=5))


def test_a_batch_without_messages_has_no_first_one() -> None:
    assert first_of(MessageBatch("t", messages(after=5))) is None
    assert first_of(MessageBatch("t", messages(b"a"))) == message(6, b"a")


def test_going_back_in_another_epoch_changes_nothing() -> None:
    told = Told(messages(b"a"), position(3, epoch=3), messages(after=3))
    batch = told.read()
    told.run(told.calls.seek(4))
    told.calls.go_back(batch)
    told.read()
    assert told.sent[2] == read_of(3)
