"""A server on real sockets, in the loop of the test, and clients that speak bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from fjord.clock import SystemClock
from fjord.kestrel import config as configuration
from fjord.kestrel.backends import DirectoryBackend
from fjord.kestrel.collection import Collection
from fjord.kestrel.server import Server, ServerOptions
from fjord.testing import SimDisk

SECONDS_MAX = 60
STORED, END, REFUSED = b"STORED\r\n", b"END\r\n", b"SERVER_ERROR\r\n"
EXACT = ServerOptions(is_exact=True)


def put(queue: bytes, data: bytes) -> bytes:
    return b"set %b 0 0 %d\r\n%b\r\n" % (queue, len(data), data)


def value(queue: bytes, data: bytes) -> bytes:
    return b"VALUE %b 0 %d\r\n%b\r\nEND\r\n" % (queue, len(data), data)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def check(self, sent: bytes, expected: bytes) -> None:
        await self.send(sent)
        await self.expect(expected)

    async def put(self, queue: bytes, *items: bytes) -> None:
        for data in items:
            await self.check(put(queue, data), STORED)

    async def get(self, key: bytes, *items: bytes) -> None:
        """Ensures that these are found under a key, and named without its options."""
        for data in items:
            await self.check(b"get %b\r\n" % key, value(key.partition(b"/")[0], data))

    async def send(self, sent: bytes) -> None:
        self.writer.write(sent)
        await self.writer.drain()

    async def expect(self, expected: bytes) -> None:
        try:
            found = await self._reader.readexactly(len(expected))
        except asyncio.IncompleteReadError as error:
            found = error.partial
        assert found == expected

    async def until(self, ending: bytes) -> bytes:
        return await self._reader.readuntil(ending)

    async def stats(self) -> dict[str, str]:
        await self.send(b"stats\r\n")
        lines = (await self.until(END)).decode().split("\r\n")[:-2]
        words = [line.split(" ", 2) for line in lines]
        assert {first for first, _, _ in words} == {"STAT"}
        return {name: value for _, name, value in words}

    async def expect_end(self) -> None:
        with contextlib.suppress(ConnectionResetError):
            assert await self._reader.read() == b""

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


class World:
    def __init__(self, options: ServerOptions, config: dict[str, Any]) -> None:
        self.clock = SystemClock()
        self.disk = SimDisk()
        self.given = config  # what is read when the configuration is read again
        self.disk.make_directory("/queues")
        self.disk.sync_directory("/")
        read = configuration.read(config)
        self.collection = Collection(self.disk, "/queues", read, self.clock)
        self.backend = DirectoryBackend(
            self.collection, read, read_config=lambda: configuration.read(self.given)
        )
        self.server = Server(self.backend, self.clock, options)
        self._sockets: list[socket.socket] = []
        self._clients: list[Client] = []
        self.running: asyncio.Task[None] | None = None

    @property
    def syncs(self) -> int:
        return self.disk.calls.count("sync")

    async def start(self) -> None:
        self._sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        await self.server.start(*self._sockets)
        self.running = asyncio.create_task(self.server.run())

    async def client(self, *, text: bool = False) -> Client:
        host, port = self._sockets[text].getsockname()
        client = Client(*await asyncio.open_connection(host, port))
        self._clients.append(client)
        return client

    async def clients(self, count: int) -> list[Client]:
        return [await self.client() for _ in range(count)]

    async def waiting(self, queue: str, count: int = 1) -> None:
        """Returns when so many wait for a queue."""
        await self.until(lambda: len(self.backend._listening.get(queue, ())) == count)

    async def waits(self, client: Client, key: bytes, count: int = 1) -> None:
        """Lets a client wait for a queue, as so many do then."""
        await client.send(b"get %b/t=60000\r\n" % key)
        await self.waiting(key.decode().partition("/")[0], count)

    async def connected(self, count: int) -> None:
        await self.until(lambda: self.server.counts["curr_connections"] == count)

    def left(self, queue: str = "q") -> list[bytes]:
        """Returns what is in the directory, when the server has ended or lost its disk."""
        again = Collection(self.disk, "/queues", None, self.clock)
        return [bytes(item.data) for item in iter(lambda: again.remove(queue), None)]

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def stop(self) -> None:
        self.server.stop()
        assert self.running is not None
        try:
            await self.running
        finally:
            for client in self._clients:
                await client.close()


SYNCED: dict[str, object] = {
    "default": {"syncJournal": "always"},
    "queues": {
        "unsynced": {"syncJournal": "never"},
        "small": {"maxItems": 10},
        "tiny": {"maxItemSize": 3},
        "old": {"expireToQueue": "expired"},
    },
    "aliases": {"both": ["first", "second"]},
}


Test = Callable[[World], Awaitable[None]]


def served(
    options: ServerOptions = EXACT, config: dict[str, Any] | None = None
) -> Callable[[Test], Callable[[], None]]:
    """Makes a test of what is to be done in a world of its own."""

    def made(test: Test) -> Callable[[], None]:
        return lambda: run(test, options, config)

    return made


def run(test: Test, options: ServerOptions = EXACT, config: dict[str, Any] | None = None) -> None:
    """Runs a test in a world of its own."""

    async def main() -> None:
        world = World(options, SYNCED if config is None else config)
        await world.start()
        async with asyncio.timeout(SECONDS_MAX):
            try:
                await test(world)
            finally:
                await world.stop()

    asyncio.run(main())
