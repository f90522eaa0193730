"""Transcripts of every command and every error of both protocols, against a server."""

from __future__ import annotations

import pytest

import fjord
from fjord.kestrel.serving import Options
from tests.unit.kestrel.serving_world import World, run

VERSION = fjord.__version__.encode()
Transcript = list[tuple[bytes, bytes]]

# What a queue with one item of five bytes says of itself.
NUMBERS = {
    "items": 1,
    "bytes": 5,
    "total_items": 1,
    "logsize": 26,
    "expired_items": 0,
    "mem_items": 1,
    "mem_bytes": 5,
    "age": 0,
    "discarded": 0,
    "waiters": 0,
    "open_transactions": 0,
    "transactions": 0,
    "canceled_transactions": 0,
    "total_flushes": 0,
    "journal_rewrites": 0,
    "journal_rotations": 0,
}
DUMPED = b"".join(b"  %b=%d\r\n" % (name.encode(), value) for name, value in NUMBERS.items())

MEMCACHE: dict[str, Transcript] = {
    "set and get": [
        (b"set q 0 0 5\r\nhello\r\n", b"STORED\r\n"),
        (b"get q\r\n", b"VALUE q 0 5\r\nhello\r\nEND\r\n"),
        (b"gets q\r\n", b"END\r\n"),
    ],
    "flags are not kept": [
        (b"SET q 9 0 1\r\nx\r\n", b"STORED\r\n"),
        (b"GET q\r\n", b"VALUE q 0 1\r\nx\r\nEND\r\n"),
    ],
    "an item may expire": [
        (b"set q 0 -1 1\r\nx\r\n", b"STORED\r\n"),
        (b"set q 0 1000000 1\r\nx\r\n", b"STORED\r\n"),
        (b"flush_expired q\r\n", b"2\r\n"),
        (b"set q 0 -1 1\r\nx\r\n", b"STORED\r\n"),
        (b"flush_all_expired\r\n", b"1\r\n"),
        (b"set q 0 -1 1\r\nx\r\nset q 0 100 1\r\ny\r\n", b"STORED\r\nSTORED\r\n"),
        (b"get q\r\n", b"VALUE q 0 1\r\ny\r\nEND\r\n"),
    ],
    "no reply where none is wanted": [
        (b"set q 0 0 1 noreply\r\nx\r\nget q\r\n", b"VALUE q 0 1\r\nx\r\nEND\r\n"),
        (b"delete q noreply\r\nflush_all noreply\r\nget q\r\n", b"END\r\n"),
    ],
    "open, abort, open, close": [
        (b"set q 0 0 1\r\na\r\nset q 0 0 1\r\nb\r\n", b"STORED\r\nSTORED\r\n"),
        (b"get q/open\r\n", b"VALUE q 0 1\r\na\r\nEND\r\n"),
        (b"get q/abort\r\n", b"END\r\n"),
        (b"get q/open\r\n", b"VALUE q 0 1\r\na\r\nEND\r\n"),
        (b"get q/close/open\r\n", b"VALUE q 0 1\r\nb\r\nEND\r\n"),
        (b"get q/close\r\n", b"END\r\n"),
        (b"get q\r\n", b"END\r\n"),
    ],
    "close and abort without open": [
        (b"get q/close\r\n", b"END\r\n"),
        (b"get q/abort\r\n", b"END\r\n"),
        (b"set q 0 0 1\r\na\r\n", b"STORED\r\n"),
        (b"get q/close/open\r\n", b"VALUE q 0 1\r\na\r\nEND\r\n"),
    ],
    "peek": [
        (b"get q/peek\r\n", b"END\r\n"),
        (b"set q 0 0 1\r\na\r\n", b"STORED\r\n"),
        (b"get q/peek\r\n", b"VALUE q 0 1\r\na\r\nEND\r\n"),
        (b"get q/t=5/peek\r\n", b"VALUE q 0 1\r\na\r\nEND\r\n"),
        (b"get q/open\r\n", b"VALUE q 0 1\r\na\r\nEND\r\n"),
        (b"get q/peek\r\n", b"END\r\n"),
    ],
    "a wait that is over": [
        (b"get q/t=1\r\n", b"END\r\n"),
        (b"get q/t=1/open\r\n", b"END\r\n"),
        (b"get q/t=1/peek\r\n", b"END\r\n"),
    ],
    "monitor and confirm": [
        (b"set q 0 0 1\r\na\r\nset q 0 0 1\r\nb\r\n", b"STORED\r\nSTORED\r\n"),
        (b"set q 0 0 1\r\nc\r\n", b"STORED\r\n"),
        (b"monitor q 60 2\r\n", b"VALUE q 0 1\r\na\r\nVALUE q 0 1\r\nb\r\nEND\r\n"),
        (b"confirm q 3\r\n", b"ERROR\r\n"),
        (b"confirm q 2\r\n", b"END\r\n"),
        (b"confirm q 1\r\n", b"ERROR\r\n"),
        (b"monitor q 0\r\n", b"END\r\n"),
        (b"get q\r\n", b"VALUE q 0 1\r\nc\r\nEND\r\n"),
    ],
    "flush and delete": [
        (b"set a 0 0 1\r\nx\r\nset b 0 0 1\r\nx\r\n", b"STORED\r\nSTORED\r\n"),
        (b"flush a\r\n", b"END\r\n"),
        (b"get a\r\n", b"END\r\n"),
        (b"flush_all\r\n", b"Flushed all queues.\r\n"),
        (b"get b\r\n", b"END\r\n"),
        (b"delete a\r\n", b"DELETED\r\n"),
        (b"delete missing\r\n", b"DELETED\r\n"),
        (b"dump_stats a\r\n", b"END\r\n"),
    ],
    "what the server says of itself": [
        (b"status\r\n", b"UP\r\n"),
        (b"status readonly\r\n", b"END\r\n"),
        (b"status\r\n", b"READONLY\r\n"),
        (b"get q\r\n", b"END\r\n"),
        (b"status quiescent\r\n", b"END\r\n"),
        (b"status\r\n", b"QUIESCENT\r\n"),
        (b"get q/close\r\n", b"END\r\n"),
        (b"status UP\r\n", b"END\r\n"),
        (b"reload\r\n", b"Reloaded config.\r\n"),
    ],
    "dump_stats": [
        (b"dump_stats\r\n", b"END\r\n"),
        (b"set q 0 0 5\r\nhello\r\n", b"STORED\r\n"),
        (b"dump_stats q other\r\n", b"queue 'q' {\r\n" + DUMPED + b"}\r\nEND\r\n"),
    ],
}

# What is asked, what is said, and then the connection ends.
MEMCACHE_ENDS: dict[str, Transcript] = {
    "peek and open": [(b"get q/peek/open\r\n", b"CLIENT_ERROR\r\n")],
    "abort and close": [(b"get q/abort/close\r\n", b"CLIENT_ERROR\r\n")],
    "peek and abort": [(b"get q/peek/abort\r\n", b"CLIENT_ERROR\r\n")],
    "no name": [(b"get /open\r\n", b"CLIENT_ERROR\r\n")],
    "an unknown command": [(b"add q 0 0 1\r\nx\r\n", b"CLIENT_ERROR\r\n")],
    "a set without a size": [(b"set q 0 0\r\n", b"CLIENT_ERROR\r\n")],
    "an item that is too large": [(b"set q 0 0 1001\r\n", b"CLIENT_ERROR\r\n")],
    "an unknown status": [(b"status what\r\n", b"CLIENT_ERROR\r\n")],
    "a plain get while one is open": [
        (b"set q 0 0 1\r\nx\r\n", b"STORED\r\n"),
        (b"get q/open\r\n", b"VALUE q 0 1\r\nx\r\nEND\r\n"),
        (b"get q\r\n", b"ERROR\r\n"),
    ],
    "too many open": [
        (b"set q 0 0 1\r\nx\r\n", b"STORED\r\n"),
        (b"get q/open\r\n", b"VALUE q 0 1\r\nx\r\nEND\r\n"),
        (b"get q/open\r\n", b"END\r\n"),
        (b"set q 0 0 1\r\nx\r\n", b"STORED\r\n"),
        (b"get q/open\r\n", b"VALUE q 0 1\r\nx\r\nEND\r\n"),
        (b"get q/open\r\n", b"ERROR\r\n"),
    ],
    "a set when it is read-only": [
        (b"status readonly\r\n", b"END\r\n"),
        (b"set q 0 0 1\r\nx\r\n", b"SERVER_ERROR\r\n"),
    ],
    "a flush when it is read-only": [
        (b"status readonly\r\n", b"END\r\n"),
        (b"flush q\r\n", b"SERVER_ERROR\r\n"),
    ],
    "a get when it is quiescent": [
        (b"status quiescent\r\n", b"END\r\n"),
        (b"get q\r\n", b"SERVER_ERROR\r\n"),
    ],
    "a monitor when it is quiescent": [
        (b"status quiescent\r\n", b"END\r\n"),
        (b"monitor q 1\r\n", b"SERVER_ERROR\r\n"),
    ],
    "quit": [(b"quit\r\n", b"")],
    "shutdown": [(b"shutdown\r\n", b"")],
}

TEXT: dict[str, Transcript] = {
    "put and get": [
        (b"put q:\na\nb\n\n", b"+2\n"),
        (b"get q\n", b":a\n"),
        (b"get q\n", b":b\n"),
        (b"get q\n", b"*\n"),
        (b"get q 1\n", b"*\n"),
    ],
    "put that is full": [(b"put small:\n" + b"x\n" * 12 + b"\n", b"+10\n")],
    "put that expires": [(b"put q 1000000:\na\n\n", b"+1\n"), (b"get q\n", b":a\n")],
    "peek": [
        (b"peek q\n", b"*\n"),
        (b"peek q 1\n", b"*\n"),
        (b"put q:\na\n\n", b"+1\n"),
        (b"peek q\n", b":a\n"),
        (b"get q\n", b":a\n"),
        (b"peek q\n", b"*\n"),
    ],
    "monitor and confirm": [
        (b"put q:\na\nb\nc\n\n", b"+3\n"),
        (b"monitor q 60000\n", b":a\n:b\n*\n"),
        (b"confirm q 3\n", b"-Not that many transactions open.\n"),
        (b"confirm q 2\n", b"+2\n"),
        (b"monitor q 1\n", b":c\n*\n"),
    ],
    "flush and delete": [
        (b"put q:\na\n\n", b"+1\n"),
        (b"flush q\n", b"+0\n"),
        (b"get q\n", b"*\n"),
        (b"delete q\n", b"+0\n"),
    ],
    "what the server says of itself": [
        (b"status\n", b"+up\n"),
        (b"status readonly\n", b"+0\n"),
        (b"put q:\na\n\n", b"-The status of the server does not allow it.\n"),
        (b"status quiescent\n", b"+0\n"),
        (b"get q\n", b"-The status of the server does not allow it.\n"),
        (b"monitor q 1\n", b"-The status of the server does not allow it.\n"),
        (b"status what\n", b"-Unknown status: what\n"),
        (b"status up\n", b"+0\n"),
        (b"version\n", b"+" + VERSION + b"\n"),
    ],
    "errors": [
        (b"what\n", b"-Unknown command: what\n"),
        (b"get\n", b"-Queue name required.\n"),
        (b"put q x:\na\n\n", b"-Error parsing expiration time.\n"),
        (b"get q x\n", b"-Error parsing timeout.\n"),
        (b"monitor q\n", b"-Queue name & timeout required.\n"),
    ],
}

OPTIONS = Options(open_max=2, item_bytes_max=1000)


@pytest.mark.parametrize("bytewise", [False, True], ids=["whole", "bytewise"])
@pytest.mark.parametrize("transcript", MEMCACHE.values(), ids=MEMCACHE.keys())
def test_memcache(transcript: Transcript, bytewise: bool) -> None:
    async def test(world: World) -> None:
        client = await world.client()
        for sent, expected in transcript:
            await client.check(sent, expected, bytewise=bytewise)
        await client.check(b"version\r\n", b"VERSION " + VERSION + b"\r\n")

    run(test, OPTIONS)


@pytest.mark.parametrize("bytewise", [False, True], ids=["whole", "bytewise"])
@pytest.mark.parametrize("transcript", MEMCACHE_ENDS.values(), ids=MEMCACHE_ENDS.keys())
def test_memcache_connection_ends(transcript: Transcript, bytewise: bool) -> None:
    async def test(world: World) -> None:
        client = await world.client()
        for sent, expected in transcript:
            await client.check(sent, expected, bytewise=bytewise)
        await client.expect_end()

    run(test, OPTIONS)


@pytest.mark.parametrize("bytewise", [False, True], ids=["whole", "bytewise"])
@pytest.mark.parametrize("transcript", TEXT.values(), ids=TEXT.keys())
def test_text(transcript: Transcript, bytewise: bool) -> None:
    async def test(world: World) -> None:
        client = await world.client(text=True)
        for sent, expected in transcript:
            await client.check(sent, expected, bytewise=bytewise)
        await client.check(b"quit\n", b"+0\n")
        await client.expect_end()

    run(test, OPTIONS)


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
        await client.check(b"get q/peek\r\n", b"VALUE q 0 5\r\nhello\r\nEND\r\n")
        await client.check(b"get other\r\n", b"END\r\n")
        await client.send(b"stats\r\n")
        lines = (await client.until(b"END\r\n")).decode().split("\r\n")[:-2]
        words = [line.split(" ") for line in lines]
        assert {word for word, *_ in words} == {"STAT"}
        found = {name: value for _, name, value in words}
        assert list(found)[: len(STATS)] == STATS
        assert [f"queue_q_{name}" for name in NUMBERS if f"queue_q_{name}" not in found] == []
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

    run(test)
