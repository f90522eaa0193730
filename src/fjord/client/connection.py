"""The blocking shell: encode, send, wait, decode.

    Connection   a client, for any number of threads
      Line       one request at a time, across reconnects
        Duplex   one connection, from its greeting to its end

Requests share one line, one at a time.  A request that waits on the server would hold up all
others, so each of those gets its own line, which is kept for the next one.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import uuid
from collections import deque
from typing import Final

from fjord import commands, limits
from fjord.client import calls
from fjord.client.address import parse_url
from fjord.client.blocking.database import Database
from fjord.client.calls import Client, Deadline, InFlight, Locks
from fjord.clock import Clock, SystemClock
from fjord.columns import Buffer
from fjord.commands import Changed, Command, Refusal, Reply
from fjord.errors import ClosedError, Code, FjordError, LocalProtocolError, RemoteProtocolError
from fjord.wire import Link

_LOOK_SECONDS: Final = 0.001  # a wait of 0 seconds still checks once
_RECEIVE_BYTES: Final = 256 * limits.KIB
# The rest of a message of at least this size is received at once.
_LARGE_BYTES: Final = 64 * limits.KIB
_TIMEVAL: Final = struct.Struct("ll")
_KEEP_ALIVE_SECONDS: Final = 60


def connect(url: str, *, timeout: float = limits.REPLY_SECONDS_MAX) -> Database:
    """Connects to a daemon, for example at `fjord://127.0.0.1:17994`.

    It reconnects when a connection breaks, and retries what it can, with exactly-once effect.

    Args:
        url: the daemon's address.
        timeout: how many seconds a call may take, including retries.

    Raises:
        UnavailableError: if there is no answer.
    """
    connection = Connection(url, timeout=timeout)
    return Database(connection, name=connection.name, is_remote=True)


class Connection:
    """A client of a daemon, for any number of threads."""

    def __init__(self, url: str, *, timeout: float) -> None:
        if timeout <= 0:
            raise FjordError("a timeout is more than 0 seconds")
        self._address = parse_url(url)
        self.name = f"fjord://{self._address[0]}:{self._address[1]}"
        self._timeout = timeout
        self._clock = SystemClock()
        self._guard = threading.Lock()
        self._closing = threading.Event()
        self._client = Client(uuid.uuid4().bytes)
        self._process = os.getpid()
        self._line = self._new_line()
        self._lending = threading.Lock()
        self._spare: list[Line] = []  # for requests that let the server wait
        self._waiting: set[Line] = set()  # those that are in use
        try:
            self._line.connect(self._deadline())
        except OSError as error:
            raise calls.nobody(self.name, error) from error

    def execute(self, command: Command) -> Reply:
        if command.wait_us:
            return self._execute_waiting(command, self._deadline(command.wait_us / 1_000_000))
        deadline = Deadline(self._clock, self._timeout)
        if not self._guard.acquire(blocking=False):
            self._wait_for_others(deadline)
        try:
            if self._closing.is_set() or self._process != os.getpid():
                self._check_usable()
            return self._line.run(InFlight(self._client, command), deadline)
        finally:
            self._guard.release()

    def listen(self, command: commands.Listen | commands.ListenJobs) -> SocketListening:
        """Begins to listen, on a separate connection."""
        self._check_usable()
        deadline = self._deadline()
        try:
            duplex = Duplex(self._address, self._clock, deadline)
        except OSError as error:
            raise calls.nobody(self.name, error) from error
        try:
            reply = duplex.exchange(command, deadline)
            if isinstance(reply, Refusal):
                raise reply.error()
        except OSError as error:
            duplex.close()
            raise calls.broken(self.name, error) from error
        except BaseException:
            duplex.close()
            raise
        return SocketListening(duplex, self.name)

    def close(self) -> None:
        """Closes the connection: ends waits for jobs, and waits for all other requests."""
        with self._lending:
            self._closing.set()
            waiting, spare = tuple(self._waiting), tuple(self._spare)
            self._spare.clear()
        for line in waiting:
            line.interrupt()
        for line in spare:
            line.disconnect()
        with self._guard:
            self._line.disconnect()

    # -- inside -----------------------------------------------------------------------------------

    def _wait_for_others(self, deadline: Deadline) -> None:
        if not self._guard.acquire(timeout=self._timeout):
            raise calls.too_late(self.name, self._timeout, "other threads use the connection")
        deadline.left_seconds()

    def _execute_waiting(self, command: Command, deadline: Deadline) -> Reply:
        with self._lending:
            self._check_usable()
            line = self._spare.pop() if self._spare else self._new_line()
            self._waiting.add(line)
        try:
            return line.run(InFlight(self._client, command), deadline)
        finally:
            with self._lending:
                self._waiting.discard(line)
                self._spare.append(line)
                if self._closing.is_set():
                    line.disconnect()  # `close` has missed it

    def _new_line(self) -> Line:
        return Line(self._address, self._client, self._closing, timeout=self._timeout)

    def _check_usable(self) -> None:
        if self._closing.is_set():
            raise ClosedError("this connection is closed; connect again")
        if self._process != os.getpid():
            raise ClosedError("this connection was made before a fork; connect again")

    def _deadline(self, wait_seconds: float = 0.0) -> Deadline:
        return Deadline(self._clock, self._timeout + wait_seconds)


class SocketListening:
    """Changes that arrive over a separate connection."""

    def __init__(self, duplex: Duplex, name: str) -> None:
        self._duplex = duplex
        self._name = name  # of the server
        self._closed = threading.Event()

    def wait(self, timeout: float | None) -> Changed | None:
        deadline = None
        if timeout is not None:
            deadline = Deadline(SystemClock(), max(timeout, _LOOK_SECONDS))
        changes = self._duplex.changes
        while not changes:
            try:
                self._duplex.wait_for_changes(deadline)
            except BlockingIOError:
                return None
            except (OSError, RemoteProtocolError) as error:
                if self._closed.is_set():
                    raise ClosedError("this listener is closed") from error
                raise calls.deaf(self._name, error) from error
        return changes.popleft()

    def close(self) -> None:
        self._closed.set()
        self._duplex.interrupt()
        self._duplex.close()


class Line:
    """Runs one request at a time, across reconnects."""

    def __init__(
        self, address: tuple[str, int], client: Client, closing: threading.Event, *, timeout: float
    ) -> None:
        self._address = address
        self._name = f"fjord://{address[0]}:{address[1]}"
        self._client = client
        self._closing = closing  # set: do not retry any more
        self._timeout = timeout  # of a call, without its wait on the server
        self._clock = SystemClock()
        self._locks = Locks()
        self._duplex: Duplex | None = None

    def run(self, request: InFlight, deadline: Deadline) -> Reply:
        while True:
            sent = False
            try:
                duplex = self._duplex
                if duplex is None or self._locks or not request.can_repeat:
                    duplex = self._ready_duplex(deadline)
                sent = True
                reply = duplex.exchange(request.command, deadline, request.number)
            except LocalProtocolError:
                raise  # it was not sent
            except (OSError, RemoteProtocolError) as error:
                self._lost(request, deadline, error, sent=sent)
                continue
            except BaseException:
                # A half-sent message, or an unread reply, would confuse the next request.
                self.disconnect()
                raise
            if not request.can_repeat:
                self._locks.note(request.command, reply)
            if type(reply) is not Refusal or reply.code is not Code.BUSY:
                return reply
            if not self._pause(request, deadline):
                return reply
            request.was_busy()

    def connect(self, deadline: Deadline) -> Duplex:
        """Connects.

        Raises:
            OSError: if there is no answer.
        """
        duplex = Duplex(self._address, self._clock, deadline, self._client.hello)
        self._duplex = duplex
        deadline.left_seconds()
        self._check_open()  # `close` may have missed it
        return duplex

    def disconnect(self) -> None:
        if self._duplex is not None:
            self._duplex.close()
            self._duplex = None

    def interrupt(self) -> None:
        """Ends the connection while another thread uses it."""
        duplex = self._duplex
        if duplex is not None:
            duplex.interrupt()

    # -- inside -----------------------------------------------------------------------------------

    def _ready_duplex(self, deadline: Deadline) -> Duplex:
        """Returns a connection for a first request, or for one that is never retried."""
        duplex = self._duplex
        if duplex is None:
            return self.connect(deadline)
        # A request that is never retried must not be sent over a connection that is already closed.
        if duplex.is_over():
            self.disconnect()
            if self._locks.lose():
                raise calls.broken(self._name, "the server closed it", locks_lost=True)
            return self.connect(deadline)
        return duplex

    def _lost(self, request: InFlight, deadline: Deadline, error: Exception, *, sent: bool) -> None:
        """Returns if the request should be retried now, raises otherwise."""
        self.disconnect()
        request.is_unsure = request.is_unsure or sent
        reason = "no answer in time" if isinstance(error, BlockingIOError) else error
        if self._locks.lose():
            raise calls.broken(self._name, reason, locks_lost=True) from error
        if calls.is_final(error):
            raise error
        if sent and not request.can_repeat:
            raise calls.broken(self._name, reason) from error
        if not self._pause(request, deadline, at_once=sent):
            raise calls.too_late(self._name, deadline.seconds, reason) from error

    def _pause(self, request: InFlight, deadline: Deadline, *, at_once: bool = False) -> bool:
        """Waits before a retry; says whether there is time for one."""
        seconds = request.pause_seconds(at_once=at_once)
        left = deadline.left_seconds()
        if left <= limits.RECONNECT_SECONDS_FIRST:
            return False
        self._closing.wait(min(seconds, left / 2))  # half is left for the try itself
        self._check_open()
        request.wait_at_most(deadline.left_seconds() - self._timeout)
        return True

    def _check_open(self) -> None:
        if self._closing.is_set():
            self.disconnect()
            raise ClosedError("this connection is closed; connect again")


class Duplex:
    """One connection: sends commands and receives replies, each within a deadline."""

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
        keep_alive(self._socket)  # a reply may take long
        # A kernel timeout, since Python's own would poll before every send and receive.
        self._socket.settimeout(None)
        self._armed_seconds = 0.0
        self._link = Link()
        self.changes: deque[Changed] = deque()
        try:
            if hello is not None:
                calls.check_welcome(self.exchange(hello, greeted))
        except BaseException:
            self.close()
            raise

    def exchange(self, command: Command, deadline: Deadline, number: int = 0) -> Reply:
        """Sends a command and returns its reply; later data stays buffered.

        Raises:
            OSError: if the connection broke; BlockingIOError after the deadline.
        """
        identifier, parts = self._link.send_parts(command, number)
        if deadline.left != self._armed_seconds:
            self._wait_at_most(deadline.left, exactly=True)
        sent = self._socket.send(parts[0]) if len(parts) == 1 else self._socket.sendmsg(parts)
        if sent > _LARGE_BYTES or sent < sum(map(len, parts)):
            self._send_rest(parts, sent, deadline)
        data = self._socket.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionResetError("the server closed it")
        found = self._link.receive(data)
        while True:
            while found is not None:
                number, event = found
                if isinstance(event, Changed):
                    self.changes.append(event)
                elif number == identifier:
                    return event
                found = self._link.receive()
            found = self._receive_more(deadline)

    def wait_for_changes(self, deadline: Deadline | None) -> None:
        """Waits for data, at most until `deadline`."""
        found = self._link.receive()
        if found is None:
            found = self._receive(deadline)
        while found is not None:
            if isinstance(found[1], Changed):
                self.changes.append(found[1])
            found = self._link.receive()

    def is_over(self) -> bool:
        """Says whether the server has closed the connection, or is about to."""
        if self._link.pending_bytes:
            return True
        try:
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True  # its end, or an unsolicited error

    def interrupt(self) -> None:
        """Ends the connection, also while another thread uses it."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has already ended

    def close(self) -> None:
        self._socket.close()

    def _send_rest(self, parts: list[Buffer], sent: int, deadline: Deadline) -> None:
        """Sends the rest of a message."""
        if sent < sum(map(len, parts)):
            message = memoryview(b"".join(parts))
            while sent < len(message):
                self._wait_at_most(deadline.left_seconds())
                sent += self._socket.send(message[sent:])
        self._wait_at_most(deadline.left_seconds())

    def _receive(self, deadline: Deadline | None) -> tuple[int, Reply | Changed] | None:
        if deadline is not None:
            self._wait_at_most(deadline.left_seconds())
        elif self._armed_seconds:
            self._arm(0.0)
        data = self._socket.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionResetError("the server closed it")
        return self._link.receive(data)

    def _receive_more(self, deadline: Deadline) -> tuple[int, Reply | Changed] | None:
        """Like `_receive`, but receives the rest of a large message in place, without copying.

        After a timeout the received part is lost, and the connection cannot be used any more.
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
            self._wait_at_most(deadline.left_seconds())
            received = self._socket.recv_into(view[place:], 0, socket.MSG_WAITALL)
            if not received:
                raise ConnectionResetError("the server closed it")
            place += received
        return self._link.receive(data)

    def _wait_at_most(self, seconds: float, *, exactly: bool = False) -> None:
        """Sets the kernel timeout, if it differs much from the present one."""
        if seconds <= 0:
            raise BlockingIOError("no time left")
        if exactly or abs(seconds - self._armed_seconds) > seconds / 10:
            self._arm(seconds)

    def _arm(self, seconds: float) -> None:
        """Sets the kernel timeout; 0 = none."""
        wait_us = max(1, int(seconds * 1_000_000)) if seconds else 0
        limit = _TIMEVAL.pack(*divmod(wait_us, 1_000_000))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._armed_seconds = seconds


def keep_alive(peer: socket.socket) -> None:
    """Detects a dead peer even while nothing is sent."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEP_ALIVE_SECONDS)
