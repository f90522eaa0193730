"""What foreign clients and tools meet: commands of memcached, replies of Kestrel, files."""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fjord.disk import LocalDisk
from fjord.kestrel import codec, exporter, protocols, reader
from fjord.kestrel.collection import Collection, Packed, pack_queues
from fjord.kestrel.config import QueueConfig
from fjord.kestrel.journal import Journal
from fjord.kestrel.queue import PersistentQueue
from fjord.kestrel.server import ServerOptions
from fjord.testing import SimClock
from tests.unit.kestrel.directory import QUEUE, at_ms
from tests.unit.kestrel.serving_world import EXACT, World, run, served
from tests.unit.kestrel.transcripts import lined
from tests.unit.kestrel.vectors import ADD_MS, decode, encoded, item

MEMCACHED = ServerOptions(is_exact=False)
STORING = ("add", "replace", "append", "prepend")
FOREIGN = (
    *(f"{word} q 0 0 8|get q|x" for word in STORING),
    *("cas q 0 0 2 7||", "touch q 10", "incr q 1", "DECR q 1"),
    *("gat 10 q", "gats 10 q", "verbosity 1"),
    *("cache_memlimit 64", "slabs automove 0", "lru mode flat", "lru_crawler enable"),
    *("mn", "mg q v", "md q", "ma q", "me q"),
)
NO_SIZE = {
    "add q 0 0": "add needs a queue, flags, an expiry and a size",
    "add q 0 0 x": "the size of add is a number",
    "add q 0 0 99999999": "the item is too large",
}
BINARY = "the binary protocol is not served"
# What is sent, what is said, and whether the connection ends then.
ENDS = [
    *((MEMCACHED, lined(sent), f"CLIENT_ERROR {why}", True) for sent, why in NO_SIZE.items()),
    *((EXACT, lined(sent), "CLIENT_ERROR", True) for sent in ("add q 0 0 1|x", "touch q 10")),
    (MEMCACHED, b"\x80", f"CLIENT_ERROR {BINARY}", True),
    (EXACT, b"\x80", "CLIENT_ERROR", True),
    (MEMCACHED, lined("set q 0 0 1") + b"\x80\r\n", "STORED", False),
    *((options, b"version\r\n", "VERSION 2.4.1", False) for options in (MEMCACHED, EXACT)),
    (MEMCACHED, lined("get q/t=-1|get q/t=-1/open|monitor q -1"), "END|END|END", False),
    (MEMCACHED, lined("stats items|stats slabs|stats sizes"), "END|END|END", False),
]


# -- the protocols --------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", FOREIGN)
def test_a_command_that_a_queue_does_not_have_leaves_the_connection_open(sent: str) -> None:
    command = sent.split(maxsplit=1)[0].lower()

    async def test(world: World) -> None:
        client = await world.client()
        told = lined(f"CLIENT_ERROR queues have no {command}|END")
        await client.check(lined(sent + "|get q"), told)
        line, *data = sent.split("|")
        await client.check(lined("|".join([line + " noreply", *data, "get q"])), b"END\r\n")

    run(test, MEMCACHED)


@pytest.mark.parametrize(("options", "sent", "told", "ends"), ENDS)
def test_what_clients_of_memcached_send(
    options: ServerOptions, sent: bytes, told: str, ends: bool
) -> None:
    async def test(world: World) -> None:
        client = await world.client()
        await client.check(sent, lined(told))
        if ends:
            await client.expect_end()
        else:
            await client.check(b"status\r\n", b"UP\r\n")

    run(test, options)


@served(MEMCACHED)
async def test_stats_are_those_of_memcached_and_begin_anew(world: World) -> None:
    client = await world.client()
    await client.check(lined("set q 0 0 1|a|get q"), lined("STORED|VALUE q 0 1|a|END"))
    await client.send(b"stats settings\r\n")
    lines = (await client.until(b"END\r\n")).split(b"\r\n")
    assert {b"STAT maxconns 10000", b"STAT item_size_max 67108864"} < set(lines)
    assert b"STAT cas_enabled no" in lines
    await client.check(b"stats reset\r\n", b"RESET\r\n")
    await client.send(b"stats\r\n")
    found = (await client.until(b"END\r\n")).split(b"\r\n")
    assert {b"STAT total_items 0", b"STAT cmd_set 0", b"STAT get_hits 0"} < set(found)
    assert {b"STAT curr_connections 1", b"STAT version 2.4.1"} < set(found)


@served(EXACT)
async def test_kestrel_passes_over_what_follows_stats(world: World) -> None:
    client = await world.client()
    await client.send(b"stats items\r\n")
    assert (await client.until(b"END\r\n")).startswith(b"STAT uptime ")


@served(MEMCACHED)
async def test_a_negative_timeout_of_the_text_protocol_waits_for_nothing(world: World) -> None:
    client = await world.client(text=True)
    await client.check(b"get q -1\npeek q -1\nmonitor q -1\n", b"*\n" * 3)
    await client.check(b"put q -1:\na\n\nget q\n", b"+1\n*\n")


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


# -- queues and their files -----------------------------------------------------------------------


def test_the_age_of_a_queue_grows_while_nobody_takes() -> None:
    clock = SimClock()
    queue = PersistentQueue(QUEUE, QueueConfig(), clock)
    queue.add(b"a")
    clock.advance(5)
    queue.add(b"b")
    assert queue.stats()["age"] == 5000
    clock.advance(2)
    for age_ms in (7000, 2000, 0):
        assert queue.stats()["age"] == age_ms
        queue.remove()


@pytest.mark.parametrize("expiry_s", [2**31, 2**32 - 1])
def test_starling_expiries_from_2038_on_are_unsigned(expiry_s: int) -> None:
    data = struct.pack("<BiI", 0, 5, expiry_s) + b"x"
    ((op, _, _),), broken = decode(data)
    assert broken is None
    assert op.item is not None
    assert op.item.expiry_ms == expiry_s * 1000
    assert codec.encode(op, codec.Dialect.DOC) == data


def lived(folder: Path) -> PersistentQueue:
    clock = SimClock()
    journal = Journal(LocalDisk(), str(folder), QUEUE, clock)
    return PersistentQueue(QUEUE, QueueConfig(max_memory_size=30), clock, journal)


def modes(folder: Path) -> dict[str, int]:
    found = {one.name: stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()}
    return {name: mode for name, mode in found.items() if "~" not in name}


def test_rotating_packing_rewriting_and_exports_keep_the_mode_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / QUEUE
    path.write_bytes(encoded(item(b"one")))
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
    assert modes(tmp_path) == {QUEUE: 0o640}
    more = [encoded(item(b"two"))]
    exporter.write(LocalDisk(), str(tmp_path), QUEUE, more, at_ms(ADD_MS), appends=True)
    assert list(modes(tmp_path).values()) == [0o640] * 2


@pytest.mark.root
def test_packing_keeps_the_owner_of_all_files(caplog: pytest.LogCaptureFixture) -> None:
    owner = 12345, 23456
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, QUEUE)
        path.write_bytes(encoded(item(b"one"), codec.remove(), item(b"two")) + b"damaged")
        path.chmod(0o600)
        Path(folder, "boats.904").write_bytes(b"")  # its writer died before there was `boats`
        for one in (Path(folder), *Path(folder).iterdir()):
            os.chown(one, *owner)
        packed = list(pack_queues(LocalDisk(), folder, "", QueueConfig(), SimClock()))
        assert [type(one) for one in packed] == [Packed, Packed]
        listed = list(Path(folder).rglob("*"))
        names = {one.name for one in listed}
        assert names >= {QUEUE, "boats", "cars~~sums", "~~lock", "~~corrupt"}
        assert {(one.stat().st_uid, one.stat().st_gid) for one in listed} == {owner}
        assert stat.S_IMODE(Path(folder, "~~lock").stat().st_mode) == 0o600
        with as_owner(*owner):
            again = Collection(LocalDisk(), folder, None, SimClock())
            assert again.peek(QUEUE) is not None
            again.close()
        assert not caplog.messages
        os.chown(Path(folder, "cars~~sums"), 0, 0)
        with as_owner(*owner):
            assert reader.read_sums(LocalDisk(), folder, QUEUE) == {}
        assert caplog.messages == ["sums cannot be read"]


@contextlib.contextmanager
def as_owner(uid: int, gid: int) -> Iterator[None]:
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
