"""A session: one client's connection, from bytes to commands and from replies to bytes.

A session never holds more than its bounds: with IN_FLIGHT_MAX requests under way, or with a peer
that does not take its replies, it stops reading until that changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Protocol, cast

from fjord import limits, wire
from fjord.clock import Clock
from fjord.commands import Command, Refusal, Reply
from fjord.errors import Code, RemoteProtocolError
from fjord.server.committer import Origin
from fjord.wire import Function, Request
from fjord.wire.replies import encode_fatal

log = logging.getLogger("fjord.server")


class Runner(Protocol):
    """Whoever runs the commands: the committer."""

    def submit(self, origin: Origin, command: Command, /) -> None: ...

    def release(self) -> None: ...


class _Waiting:
    """A request that is under way."""

    __slots__ = ("_request", "_session")

    def __init__(self, session: Session, request: Request) -> None:
        self._session = session
        self._request = request

    def answer(self, reply: Reply) -> None:
        self._session.answer(self._request, reply)

    def flush(self) -> None:
        self._session.flush()

    def is_stalled(self) -> bool:
        return self._session.is_stalled


class Sessions:
    """All sessions that are open."""

    def __init__(self) -> None:
        self._open: set[Session] = set()
        self._gone: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._open))

    def add(self, session: Session) -> None:
        self._open.add(session)

    def discard(self, session: Session) -> None:
        self._open.discard(session)
        if not self._open and self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    async def wait_gone(self) -> None:
        """Returns when no session is open."""
        if self._open:
            self._gone = asyncio.get_running_loop().create_future()
            await self._gone


class Session(asyncio.Protocol):
    """Speaks FJ with one client."""

    def __init__(self, runner: Runner, clock: Clock, sessions: Sessions) -> None:
        self._runner = runner
        self._clock = clock
        self._sessions = sessions
        self._decoder = wire.RequestDecoder()
        self._in_flight: set[int] = set()
        self._in_flight_bytes = 0
        self._output: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self.is_stalled = False  # the peer does not take its replies
        self._reading = True
        self._last_words: bytes | None = None  # sent when nothing is in flight, then closed
        self._begun_us: int | None = None  # when the message began that is not whole yet

    # -- called by the transport ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=limits.OUTPUT_BYTES_MAX)
        if len(self._sessions) >= limits.CONNECTIONS_MAX:
            self._finish(RemoteProtocolError(Code.BUSY, "too many connections; try again later"))
            return
        self._sessions.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._sessions.discard(self)
        self._go_on()

    def data_received(self, data: bytes) -> None:
        self._decoder.feed(data)
        self._pump()

    def eof_received(self) -> bool:
        """The peer sends no more: answer what is under way, then close."""
        self._finish(None)
        return True

    def pause_writing(self) -> None:
        self.is_stalled = True

    def resume_writing(self) -> None:
        self._go_on()
        self._pump()

    # -- called by the committer ------------------------------------------------------------------

    def answer(self, request: Request, reply: Reply) -> None:
        self._in_flight.discard(request.identifier)
        self._in_flight_bytes -= request.size
        self._output.append(
            wire.encode_reply(
                request.function,
                request.identifier,
                request.flags,
                reply,
                now_us=self._clock.wall_us(),
            )
        )

    def flush(self) -> None:
        """Sends what was answered, and goes on with what had to wait for it."""
        if not self._output:
            return  # sent with an earlier reply of the same group
        self._send()
        if self._last_words is not None:
            self._close_when_answered()
        elif self._decoder.pending_bytes or not self._reading:
            self._pump()

    # -- called by the daemon ---------------------------------------------------------------------

    def check_deadline(self, now_us: int) -> None:
        """Gives up on a peer that began a message long ago and has not finished it."""
        if self._begun_us is None:
            return
        if now_us - self._begun_us > limits.MESSAGE_SECONDS_MAX * 1_000_000:
            self._begun_us = None
            text = f"a message must be whole within {limits.MESSAGE_SECONDS_MAX:g} s"
            self._finish(RemoteProtocolError(Code.READ_TIMEOUT, text))

    def stop(self) -> None:
        """Takes no more requests, and closes when those under way are answered."""
        self._finish(None)

    # -- inside -----------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Takes requests from what was received, as far as the bounds allow."""
        decoder = self._decoder
        while decoder.pending_bytes and self._last_words is None and self._has_room():
            try:
                request = decoder.next()
            except RemoteProtocolError as error:
                self._finish(error)
                return
            if request is None:
                break
            self._begun_us = None
            self._handle(request)
        self._send()
        if self._begun_us is not None or self._decoder.pending_bytes:
            self._watch_deadline()
        if not self._reading or not self._has_room():
            self._set_reading(wanted=self._last_words is None and self._has_room())

    def _send(self) -> None:
        if self._output and self._transport is not None:
            self._transport.write(b"".join(self._output))
        self._output.clear()

    def _handle(self, request: Request) -> None:
        if request.identifier in self._in_flight:
            self._output.append(_duplicate(request, self._clock.wall_us()))
            return
        self._in_flight.add(request.identifier)
        self._in_flight_bytes += request.size
        if isinstance(request.command, Refusal):
            self.answer(request, request.command)
            return
        self._runner.submit(_Waiting(self, request), request.command)
        if request.function is Function.QUIT:
            self._finish(None)

    def _go_on(self) -> None:
        if self.is_stalled:
            self.is_stalled = False
            self._runner.release()

    def _has_room(self) -> bool:
        return (
            len(self._in_flight) < limits.IN_FLIGHT_MAX
            and self._in_flight_bytes < limits.IN_FLIGHT_BYTES_MAX
            and not self.is_stalled
        )

    def _watch_deadline(self) -> None:
        if not self._decoder.pending_bytes or not self._has_room():
            self._begun_us = None
        elif self._begun_us is None:
            self._begun_us = self._clock.monotonic_us()

    def _set_reading(self, *, wanted: bool) -> None:
        if self._transport is None or wanted == self._reading or self._transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _finish(self, error: RemoteProtocolError | None) -> None:
        """Reads no more; says why, if there is a reason, after what is under way."""
        if self._last_words is not None:
            return
        self._last_words = b""
        if error is not None:
            self._last_words = encode_fatal(error, now_us=self._clock.wall_us())
            log.info("closing a connection: %s", error)
        self._set_reading(wanted=False)
        self._close_when_answered()

    def _close_when_answered(self) -> None:
        if self._transport is None or self._in_flight or self._last_words is None:
            return
        self._output.append(self._last_words)
        self._send()
        self._transport.close()


def _duplicate(request: Request, now_us: int) -> bytes:
    refusal = Refusal(
        code=Code.DUPLICATE_ID,
        text=f"identifier {request.identifier} is that of a request still under way",
    )
    return wire.encode_reply(
        request.function, request.identifier, request.flags, refusal, now_us=now_us
    )
