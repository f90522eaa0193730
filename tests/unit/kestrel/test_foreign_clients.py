"""What foreign clients and tools meet: commands of memcached, replies of Kestrel, files."""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path

import pytest

from fjord.disk import LocalDisk
from fjord.kestrel import codec, exporter, protocols
from fjord.kestrel.config import QueueConfig
from fjord.kestrel.journal import Journal
from fjord.kestrel.queue import PersistentQueue
from fjord.kestrel.server import ServerOptions
from fjord.testing import SimClock
from tests.unit.kestrel import vectors
from tests.unit.kestrel.directory import at_ms
from tests.unit.kestrel.serving_world import World, run
from tests.unit.kestrel.vectors import ADD_MS, decode, encoded

MEMCACHED = ServerOptions(is_exact=False)
STORING = ("add", "replace", "append", "prepend")


# -- the memcache protocol ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        *(b"%b q 0 0 8\r\nget q\r\nx\r\n" % word.encode() for word in STORING),
        b"cas q 0 0 2 7\r\n\r\n\r\n",
        b"touch q 10\r\n",
        b"incr q 1\r\n",
        b"DECR q 1\r\n",
        b"gat 10 q\r\n",
        b"gats 10 q\r\n",
        b"verbosity 1\r\n",
    ],
)
def test_a_command_that_a_queue_does_not_have_leaves_the_connection_open(sent: bytes) -> None:
    command = sent.split(b" ")[0].lower()

    async def test(world: World) -> None:
        client = await world.client()
        refusal = b"CLIENT_ERROR queues have no %b\r\n" % command
        await client.check(sent + b"get q\r\n", refusal + b"END\r\n")
        quiet = sent.replace(b"\r\n", b" noreply\r\n", 1)
        await client.check(quiet + b"get q\r\n", b"END\r\n")

    run(test, MEMCACHED)


@pytest.mark.parametrize("sent", [b"add q 0 0 1\r\nx\r\n", b"touch q 10\r\n"])
def test_kestrel_ends_the_connection_behind_an_unknown_command(sent: bytes) -> None:
    async def test(world: World) -> None:
        client = await world.client()
        await client.check(sent, b"CLIENT_ERROR\r\n")
        await client.expect_end()

    run(test, ServerOptions(is_exact=True))


@pytest.mark.parametrize("line", [b"add q 0 0\r\n", b"add q 0 0 x\r\n", b"add q 0 0 99999999\r\n"])
def test_the_connection_ends_if_the_size_of_the_data_is_unknown_or_too_large(line: bytes) -> None:
    async def test(world: World) -> None:
        client = await world.client()
        await client.send(line)
        assert (await client.until(b"\r\n")).startswith(b"CLIENT_ERROR ")
        await client.expect_end()

    run(test, MEMCACHED)


@pytest.mark.parametrize("is_exact", [False, True])
def test_the_version_is_one_that_libmemcached_can_parse(is_exact: bool) -> None:
    """It wants a major number from 1 on, then a minor one and a micro one."""

    async def test(world: World) -> None:
        client = await world.client()
        await client.check(b"version\r\n", b"VERSION 2.4.1\r\n")
        await client.send(b"stats\r\n")
        assert b"\r\nSTAT version 2.4.1\r\n" in await client.until(b"END\r\n")

    run(test, ServerOptions(is_exact=is_exact))


@pytest.mark.parametrize(
    ("is_exact", "refusal"),
    [(False, b"CLIENT_ERROR the binary protocol is not served\r\n"), (True, b"CLIENT_ERROR\r\n")],
)
def test_the_binary_protocol_is_refused_at_once(is_exact: bool, refusal: bytes) -> None:
    async def test(world: World) -> None:
        client = await world.client()
        await client.check(b"set q 0 0 1\r\n\x80\r\n", b"STORED\r\n")
        await client.check(b"\x80", refusal)
        await client.expect_end()

    run(test, ServerOptions(is_exact=is_exact))


def test_a_negative_timeout_waits_for_nothing() -> None:
    async def test(world: World) -> None:
        client, other = await world.client(), await world.client(text=True)
        await client.check(b"get q/t=-1\r\nget q/t=-1/open\r\n", b"END\r\n" * 2)
        await client.check(b"monitor q -1\r\n", b"END\r\n")
        await other.check(b"get q -1\npeek q -1\nmonitor q -1\n", b"*\n" * 3)
        await client.check(b"set q 0 0 1\r\na\r\nget q/t=-1\r\n", b"STORED\r\nVALUE q/t=-1 0 1\r\n")
        await client.expect(b"a\r\nEND\r\n")
        await other.check(b"put q -1:\na\n\nget q\n", b"+1\n*\n")

    run(test, MEMCACHED)


def test_stats_of_memcached_are_answered_as_memcached_does() -> None:
    async def test(world: World) -> None:
        client = await world.client()
        await client.check(
            b"set q 0 0 1\r\na\r\nget q\r\n", b"STORED\r\nVALUE q 0 1\r\na\r\nEND\r\n"
        )
        for words in (b"items", b"slabs", b"sizes"):
            await client.check(b"stats %b\r\n" % words, b"END\r\n")
        await client.send(b"stats settings\r\n")
        lines = (await client.until(b"END\r\n")).split(b"\r\n")
        assert b"STAT maxconns 10000" in lines
        assert b"STAT item_size_max 67108864" in lines
        assert b"STAT cas_enabled no" in lines
        await client.check(b"stats reset\r\n", b"RESET\r\n")
        await client.send(b"stats\r\n")
        found = (await client.until(b"END\r\n")).split(b"\r\n")
        for word in (b"total_items 0", b"cmd_set 0", b"get_hits 0", b"curr_connections 1"):
            assert b"STAT " + word in found

    run(test, MEMCACHED)


def test_kestrel_passes_over_what_follows_stats() -> None:
    async def test(world: World) -> None:
        client = await world.client()
        await client.send(b"stats items\r\n")
        assert (await client.until(b"END\r\n")).startswith(b"STAT uptime ")

    run(test, ServerOptions(is_exact=True))


# -- the text protocol ----------------------------------------------------------------------------


def test_status_and_version_of_the_text_protocol_are_lines_of_kestrel() -> None:
    async def test(world: World) -> None:
        client = await world.client(text=True)
        await client.check(b"status\nversion\n", b":UP\n:2.4.1\n")
        await client.check(b"status readonly\nstatus\n", b"+0\n:READONLY\n")

    run(test)


# -- queues and their files -----------------------------------------------------------------------


def test_the_age_of_a_queue_grows_while_nobody_takes() -> None:
    clock = SimClock()
    queue = PersistentQueue("cars", QueueConfig(), clock)
    queue.add(b"a")
    clock.advance(5)
    queue.add(b"b")
    assert queue.stats()["age"] == 5000
    clock.advance(2)
    assert queue.stats()["age"] == 7000
    queue.remove()
    assert queue.stats()["age"] == 2000
    queue.remove()
    assert queue.stats()["age"] == 0


@pytest.mark.parametrize("expiry_s", [2**31, 2**32 - 1])
def test_starling_expiries_from_2038_on_are_unsigned(expiry_s: int) -> None:
    data = struct.pack("<BiI", 0, 5, expiry_s) + b"x"
    ((op, _, _),), broken = decode(data)
    assert broken is None
    assert op.item is not None
    assert op.item.expiry_ms == expiry_s * 1000
    assert codec.encode(op, codec.Dialect.DOC) == data


def test_numbers_that_no_expiry_holds_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot hold"):
        codec.encode(vectors.add(b"x", expiry_ms=2**32 * 1000), codec.Dialect.DOC)


def lived(folder: Path) -> PersistentQueue:
    clock = SimClock()
    journal = Journal(LocalDisk(), str(folder), "cars", clock)
    return PersistentQueue("cars", QueueConfig(max_memory_size=30), clock, journal)


def modes(folder: Path) -> dict[str, int]:
    found = {one.name: stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()}
    return {name: mode for name, mode in found.items() if "~" not in name}


def test_rotating_packing_and_rewriting_keep_the_mode_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "cars"
    path.write_bytes(encoded(vectors.addx(b"one", add_ms=ADD_MS)))
    path.chmod(0o640)
    queue = lived(tmp_path)
    for _ in range(4):
        queue.add(b"x" * 40)
    assert len(modes(tmp_path)) > 1
    assert set(modes(tmp_path).values()) == {0o640}
    for _ in range(4):
        queue.remove()  # reaches checkpoints, so older files are packed
    assert set(modes(tmp_path).values()) == {0o640}
    queue.pack()
    assert modes(tmp_path) == {"cars": 0o640}


@pytest.mark.root
def test_packing_keeps_the_owner_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "cars"
    path.write_bytes(encoded(vectors.addx(b"one", add_ms=ADD_MS)) + encoded(codec.remove()))
    os.chown(path, 12345, 23456)
    lived(tmp_path).pack()
    status = path.stat()
    assert (status.st_uid, status.st_gid, status.st_size) == (12345, 23456, 0)


def test_an_export_keeps_the_mode_of_the_queue_that_it_adds_to(tmp_path: Path) -> None:
    path = tmp_path / "cars"
    path.write_bytes(encoded(vectors.addx(b"one", add_ms=ADD_MS)))
    path.chmod(0o644)
    more = [encoded(vectors.addx(b"two", add_ms=ADD_MS))]
    exporter.write(LocalDisk(), str(tmp_path), "cars", more, at_ms(ADD_MS), appends=True)
    assert set(modes(tmp_path).values()) == {0o644}
    assert len(modes(tmp_path)) == 2


def test_requests_keep_no_data_of_a_refused_command() -> None:
    reader = protocols.MemcacheReader()
    reader.receive(b"add q 0 0 5\r\nhel")
    assert reader.next_request() is None
    reader.receive(b"lo\r\nversion\r\n")
    refused, version = reader.next_request(), reader.next_request()
    assert refused is not None
    assert (refused.verb, refused.items, refused.ends) == (protocols.Verb.BROKEN, (), False)
    assert version == protocols.KestrelRequest(protocols.Verb.VERSION)
    assert reader.kept_bytes == 0
