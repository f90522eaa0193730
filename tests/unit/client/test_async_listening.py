"""Listening for asyncio, against a daemon that follows a script."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from fjord.client.async_connection import AsyncConnection
from fjord.client.async_listening import AsyncChanges
from fjord.client.entries import Change, change_reader
from fjord.commands import Changed, Refusal
from fjord.errors import ClosedError, Code, LockedError, UnavailableError
from tests.unit.client.scripted import CUT, NOW_US, TOKEN, Answer, Scripted, say
from tests.unit.client.shell_calls import listen_of
from tests.unit.client.test_async_connection import run


def change(value: bytes) -> Changed:
    return Changed("t", b"k", 2, value, NOW_US, 0)


def always(answer: Answer) -> Scripted:
    return Scripted(lambda number, command: answer)


def listening(server: Scripted) -> AsyncChanges[Change]:
    port = int(server.url.rpartition(":")[2])
    connection = cast(
        AsyncConnection, SimpleNamespace(address=("127.0.0.1", port), name=server.url)
    )
    return AsyncChanges(connection, listen_of(b"k"), change_reader(["k"]))


@pytest.mark.req("FJ-44")
def test_changes_come_before_with_and_after_the_reply() -> None:
    async def main() -> None:
        async with listening(server) as changes:
            found = []
            async for one in changes:
                found.append(one.value)
                if len(found) == 3:
                    changes.close()
            assert found == ["1", "2", "3"]
            with pytest.raises(ClosedError):
                await changes.wait()

    with always(say(change(b"1"), TOKEN, change(b"2"), change(b"3"))) as server:
        run(main())
    assert server.commands == [listen_of(b"k")]


def test_closing_wakes_the_task_that_waits() -> None:
    async def main() -> None:
        changes = await listening(server).begin()
        task = asyncio.create_task(changes.wait())
        await asyncio.sleep(0)
        changes.close()
        with pytest.raises(ClosedError):
            await task

    with always(say(TOKEN)) as server:
        run(main())


def test_listening_can_be_refused_or_cut() -> None:
    async def refused() -> None:
        with pytest.raises(LockedError):
            await listening(server).begin()

    async def cut() -> None:
        with pytest.raises(UnavailableError):
            await listening(server).begin()

    with always(say(Refusal(code=Code.LOCKED, text="no"))) as server:
        run(refused())
    with always(CUT) as server:
        run(cut())
    run(cut())  # nobody is there any more
