"""How much all connections keep together."""

from __future__ import annotations

import asyncio

from fjord.kestrel.server import ConnectionMemory
from fjord.testing import SimClock


class Holder:
    """A connection whose client does not read."""

    def __init__(self, memory: ConnectionMemory, kept: int) -> None:
        self._memory = memory
        self.kept = kept
        memory.change(kept)
        memory.stall(self.drop)

    def drop(self) -> None:
        self._memory.change(-self.kept)
        self.kept = 0


def test_what_does_not_fit_is_told() -> None:
    memory = ConnectionMemory(SimClock(), 100)
    assert memory.fits(100)
    memory.change(60)
    assert memory.fits(40)
    assert not memory.fits(41)
    memory.change(-60)
    assert memory.fits(41)


def test_clients_that_do_not_read_for_long_give_way_the_longest_first() -> None:
    clock = SimClock()
    memory = ConnectionMemory(clock, 100)
    first = Holder(memory, 50)
    clock.advance(20)
    second = Holder(memory, 50)
    assert not memory.fits(1)
    clock.advance(11)
    assert memory.fits(50)
    assert (first.kept, second.kept) == (0, 50)
    assert not memory.fits(51)
    memory.unstall(second.drop)
    clock.advance(100)
    assert not memory.fits(51)


def test_who_wants_an_item_waits_for_room() -> None:
    async def main() -> list[str]:
        told = []
        memory = ConnectionMemory(SimClock(), 100)
        memory.change(100)
        await memory.room()  # who sends has taken all that it may
        assert not memory.fits(1)
        memory.change(25)
        assert memory.is_over

        async def take() -> None:
            await memory.room()
            told.append("taken")
            memory.change(100)

        tasks = [asyncio.create_task(take()) for _ in range(2)]
        await asyncio.sleep(0)
        told.append("waiting")
        for _ in range(2):
            memory.change(-100)
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            tasks = [task for task in tasks if not task.done()]
            told.append(f"{len(tasks)} left")
        return told

    assert asyncio.run(main()) == ["waiting", "taken", "1 left", "taken", "0 left"]


def test_who_waits_looks_again_for_clients_that_do_not_read() -> None:
    async def main() -> int:
        clock = SimClock()
        memory = ConnectionMemory(clock, 100)
        holder = Holder(memory, 125)
        waiting = asyncio.create_task(memory.room())
        await asyncio.sleep(0)
        clock.advance(31)
        await waiting
        return holder.kept

    assert asyncio.run(main()) == 0
