"""A full disk under `fjord kestrel serve`: nothing is put, all that is there can be taken.

The disks here are small ones of their own, which somebody else fills, or the queue itself does.
"""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from fjord import limits
from fjord.kestrel.collection import RESERVE_BYTES
from fjord.kestrel.server import ServerOptions
from tests.acceptance.kestrel_server import expect, raw, serving
from tests.crash.ext4 import Ext4, tmpfs
from tests.unit.kestrel.serving_world import World, run

END, STORED, REFUSED = b"END\r\n", b"STORED\r\n", b"SERVER_ERROR\r\n"
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


DISKS: Final[dict[str, Callable[[Path], contextlib.AbstractContextManager[Path]]]] = {
    "tmpfs": in_memory,
    "ext4": on_ext4,
}


@pytest.fixture(params=["tmpfs", pytest.param("ext4", marks=pytest.mark.loop)])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with DISKS[request.param](tmp_path) as path:
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
    return b"set q 0 0 %d\r\n%b\r\n" % (len(data), data)


def value(data: bytes) -> bytes:
    return b"VALUE q 0 %d\r\n%b\r\nEND\r\n" % (len(data), data)


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


@pytest.mark.root
def test_queue_that_has_filled_the_disk_can_be_emptied_and_filled_again(disk: Path) -> None:
    item = bytes(100_000)
    with serving(disk / "queues", "--exact") as server:
        counts = []
        for _ in range(2):
            count = 0
            with raw(server.port) as client:
                while True:
                    client.sendall(put(item))
                    told = client.recv(len(REFUSED))
                    if told != STORED:
                        break
                    count += 1
            assert told == REFUSED
            counts.append(count)
            with raw(server.port) as client:
                expect(
                    client, b"get q/open\r\nget q/close\r\n" * count, (value(item) + END) * count
                )
                expect(client, b"get q\r\n", END)
        assert min(counts) > 100
        assert server.end(signal.SIGTERM) == 0


@pytest.mark.root
def test_server_outlives_a_disk_without_a_single_byte(disk: Path) -> None:
    count = 3 * 4096  # removes, of which a block has 4096
    with serving(disk / "queues", "--exact") as server, raw(server.port) as client:
        for number in range(count):
            client.sendall(put(numbered(number)))
        expect(client, b"", STORED * count)
        with raw(server.port) as holder:
            expect(holder, b"get q/open\r\n", value(numbered(0)))
            taken = take_all_that_goes(server.port, disk)
            check_refused(server.port)
        # The holder is gone, and what it had open can not be given back yet.
        fill(disk).unlink()
        expect(client, put(b"late"), STORED)
        left = [numbered(0), *map(numbered, range(taken + 1, count)), b"late"]
        assert sorted(take(client, len(left))) == left
        assert server.end(signal.SIGTERM) == 0


def take(client: socket.socket, count: int) -> list[bytes]:
    """Takes items, also one that is given back only now."""
    client.sendall(b"get q/t=60000\r\n" * count)
    told = b""
    while told.count(END) < count:
        told += client.recv(65536)
    return told.split(b"\r\n")[1::3]


def take_all_that_goes(port: int, disk: Path) -> int:
    """Takes items while somebody else takes all space; returns how many before one is refused."""
    taken = 0
    with raw(port) as client:
        while True:
            fill(disk)
            client.sendall(b"get q\r\n" * 64)
            told = b""
            while told.count(END) < 64 and not told.endswith(REFUSED):
                told += client.recv(65536)
            numbers = range(taken + 1, taken + 1 + told.count(END))
            taken += len(numbers)
            expected = b"".join(value(numbered(one)) for one in numbers)
            if told != expected:
                assert told == expected + REFUSED
                return taken


def test_what_cannot_be_given_back_is_tried_again() -> None:
    async def test(world: World) -> None:
        holder, client = await world.client(), await world.client()
        await client.check(put(b"a") + put(b"b"), STORED * 2)
        await holder.check(b"get q/open\r\n", value(b"a"))
        world.disk.capacity = world.disk.used_bytes()
        await client.send(b"get q/t=60000\r\n")
        await client.expect(REFUSED)  # also a get needs a byte
        await holder.close()
        await world.until(lambda: len(world.server.orphans) == 1)
        assert world.collection.stats("q")["open_transactions"] == 1
        world.disk.capacity = None
        await world.until(lambda: not world.server.orphans)
        other = await world.client()
        await other.check(b"get q\r\nget q\r\n", value(b"a") + value(b"b"))

    run(test)


def test_close_that_finds_no_space_gives_the_item_back() -> None:
    async def test(world: World) -> None:
        holder, client = await world.client(), await world.client()
        await client.check(put(b"a"), STORED)
        await holder.check(b"get q/open\r\n", value(b"a"))
        world.disk.capacity = world.disk.used_bytes()
        await holder.check(b"get q/close\r\n", REFUSED)
        await holder.expect_end()
        world.disk.capacity = None
        await client.check(b"get q/t=60000\r\n", value(b"a"))

    run(test)


def test_sweep_outlives_a_full_disk() -> None:
    async def test(world: World) -> None:
        client = await world.client()
        await client.check(put(b"b"), STORED)
        await world.backend.add("old", [b"a"], 1)
        world.disk.capacity = world.disk.used_bytes()
        before = len(world.disk.calls)
        await world.until(lambda: "write" in world.disk.calls[before:])
        await client.check(b"get q/peek\r\n", value(b"b"))
        world.disk.capacity = None
        await client.check(b"get expired/t=60000\r\n", b"VALUE expired 0 1\r\na\r\nEND\r\n")

    run(test, ServerOptions(is_exact=True, sweep_ms=10))
