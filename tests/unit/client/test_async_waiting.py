"""The asyncio client where it lets the server wait, against a daemon that follows a script."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from fjord import limits
from fjord.client.async_connection import Pending
from fjord.commands import Command, Fail, Next, Reply
from tests.unit.client.scripted import SILENCE, TOKEN, Answer, Scripted, reply_to, say, usual
from tests.unit.client.test_async_connection import connected, run
from tests.unit.client.test_socket import SET
from tests.unit.client.test_socket_waiting import NEXT, TAKEN, silent_to_next

# The identifier of the first request; that of HELLO is 1.
FIRST = 2
GIVEN_BACK = Fail(table="t", xids=(70,), counts=False)


def reply_to_first(reply: Reply) -> bytes:
    return reply_to(Next, FIRST, reply)


def test_whoever_waits_leaves_places_for_others() -> None:
    async def main() -> None:
        async with connected(server) as connection:
            tasks = [
                asyncio.create_task(connection.execute(NEXT)) for _ in range(limits.IN_FLIGHT_MAX)
            ]
            await asyncio.sleep(0)
            found = await asyncio.gather(*(connection.execute(SET) for _ in range(300)))
            assert found == [TOKEN] * 300
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            server.cut_all()  # with it goes what was in flight
            assert await connection.execute(SET) == TOKEN
            assert connection._places.free == limits.IN_FLIGHT_MAX
            assert connection._waits.free == limits.IN_FLIGHT_MAX // 2

    with Scripted(silent_to_next) as server:
        run(main())
    waiting = [command for command in server.commands if isinstance(command, Next)]
    assert len(waiting) == limits.IN_FLIGHT_MAX // 2


def test_what_cannot_be_sent_gives_its_places_back() -> None:
    async def main() -> None:
        async with connected(server) as connection:
            connection.close()
            for _ in range(limits.IN_FLIGHT_MAX + 1):
                with pytest.raises(Exception, match="closed"):
                    await connection.execute(NEXT)
            assert connection._places.free == limits.IN_FLIGHT_MAX
            assert connection._waits.free == limits.IN_FLIGHT_MAX // 2

    with Scripted() as server:
        run(main())


def test_a_call_that_is_cancelled_before_it_has_a_place_takes_none() -> None:
    async def main() -> None:
        async with connected(server) as connection:
            others = [connection.execute(Next(table="t")) for _ in range(limits.IN_FLIGHT_MAX)]
            busy = [asyncio.create_task(one) for one in others]
            await asyncio.sleep(0)
            late = asyncio.create_task(connection.execute(NEXT))
            await asyncio.sleep(0)
            assert connection._waits.free == limits.IN_FLIGHT_MAX // 2 - 1
            late.cancel()
            await asyncio.gather(late, return_exceptions=True)
            assert connection._waits.free == limits.IN_FLIGHT_MAX // 2
            for task in busy:
                task.cancel()
            await asyncio.gather(*busy, return_exceptions=True)

    with Scripted(silent_to_next) as server:
        run(main())


# -- jobs that nobody waits for any more ----------------------------------------------------------


def test_jobs_for_a_call_that_was_cancelled_are_given_back() -> None:
    asked, given_back = threading.Event(), threading.Event()

    async def main() -> None:
        async with connected(server) as connection:
            task = asyncio.create_task(connection.execute(NEXT))
            await asyncio.to_thread(asked.wait, 20)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await connection.execute(SET) == TOKEN
            assert await asyncio.to_thread(given_back.wait, 20)

    def script(number: int, command: Command) -> Answer:
        if isinstance(command, Next):
            asked.set()
            return SILENCE
        if isinstance(command, Fail):
            given_back.set()
        return say(reply_to_first(TAKEN), TOKEN) if command == SET else say(usual(command))

    with Scripted(script) as server:
        run(main())
    assert server.commands[-1] == GIVEN_BACK


def test_jobs_for_a_call_that_is_cancelled_with_its_reply_are_given_back() -> None:
    given_back = threading.Event()

    async def main() -> None:
        async with connected(server) as connection:
            task = asyncio.create_task(connection.execute(NEXT))
            answered = connection.answered

            def cancelling(pending: Pending, reply: Reply) -> None:
                answered(pending, reply)
                task.cancel()  # its caller has not seen the reply

            patched: Any = connection
            patched.answered = cancelling
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(given_back.wait, 20)

    def script(number: int, command: Command) -> Answer:
        if isinstance(command, Fail):
            given_back.set()
        return say(TAKEN) if isinstance(command, Next) else say(usual(command))

    with Scripted(script) as server:
        run(main())
    assert server.commands[1] == GIVEN_BACK
