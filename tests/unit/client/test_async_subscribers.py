"""A subscriber for asyncio: it does what the blocking one does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fjord.client.subscribers import AsyncSubscriber
from fjord.commands import ListSubscribers, Refusal, Rest
from fjord.errors import Code, StaleError
from tests.unit.client.runners import async_runner
from tests.unit.client.shell_calls import Recorder, Sample
from tests.unit.client.stream_samples import (
    POSITION,
    SUBSCRIBER_SAMPLES,
    ack_of,
    message,
    messages,
    position,
    read_of,
    shown,
    subscriber_calls,
    subscribers,
)
from tests.unit.client.test_async_connection import run


def over(recorder: Recorder, **changes: Any) -> AsyncSubscriber:
    return AsyncSubscriber(async_runner(recorder.answer), subscriber_calls(**changes))


async def finished(result: Any) -> Any:
    return shown(await result)


@pytest.mark.parametrize("sample", SUBSCRIBER_SAMPLES, ids=lambda sample: sample.name)
def test_a_call_sends_its_command_and_reads_the_answer(sample: Sample) -> None:
    recorder = Recorder(sample.replies)
    result = asyncio.run(finished(sample.call(over(recorder))))
    assert recorder.sent == sample.sent
    assert result == sample.result
    assert type(result) is type(sample.result)


def test_batches_come_until_there_are_no_more() -> None:
    async def main() -> None:
        found = [batch.values async for batch in over(recorder).batches(1)]
        assert found == [[b"a"], [b"b"]]

    recorder = Recorder(
        [
            messages(b"a", until=20, ended=False),
            messages(b"b", first=7, after=20),
            messages(after=20),
        ]
    )
    run(main())
    assert recorder.sent == [
        read_of(5, count=1),
        read_of(6, count=1, until=20),
        read_of(20, count=1),
    ]


def test_a_message_is_acknowledged_when_its_block_ends_well() -> None:
    async def main() -> None:
        async with over(recorder).taking(wait=2) as found:
            assert found == message(6, b"a")

    recorder = Recorder([messages(b"a", after=8), position(8)])
    run(main())
    assert recorder.sent == [read_of(count=1, once=True, wait_us=2_000_000), ack_of(8)]


def test_a_message_comes_again_when_its_block_raises() -> None:
    async def main() -> None:
        subscriber = over(recorder)
        with pytest.raises(OSError, match="no route"):
            async with subscriber.taking():
                raise OSError("no route")
        async with subscriber.taking() as found:
            assert found == message(6, b"a")
        async with subscriber.taking() as found:
            assert found is None

    recorder = Recorder(
        [messages(b"a", after=8), messages(b"a", after=8), position(8), messages(after=8)]
    )
    run(main())
    assert recorder.sent == [
        read_of(count=1, once=True),
        read_of(count=1, once=True),
        ack_of(8),
        read_of(8, count=1, once=True),
    ]


def test_a_message_that_a_block_holds_is_not_given_out_a_second_time() -> None:
    async def main() -> None:
        subscriber = over(recorder)
        async with subscriber.taking():
            with pytest.raises(RuntimeError, match="leave that block first"):
                await subscriber.pop()
            with pytest.raises(RuntimeError, match="leave that block"):
                async with subscriber.taking():
                    pass
        assert await subscriber.pop() is None

    recorder = Recorder([messages(b"a", after=8), position(8), messages(after=8)])
    run(main())
    assert recorder.sent == [
        read_of(count=1, once=True),
        ack_of(8),
        read_of(8, count=1, once=True),
    ]


def test_who_was_moved_by_others_reads_from_the_mark() -> None:
    async def main() -> None:
        subscriber = over(recorder)
        with pytest.raises(StaleError):
            await subscriber.ack(await subscriber.read())
        assert list(await subscriber.read()) == [message(3, b"z")]

    recorder = Recorder(
        [
            messages(b"a"),
            Refusal(code=Code.STALE_EPOCH, text="moved"),
            subscribers((b"s", 2, 7, False)),
            messages(b"z", first=3),
        ]
    )
    run(main())
    assert recorder.sent[2:] == [ListSubscribers(table="t", start="s", count=1), read_of(2)]


def test_a_subscriber_sleeps_at_the_end_of_a_block() -> None:
    async def main() -> None:
        async with over(recorder) as subscriber:
            assert subscriber.name == "s"
        with pytest.raises(OSError, match="no route"):
            async with over(recorder):
                raise OSError("no route")

    recorder = Recorder([POSITION])
    run(main())
    assert recorder.sent == [Rest(table="t", name="s", asleep=True)]
