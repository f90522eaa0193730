"""A loop stays awake as long as it should after a reply, and no longer."""

from __future__ import annotations

import asyncio

from fjord.kestrel.server import Awake
from fjord.testing import SimClock


class CountingClock(SimClock):
    """A clock that goes on by itself whenever it is asked."""

    asked = 0

    def monotonic_us(self) -> int:
        self.asked += 1
        self.advance(0.00001)
        return super().monotonic_us()


def looks(awake_us: int, replies: int) -> int:
    """Returns how often the loop has looked when it has come to rest."""
    clock = CountingClock()

    async def reply() -> None:
        awake = Awake(clock, awake_us)
        for _ in range(replies):
            awake.replied()
            before = -1
            while before != clock.asked:
                before = clock.asked
                await asyncio.sleep(0)

    asyncio.run(reply())
    return clock.asked


def test_it_looks_until_the_time_is_over() -> None:
    assert looks(100, 1) == 11


def test_each_reply_begins_anew() -> None:
    assert looks(100, 3) == 33


def test_it_sleeps_at_once_if_it_is_told_to() -> None:
    assert looks(0, 3) == 0
