"""What happens between connections, when answers leave, what settings and limits do."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from typing import Any

import pytest

from fjord.errors import DurabilityError
from fjord.kestrel.server import ConnectionMemory, Server, ServerOptions
from fjord.testing import SimClock, SimCrash
from tests.unit.kestrel import transcripts
from tests.unit.kestrel.serving_world import (
    END,
    EXACT,
    SECONDS_MAX,
    STORED,
    World,
    put,
    run,
    served,
    value,
)

# -- who waits ------------------------------------------------------------------------------------


@served()
async def test_waiting_gets_are_served_in_turn_when_items_come(world: World) -> None:
    first, second, writer = await world.clients(3)
    # Replies before a wait are sent before it.
    await first.check(put(b"r", b"x") + b"get q/t=60000\r\n", STORED)
    await world.waiting("q")
    await world.waits(second, b"q/open", 2)
    await writer.put(b"q", b"a")
    await first.expect(value(b"q", b"a"))
    await writer.put(b"q", b"b")
    await second.expect(value(b"q", b"b"))


@served(ServerOptions())
async def test_keys_of_a_get_are_asked_for_in_turn(world: World) -> None:
    client, other = await world.clients(2)
    await client.put(b"a", b"1")
    await client.send(b"get a b/t=60000/open c\r\n")
    await client.expect(b"VALUE a 0 1\r\n1\r\n")
    await world.waiting("b")
    await other.put(b"c", b"3")
    await other.put(b"b", b"2")
    await client.expect(b"VALUE b/t=60000/open 0 1\r\n2\r\nVALUE c 0 1\r\n3\r\nEND\r\n")
    await other.put(b"a", b"4")
    # What comes before the one that is refused is told.
    await client.check(b"get a b c\r\n", b"VALUE a 0 1\r\n4\r\nERROR\r\n")
    await client.expect_end()


@served()
async def test_waiting_is_served_by_a_parent_an_alias_and_what_expires(world: World) -> None:
    child, client, old, writer = await world.clients(4)
    await world.waits(child, b"q+x")
    await world.waits(client, b"second")
    await world.waits(old, b"expired")
    await writer.put(b"q", b"a")
    await child.expect(value(b"q+x", b"a"))
    await writer.put(b"both", b"a")
    await client.expect(value(b"second", b"a"))
    await writer.check(b"set old 0 -1 1\r\nb\r\nget old\r\n", STORED + END)
    await old.expect(value(b"expired", b"b"))


@served(config={"aliases": {"both": ["first", "second"]}, "queues": {"first": {"maxItems": 0}}})
async def test_an_alias_of_which_one_queue_refuses_serves_the_other(world: World) -> None:
    takes, puts = await world.clients(2)
    await world.waits(takes, b"second")
    await puts.check(put(b"both", b"x"), b"NOT_STORED\r\n")
    await takes.expect(value(b"second", b"x"))


@served()
async def test_who_looks_at_an_item_does_not_keep_it_from_others(world: World) -> None:
    looks, takes, puts = await world.clients(3)
    await world.waits(looks, b"q/peek")
    await world.waits(takes, b"q", 2)
    await puts.put(b"q", b"x")
    await looks.expect(value(b"q", b"x"))
    await takes.expect(value(b"q", b"x"))


# -- who goes -------------------------------------------------------------------------------------


@served(ServerOptions(is_exact=True, open_max=5))
async def test_open_items_of_a_client_that_goes_are_given_back(world: World) -> None:
    holder, client, waits = await world.clients(3)
    await client.put(b"q", b"a", b"b", b"c")
    await holder.check(b"monitor q 60 3\r\n", b"VALUE q 0 1\r\na\r\nVALUE q 0 1\r\nb\r\n")
    await holder.expect(value(b"q", b"c"))
    await world.waits(waits, b"q")
    await holder.close()
    await waits.expect(value(b"q", b"a"))
    await client.get(b"q", b"b", b"c")


@served()
async def test_client_that_goes_while_it_waits_takes_nothing(world: World) -> None:
    gone, client = await world.clients(2)
    await world.waits(gone, b"q")
    await gone.close()
    await world.waiting("q", 0)
    await client.put(b"q", b"a")
    await client.check(b"get q\r\n", value(b"q", b"a"))


@served()
async def test_who_is_told_and_goes_leaves_the_item_to_the_next(world: World) -> None:
    gone, client, other = await world.clients(3)
    await world.waits(gone, b"q")
    await world.waits(client, b"q", 2)
    # The first is told, and ended before it can look.
    await world.backend.add("q", [b"a"], 0)
    waiting = next(iter(world.backend._listening["q"]))
    (first,) = [one for one in world.server._connections if one._waiting is waiting]
    first.end()
    await client.expect(value(b"q", b"a"))
    await other.check(b"get q\r\n", END)


def test_a_mistake_of_ours_costs_one_connection_and_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(world: World) -> None:
        holder, other = await world.clients(2)
        await other.put(b"q", b"x")
        await holder.get(b"q/open", b"x")
        monkeypatch.setattr(world.collection, "flush", lambda queue: 1 // 0)
        await holder.send(b"flush q\r\n")
        await holder.expect_end()
        await other.get(b"q/t=60000", b"x")

    run(test)
    assert "ZeroDivisionError" in caplog.text


@served()
async def test_client_that_sends_no_more_is_answered(world: World) -> None:
    client = await world.client()
    await client.send(put(b"q", b"x") + b"get q\r\nget q/t=60000\r\nversion\r\n")
    client.writer.write_eof()
    await client.expect(STORED + value(b"q", b"x") + END + b"VERSION ")


@served(ServerOptions(is_exact=True, connections_max=1))
async def test_more_connections_than_allowed_are_closed(world: World) -> None:
    client = await world.client()
    await client.check(b"get q\r\n", END)
    await (await world.client()).expect_end()
    await client.check(b"get q\r\n", END)


@served(ServerOptions(is_exact=True, idle_ms=10))
async def test_idle_connection_is_closed(world: World) -> None:
    client = await world.client()
    await client.check(b"get q\r\n", END)
    await client.expect_end()


# -- when answers leave ---------------------------------------------------------------------------


@served()
async def test_answers_of_many_wait_for_one_sync(world: World) -> None:
    clients = await world.clients(5)
    await clients[0].check(put(b"q", b"x") * 20, STORED * 20)
    await clients[0].check(b"version\r\n", f"VERSION {transcripts.VERSION}\r\n".encode())
    assert world.syncs == 1
    for client in clients:
        await client.send(put(b"q", b"x"))
    for client in clients:
        await client.expect(STORED)
    assert 1 < (before := world.syncs) <= 6
    await clients[0].put(b"unsynced", b"x")
    assert world.syncs == before


@served(
    config={"queues": {"cars": {"syncJournal": "never"}, "cars+seo": {"syncJournal": "always"}}}
)
async def test_parent_that_is_not_synced_waits_for_a_child_that_is(world: World) -> None:
    client = await world.client()
    await client.put(b"cars", b"x", b"x")
    assert world.syncs == 0
    await client.check(b"get cars+seo\r\n", END)
    before = world.syncs
    await client.put(b"cars", b"x")
    assert world.syncs > before


def test_failed_sync_answers_nobody_and_ends_the_server() -> None:
    async def test(world: World) -> None:
        client = await world.client()
        await client.put(b"q", b"x")
        call = len(world.disk.calls)
        world.disk.errors[call + 2] = errno.EIO  # the write goes through, the sync does not
        await client.send(put(b"q", b"x"))
        await client.expect_end()

    with pytest.raises(DurabilityError):
        run(test)


# Whoever waited for such a time would wait longer than a test may take.
@pytest.mark.parametrize("sync", ["always", 1000 * SECONDS_MAX])
def test_what_was_answered_survives_a_power_cut(sync: str | int) -> None:
    left: list[bytes] = []

    async def test(world: World) -> None:
        client = await world.client()
        await client.put(b"q", b"a", b"b")
        await client.get(b"q", b"a")
        await client.get(b"q/open", b"b")
        world.disk.power_cut()
        left.extend(world.left())

    # The server has lost its disk under it.
    with contextlib.suppress(DurabilityError, OSError, SimCrash):
        run(test, config={"default": {"syncJournal": sync}})
    assert left == [b"b"]


# -- the end, and what the server says of itself ---------------------------------------------------


@pytest.mark.parametrize("is_text", [False, True])
def test_shutdown_gives_back_what_many_have_open_in_its_order(is_text: bool) -> None:
    items = [b"%02d" % number for number in range(30)]

    async def test(world: World) -> None:
        clients, last = await world.clients(30), await world.client(text=is_text)
        await clients[0].put(b"q", *items)
        for item, client in zip(items, clients, strict=True):
            await client.get(b"q/open", item)
        await last.check(b"shutdown\r\n", b"+0\n" if is_text else b"")
        for client in (last, *clients):
            await client.expect_end()
        assert world.running is not None
        await world.running
        assert world.left() == items

    run(test, EXACT)


STATS = """
    uptime time version curr_items total_items bytes reserved_memory_ratio curr_connections
    total_connections cmd_get cmd_set cmd_peek get_hits get_misses bytes_read bytes_written
    queue_creates queue_deletes queue_expires
"""
WANTED = {
    **dict.fromkeys(("curr_items", "total_items", "curr_connections", "cmd_get"), "1"),
    **dict.fromkeys(("cmd_set", "cmd_peek", "get_hits", "get_misses", "queue_q_items"), "1"),
    "bytes": "5",
    "queue_creates": "2",
    "queue_other_waiters": "0",
}


@served()
async def test_stats_have_every_name_of_kestrel(world: World) -> None:
    client = await world.client()
    await client.put(b"q", b"hello")
    await client.get(b"q/peek", b"hello")
    await client.check(b"get other\r\n", END)
    found = await client.stats()
    assert list(found)[: len(STATS.split())] == STATS.split()
    assert {f"queue_q_{name}" for name in transcripts.NUMBERS} <= found.keys()
    assert found.items() >= WANTED.items()


# -- settings --------------------------------------------------------------------------------------

RELOADED = b"Reloaded config.\r\n"


# -- items and queues that time out ---------------------------------------------------------------


@served(config={"queues": {"q": {"openTransactionTimeout": 20}}})
async def test_item_that_is_open_for_too_long_goes_to_who_waits(world: World) -> None:
    holder, client = await world.clients(2)
    await holder.put(b"q", b"a")
    await holder.get(b"q/open", b"a")
    await client.get(b"q/t=60000/open", b"a")
    # A close of what is not open any more is ignored, and a plain get is no error.
    await holder.check(b"get q/close\r\nget q/abort\r\nget q\r\n", END * 3)
    await holder.check(b"confirm q 1\r\n", b"ERROR\r\n")
    await client.check(b"get q/close\r\n", END)


@served(config={"default": {"openTransactionTimeout": 20}})
async def test_text_get_does_not_confirm_what_has_timed_out(world: World) -> None:
    client = await world.client(text=True)
    await client.check(b"put q:\na\n\nget q\n", b"+1\n:a\n")
    await world.until(lambda: world.collection.stats("q")["items"] == 1)
    await client.check(b"get q\n", b":a\n")


@served(config={"queues": {"q": {"maxQueueAge": 20}, "full": {"maxQueueAge": 1}}})
async def test_queue_that_nobody_uses_is_deleted_and_counted(world: World) -> None:
    client, waiting = await world.clients(2)
    await world.waits(waiting, b"q+x")
    await client.check(b"get q\r\nget q+y\r\nget other\r\n", END * 3)
    await client.put(b"full", b"a")
    await world.until(lambda: world.collection.names() == ["full", "other", "q+x"])
    stats = await client.stats()
    assert (stats["queue_expires"], stats["queue_deletes"]) == ("2", "2")
    await client.put(b"q", b"b")  # it is made anew
    await waiting.expect(value(b"q+x", b"b"))


@served(config={})
async def test_timeouts_come_and_go_with_the_configuration(world: World) -> None:
    client = await world.client()
    await client.put(b"q", b"a")
    await client.get(b"q/open", b"a")
    assert world.backend.tidy_seconds is None
    world.given = {"default": {"openTransactionTimeout": 1}}
    await client.check(b"reload\r\n", RELOADED)
    await world.until(lambda: world.collection.stats("q")["items"] == 1)
    # Times are looked at within the shortest bound.
    for bound_ms, seconds in ((0, 0.01), (400, 0.1), (60_000, 1.0)):
        queues = {"q": {"maxQueueAge": 10**9}}
        world.given = {"default": {"maxQueueAge": bound_ms}, "queues": queues}
        await client.check(b"reload\r\n", RELOADED)
        assert world.backend.tidy_seconds == seconds
    world.given = {}
    await client.check(b"reload\r\n", RELOADED)
    assert world.backend.tidy_seconds is None


@served(ServerOptions(sweep_ms=300), {"queues": {"q": {"openTransactionTimeout": 1}}})
async def test_what_has_expired_is_looked_for_as_often_as_asked(world: World) -> None:
    client = await world.client()
    await client.put(b"q", b"a")
    asked, walk = list[float](), world.backend.flush_expired

    async def counted(queue: str) -> int:
        asked.append(world.clock.monotonic_us() / 1000)
        return await walk(queue)

    world.backend.flush_expired = counted  # type: ignore[method-assign]
    await world.until(lambda: len(asked) == 3)
    assert asked[2] - asked[0] >= 300  # others are looked for every 10 ms


@served()
async def test_open_item_of_a_deleted_queue_is_forgotten(world: World) -> None:
    holder, client = await world.clients(2)
    await holder.put(b"q", b"a")
    await holder.get(b"q/open", b"a")
    await client.check(b"delete q\r\n", b"DELETED\r\n")
    await client.put(b"q", b"b")
    await client.get(b"q/open", b"b")  # under the same xid
    await holder.check(b"get q/close\r\n", END)
    await client.check(b"get q/abort\r\nget q\r\n", END + value(b"q", b"b"))


# -- traces ---------------------------------------------------------------------------------------


def test_what_is_done_with_a_traced_queue_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fjord.kestrel")

    async def test(world: World) -> None:
        client, gone = await world.clients(2)
        for queue, data in ((b"q", b"abc"), (b"alias", b"x"), (b"quiet", b"x")):
            await client.put(queue, data)
        await client.get(b"q/peek", b"abc")
        await client.get(b"q/open", b"abc")
        await client.check(b"get q/abort\r\nget q/open\r\n", END + value(b"q", b"abc"))
        await client.check(b"get q/close\r\nget q\r\n", END + value(b"q", b"x"))
        await client.check(b"get q\r\n", END)
        await gone.put(b"q", b"z")
        await gone.get(b"q/open", b"z")
        await gone.close()
        await world.connected(1)
        await client.check(put(b"q", b"long"), b"NOT_STORED\r\n")

    config: dict[str, Any] = {
        "queues": {"q": {"enableTrace": True, "maxItemSize": 3}},
        "aliases": {"alias": ["q"]},
    }
    run(test, EXACT, config)
    told = [(one.message, one.__dict__["fields"]) for one in caplog.records]
    assert [what for what, _ in told] == [
        *("put", "put", "peek", "open", "abort", "open", "close", "get", "get nothing"),
        *("put", "open", "abort", "put refused"),
    ]
    assert all(fields["client"].startswith("127.0.0.1:") for _, fields in told)
    assert {fields["queue"] for _, fields in told} == {"q", "alias"}
    assert (told[3][1]["xid"], told[3][1]["size"]) == (1, 3)
    assert all(one.__dict__["is_asked_for"] for one in caplog.records)
    assert "abc" not in caplog.text


# -- limits and the status ------------------------------------------------------------------------


# -- how much connections keep ---------------------------------------------------------------------

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


@served(SMALL)
async def test_who_sends_more_than_there_is_room_for_is_ended(world: World) -> None:
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
    await world.backend.add("r", [large], 0)
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
def test_a_loop_stays_awake_after_a_reply(awake_us: int, replies: int, looks: int) -> None:
    async def reply(world: World) -> None:
        clock = CountingClock()
        server = Server(world.backend, clock, ServerOptions(awake_us=awake_us))
        clock.asked = 0
        for _ in range(replies):
            server.replied()
            before = -1
            while before != clock.asked:
                before = clock.asked
                await asyncio.sleep(0)
        assert clock.asked == looks

    run(reply)
