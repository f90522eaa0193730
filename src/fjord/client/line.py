"""A line to a daemon: one blocking connection at a time, made again whenever it breaks."""

from __future__ import annotations

import threading

from fjord import limits
from fjord.client import retry
from fjord.client.duplex import Duplex
from fjord.client.retry import Client, Deadline, Locks, Request
from fjord.clock import SystemClock
from fjord.commands import Reply
from fjord.errors import ClosedError, LocalProtocolError, RemoteProtocolError


class Line:
    """Runs one request at a time, through as many connections as that takes."""

    def __init__(
        self,
        address: tuple[str, int],
        client: Client,
        closing: threading.Event,
        *,
        timeout: float,
    ) -> None:
        self._address = address
        self._name = f"fjord://{address[0]}:{address[1]}"
        self._client = client
        self._closing = closing  # set: whoever waits to try again does so no more
        self._timeout = timeout  # of a call, without what it lets the server wait
        self._clock = SystemClock()
        self._locks = Locks()
        self._duplex: Duplex | None = None

    def run(self, request: Request, deadline: Deadline) -> Reply:
        while True:
            sent = False
            try:
                duplex = self._ready_duplex(request, deadline)
                sent = True
                reply = duplex.exchange(request.command, deadline, request.number)
            except LocalProtocolError:
                raise  # it was not sent
            except (OSError, RemoteProtocolError) as error:
                self._lost(request, deadline, error, sent=sent)
                continue
            except BaseException:
                # A half-sent message, or an unread reply, would be taken for the next one's.
                self.disconnect()
                raise
            if not request.can_repeat:
                self._locks.note(request.command, reply)
            if not retry.is_busy(reply) or not self._pause(request, deadline):
                return reply
            self._client.was_busy(request)

    def connect(self, deadline: Deadline) -> Duplex:
        """Makes a connection.

        Raises:
            OSError: if nobody answers.
        """
        duplex = Duplex(self._address, self._clock, deadline, self._client.hello)
        duplex.keep_alive()  # the server may take its time to answer
        self._duplex = duplex
        self._check_open()  # else nobody might see that it has to be interrupted
        return duplex

    def disconnect(self) -> None:
        if self._duplex is not None:
            self._duplex.close()
            self._duplex = None

    def interrupt(self) -> None:
        """Ends the connection while another thread waits on it."""
        duplex = self._duplex
        if duplex is not None:
            duplex.interrupt()

    # -- inside -----------------------------------------------------------------------------------

    def _ready_duplex(self, request: Request, deadline: Deadline) -> Duplex:
        duplex = self._duplex
        if duplex is None:
            return self.connect(deadline)
        # What is never sent twice should not be sent once to a connection that is gone already.
        if (self._locks or not request.can_repeat) and duplex.is_over():
            self.disconnect()
            if self._locks.lose():
                raise retry.broken(self._name, "the server closed it", locks_lost=True)
            return self.connect(deadline)
        return duplex

    def _lost(self, request: Request, deadline: Deadline, error: Exception, *, sent: bool) -> None:
        """Returns if the request is to be sent again, now."""
        self.disconnect()
        request.is_unsure = request.is_unsure or sent
        reason = "no answer in time" if isinstance(error, BlockingIOError) else error
        if self._locks.lose():
            raise retry.broken(self._name, reason, locks_lost=True) from error
        if retry.is_final(error):
            raise error
        if sent and not request.can_repeat:
            raise retry.broken(self._name, reason) from error
        if not self._pause(request, deadline, at_once=sent):
            raise retry.too_late(self._name, deadline.seconds, reason) from error

    def _pause(self, request: Request, deadline: Deadline, *, at_once: bool = False) -> bool:
        """Waits, and says whether there is time for another try."""
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
