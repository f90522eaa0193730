"""Places for requests: bounded, and first come, first served."""

from __future__ import annotations

import asyncio

import pytest

from fjord.client.async_connection import Places
from tests.unit.client.test_async_connection import run


def test_whoever_waits_first_gets_the_next_place() -> None:
    async def main() -> None:
        places = Places(0)
        order: list[int] = []

        async def take(number: int) -> None:
            await places.wait()
            order.append(number)

        tasks = [asyncio.create_task(take(number)) for number in range(3)]
        await asyncio.sleep(0)
        for _ in range(3):
            places.give_back()
        await asyncio.gather(*tasks)
        assert order == [0, 1, 2]
        assert places.free == 0
        places.give_back()
        assert places.free == 1

    run(main())


def test_a_waiter_that_is_cancelled_loses_no_place() -> None:
    async def main() -> None:
        places = Places(0)
        before, after = (asyncio.create_task(places.wait()) for _ in range(2))
        await asyncio.sleep(0)
        before.cancel()
        await asyncio.sleep(0)
        places.give_back()
        after.cancel()  # the place was given, and is not taken
        for task in (before, after):
            with pytest.raises(asyncio.CancelledError):
                await task
        assert places.free == 1

    run(main())
