"""A subscriber as users see it: the blocking shell."""

from __future__ import annotations

from typing import Any

import pytest

from fjord.client.blocking.subscribers import Subscriber
from fjord.commands import Rest, Welcome
from fjord.errors import RemoteProtocolError
from tests.unit.client import stream_samples as samples
from tests.unit.client.runners import runner
from tests.unit.client.shell_calls import Recorder, Sample


def over(recorder: Recorder, **changes: Any) -> Subscriber:
    return Subscriber(runner(recorder.answer), samples.subscriber_calls(**changes))


@pytest.mark.parametrize("sample", samples.SUBSCRIBER_SAMPLES, ids=lambda sample: sample.name)
def test_a_call_sends_its_command_and_reads_the_answer(sample: Sample) -> None:
    recorder = Recorder(sample.replies)
    result = samples.shown(sample.call(over(recorder)))
    assert recorder.sent == sample.sent
    assert result == sample.result
    assert type(result) is type(sample.result)


@pytest.mark.parametrize("sample", samples.SUBSCRIBER_SAMPLES, ids=lambda sample: sample.name)
def test_a_reply_of_another_kind_is_the_peers_mistake(sample: Sample) -> None:
    wrong = Welcome(client=b"c" * 16, master=b"m" * 16, version="1")
    with pytest.raises(RemoteProtocolError, match="of the kind Welcome"):
        sample.call(over(Recorder([wrong])))


def test_batches_come_until_there_are_no_more() -> None:
    recorder = Recorder(
        [
            samples.messages(b"a", until=20, ended=False),
            samples.messages(b"b", first=7, after=20),
            samples.messages(b"c", first=21),
            samples.messages(after=21),
        ]
    )
    found = [batch.values for batch in over(recorder).batches(1)]
    assert found == [[b"a"], [b"b"], [b"c"]]
    assert recorder.sent == [
        samples.read_of(5, count=1),
        samples.read_of(6, count=1, until=20),
        samples.read_of(20, count=1),
        samples.read_of(21, count=1),
    ]


# -- reliable pop ---------------------------------------------------------------------------------


def test_a_message_comes_again_when_its_block_raises() -> None:
    recorder = Recorder(
        [samples.messages(b"a", after=8), samples.messages(b"a", after=8), samples.position(8)]
    )
    subscriber = over(recorder)
    with pytest.raises(OSError, match="no route"), subscriber.taking():
        raise OSError("no route")
    with subscriber.taking() as found:
        assert found == samples.message(6, b"a")
    assert recorder.sent == [
        samples.read_of(count=1, once=True),
        samples.read_of(count=1, once=True),
        samples.ack_of(8),
    ]


# -- its end --------------------------------------------------------------------------------------


def test_a_subscriber_sleeps_at_the_end_of_a_block() -> None:
    recorder = Recorder([samples.POSITION])
    with over(recorder):
        assert recorder.sent == []
    assert recorder.sent == [Rest(table="t", name="s", asleep=True)]
