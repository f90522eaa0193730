"""Places for requests: bounded, and first come, first served."""

from __future__ import annotations

import asyncio

import pytest

from fjord.client.async_connection import Places
from tests.unit.client.test_async_connection import run


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
