"""Transcripts of every command and every error of both protocols, against a server."""

from __future__ import annotations

import pytest

from fjord.kestrel.server import ServerOptions
from tests.unit.kestrel import transcripts
from tests.unit.kestrel.serving_world import Client, World, run
from tests.unit.kestrel.transcripts import MEMCACHE, MEMCACHE_ENDS, TEXT, TEXT_ENDS, Transcript

BYTEWISE = pytest.mark.parametrize("bytewise", [False, True], ids=["whole", "bytewise"])
EXACT = pytest.mark.parametrize("is_exact", [False, True], ids=["memcached", "exact"])


async def follow(
    client: Client, transcript: Transcript, *, is_exact: bool = False, bytewise: bool = False
) -> None:
    for exchange in transcript:
        expected = transcripts.expected(exchange, is_exact=is_exact)
        await client.check(exchange[0], expected, bytewise=bytewise)


@BYTEWISE
@EXACT
@pytest.mark.parametrize("transcript", MEMCACHE.values(), ids=MEMCACHE.keys())
def test_memcache(transcript: Transcript, is_exact: bool, bytewise: bool) -> None:
    async def test(world: World) -> None:
        client = await world.client()
        await follow(client, transcript, is_exact=is_exact, bytewise=bytewise)
        await client.check(b"status\r\n", b"UP\r\n")

    run(test, ServerOptions(open_max=2, is_exact=is_exact))


@BYTEWISE
@EXACT
@pytest.mark.parametrize("transcript", MEMCACHE_ENDS.values(), ids=MEMCACHE_ENDS.keys())
def test_memcache_connection_ends(transcript: Transcript, is_exact: bool, bytewise: bool) -> None:
    async def test(world: World) -> None:
        client = await world.client()
        await follow(client, transcript, is_exact=is_exact, bytewise=bytewise)
        await client.expect_end()

    run(test, ServerOptions(open_max=2, is_exact=is_exact))


@BYTEWISE
@pytest.mark.parametrize("transcript", TEXT.values(), ids=TEXT.keys())
def test_text(transcript: Transcript, bytewise: bool) -> None:
    async def test(world: World) -> None:
        client = await world.client(text=True)
        await follow(client, transcript, bytewise=bytewise)
        await client.check(b"status\n", b":UP\n")

    run(test, ServerOptions(open_max=2))


@BYTEWISE
@pytest.mark.parametrize("transcript", TEXT_ENDS.values(), ids=TEXT_ENDS.keys())
def test_text_connection_ends(transcript: Transcript, bytewise: bool) -> None:
    async def test(world: World) -> None:
        client = await world.client(text=True)
        await follow(client, transcript, bytewise=bytewise)
        await client.expect_end()

    run(test, ServerOptions(open_max=2))


@pytest.mark.parametrize("is_text", [False, True], ids=["memcache", "text"])
def test_shutdown_ends_the_server(is_text: bool) -> None:
    async def test(world: World) -> None:
        client = await world.client(text=is_text)
        await client.check(b"shutdown\r\n", b"+0\n" if is_text else b"")
        await client.expect_end()
        assert world.running is not None
        await world.running
        assert world.running.done()

    run(test)


STATS = [
    "uptime",
    "time",
    "version",
    "curr_items",
    "total_items",
    "bytes",
    "reserved_memory_ratio",
    "curr_connections",
    "total_connections",
    "cmd_get",
    "cmd_set",
    "cmd_peek",
    "get_hits",
    "get_misses",
    "bytes_read",
    "bytes_written",
    "queue_creates",
    "queue_deletes",
    "queue_expires",
]


def test_stats_have_every_name_of_kestrel() -> None:
    async def test(world: World) -> None:
        client = await world.client()
        await client.check(b"set q 0 0 5\r\nhello\r\n", b"STORED\r\n")
        await client.check(b"get q/peek\r\n", b"VALUE q/peek 0 5\r\nhello\r\nEND\r\n")
        await client.check(b"get other\r\n", b"END\r\n")
        await client.send(b"stats\r\n")
        lines = (await client.until(b"END\r\n")).decode().split("\r\n")[:-2]
        words = [line.split(" ") for line in lines]
        assert {word for word, *_ in words} == {"STAT"}
        found = {name: value for _, name, value in words}
        assert list(found)[: len(STATS)] == STATS
        assert [
            f"queue_q_{name}" for name in transcripts.NUMBERS if f"queue_q_{name}" not in found
        ] == []
        wanted = {
            "curr_items": "1",
            "total_items": "1",
            "bytes": "5",
            "curr_connections": "1",
            "cmd_get": "1",
            "cmd_set": "1",
            "cmd_peek": "1",
            "get_hits": "1",
            "get_misses": "1",
            "queue_creates": "2",
            "queue_q_items": "1",
            "queue_other_waiters": "0",
        }
        assert wanted.items() <= found.items()

    run(test, ServerOptions())
