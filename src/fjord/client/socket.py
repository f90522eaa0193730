"""The blocking shell: encode, send, wait, decode.

Requests share one line, one at a time.  A request that lets the server wait would hold up all
others, so each of those has a line of its own, which is kept for the next one.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator

from fjord import commands, limits
from fjord.client import retry
from fjord.client.address import parse_url
from fjord.client.database import Database
from fjord.client.duplex import Duplex
from fjord.client.line import Line
from fjord.client.retry import Client, Deadline
from fjord.clock import SystemClock
from fjord.commands import Changed, Command, Refusal, Reply
from fjord.errors import ClosedError, FjordError, RemoteProtocolError

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
            raise retry.nobody(self.name, error) from error

    def execute(self, command: Command) -> Reply:
        seconds = retry.wait_seconds(command)
        if seconds:
            return self._execute_waiting(command, self._deadline(seconds))
        deadline = self._deadline()
        if not self._guard.acquire(timeout=self._timeout):
            raise retry.too_late(self.name, self._timeout, "other threads use the connection")
        try:
            self._check_usable()
            return self._line.run(self._client.request(command), deadline)
        finally:
            self._guard.release()

    def listen(self, command: commands.Listen | commands.ListenJobs) -> SocketListening:
        """Begins to listen, on a connection of its own."""
        self._check_usable()
        deadline = self._deadline()
        try:
            duplex = Duplex(self._address, self._clock, deadline)
        except OSError as error:
            raise retry.nobody(self.name, error) from error
        try:
            return SocketListening(duplex, command, deadline, self.name)
        except OSError as error:
            duplex.close()
            raise retry.broken(self.name, error) from error
        except BaseException:
            duplex.close()
            raise

    def close(self) -> None:
        """Ends the connection; whoever waits for jobs is told so, all others are waited for."""
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

    def _execute_waiting(self, command: Command, deadline: Deadline) -> Reply:
        with self._lending:
            self._check_usable()
            line = self._spare.pop() if self._spare else self._new_line()
            self._waiting.add(line)
        try:
            return line.run(self._client.request(command), deadline)
        finally:
            with self._lending:
                self._waiting.discard(line)
                self._spare.append(line)
                if self._closing.is_set():
                    line.disconnect()  # nobody else does any more

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
    """Changes that come over a connection of their own."""

    def __init__(
        self,
        duplex: Duplex,
        command: commands.Listen | commands.ListenJobs,
        deadline: Deadline,
        name: str,
    ) -> None:
        self._duplex = duplex
        self._name = name
        self._closed = threading.Event()
        reply = duplex.exchange(command, deadline)
        if isinstance(reply, Refusal):
            raise reply.error()
        duplex.keep_alive()

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
        changes = self._duplex.changes
        while not changes:
            try:
                self._duplex.wait_for_changes(deadline)
            except BlockingIOError:
                return None
            except (OSError, RemoteProtocolError) as error:
                if self._closed.is_set():
                    raise ClosedError("this listener is closed") from error
                raise retry.deaf(self._name, error) from error
        return changes.popleft()

    def close(self) -> None:
        self._closed.set()
        self._duplex.interrupt()
        self._duplex.close()
