"""One blocking connection to a daemon, from its greeting to its end."""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Iterator

from fjord import commands, limits
from fjord.client import retry
from fjord.client.link import Link
from fjord.client.retry import Deadline
from fjord.clock import Clock
from fjord.columns import Buffer
from fjord.commands import Changed, Command, Reply

_RECEIVE_BYTES = 256 * limits.KIB
# What a message lacks, if it is at least this much, is received in one go.
_LARGE_BYTES = 64 * limits.KIB
_TIMEVAL = struct.Struct("ll")
_KEEP_ALIVE_SECONDS = 60


class Duplex:
    """Sends commands and receives what comes, each within a deadline."""

    def __init__(
        self,
        address: tuple[str, int],
        clock: Clock,
        deadline: Deadline,
        hello: commands.Hello | None = None,
    ) -> None:
        seconds = min(limits.CONNECT_SECONDS_MAX, deadline.left_seconds())
        if seconds <= 0:
            raise BlockingIOError("no time left")
        greeted = Deadline(clock, seconds)
        self._socket = socket.create_connection(address, seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A timeout of the kernel's: Python's own would poll before every send and receive.
        self._socket.settimeout(None)
        self._armed_seconds = 0.0
        self._link = Link()
        self.changes: deque[Changed] = deque()
        try:
            if hello is not None:
                retry.check_welcome(self.exchange(hello, greeted))
        except BaseException:
            self.close()
            raise

    def exchange(self, command: Command, deadline: Deadline, number: int = 0) -> Reply:
        """Sends a command, perhaps with a number, and returns its reply.

        Raises:
            OSError: if the connection broke; BlockingIOError if the time is over.
        """
        identifier, parts = self._link.send_parts(command, number)
        self._send(parts, deadline)
        found: Reply | None = None
        while found is None:
            for number, event in self._receive_reply(deadline):
                if isinstance(event, Changed):
                    self.changes.append(event)
                elif number == identifier:
                    found = event
        return found

    def wait_for_changes(self, deadline: Deadline | None) -> None:
        """Waits until something comes, at most until `deadline`."""
        self.changes.extend(
            event for _, event in self._receive(deadline) if isinstance(event, Changed)
        )

    def is_over(self) -> bool:
        """Says whether the server has closed the connection, or is about to."""
        try:
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True  # its end, or last words: nobody has asked for anything

    def keep_alive(self) -> None:
        keep_alive(self._socket)

    def interrupt(self) -> None:
        """Ends the connection also where another thread waits on it."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is over already

    def close(self) -> None:
        self._socket.close()

    def _send(self, parts: list[Buffer], deadline: Deadline) -> None:
        self._arm(deadline)
        sent = self._socket.send(parts[0]) if len(parts) == 1 else self._socket.sendmsg(parts)
        if sent == sum(map(len, parts)):
            return
        message = memoryview(b"".join(parts))
        while sent < len(message):
            self._arm(deadline)
            sent += self._socket.send(message[sent:])

    def _receive(self, deadline: Deadline | None) -> Iterator[tuple[int, Reply | Changed]]:
        self._arm(deadline)
        data = self._socket.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionResetError("the server closed it")
        return self._link.receive(data)

    def _receive_reply(self, deadline: Deadline) -> Iterator[tuple[int, Reply | Changed]]:
        """Receives like `_receive`; the rest of a large message to where it stays, uncopied.

        If that takes too long, what was received is lost, and the connection is of no more use.
        """
        missing = self._link.missing
        if not _LARGE_BYTES <= missing <= limits.ANSWER_BYTES_MAX:
            return self._receive(deadline)
        begun = self._link.take_all()
        data = bytearray(len(begun) + missing)
        view = memoryview(data)
        view[: len(begun)] = begun
        place = len(begun)
        while place < len(data):
            self._arm(deadline)
            received = self._socket.recv_into(view[place:], 0, socket.MSG_WAITALL)
            if not received:
                raise ConnectionResetError("the server closed it")
            place += received
        return self._link.receive(data)

    def _arm(self, deadline: Deadline | None) -> None:
        """Sets how long the kernel waits, if that differs much from what it is set to."""
        left = 0.0 if deadline is None else deadline.left_seconds()
        if deadline is not None and left <= 0:
            raise BlockingIOError("no time left")
        if abs(left - self._armed_seconds) <= left / 10:
            return
        # 0 would be no timeout at all.
        wait_us = 0 if deadline is None else max(1, int(left * 1_000_000))
        limit = _TIMEVAL.pack(*divmod(wait_us, 1_000_000))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._armed_seconds = left


def keep_alive(peer: socket.socket) -> None:
    """Finds out about a peer that went away without a word, though nothing is sent."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEP_ALIVE_SECONDS)
