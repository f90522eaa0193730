"""A full disk under `fjord kestrel serve`: nothing is put, all that is there can be taken.

The disks here are small ones of their own, which somebody else fills, or the queue itself does.
"""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from fjord import limits
from fjord.kestrel.collection import RESERVE_BYTES
from fjord.kestrel.server import ServerOptions
from tests.acceptance.kestrel_server import expect, raw, serving
from tests.crash.ext4 import Ext4, tmpfs
from tests.unit.kestrel import serving_world
from tests.unit.kestrel.serving_world import END, REFUSED, STORED, World, served

DISK_MIB: Final = RESERVE_BYTES // limits.MIB + 40  # an empty journal of 16 MiB is erased
COUNT: Final = 5000  # their removes take more than one block


@contextlib.contextmanager
def in_memory(folder: Path) -> Iterator[Path]:
    with tmpfs(folder, kib=DISK_MIB * limits.KIB) as path:
        yield path


@contextlib.contextmanager
def on_ext4(folder: Path) -> Iterator[Path]:
    with Ext4(folder, mib=DISK_MIB) as disk:
        yield disk.path


@pytest.fixture(params=[in_memory, pytest.param(on_ext4, marks=pytest.mark.loop)])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with request.param(tmp_path) as path:
        yield path


def fill(disk: Path) -> Path:
    """Takes all that is left of a disk; returns what takes it."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (limits.MIB, limits.KIB):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass
    return ballast


def put(data: bytes) -> bytes:
    return serving_world.put(b"q", data)


def value(data: bytes) -> bytes:
    return serving_world.value(b"q", data)


def numbered(number: int) -> bytes:
    return b"%08d" % number


def check_refused(port: int) -> None:
    with raw(port) as client:
        expect(client, put(bytes(100_000)), REFUSED)


def drain(client: socket.socket, first: int, last: int) -> None:
    """Takes items, each of them open and then closed."""
    for start in range(first, last, 500):
        numbers = range(start, min(start + 500, last))
        asked = b"get q/open\r\nget q/close\r\n" * len(numbers)
        expect(client, asked, b"".join(value(numbered(one)) + END for one in numbers))


@pytest.mark.root
def test_items_are_taken_closed_and_given_back_from_a_disk_that_others_fill(disk: Path) -> None:
    path = disk / "queues"
    with serving(path, "--exact") as server, raw(server.port) as client:
        for number in range(COUNT):
            client.sendall(put(numbered(number)))
        expect(client, b"", STORED * COUNT)
        with raw(server.port) as holder:
            expect(holder, b"get q/open\r\n", value(numbered(0)))
            ballast = fill(disk)
            check_refused(server.port)
        expect(client, b"get q/t=60000\r\n", value(numbered(0)))  # it was given back
        drain(client, 1, COUNT // 2)
        check_refused(server.port)
        server.end(signal.SIGKILL)
    with serving(path, "--exact") as server, raw(server.port) as client:
        drain(client, COUNT // 2, COUNT - 1)
        check_refused(server.port)
        ballast.unlink()
        expect(client, put(b"late"), STORED)
        assert server.end(signal.SIGTERM) == 0
    with serving(path, "--exact") as server, raw(server.port) as client:
        expect(client, b"get q\r\n" * 3, value(numbered(COUNT - 1)) + value(b"late") + END)


@served()
async def test_what_cannot_be_given_back_is_tried_again(world: World) -> None:
    holder, client = await world.clients(2)
    await client.put(b"q", b"a", b"b")
    await holder.get(b"q/open", b"a")
    world.disk.capacity = world.disk.used_bytes()
    await client.check(b"get q/t=60000\r\n", REFUSED)  # also a get needs a byte
    await holder.close()
    await world.until(lambda: len(world.server.orphans) == 1)
    assert world.collection.stats("q")["open_transactions"] == 1
    world.disk.capacity = None
    await world.until(lambda: not world.server.orphans)
    await (await world.client()).get(b"q", b"a", b"b")


@served()
async def test_close_that_finds_no_space_gives_the_item_back(world: World) -> None:
    holder, client = await world.clients(2)
    await client.put(b"q", b"a")
    await holder.get(b"q/open", b"a")
    world.disk.capacity = world.disk.used_bytes()
    await holder.check(b"get q/close\r\n", REFUSED)
    await holder.expect_end()
    world.disk.capacity = None
    await client.get(b"q/t=60000", b"a")


@served(ServerOptions(is_exact=True, sweep_ms=10))
async def test_sweep_outlives_a_full_disk(world: World) -> None:
    client = await world.client()
    await client.put(b"q", b"b")
    await world.backend.add("old", [b"a"], 1)
    world.disk.capacity = world.disk.used_bytes()
    before = len(world.disk.calls)
    await world.until(lambda: "write" in world.disk.calls[before:])
    await client.get(b"q/peek", b"b")
    world.disk.capacity = None
    told = serving_world.value(b"expired", b"a")
    await client.check(b"get expired/t=60000\r\n", told)
