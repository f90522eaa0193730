"""A server on real sockets, in the loop of the test, and clients that speak bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

from fjord.clock import SystemClock
from fjord.kestrel import config as configuration
from fjord.kestrel.backends import DirectoryBackend
from fjord.kestrel.collection import Collection
from fjord.kestrel.server import Server, ServerOptions
from fjord.testing import SimDisk

SECONDS_MAX = 60


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def check(self, sent: bytes, expected: bytes, *, bytewise: bool = False) -> None:
        await self.send(sent, bytewise=bytewise)
        await self.expect(expected)

    async def send(self, sent: bytes, *, bytewise: bool = False) -> None:
        for piece in [sent[at : at + 1] for at in range(len(sent))] if bytewise else [sent]:
            self.writer.write(piece)
            await self.writer.drain()

    async def expect(self, expected: bytes) -> None:
        try:
            found = await self._reader.readexactly(len(expected))
        except asyncio.IncompleteReadError as error:
            found = error.partial
        assert found == expected

    async def until(self, ending: bytes) -> bytes:
        return await self._reader.readuntil(ending)

    async def expect_end(self) -> None:
        with contextlib.suppress(ConnectionResetError):
            assert await self._reader.read() == b""

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


class World:
    def __init__(
        self, options: ServerOptions, config: dict[str, object], reserve_bytes: int = 0
    ) -> None:
        self.clock = SystemClock()
        self.disk = SimDisk()
        self.given = config  # what is read when the configuration is read again
        self.disk.make_directory("/queues")
        self.disk.sync_directory("/")
        read = configuration.read(config)
        self.collection = Collection(
            self.disk, "/queues", read, self.clock, reserve_bytes=reserve_bytes
        )
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

    async def waiting(self, queue: str, count: int = 1) -> None:
        """Returns when so many wait for a queue."""
        await self.until(lambda: len(self.backend._listening.get(queue, ())) == count)

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


def run(
    test: Callable[[World], Awaitable[None]],
    options: ServerOptions | None = None,
    config: dict[str, object] | None = None,
    reserve_bytes: int = 0,
) -> None:
    """Runs a test in a world of its own."""

    async def main() -> None:
        given = SYNCED if config is None else config
        world = World(options or ServerOptions(is_exact=True), given, reserve_bytes)
        await world.start()
        async with asyncio.timeout(SECONDS_MAX):
            try:
                await test(world)
            finally:
                await world.stop()

    asyncio.run(main())
