"""The HTTP server on bytes: what it answers, and what it refuses."""

from __future__ import annotations

import asyncio

import pytest

from fjord import limits
from fjord.server.http import Answer, HttpConnection, Pages


class Wire(asyncio.Transport):
    """Remembers what is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.is_open = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert self.is_open
        self.sent += bytes(data)

    def close(self) -> None:
        self.is_open = False

    def abort(self) -> None:
        self.is_open = False


def pages(seconds_max: float = 10) -> Pages:
    return Pages(
        {
            "/healthz": lambda: Answer(status=503, body=b"stopping\n"),
            "/metrics": lambda: Answer(status=200, body=b"up 1\n", content_type="text/x"),
        },
        seconds_max=seconds_max,
    )


def ask(*pieces: bytes) -> bytes:
    """Returns what a connection answers to these bytes; nothing if it still waits."""

    async def main() -> bytes:
        wire, connection = Wire(), HttpConnection(pages())
        connection.connection_made(wire)
        for piece in pieces:
            connection.data_received(piece)
        connection.connection_lost(None)
        assert wire.is_open == (wire.sent == b"")
        return wire.sent

    return asyncio.run(main())


def get(target: str, host: str = "127.0.0.1:17995", method: str = "GET") -> bytes:
    return f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


def test_a_page_is_answered_and_the_connection_closed() -> None:
    head, _, body = ask(get("/metrics?x=1")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 5" in head
    assert b"Content-Type: text/x" in head
    assert b"Connection: close" in head
    assert body == b"up 1\n"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/"), 404),
        (get("/metrics/../healthz"), 404),
        (get("/metrics", method="POST"), 405),
        (b"FJ\0\1\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 421),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 421),
        (get("/metrics", host="127.0.0.1.example.com"), 421),
        (get("/metrics", host="10.0.0.1:17995"), 421),
        (get("/metrics", host="localhost"), 200),
        (get("/metrics", host="[::1]:17995"), 200),
        (b"x" * (limits.HTTP_REQUEST_BYTES_MAX + 1), 431),
        (get("/" + "x" * limits.HTTP_REQUEST_BYTES_MAX), 431),
    ],
)
def test_status(request_: bytes, status: int) -> None:
    assert ask(request_).startswith(b"HTTP/1.1 %d " % status)


def test_no_more_connections_than_the_bound() -> None:
    async def main() -> None:
        shared = pages()
        wires = [Wire() for _ in range(limits.HTTP_CONNECTIONS_MAX + 1)]
        connections = [HttpConnection(shared) for _ in wires]
        for connection, wire in zip(connections, wires, strict=True):
            connection.connection_made(wire)
        assert [wire.is_open for wire in wires].count(False) == 1
        assert wires[-1].sent.startswith(b"HTTP/1.1 503 ")
        for connection in connections:
            connection.connection_lost(None)
        assert shared.open == 0

    asyncio.run(main())


def test_a_request_that_never_ends_is_given_up() -> None:
    async def main() -> None:
        gone = asyncio.Event()

        class Given(Wire):
            def abort(self) -> None:
                super().abort()
                gone.set()

        connection = HttpConnection(pages(seconds_max=0.01))
        connection.connection_made(Given())
        connection.data_received(b"GET /")
        await asyncio.wait_for(gone.wait(), timeout=30)
        connection.connection_lost(None)

    asyncio.run(main())
    assert pages().open == 0
