"""A client that knows bytes only: it builds messages by hand, and may build them wrong."""

from __future__ import annotations

import socket
import struct
import time
from typing import Self

from fjord.wire import Function, RawChange
from tests.unit.wire.seed_client import SeedDecoder, SeedReply

SECONDS_MAX = 20.0  # for any answer; far more than any takes

KEY_16, VALUE_8, VALUE_32, TIMEOUT, UPDATE_TIMEOUT = 1, 2, 6, 8, 16
OVERWRITE, WORKED_ON, RANGE, REGEX, CURSOR = 1 << 5, 1 << 6, 1 << 7, 1 << 8, 3 << 7
PERSIST, DATA, LISTEN, COUNT = 1 << 9, 1 << 10, 1 << 11, 1 << 13
STRING, INTEGER, FLOAT, BOOLEAN = 2, 3, 4, 5


def now_us() -> int:
    return time.time_ns() // 1000


def head(
    function: int,
    flags: int = 0,
    *,
    identifier: int = 1,
    stamp: int | None = None,
    magic: bytes = b"FJ",
    version: int = 1,
) -> bytes:
    stamp = now_us() if stamp is None else stamp
    return struct.pack(">2sHHHHQ", magic, version, function, identifier, flags, stamp)


def key(data: bytes, size: int | None = None) -> bytes:
    return bytes([len(data) if size is None else size]) + data


def value(type_: int, data: bytes) -> bytes:
    return bytes([1 + len(data), type_]) + data


def set_(name: bytes, type_: int, data: bytes, flags: int = 0, *, identifier: int = 1) -> bytes:
    """A durable SET of a small value."""
    flags |= VALUE_8 | OVERWRITE | PERSIST
    return head(Function.SET, flags, identifier=identifier) + key(name) + value(type_, data)


def get(name: bytes, flags: int = DATA, *, identifier: int = 1) -> bytes:
    return head(Function.GET, flags, identifier=identifier) + key(name)


def nop(identifier: int = 1) -> bytes:
    return head(Function.NOP, identifier=identifier, stamp=0)


def body(function: int, data: bytes, flags: int = 0, *, identifier: int = 1) -> bytes:
    """A message of a function above 16."""
    return head(function, flags, identifier=identifier) + struct.pack(">I", len(data)) + data


class Raw:
    """One connection."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", buffer_bytes: int = 0) -> None:
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        self.socket.settimeout(SECONDS_MAX)
        self.socket.connect((host, port))
        self._decoder = SeedDecoder()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *messages: bytes) -> None:
        self.socket.sendall(b"".join(messages))

    def finish(self) -> None:
        """Sends no more, but still reads."""
        self.socket.shutdown(socket.SHUT_WR)

    def next(self) -> SeedReply | RawChange | None:
        """Returns the next message of the server, None if it has closed the connection."""
        while (message := self._decoder.next()) is None:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._decoder.feed(data)
        return message

    def reply(self) -> SeedReply:
        message = self.next()
        assert isinstance(message, SeedReply), message
        return message

    def change(self) -> RawChange:
        message = self.next()
        assert isinstance(message, RawChange), message
        return message

    def ask(self, *messages: bytes) -> SeedReply:
        self.send(*messages)
        return self.reply()

    def code(self, *messages: bytes) -> str:
        """Returns the code of the refusal that answers a message, nothing if it is none."""
        return self.ask(*messages).error.partition(b":")[0].decode()
