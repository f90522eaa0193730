"""The blocking shell: encode, send, wait, decode; and again, where a connection breaks."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator

from fjord import commands, limits
from fjord.client import retry
from fjord.client.address import parse_url
from fjord.client.database import Database
from fjord.client.retry import Client, Deadline, Locks, Request
from fjord.client.stream import Stream
from fjord.clock import SystemClock
from fjord.commands import Changed, Command, Refusal, Reply
from fjord.errors import ClosedError, FjordError, LocalProtocolError, RemoteProtocolError

_LOOK_SECONDS = 0.001  # a wait of 0 seconds still looks for what is there


def connect(url: str, *, timeout: float = limits.REPLY_SECONDS_MAX) -> Database:
    """Connects to a daemon, for example at `fjord://127.0.0.1:17994`.

    A connection that breaks is made again, and what can be sent again is, exactly once in effect.

    Args:
        url: the daemon's address.
        timeout: how many seconds a call may take, with all its tries.

    Raises:
        UnavailableError: if nobody answers there.
    """
    connection = Connection(url, timeout=timeout)
    return Database(connection, name=connection.name)


class Connection:
    """A client of a daemon, for any number of threads, one request at a time."""

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
        self._locks = Locks()
        self._process = os.getpid()
        self._stream: Stream | None = None
        try:
            self._connect(self._deadline())
        except OSError as error:
            raise retry.nobody(self.name, error) from error

    def execute(self, command: Command) -> Reply:
        deadline = self._deadline()
        if not self._guard.acquire(timeout=self._timeout):
            raise retry.too_late(self.name, self._timeout, "other threads use the connection")
        try:
            self._check_usable()
            return self._run(self._client.request(command), deadline)
        finally:
            self._guard.release()

    def listen(self, command: commands.Listen) -> SocketListening:
        """Begins to listen, on a connection of its own."""
        self._check_usable()
        deadline = self._deadline()
        try:
            stream = Stream(self._address, self._clock, deadline)
        except OSError as error:
            raise retry.nobody(self.name, error) from error
        try:
            return SocketListening(stream, command, deadline, self.name)
        except OSError as error:
            stream.close()
            raise retry.broken(self.name, error) from error
        except BaseException:
            stream.close()
            raise

    def close(self) -> None:
        self._closing.set()  # whoever waits to try again does so no more
        with self._guard:
            self._disconnect()

    # -- inside -----------------------------------------------------------------------------------

    def _run(self, request: Request, deadline: Deadline) -> Reply:
        while True:
            sent = False
            try:
                stream = self._ready_stream(request, deadline)
                sent = True
                reply = stream.exchange(request.command, deadline)
            except LocalProtocolError:
                raise  # it was not sent
            except (OSError, RemoteProtocolError) as error:
                self._lost(request, deadline, error, sent=sent)
                continue
            except BaseException:
                # A half-sent message, or an unread reply, would be taken for the next one's.
                self._disconnect()
                raise
            if not request.can_repeat:
                self._locks.note(request.command, reply)
            if not retry.is_busy(reply) or not self._pause(request.pause_seconds(), deadline):
                return request.answer(reply)
            self._client.was_busy(request)

    def _ready_stream(self, request: Request, deadline: Deadline) -> Stream:
        stream = self._stream
        if stream is None:
            return self._connect(deadline)
        # What is never sent twice should not be sent once to a connection that is gone already.
        if (self._locks or not request.can_repeat) and stream.is_over():
            self._disconnect()
            if self._locks.lose():
                raise retry.broken(self.name, "the server closed it", locks_lost=True)
            return self._connect(deadline)
        return stream

    def _lost(self, request: Request, deadline: Deadline, error: Exception, *, sent: bool) -> None:
        """Returns if the request is to be sent again, now."""
        self._disconnect()
        request.is_unsure = request.is_unsure or sent
        reason = "no answer in time" if isinstance(error, BlockingIOError) else error
        if self._locks.lose():
            raise retry.broken(self.name, reason, locks_lost=True) from error
        if retry.is_final(error):
            raise error
        if sent and not request.can_repeat:
            raise retry.broken(self.name, reason) from error
        if not self._pause(request.pause_seconds(at_once=sent), deadline):
            raise retry.too_late(self.name, self._timeout, reason) from error

    def _pause(self, seconds: float, deadline: Deadline) -> bool:
        """Waits, and says whether there is time for another try."""
        left = deadline.left_seconds()
        if left <= limits.RECONNECT_SECONDS_FIRST:
            return False
        if self._closing.wait(min(seconds, left / 2)):  # half is left for the try itself
            raise ClosedError("this connection is closed; connect again")
        return True

    def _connect(self, deadline: Deadline) -> Stream:
        stream = Stream(self._address, self._clock, deadline, self._client.hello)
        self._stream = stream
        return stream

    def _disconnect(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _check_usable(self) -> None:
        if self._closing.is_set():
            raise ClosedError("this connection is closed; connect again")
        if self._process != os.getpid():
            raise ClosedError("this connection was made before a fork; connect again")

    def _deadline(self) -> Deadline:
        return Deadline(self._clock, self._timeout)


class SocketListening:
    """Changes that come over a connection of their own."""

    def __init__(
        self, stream: Stream, command: commands.Listen, deadline: Deadline, name: str
    ) -> None:
        self._stream = stream
        self._name = name
        self._closed = threading.Event()
        reply = stream.exchange(command, deadline)
        if isinstance(reply, Refusal):
            raise reply.error()
        stream.keep_alive()

    def __iter__(self) -> Iterator[Changed]:
        while True:
            try:
                changed = self.wait(None)
            except ClosedError:
                return
            assert changed is not None
            yield changed

    def wait(self, timeout: float | None) -> Changed | None:
        deadline = None
        if timeout is not None:
            deadline = Deadline(SystemClock(), max(timeout, _LOOK_SECONDS))
        changes = self._stream.changes
        while not changes:
            try:
                self._stream.wait_for_changes(deadline)
            except BlockingIOError:
                return None
            except (OSError, RemoteProtocolError) as error:
                if self._closed.is_set():
                    raise ClosedError("this listener is closed") from error
                raise retry.deaf(self._name, error) from error
        return changes.popleft()

    def close(self) -> None:
        self._closed.set()
        self._stream.interrupt()
        self._stream.close()
