"""The blocking shell: encode, send, wait, decode."""

from __future__ import annotations

import socket
import struct
import threading

from fjord import limits
from fjord.client.address import parse_url
from fjord.client.database import Database
from fjord.client.link import Link
from fjord.commands import Command, Reply
from fjord.errors import ClosedError, FjordError, UnavailableError

_RECEIVE_BYTES = 256 * limits.KIB


def connect(url: str, *, timeout: float = limits.REPLY_SECONDS_MAX) -> Database:
    """Connects to a daemon, for example at `fjord://127.0.0.1:17994`.

    Args:
        url: the daemon's address.
        timeout: how many seconds a reply may take.

    Raises:
        UnavailableError: if nobody answers there.
    """
    return Database(Connection(url, timeout=timeout))


class Connection:
    """A connection to a daemon, for any number of threads, one request at a time.

    When a connection breaks, the call that was under way raises UnavailableError, since its
    command may or may not have been applied; the next call connects again.
    """

    def __init__(self, url: str, *, timeout: float) -> None:
        if timeout <= 0:
            raise FjordError("a timeout is more than 0 seconds")
        self._address = parse_url(url)
        self._timeout = timeout
        self._guard = threading.Lock()
        self._closed = False
        self._socket: socket.socket | None = None
        self._link = Link()
        self._connect()

    def execute(self, command: Command) -> Reply:
        with self._guard:
            if self._closed:
                raise ClosedError("this connection is closed; connect again")
            stream = self._socket or self._connect()
            identifier, message = self._link.send(command)
            try:
                stream.sendall(message)
                return self._wait(stream, identifier)
            except OSError as error:
                self._disconnect()
                reason = "no answer in time" if isinstance(error, BlockingIOError) else error
                raise UnavailableError(
                    f"the connection to {self._name()} broke ({reason}); "
                    "the last command may or may not have been applied"
                ) from error
            except BaseException:
                # A half-sent message, or an unread reply, would be taken for the next one's.
                self._disconnect()
                raise

    def close(self) -> None:
        with self._guard:
            self._closed = True
            self._disconnect()

    def _wait(self, stream: socket.socket, identifier: int) -> Reply:
        while True:
            data = stream.recv(_RECEIVE_BYTES)
            if not data:
                raise ConnectionResetError("the server closed it")
            for number, reply in self._link.receive(data):
                if number == identifier:
                    return reply

    def _connect(self) -> socket.socket:
        try:
            stream = socket.create_connection(self._address, limits.CONNECT_SECONDS_MAX)
        except OSError as error:
            raise UnavailableError(
                f"no daemon answers at {self._name()} ({error}); is `fjord serve` running?"
            ) from error
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A timeout of the kernel's: Python's own would poll before every send and receive.
        stream.settimeout(None)
        seconds, fraction = divmod(self._timeout, 1)
        limit = struct.pack("ll", int(seconds), int(fraction * 1_000_000))
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._socket, self._link = stream, Link()
        return stream

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _name(self) -> str:
        return f"fjord://{self._address[0]}:{self._address[1]}"
