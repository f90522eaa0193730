"""How much all connections keep together, and how long a loop stays awake after a reply."""

from __future__ import annotations

import asyncio

import pytest

from fjord.kestrel.serving import Awake, ConnectionMemory, ServerOptions
from fjord.testing import SimClock
from tests.unit.kestrel.serving_world import END, STORED, World, put, served, value

MIB = 1024 * 1024
SMALL = ServerOptions(is_exact=True, memory_bytes_max=4 * MIB)


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


def test_clients_that_do_not_read_for_long_give_way_the_longest_first() -> None:
    clock = SimClock()
    memory = ConnectionMemory(clock, 100)
    assert (memory.fits(100), memory.fits(101)) == (True, False)
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


@served(SMALL)
async def test_who_sends_more_than_there_is_room_for_is_ended_and_nobody_else(
    world: World,
) -> None:
    hoarder, client, other = await world.clients(3)
    text = await world.client(text=True)
    await hoarder.send(b"set q 0 0 %d\r\n" % (8 * MIB) + bytes(3 * MIB))
    await world.until(lambda: world.server.memory.used > 2 * MIB)
    await client.send(b"version\r\n" + put(b"q", bytes(2 * MIB))[:-2])
    assert (await client.until(b"\r\n")).startswith(b"VERSION")
    await client.expect(b"SERVER_ERROR out of memory storing object\r\n")
    await text.check(b"put q:\n" + b"x" * (2 * MIB), b"-Out of memory.\n")
    await other.put(b"q", bytes(8000))  # small ones go through
    await hoarder.close()
    await world.until(lambda: world.server.memory.used == 0)
    await other.put(b"q", bytes(3 * MIB))


@served()
async def test_client_that_does_not_read_holds_no_more_than_one_reply(world: World) -> None:
    slow, client = await world.clients(2)
    await client.put(b"q", *[bytes(MIB)] * 8)
    slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await slow.send(b"get q\r\n" * 8)
    await world.until(lambda: len(world.server.memory._stalled) == 1)
    left = world.collection.stats("q")["items"]
    await client.check(b"get none\r\n", END)
    assert world.collection.stats("q")["items"] == left
    assert world.server.memory.used <= 2 * MIB
    slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
    await slow.expect(value(b"q", bytes(MIB)) * 8)
    await world.until(lambda: world.server.memory.used == 0)


@served(SMALL)
async def test_who_asks_for_a_large_item_waits_until_there_is_room(world: World) -> None:
    holder, client, other = await world.clients(3)
    large = bytes(MIB)
    await other.put(b"q", large)
    await world.waits(holder, b"r")
    world.server.memory.change(5 * MIB)  # of somebody else
    await client.check(b"get none\r\nget q\r\n", END)
    await world.backend.add("r", large, 0)
    await other.check(put(b"s", b"a") + b"get s\r\n", STORED + value(b"s", b"a"))
    assert [world.collection.stats(queue)["items"] for queue in "qr"] == [1, 1]
    world.server.memory.change(-5 * MIB)
    await client.expect(value(b"q", large))
    await holder.expect(value(b"r", large))


class CountingClock(SimClock):
    """A clock that goes on by itself whenever it is asked."""

    asked = 0

    def monotonic_us(self) -> int:
        self.asked += 1
        self.advance(0.00001)
        return super().monotonic_us()


@pytest.mark.parametrize(("awake_us", "replies", "looks"), [(100, 1, 11), (100, 3, 33), (0, 3, 0)])
def test_a_loop_looks_until_the_time_behind_each_reply_is_over(
    awake_us: int, replies: int, looks: int
) -> None:
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
    assert clock.asked == looks
