"""What happens between connections: who waits, who goes, and when answers leave."""

from __future__ import annotations

import asyncio
import contextlib
import errno

import pytest

from fjord.errors import DurabilityError
from fjord.kestrel import session
from fjord.kestrel.collection import Collection
from fjord.kestrel.server import ServerOptions
from fjord.testing import SimCrash
from tests.unit.kestrel.serving_world import SECONDS_MAX, World, run

VERSION = session.VERSION.encode()


def test_full_queue_stores_nothing() -> None:
    async def test(world: World) -> None:
        client = await world.client()
        await client.check(b"set small 0 0 1\r\nx\r\n" * 11, b"STORED\r\n" * 10 + b"NOT_STORED\r\n")

    run(test)


def test_waiting_get_is_served_when_an_item_comes() -> None:
    async def test(world: World) -> None:
        first, second, writer = [await world.client() for _ in range(3)]
        await first.send(b"get q/t=60000\r\n")
        await world.waiting("q")
        await second.send(b"get q/t=60000/open\r\n")
        await world.waiting("q", 2)
        await writer.check(b"set q 0 0 1\r\na\r\n", b"STORED\r\n")
        await first.expect(b"VALUE q 0 1\r\na\r\nEND\r\n")
        await writer.check(b"set q 0 0 1\r\nb\r\n", b"STORED\r\n")
        await second.expect(b"VALUE q 0 1\r\nb\r\nEND\r\n")

    run(test)


def test_replies_before_a_wait_are_sent_before_it() -> None:
    async def test(world: World) -> None:
        client, writer = await world.client(), await world.client()
        await client.check(b"set r 0 0 1\r\nx\r\nget q/t=60000\r\n", b"STORED\r\n")
        await world.waiting("q")
        await writer.check(b"set q 0 0 1\r\na\r\n", b"STORED\r\n")
        await client.expect(b"VALUE q 0 1\r\na\r\nEND\r\n")

    run(test)


def test_keys_of_a_get_are_asked_for_in_turn() -> None:
    async def test(world: World) -> None:
        client, other = await world.client(), await world.client()
        await client.check(b"set a 0 0 1\r\n1\r\n", b"STORED\r\n")
        await client.send(b"get a b/t=60000/open c\r\n")
        await client.expect(b"VALUE a 0 1\r\n1\r\n")
        await world.waiting("b")
        await other.check(b"set c 0 0 1\r\n3\r\n", b"STORED\r\n")
        await other.check(b"set b 0 0 1\r\n2\r\n", b"STORED\r\n")
        await client.expect(b"VALUE b/t=60000/open 0 1\r\n2\r\nVALUE c 0 1\r\n3\r\nEND\r\n")
        await other.check(b"set a 0 0 1\r\n4\r\n", b"STORED\r\n")
        # What comes before the one that is refused is told.
        await client.check(b"get a b c\r\n", b"VALUE a 0 1\r\n4\r\nERROR\r\n")
        await client.expect_end()

    run(test, ServerOptions())


def test_waiting_for_a_child_is_served_by_its_parent() -> None:
    async def test(world: World) -> None:
        client, writer = await world.client(), await world.client()
        await client.send(b"get q+x/t=60000\r\n")
        await world.waiting("q+x")
        await writer.check(b"set q 0 0 1\r\na\r\n", b"STORED\r\n")
        await client.expect(b"VALUE q+x 0 1\r\na\r\nEND\r\n")

    run(test)


def test_item_that_is_given_back_goes_to_who_waits() -> None:
    async def test(world: World) -> None:
        holder, client = await world.client(), await world.client()
        await holder.check(b"set q 0 0 1\r\na\r\n", b"STORED\r\n")
        await holder.check(b"get q/open\r\n", b"VALUE q 0 1\r\na\r\nEND\r\n")
        await client.send(b"get q/t=60000\r\n")
        await world.waiting("q")
        await holder.close()
        await client.expect(b"VALUE q 0 1\r\na\r\nEND\r\n")

    run(test)


def test_open_items_go_back_in_their_order_when_a_client_goes() -> None:
    async def test(world: World) -> None:
        holder, client = await world.client(), await world.client()
        await client.check(b"set q 0 0 1\r\na\r\nset q 0 0 1\r\nb\r\n", b"STORED\r\nSTORED\r\n")
        await client.check(b"set q 0 0 1\r\nc\r\n", b"STORED\r\n")
        await holder.check(
            b"monitor q 60 2\r\n", b"VALUE q 0 1\r\na\r\nVALUE q 0 1\r\nb\r\nEND\r\n"
        )
        await holder.close()
        await world.until(lambda: world.server.counts["curr_connections"] == 1)
        for name in (b"a", b"b", b"c"):
            await client.check(b"get q\r\n", b"VALUE q 0 1\r\n" + name + b"\r\nEND\r\n")

    run(test, ServerOptions(is_exact=True, open_max=5))


def test_client_that_goes_while_it_waits_takes_nothing() -> None:
    async def test(world: World) -> None:
        gone, client = await world.client(), await world.client()
        await gone.send(b"get q/t=60000\r\n")
        await world.waiting("q")
        await gone.close()
        await world.waiting("q", 0)
        await client.check(b"set q 0 0 1\r\na\r\n", b"STORED\r\n")
        await client.check(b"get q\r\n", b"VALUE q 0 1\r\na\r\nEND\r\n")

    run(test)


def test_who_is_told_and_goes_leaves_the_item_to_the_next() -> None:
    async def test(world: World) -> None:
        gone, client, writer = [await world.client() for _ in range(3)]
        await gone.send(b"get q/t=60000\r\n")
        await world.waiting("q")
        await client.send(b"get q/t=60000\r\n")
        await world.waiting("q", 2)
        # The first is told, and ended before it can look.
        await world.backend.add("q", [b"a"], 0)
        first = next(one for one in world.server._connections if one._waiting is not None)
        waiting = next(iter(world.backend._listening["q"]))
        for one in world.server._connections:
            if one._waiting is waiting:
                first = one
        first.end()
        await client.expect(b"VALUE q 0 1\r\na\r\nEND\r\n")
        await writer.check(b"get q\r\n", b"END\r\n")

    run(test)


def test_who_looks_at_an_item_does_not_keep_it_from_who_waits_to_take_it() -> None:
    async def test(world: World) -> None:
        looks, takes, puts = [await world.client() for _ in range(3)]
        await looks.send(b"get q/peek/t=60000\r\n")
        await world.waiting("q")
        await takes.send(b"get q/t=60000\r\n")
        await world.waiting("q", 2)
        await puts.check(b"set q 0 0 1\r\nx\r\n", b"STORED\r\n")
        await looks.expect(b"VALUE q 0 1\r\nx\r\nEND\r\n")
        await takes.expect(b"VALUE q 0 1\r\nx\r\nEND\r\n")

    run(test)


def test_an_alias_of_which_one_queue_refuses_serves_who_waits_for_the_other() -> None:
    async def test(world: World) -> None:
        takes, puts = await world.client(), await world.client()
        await takes.send(b"get second/t=60000\r\n")
        await world.waiting("second")
        await puts.check(b"set both 0 0 1\r\nx\r\n", b"NOT_STORED\r\n")
        await takes.expect(b"VALUE second 0 1\r\nx\r\nEND\r\n")

    config = {"aliases": {"both": ["first", "second"]}, "queues": {"first": {"maxItems": 0}}}
    run(test, config=config)


def test_a_mistake_of_ours_costs_one_connection_and_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(world: World) -> None:
        holder, other = await world.client(), await world.client()
        await other.check(b"set q 0 0 1\r\nx\r\n", b"STORED\r\n")
        await holder.check(b"get q/open\r\n", b"VALUE q 0 1\r\nx\r\nEND\r\n")
        monkeypatch.setattr(world.collection, "flush", lambda queue: 1 // 0)
        await holder.send(b"flush q\r\n")
        await holder.expect_end()
        await other.check(b"get q/t=60000\r\n", b"VALUE q 0 1\r\nx\r\nEND\r\n")

    run(test)
    assert "ZeroDivisionError" in caplog.text


def test_client_that_sends_no_more_is_answered() -> None:
    async def test(world: World) -> None:
        client = await world.client()
        await client.send(b"set q 0 0 1\r\nx\r\nget q\r\nget q/t=60000\r\nversion\r\n")
        client.writer.write_eof()
        await client.expect(b"STORED\r\nVALUE q 0 1\r\nx\r\nEND\r\nEND\r\nVERSION ")

    run(test)


def test_answers_of_many_wait_for_one_sync() -> None:
    async def test(world: World) -> None:
        clients = [await world.client() for _ in range(5)]
        await clients[0].check(b"set q 0 0 1\r\nx\r\n" * 20, b"STORED\r\n" * 20)
        assert world.syncs == 1
        before = world.syncs
        await clients[0].check(b"version\r\n", b"VERSION " + VERSION + b"\r\n")
        assert world.syncs == before
        for client in clients:
            await client.send(b"set q 0 0 1\r\nx\r\n")
        for client in clients:
            await client.expect(b"STORED\r\n")
        assert before < world.syncs <= before + 5

    run(test)


def test_queue_that_is_not_synced_does_not_wait() -> None:
    async def test(world: World) -> None:
        client = await world.client()
        await client.check(b"set unsynced 0 0 1\r\nx\r\n", b"STORED\r\n")
        assert world.syncs == 0

    run(test)


def test_parent_that_is_not_synced_waits_for_a_child_that_is() -> None:
    async def test(world: World) -> None:
        client = await world.client()
        await client.check(b"set cars 0 0 1\r\nx\r\n" * 2, b"STORED\r\n" * 2)
        assert world.syncs == 0
        await client.check(b"get cars+seo\r\n", b"END\r\n")
        before = world.syncs
        await client.check(b"set cars 0 0 1\r\nx\r\n", b"STORED\r\n")
        assert world.syncs > before

    queues = {"cars": {"syncJournal": "never"}, "cars+seo": {"syncJournal": "always"}}
    run(test, config={"queues": queues})


def test_failed_sync_answers_nobody_and_ends_the_server() -> None:
    async def test(world: World) -> None:
        client = await world.client()
        await client.check(b"set q 0 0 1\r\nx\r\n", b"STORED\r\n")
        call = len(world.disk.calls)
        world.disk.errors[call + 2] = errno.EIO  # the write goes through, the sync does not
        await client.send(b"set q 0 0 1\r\nx\r\n")
        await client.expect_end()

    with pytest.raises(DurabilityError):
        run(test)


def test_request_that_fails_ends_its_connection_only() -> None:
    async def test(world: World) -> None:
        client, other = await world.client(), await world.client()
        await other.check(b"set q 0 0 1\r\nx\r\n", b"STORED\r\n")
        world.disk.capacity = world.disk.used_bytes()
        await client.check(b"set q 0 0 1\r\nx\r\n", b"SERVER_ERROR\r\n")
        await client.expect_end()
        world.disk.capacity = None
        await other.check(b"set q 0 0 1\r\nx\r\n", b"STORED\r\n")

    run(test)


def test_shutdown_closes_the_collection_and_gives_back_what_is_open() -> None:
    async def test(world: World) -> None:
        holder, client = await world.client(), await world.client(text=True)
        await holder.check(b"set q 0 0 1\r\na\r\n", b"STORED\r\n")
        await holder.check(b"get q/open\r\n", b"VALUE q 0 1\r\na\r\nEND\r\n")
        await client.check(b"put q:\nb\n\nshutdown\n", b"+1\n+0\n")
        await holder.expect_end()
        assert world.running is not None
        await world.running
        again = Collection(world.disk, "/queues", None, world.clock)
        assert again.stats("q")["items"] == 2
        assert again.stats("q")["open_transactions"] == 0
        again.close()

    run(test)


def test_what_many_have_open_goes_back_in_its_order_when_the_server_ends() -> None:
    items = [b"%02d" % number for number in range(30)]
    left: list[bytes] = []

    async def test(world: World) -> None:
        clients = [await world.client() for _ in items]
        for item in items:
            await clients[0].check(b"set q 0 0 2\r\n%b\r\n" % item, b"STORED\r\n")
        for item, client in zip(items, clients, strict=True):
            await client.check(b"get q/open\r\n", b"VALUE q 0 2\r\n%b\r\nEND\r\n" % item)
        await world.stop()
        again = Collection(world.disk, "/queues", None, world.clock)
        left.extend(bytes(item.data) for item in iter(lambda: again.remove("q"), None))

    run(test)
    assert left == items


def test_more_connections_than_allowed_are_closed() -> None:
    async def test(world: World) -> None:
        client = await world.client()
        await client.check(b"get q\r\n", b"END\r\n")
        await (await world.client()).expect_end()
        await client.check(b"get q\r\n", b"END\r\n")

    run(test, ServerOptions(is_exact=True, connections_max=1))


def test_idle_connection_is_closed() -> None:
    async def test(world: World) -> None:
        client = await world.client()
        await client.check(b"get q\r\n", b"END\r\n")
        await client.expect_end()

    run(test, ServerOptions(is_exact=True, idle_ms=10))


def test_expired_items_are_swept() -> None:
    async def test(world: World) -> None:
        client = await world.client()
        await client.check(b"set q 0 -1 1\r\nx\r\n", b"STORED\r\n")
        await world.until(lambda: world.collection.stats("q")["items"] == 0)

    run(test, ServerOptions(is_exact=True, sweep_ms=10))


def test_large_item_and_what_is_sent_ahead_go_through() -> None:
    async def test(world: World) -> None:
        client = await world.client()
        item = bytes(3 * 1024 * 1024)
        asked = b"set q 0 0 %d\r\n%b\r\n" % (len(item), item)
        told = b"VALUE q 0 %d\r\n%b\r\nEND\r\n" % (len(item), item)
        sending = asyncio.create_task(client.send((asked + b"get q\r\n") * 4))
        await client.expect((b"STORED\r\n" + told) * 4)
        await sending

    run(test)


def test_reload_reads_the_configuration_again() -> None:
    async def test(world: World) -> None:
        client = await world.client()
        world.given = {"queues": {"q": {"maxItems": 1}}}
        await client.check(b"reload\r\n", b"Reloaded config.\r\n")
        await client.check(b"set q 0 0 1\r\nx\r\n" * 2, b"STORED\r\nNOT_STORED\r\n")
        world.given = {"what": {}}
        await client.check(b"reload\r\n", b"SERVER_ERROR\r\n")

    run(test)


def test_waiting_is_served_through_an_alias_and_by_what_expires() -> None:
    async def test(world: World) -> None:
        client, old, writer = [await world.client() for _ in range(3)]
        await client.send(b"get second/t=60000\r\n")
        await old.send(b"get expired/t=60000\r\n")
        await world.waiting("second")
        await world.waiting("expired")
        await writer.check(b"set both 0 0 1\r\na\r\n", b"STORED\r\n")
        await client.expect(b"VALUE second 0 1\r\na\r\nEND\r\n")
        await writer.check(b"set old 0 -1 1\r\nb\r\nget old\r\n", b"STORED\r\nEND\r\n")
        await old.expect(b"VALUE expired 0 1\r\nb\r\nEND\r\n")

    run(test)


# Whoever waited for such a time would wait longer than a test may take.
@pytest.mark.parametrize("sync", ["always", 1000 * SECONDS_MAX])
def test_what_was_answered_survives_a_power_cut(sync: str | int) -> None:
    left: list[bytes] = []

    async def test(world: World) -> None:
        client = await world.client()
        await client.check(b"set q 0 0 1\r\na\r\nset q 0 0 1\r\nb\r\n", b"STORED\r\n" * 2)
        await client.check(b"get q\r\n", b"VALUE q 0 1\r\na\r\nEND\r\n")
        await client.check(b"get q/open\r\n", b"VALUE q 0 1\r\nb\r\nEND\r\n")
        world.disk.power_cut()
        again = Collection(world.disk, "/queues", None, world.clock)
        while (item := again.remove("q")) is not None:
            left.append(bytes(item.data))

    # The server has lost its disk under it.
    with contextlib.suppress(DurabilityError, OSError, SimCrash):
        run(test, config={"default": {"syncJournal": sync}})
    assert left == [b"b"]
