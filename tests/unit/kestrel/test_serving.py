"""What happens between connections: who waits, who goes, and when answers leave."""

from __future__ import annotations

import contextlib
import errno

import pytest

from fjord.errors import DurabilityError
from fjord.kestrel.serving import ServerOptions
from fjord.testing import SimCrash
from tests.unit.kestrel import transcripts
from tests.unit.kestrel.serving_world import (
    END,
    EXACT,
    REFUSED,
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
async def test_an_alias_of_which_one_queue_refuses_serves_who_waits_for_the_other(
    world: World,
) -> None:
    takes, puts = await world.clients(2)
    await world.waits(takes, b"second")
    await puts.check(put(b"both", b"x"), b"NOT_STORED\r\n")
    await takes.expect(value(b"second", b"x"))


@served()
async def test_who_looks_at_an_item_does_not_keep_it_from_who_waits_to_take_it(
    world: World,
) -> None:
    looks, takes, puts = await world.clients(3)
    await world.waits(looks, b"q/peek")
    await world.waits(takes, b"q", 2)
    await puts.put(b"q", b"x")
    await looks.expect(value(b"q", b"x"))
    await takes.expect(value(b"q", b"x"))


# -- who goes -------------------------------------------------------------------------------------


@served(ServerOptions(is_exact=True, open_max=5))
async def test_open_items_of_a_client_that_goes_are_given_back_in_their_order(
    world: World,
) -> None:
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
    await client.get(b"q", b"a")


@served()
async def test_who_is_told_and_goes_leaves_the_item_to_the_next(world: World) -> None:
    gone, client, other = await world.clients(3)
    await world.waits(gone, b"q")
    await world.waits(client, b"q", 2)
    # The first is told, and ended before it can look.
    await world.backend.add("q", b"a", 0)
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


@served()
async def test_request_that_fails_ends_its_connection_only(world: World) -> None:
    client, other = await world.clients(2)
    await other.put(b"q", b"x")
    world.disk.capacity = world.disk.used_bytes()
    await client.check(put(b"q", b"x"), REFUSED)
    await client.expect_end()
    world.disk.capacity = None
    await other.put(b"q", b"x")


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
