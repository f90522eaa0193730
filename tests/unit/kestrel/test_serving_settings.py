"""What settings make a server do: items and queues that time out, traces, limits, the status."""

from __future__ import annotations

import errno
import logging

import pytest

from fjord.kestrel import session
from fjord.kestrel.config import Standing, Status
from fjord.kestrel.server import ServerOptions
from tests.unit.kestrel.serving_world import Client, World, run

VERSION = f"VERSION {session.VERSION}\r\n".encode()
STORED, END = b"STORED\r\n", b"END\r\n"
EXACT = ServerOptions(is_exact=True)


async def put(client: Client, queue: bytes, data: bytes) -> None:
    await client.check(b"set %b 0 0 %d\r\n%b\r\n" % (queue, len(data), data), STORED)


def value(queue: bytes, data: bytes) -> bytes:
    return b"VALUE %b 0 %d\r\n%b\r\nEND\r\n" % (queue, len(data), data)


# -- items and queues that time out ---------------------------------------------------------------


def test_item_that_is_open_for_too_long_goes_to_who_waits_and_its_holder_forgets_it() -> None:
    async def test(world: World) -> None:
        holder, client = await world.client(), await world.client()
        await put(holder, b"q", b"a")
        await holder.check(b"get q/open\r\n", value(b"q", b"a"))
        await client.check(b"get q/t=60000/open\r\n", value(b"q", b"a"))
        # A close of what is not open any more is ignored, and a plain get is no error.
        await holder.check(b"get q/close\r\nget q/abort\r\nget q\r\n", END * 3)
        await holder.check(b"confirm q 1\r\n", b"ERROR\r\n")
        await client.check(b"get q/close\r\n", END)

    run(test, EXACT, {"queues": {"q": {"openTransactionTimeout": 20}}})


def test_text_get_does_not_confirm_what_has_timed_out() -> None:
    async def test(world: World) -> None:
        client = await world.client(text=True)
        await client.check(b"put q:\na\n\nget q\n", b"+1\n:a\n")
        await world.until(lambda: world.collection.stats("q")["items"] == 1)
        await client.check(b"get q\n", b":a\n")

    run(test, EXACT, {"default": {"openTransactionTimeout": 20}})


def test_queue_that_nobody_uses_is_deleted_and_counted() -> None:
    async def test(world: World) -> None:
        client, waiting = await world.client(), await world.client()
        await waiting.send(b"get q+x/t=60000\r\n")
        await world.waiting("q+x")
        await client.check(b"get q\r\nget q+y\r\nget other\r\n", END * 3)
        await put(client, b"full", b"a")
        await world.until(lambda: world.collection.names() == ["full", "other", "q+x"])
        stats = await _stats(client)
        assert (stats[b"queue_expires"], stats[b"queue_deletes"]) == (b"2", b"2")
        await put(client, b"q", b"b")  # it is made anew
        await waiting.expect(value(b"q+x", b"b"))

    run(test, EXACT, {"queues": {"q": {"maxQueueAge": 20}, "full": {"maxQueueAge": 1}}})


def test_timeouts_come_and_go_with_the_configuration() -> None:
    async def test(world: World) -> None:
        client = await world.client()
        await put(client, b"q", b"a")
        await client.check(b"get q/open\r\n", value(b"q", b"a"))
        assert world.backend.tidy_seconds is None
        world.given = {"default": {"openTransactionTimeout": 1}}
        await client.check(b"reload\r\n", b"Reloaded config.\r\n")
        await world.until(lambda: world.collection.stats("q")["items"] == 1)
        world.given = {}
        await client.check(b"reload\r\n", b"Reloaded config.\r\n")
        assert world.backend.tidy_seconds is None

    run(test, EXACT, {})


@pytest.mark.parametrize(
    ("bound_ms", "seconds"), [(0, 0.01), (400, 0.1), (60_000, 1.0), (None, None)]
)
def test_times_are_looked_at_within_the_shortest_bound(
    bound_ms: int | None, seconds: float | None
) -> None:
    async def test(world: World) -> None:
        assert world.backend.tidy_seconds == seconds

    given = {"default": {"maxQueueAge": bound_ms}, "queues": {"q": {"maxQueueAge": 10**9}}}
    run(test, EXACT, given if bound_ms is not None else {"default": {"maxQueueAge": None}})


def test_open_item_of_a_deleted_queue_is_forgotten() -> None:
    async def test(world: World) -> None:
        holder, client = await world.client(), await world.client()
        await put(holder, b"q", b"a")
        await holder.check(b"get q/open\r\n", value(b"q", b"a"))
        await client.check(b"delete q\r\n", b"DELETED\r\n")
        await put(client, b"q", b"b")
        await client.check(b"get q/open\r\n", value(b"q", b"b"))  # under the same xid
        await holder.check(b"get q/close\r\n", END)
        await client.check(b"get q/abort\r\nget q\r\n", END + value(b"q", b"b"))

    run(test, EXACT)


# -- traces ---------------------------------------------------------------------------------------


def test_what_is_done_with_a_traced_queue_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fjord.kestrel")

    async def test(world: World) -> None:
        client, gone = await world.client(), await world.client()
        await put(client, b"q", b"abc")
        await put(client, b"alias", b"x")
        await put(client, b"quiet", b"x")
        await client.check(b"get q/peek\r\nget q/open\r\n", value(b"q", b"abc") * 2)
        await client.check(b"get q/abort\r\nget q/open\r\n", END + value(b"q", b"abc"))
        await client.check(b"get q/close\r\nget q\r\n", END + value(b"q", b"x"))
        await client.check(b"get q\r\n", END)
        await put(gone, b"q", b"z")
        await gone.check(b"get q/open\r\n", value(b"q", b"z"))
        await gone.close()
        await world.until(lambda: world.server.counts["curr_connections"] == 1)
        await client.check(b"set q 0 0 4\r\nlong\r\n", b"NOT_STORED\r\n")

    config: dict[str, object] = {
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


def test_more_connections_than_allowed_may_not_write_or_not_read() -> None:
    async def test(world: World) -> None:
        client = await world.client()
        await put(client, b"q", b"a")
        second = await world.client()
        await world.until(lambda: world.server.counts["curr_connections"] == 2)
        await second.check(b"set q 0 0 1\r\na\r\n", b"SERVER_ERROR\r\n")
        await second.expect_end()
        await world.until(lambda: world.server.counts["curr_connections"] == 1)
        others = [await world.client() for _ in range(2)]
        await others[0].check(b"get q/open\r\n", value(b"q", b"a"))
        others.append(await world.client())
        await world.until(lambda: world.server.counts["curr_connections"] == 4)
        await others[0].check(b"get q/abort\r\n", END)  # what is open can be closed
        await others[0].check(b"get q\r\n", b"SERVER_ERROR\r\n")

    run(test, ServerOptions(is_exact=True, refuse_writes_over=1, refuse_reads_over=3))


def test_status_is_enforced_after_its_grace_period() -> None:
    async def test(world: World) -> None:
        client = await world.client()
        world.server.standing = Standing(world.clock, grace_us=3_600_000_000)
        await client.check(b"status readonly\r\nstatus\r\n", END + b"READONLY\r\n")
        await put(client, b"q", b"a")
        world.server.standing = Standing(world.clock, Status.READONLY)
        await client.check(b"set q 0 0 1\r\na\r\n", b"SERVER_ERROR\r\n")

    run(test)


def test_status_that_cannot_be_kept_is_not_changed() -> None:
    def keep(wanted: Status) -> None:
        raise OSError(errno.ENOSPC, "No space left")

    async def test(world: World) -> None:
        client, other = await world.client(), await world.client(text=True)
        world.server.standing = Standing(world.clock, keep=keep)
        await client.check(b"status quiescent\r\n", b"SERVER_ERROR\r\n")
        await other.check(b"status\n", b":UP\n")

    run(test)


# -- memory ---------------------------------------------------------------------------------------


MIB = 1024 * 1024
SMALL = ServerOptions(is_exact=True, memory_bytes_max=4 * MIB)


def test_who_sends_more_than_there_is_room_for_is_ended_and_nobody_else() -> None:
    async def test(world: World) -> None:
        hoarder, client, other = [await world.client() for _ in range(3)]
        text = await world.client(text=True)
        await hoarder.send(b"set q 0 0 %d\r\n" % (8 * MIB) + bytes(3 * MIB))
        await world.until(lambda: world.server.memory.used > 2 * MIB)
        await client.send(b"version\r\nset q 0 0 %d\r\n" % (2 * MIB) + bytes(2 * MIB))
        assert (await client.until(b"\r\n")).startswith(b"VERSION")
        await client.expect(b"SERVER_ERROR out of memory storing object\r\n")
        await text.send(b"put q:\n" + b"x" * (2 * MIB))
        await text.expect(b"-Out of memory.\n")
        await put(other, b"q", bytes(8000))  # small ones go through
        await hoarder.close()
        await world.until(lambda: world.server.memory.used == 0)
        await put(other, b"q", bytes(3 * MIB))

    run(test, SMALL)


def test_client_that_does_not_read_holds_no_more_than_one_reply() -> None:
    async def test(world: World) -> None:
        slow, client = await world.client(), await world.client()
        for _ in range(8):
            await put(client, b"q", bytes(MIB))
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await slow.send(b"get q\r\n" * 8)
        await world.until(lambda: len(world.server.memory._stalled) == 1)
        left = world.collection.stats("q")["items"]
        await client.check(b"version\r\n", VERSION)
        assert world.collection.stats("q")["items"] == left
        assert world.server.memory.used <= 2 * MIB
        slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
        await slow.expect(value(b"q", bytes(MIB)) * 8)
        await world.until(lambda: world.server.memory.used == 0)

    run(test, ServerOptions(is_exact=True))


def test_who_asks_for_a_large_item_waits_until_there_is_room() -> None:
    async def test(world: World) -> None:
        holder, client, other = [await world.client() for _ in range(3)]
        large = bytes(MIB)
        await put(other, b"q", large)
        await holder.send(b"get r/t=60000\r\n")
        await world.waiting("r")
        world.server.memory.change(5 * MIB)  # of somebody else
        await client.send(b"version\r\nget none\r\nget q\r\n")
        await client.expect(VERSION + END)
        await world.backend.add("r", [large], 0)
        await other.check(b"set s 0 0 1\r\na\r\nget s\r\n", STORED + value(b"s", b"a"))
        assert world.collection.stats("q")["items"] == 1
        assert world.collection.stats("r")["items"] == 1
        world.server.memory.change(-5 * MIB)
        await client.expect(value(b"q", large))
        await holder.expect(value(b"r", large))

    run(test, SMALL)


def test_who_waits_for_room_and_goes_leaves_the_item_to_the_next() -> None:
    async def test(world: World) -> None:
        gone, client = await world.client(), await world.client()
        for one in (gone, client):
            await one.send(b"get q/t=60000\r\n")
            await world.waiting("q", 1 if one is gone else 2)
        first = next(iter(world.backend._listening["q"]))
        (ended,) = [one for one in world.server._connections if one._waiting is first]
        world.server.memory.change(5 * MIB)  # of somebody else
        await world.backend.add("q", [bytes(MIB)], 0)
        await world.waiting("q", 1)
        ended.end()
        await world.waiting("q", 0)
        world.server.memory.change(-5 * MIB)
        await client.expect(value(b"q", bytes(MIB)))

    run(test, SMALL)


def test_client_that_does_not_read_for_long_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fjord.kestrel.server._STALLED_US", 0)

    async def test(world: World) -> None:
        slow, client = await world.client(), await world.client()
        item = bytes(12 * MIB)  # more than the kernel takes
        await put(client, b"q", item)
        await put(client, b"r", bytes(MIB))
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await slow.send(b"get q/open\r\n")
        await world.until(lambda: len(world.server.memory._stalled) == 1)
        world.server.memory._over_bytes = MIB
        await client.check(b"get r\r\n", value(b"r", bytes(MIB)))
        await world.until(lambda: world.server.counts["curr_connections"] == 1)
        assert world.collection.stats("q")["items"] == 1  # what it had open went back

    run(test, ServerOptions(is_exact=True))


async def _stats(client: Client) -> dict[bytes, bytes]:
    await client.send(b"stats\r\n")
    lines = (await client.until(b"END\r\n")).split(b"\r\n")
    return {line.split(b" ")[1]: line.split(b" ", 2)[2] for line in lines if b" " in line}
