"""A stream for asyncio: it does what the blocking one does."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fjord import limits
from fjord.client.blocking.streams import Stream
from fjord.client.blocking.subscribers import Reader, Subscriber
from fjord.client.declared_tables import StreamSettings
from fjord.client.streams import AsyncStream
from fjord.client.subscribers import AsyncReader, AsyncSubscriber
from fjord.commands import Append, Stats, Subscribe
from fjord.errors import RefusedError
from fjord.streams import Start
from tests.unit.client.runners import async_runner
from tests.unit.client.scripted import TOKEN
from tests.unit.client.shell_calls import Recorder, Sample, page, range_of
from tests.unit.client.stream_samples import (
    CREATED,
    LAST,
    POSITION,
    STREAM_SAMPLES,
    append_of,
    entry_calls,
    message,
    messages,
    read_of,
    shown,
    stream_calls,
)
from tests.unit.client.test_async_connection import run


def over(recorder: Recorder, settings: StreamSettings | None = None) -> AsyncStream:
    return AsyncStream(async_runner(recorder.answer), stream_calls(), entry_calls(), settings)


async def finished(result: Any) -> Any:
    if isinstance(result, AsyncIterator):
        return [row async for row in result]
    return shown(await result)


@pytest.mark.parametrize("sample", STREAM_SAMPLES, ids=lambda sample: sample.name)
def test_a_call_sends_its_command_and_reads_the_answer(sample: Sample) -> None:
    recorder = Recorder(sample.replies)
    result = asyncio.run(finished(sample.call(over(recorder))))
    assert recorder.sent == sample.sent
    assert result == sample.result
    assert type(result) is type(sample.result)


@pytest.mark.parametrize(
    ("blocking", "awaited"),
    [(Stream, AsyncStream), (Reader, AsyncReader), (Subscriber, AsyncSubscriber)],
)
def test_both_shells_have_the_same_methods_with_the_same_parameters(
    blocking: type, awaited: type
) -> None:
    def described(kind: type, name: str) -> list[tuple[Any, ...]]:
        found = getattr(kind, name)
        if isinstance(found, property):
            return [("property",)]
        parameters = inspect.signature(found).parameters.values()
        return [(one.name, one.kind, one.default, str(one.annotation)) for one in parameters]

    names = [name for name in vars(blocking) if not name.startswith("_")]
    assert [name for name in vars(awaited) if not name.startswith("_")] == names
    assert names
    for name in names:
        assert described(awaited, name) == described(blocking, name)


def test_a_stream_says_its_name_and_where_it_is() -> None:
    named = AsyncStream(
        async_runner(Recorder([]).answer, "fjord://host:1"), stream_calls(), entry_calls()
    )
    assert repr(named) == "<AsyncStream 't' at fjord://host:1>"


def test_settings_are_declared_once() -> None:
    async def main() -> None:
        stream = over(recorder, {"mode": "latest"})
        await stream.append(b"v", key="k")
        await stream.append_many([b"v"])

    recorder = Recorder([TOKEN, TOKEN, TOKEN])
    run(main())
    assert recorder.sent == [CREATED, append_of(b"v", keys=[b"k"]), append_of(b"v")]


def test_a_stream_is_iterated_like_a_dict_and_wrong_names_are_refused() -> None:
    async def main() -> None:
        stream = over(recorder)
        assert [key async for key in stream] == ["k", "l"]
        with pytest.raises(RefusedError, match="BAD_NAME"):
            await stream.subscriber("a/b")

    recorder = Recorder([page(b"k", b"l")])
    run(main())
    assert recorder.sent == [range_of(with_data=False)]


def test_what_is_too_much_for_one_commit_goes_in_several() -> None:
    recorder = Recorder([TOKEN, TOKEN])
    assert asyncio.run(over(recorder).append_many([b""] * (limits.BATCH_ROWS_MAX + 1))) == 5
    sizes = [len(one.types) for one in recorder.sent if isinstance(one, Append)]
    assert sizes == [limits.BATCH_ROWS_MAX, 1]


def test_a_subscriber_is_made_where_it_is_to_begin() -> None:
    async def main() -> None:
        subscriber = await over(recorder).subscriber("s", start="end")
        assert repr(subscriber) == "<AsyncSubscriber 's' of 't'>"
        assert list(await subscriber.read()) == [message(6, b"a")]

    recorder = Recorder([POSITION, messages(b"a")])
    run(main())
    assert recorder.sent == [Subscribe(table="t", name="s", start=Start.END), read_of(5)]


def test_a_reader_keeps_its_place() -> None:
    async def main() -> None:
        reader = await over(recorder).reader(start="end")
        assert repr(reader) == "<AsyncReader of 't' after seq 5>"
        found = [batch.values async for batch in reader.batches(10, wait=1)]
        assert found == [[b"a"], [b"b"]]
        assert reader.position == 10

    recorder = Recorder(
        [LAST, messages(b"a", after=9), messages(b"b", first=10), messages(after=10)]
    )
    run(main())
    asked = {"count": 10, "wait_us": 1_000_000, "subscriber": ""}
    assert recorder.sent == [
        Stats(),
        read_of(5, **asked),
        read_of(9, **asked),
        read_of(10, **asked),
    ]
