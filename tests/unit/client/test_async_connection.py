"""The asyncio client against a daemon that follows a script."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

import fjord.aio
from fjord import errors, limits
from fjord.client.async_connection import AsyncConnection
from fjord.commands import Changed, Command, Done, Listen, Nop
from fjord.errors import FjordError, UnavailableError
from tests.unit.client.scripted import (
    BUSY,
    CUT,
    NOW_US,
    SILENCE,
    TOKEN,
    Answer,
    Scripted,
    say,
    usual,
)
from tests.unit.client.test_socket import ADD, GET, KEYS, LOCK, SET, first_is

TOKEN_OF_NOP = Done(master=b"", seq=0)


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await main

    asyncio.run(bounded())


@contextlib.asynccontextmanager
async def connected(server: Scripted, timeout: float = 20) -> AsyncIterator[AsyncConnection]:
    connection = AsyncConnection(server.url, timeout=timeout)
    await connection.open()
    yield connection
    connection.close()


def test_many_requests_are_in_flight_at_a_time() -> None:
    """The server answers only when it has them all."""

    async def main() -> None:
        async with connected(server) as connection:
            replies = await asyncio.gather(*(connection.execute(Nop()) for _ in range(3)))
            assert replies == [TOKEN_OF_NOP] * 3

    waiting: list[Command] = []

    def script(number: int, command: Command) -> Answer:
        waiting.append(command)
        return SILENCE if len(waiting) < 3 else say(*[answer_to(one) for one in (1, 2, 3)])

    with Scripted(script) as server:
        run(main())


def answer_to(place: int) -> bytes:
    """Returns the reply to the n-th NOP; the first identifier is that of HELLO."""
    return b"JR\0\1" + (place + 1).to_bytes(2, "big") + bytes(11)


def test_what_was_in_flight_is_sent_again_in_order() -> None:
    async def main() -> None:
        async with connected(server) as connection:
            found = await asyncio.gather(*(connection.execute(ADD) for _ in range(5)))
            assert found == [usual(ADD)] * 5

    def script(number: int, command: Command) -> Answer:
        if number > 1:
            return say(usual(command))
        return CUT if len(server.asked) == 5 else SILENCE

    with Scripted(script) as server:
        run(main())
    assert server.numbers == [1, 2, 3, 4, 5] * 2
    assert len(set(server.clients)) == 1


def test_a_server_that_is_busy_and_then_silent_ends_the_call_in_time() -> None:
    async def main() -> None:
        async with connected(server, timeout=1) as connection:
            with pytest.raises(errors.UnavailableError, match="within 1 s"):
                await asyncio.wait_for(connection.execute(SET), 20)

    answers = iter([BUSY] * 3)

    def script(number: int, command: Command) -> Answer:
        answer = next(answers, None)
        return SILENCE if answer is None else say(answer)

    with Scripted(script) as server:
        run(main())


def test_a_change_where_a_reply_is_due_is_the_peers_mistake() -> None:
    async def main() -> None:
        async with connected(server) as connection:
            with pytest.raises(errors.RemoteProtocolError, match="a change instead of a reply"):
                await connection.execute(Listen(table="t", keys=KEYS))
            assert await connection.execute(SET) == TOKEN

    with Scripted(first_is(say(Changed("t", b"k", 1, b"v", NOW_US, 0)))) as server:
        run(main())


def test_a_cancelled_call_keeps_its_place_until_its_reply() -> None:
    asked = threading.Event()

    async def main() -> None:
        async with connected(server) as connection:
            task = asyncio.create_task(connection.execute(GET))
            await asyncio.to_thread(asked.wait, 20)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await connection.execute(SET) == TOKEN
            server.cut_all()
            assert await connection.execute(SET) == TOKEN
            assert connection._places.free == limits.IN_FLIGHT_MAX

    def script(number: int, command: Command) -> Answer:
        asked.set()
        return SILENCE if command == GET else say(usual(command))

    with Scripted(script) as server:
        run(main())
    assert server.commands == [GET, SET, SET]


def test_a_call_that_is_cancelled_between_two_connections_gives_its_place_back() -> None:
    async def main() -> None:
        async with connected(server) as connection:
            with pytest.raises(errors.UnavailableError):
                await connection.execute(LOCK)
            task = asyncio.create_task(connection.execute(GET))
            await asyncio.sleep(0)  # it begins, and has to wait for a new connection
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await connection.execute(SET) == TOKEN
            assert connection._places.free == limits.IN_FLIGHT_MAX

    with Scripted(first_is(CUT)) as server:
        run(main())
    assert server.commands == [LOCK, SET]


@pytest.mark.parametrize("answer", [SILENCE, CUT, say(BUSY)], ids=["silence", "cut", "busy"])
def test_closing_ends_calls_that_are_under_way(answer: Answer) -> None:
    asked = threading.Event()

    async def main() -> None:
        async with connected(server) as connection:
            task = asyncio.create_task(connection.execute(GET))
            await asyncio.to_thread(asked.wait, 20)
            connection.close()
            with pytest.raises(errors.ClosedError):
                await task
            with pytest.raises(errors.ClosedError):
                await connection.execute(GET)

    def script(number: int, command: Command) -> Answer:
        asked.set()
        return answer

    with Scripted(script) as server:
        run(main())


def test_nobody_there_is_said_at_once() -> None:
    async def main() -> None:
        with pytest.raises(UnavailableError, match="fjord serve"):
            await fjord.aio.connect(server.url)
        with pytest.raises(FjordError, match="more than 0"):
            await fjord.aio.connect(server.url, timeout=0)

    with Scripted() as server:
        pass
    run(main())


def test_locks_lost_while_nothing_was_asked_are_told_to_the_next_call() -> None:
    async def main() -> None:
        async with connected(server) as connection:
            await connection.execute(LOCK)
            server.cut_all()
            while connection._channel is not None:  # noqa: ASYNC110 - its end has no event
                await asyncio.sleep(0)
            with pytest.raises(UnavailableError, match="its locks are lost"):
                await connection.execute(GET)
            assert await connection.execute(SET) == TOKEN  # told once

    with Scripted() as server:
        run(main())
    assert server.asked == [(1, LOCK), (2, SET)]
