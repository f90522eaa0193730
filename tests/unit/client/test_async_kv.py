"""A key/value table for asyncio: it does what the blocking one does."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fjord.client.blocking.kv import Kv
from fjord.client.kv import AsyncKv
from fjord.commands import Lock, Unlock
from fjord.errors import UnavailableError
from tests.unit.client.runners import async_runner
from tests.unit.client.scripted import TOKEN
from tests.unit.client.shell_calls import SAMPLES, K, Recorder, Sample, listen_of, make_calls


def recorded(recorder: Recorder) -> AsyncKv:
    return AsyncKv(async_runner(recorder.answer), make_calls())


async def finished(result: Any) -> Any:
    if isinstance(result, AsyncIterator):
        return [row async for row in result]
    return await result


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_call_sends_its_command_and_reads_the_answer(sample: Sample) -> None:
    recorder = Recorder(sample.replies)
    result = asyncio.run(finished(sample.call(recorded(recorder))))
    assert recorder.sent == sample.sent
    assert result == sample.result


def test_both_shells_have_the_same_methods_with_the_same_parameters() -> None:
    names = [name for name in vars(Kv) if not name.startswith("_")]
    assert [name for name in vars(AsyncKv) if not name.startswith("_")] == names
    for name in names:
        blocking = inspect.signature(getattr(Kv, name))
        assert inspect.signature(getattr(AsyncKv, name)).parameters == blocking.parameters


def test_locks_are_given_free_after_the_block_and_after_an_error() -> None:
    async def main() -> None:
        async with kv.locked("k"):
            assert recorder.sent == [Lock(table="t", keys=K)]
        with pytest.raises(KeyError):
            async with kv.locked("k"):
                raise KeyError

    recorder = Recorder([TOKEN] * 4)
    kv = recorded(recorder)
    asyncio.run(main())
    assert [type(command) for command in recorder.sent] == [Lock, Unlock] * 2


def test_locks_that_went_with_the_connection_are_not_given_free() -> None:
    async def main() -> None:
        with pytest.raises(UnavailableError, match="broke"):
            async with kv.locked("k"):
                raise UnavailableError("it broke")

    recorder = Recorder([TOKEN])
    kv = recorded(recorder)
    asyncio.run(main())
    assert len(recorder.sent) == 1


def test_listening_names_the_table_and_the_keys() -> None:
    changes = recorded(Recorder([])).listen("k", b"l")
    assert changes._command == listen_of(b"k", b"l")


def test_a_table_says_its_name_and_where_it_is() -> None:
    named = AsyncKv(async_runner(Recorder([]).answer, "fjord://host:1"), make_calls())
    assert repr(named) == "<AsyncKv 't' at fjord://host:1>"
