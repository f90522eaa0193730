"""A minimal beanstalkd client, so that no library affects the figures."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Self

_PRIORITY, _DELAY_SECONDS, _LEASE_SECONDS = 100, 0, 3600


class Beanstalk:
    """One connection, with as many commands in flight as one call has jobs."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._replies = self._socket.makefile("rb")

    def put_many(self, bodies: Sequence[bytes]) -> None:
        head = f"put {_PRIORITY} {_DELAY_SECONDS} {_LEASE_SECONDS}".encode()
        self._socket.sendall(
            b"".join([b"%b %d\r\n%b\r\n" % (head, len(body), body) for body in bodies])
        )
        for _ in bodies:
            self._reply(b"INSERTED")

    def take(self) -> bytes:
        """Reserves the next job and deletes it; returns its body."""
        self._socket.sendall(b"reserve-with-timeout 0\r\n")
        number, size = self._reply(b"RESERVED")
        body = self._replies.read(int(size) + 2)[:-2]
        self._socket.sendall(b"delete %b\r\n" % number)
        self._reply(b"DELETED")
        return body

    def _reply(self, wanted: bytes) -> list[bytes]:
        """Reads the line of a reply; returns what follows its first word."""
        word, *rest = self._replies.readline().split() or [b"nothing"]
        if word != wanted:
            raise RuntimeError(f"beanstalkd answered {word.decode()} instead of {wanted.decode()}")
        return rest

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._replies.close()
        self._socket.close()
