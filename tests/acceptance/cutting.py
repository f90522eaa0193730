"""A proxy that cuts a connection after a given number of bytes, for acceptance tests."""

from __future__ import annotations

import contextlib
import enum
import socket
import threading
from typing import Self


class Way(enum.Enum):
    """Which bytes are counted."""

    REQUEST = enum.auto()
    REPLY = enum.auto()


class CuttingProxy:
    """Passes bytes on to a daemon; once armed, it cuts after so many more, and only once."""

    def __init__(self, port: int) -> None:
        self._upstream = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"fjord://127.0.0.1:{self._listener.getsockname()[1]}"
        self._guard = threading.Lock()
        self._left: dict[Way, int | None] = dict.fromkeys(Way)  # None: not armed
        self.passed = dict.fromkeys(Way, 0)
        self.cuts = 0
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def arm(self, way: Way, size: int) -> None:
        """Lets `size` more bytes through that way, then cuts."""
        with self._guard:
            self._left[way] = size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self._listener, *self._open.copy()):
            _shut(stream)
        self._listener.close()
        for thread in self._threads:
            thread.join(timeout=20)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # it was closed
            try:
                server = socket.create_connection(self._upstream)
            except OSError:
                client.close()  # nobody is there, and the client finds out
                continue
            thread = threading.Thread(target=self._pair, args=(client, server))
            self._threads.append(thread)
            thread.start()

    def _pair(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            self._open |= {client, server}
            replies = threading.Thread(target=self._pass_on, args=(Way.REPLY, server, client))
            replies.start()
            self._pass_on(Way.REQUEST, client, server)
            replies.join()
            self._open -= {client, server}

    def _pass_on(self, way: Way, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                allowed, is_cut = self._allow(way, len(data))
                sink.sendall(data[:allowed])
                if is_cut:
                    break
        _shut(source)
        _shut(sink)

    def _allow(self, way: Way, size: int) -> tuple[int, bool]:
        with self._guard:
            self.passed[way] += size
            left = self._left[way]
            if left is None:
                return size, False
            if size < left:
                self._left[way] = left - size
                return size, False
            self._left[way] = None
            self.cuts += 1
            return left, True


def _shut(stream: socket.socket) -> None:
    with contextlib.suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)
