"""What settings make a server do: items and queues that time out, traces, limits, the status."""

from __future__ import annotations

import errno
import logging
from typing import Any

import pytest

from fjord.kestrel.config import Standing, Status
from fjord.kestrel.serving import ServerOptions
from tests.unit.kestrel.serving_world import END, EXACT, REFUSED, World, put, run, served, value

RELOADED = b"Reloaded config.\r\n"


@served()
async def test_reload_reads_the_configuration_again(world: World) -> None:
    client = await world.client()
    world.given = {"queues": {"q": {"maxItems": 1}}}
    await client.check(b"reload\r\n", RELOADED)
    await client.check(put(b"q", b"x") * 2, b"STORED\r\nNOT_STORED\r\n")
    world.given = {"what": {}}
    await client.check(b"reload\r\n", REFUSED)


# -- items and queues that time out ---------------------------------------------------------------


@served(ServerOptions(is_exact=True, sweep_ms=10))
async def test_expired_items_are_swept(world: World) -> None:
    client = await world.client()
    await client.check(b"set q 0 -1 1\r\nx\r\n", b"STORED\r\n")
    await world.until(lambda: world.collection.stats("q")["items"] == 0)


@served(config={"queues": {"q": {"openTransactionTimeout": 20}}})
async def test_item_that_is_open_for_too_long_goes_to_who_waits_and_its_holder_forgets_it(
    world: World,
) -> None:
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


@served(ServerOptions(is_exact=True, refuse_writes_over=1, refuse_reads_over=3))
async def test_more_connections_than_allowed_may_not_write_or_not_read(world: World) -> None:
    client = await world.client()
    await client.put(b"q", b"a")
    second = await world.client()
    await world.connected(2)
    await second.check(put(b"q", b"a"), REFUSED)
    await second.expect_end()
    await world.connected(1)
    others = await world.clients(2)
    await others[0].get(b"q/open", b"a")
    await world.client()
    await world.connected(4)
    await others[0].check(b"get q/abort\r\n", END)  # what is open can be closed
    await others[0].check(b"get q\r\n", REFUSED)


@served()
async def test_status_is_enforced_after_its_grace_period_and_not_changed_if_it_cannot_be_kept(
    world: World,
) -> None:
    def keep(wanted: Status) -> None:
        raise OSError(errno.ENOSPC, "No space left")

    client, other = await world.client(), await world.client(text=True)
    world.server.standing = Standing(world.clock, grace_us=3_600_000_000)
    await client.check(b"status readonly\r\nstatus\r\n", END + b"READONLY\r\n")
    await client.put(b"q", b"a")
    world.server.standing = Standing(world.clock, keep=keep)
    await client.check(b"status quiescent\r\n", REFUSED)
    await other.check(b"status\n", b"+up\n")
