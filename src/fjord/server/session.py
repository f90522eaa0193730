"""A session: one client's connection, from bytes to commands and from replies to bytes.

A session never exceeds its bounds: with IN_FLIGHT_MAX requests in flight, or while the peer does
not read its replies, it stops reading.  Nor does it delay others: it takes requests for a moment,
and continues after all other sessions have had their turn.

Most requests are run directly.  HELLO, STATS, LISTEN and UNLISTEN queue among the commands like a
NOP, so that they come after earlier writes; their action follows at once, before any other command.
Requests that may wait, or take long, go to `waits`, the scanner or the sealer.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import fjord
from fjord import commands, limits, wire
from fjord.clock import Clock
from fjord.columns import Buffer, Strings
from fjord.commands import Command, Next, Nop, Refusal, Reply
from fjord.commands.layout import registers
from fjord.engine import Engine
from fjord.engine.cold import leaving
from fjord.engine.waits import JOBS_KEY, jobs_problem
from fjord.errors import Code, RemoteProtocolError
from fjord.server import logs
from fjord.server.bounds import Bounds, Memory
from fjord.server.committer import Committer
from fjord.server.counters import Counters
from fjord.server.sealer import Sealer
from fjord.wire import Cursors, Function, Request, encode_fatal

serves = registers("serve")


class Sessions(set["Session"]):
    """All open sessions."""

    def __init__(self) -> None:
        super().__init__()
        self._gone: asyncio.Future[None] | None = None
        self.clients = itertools.count(1)  # a number for each session

    def discard(self, session: object) -> None:
        super().discard(session)
        if not self and self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    async def wait_gone(self) -> None:
        """Returns when no session is open."""
        if self:
            self._gone = asyncio.get_running_loop().create_future()
            await self._gone


@dataclass(slots=True, kw_only=True)
class Shared:
    """What every session works with."""

    engine: Engine
    committer: Committer
    loop: asyncio.AbstractEventLoop
    clock: Clock
    bounds: Bounds
    memory: Memory
    counters: Counters
    sealer: Sealer | None  # None = nothing is sealed
    sessions: Sessions
    new_client: Callable[[], bytes]  # 16 bytes for a client that brings none
    cursors: Cursors
    stats: Callable[[], commands.Numbers]


class Session(asyncio.Protocol):
    """Speaks FJ with one client."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._committer = shared.committer
        self._waits = shared.committer.waits
        self._listeners = shared.committer.listeners
        self._clock = shared.clock
        self._counters = shared.counters
        self._memory = shared.memory
        self._decoder = wire.RequestDecoder(cursors=shared.cursors)
        self.client = next(shared.sessions.clients)
        self.client_id = b""  # as HELLO said
        self._listened_keys = 0
        self._in_flight: set[int] = set()
        self._in_flight_bytes = 0
        self._output: list[Buffer] = []
        self._pushes: list[bytes] = []  # changes that wait until the peer takes its output
        self._pushes_bytes = 0
        self._transport: asyncio.Transport | None = None
        self.is_open = False  # from when there is a connection until it is closed
        self.is_stalled = False  # the peer does not take its replies, or is gone
        self.is_ending = False  # it has ended its side, or is ignored
        self._reading = True
        self._is_resting = False  # others have their turn
        self._last_words: bytes | None = None  # sent when nothing is in flight, then closed
        self._closed_us: int | None = None  # when the connection was closed on this side
        self._begun_us: int | None = None  # when the message began that is not whole yet
        self._is_noted = False  # the memory knows of bytes that are kept
        # What a look at the deadlines compares with the next look.
        self._has_sent = True  # the peer
        self._quiet_us = 0
        self._untaken_bytes = 0
        self._untaken_us = 0

    # -- called by the transport ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True
        self._transport.set_write_buffer_limits(high=limits.OUTPUT_BYTES_MAX)
        if len(self._shared.sessions) >= self._shared.bounds.connections:
            self._finish(RemoteProtocolError(Code.BUSY, "too many connections; try again later"))
            return
        self._counters.connections += 1
        self._shared.sessions.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport, self.is_open = None, False
        self.is_ending, self._last_words = True, b""  # nothing more is taken from what it has sent
        self._shared.sessions.discard(self)
        self._listeners.drop(self)
        self._memory.note(self.kept_bytes, 0)
        self._pushes.clear()
        self._drop_requests()
        self._leave_when_answered()

    def data_received(self, data: bytes) -> None:
        self._has_sent = True
        self._counters.received_bytes += len(data)
        self._decoder.feed(data)
        # A peer that sends this much at once has more to send, and would be read without end.
        if self._pump() and len(data) >= limits.PUMP_BYTES_MAX and self._reading:
            self._rest()
            self._set_reading(wanted=False)

    def eof_received(self) -> bool:
        """The peer has ended its side: answer requests in flight, then close."""
        self._finish(None)
        return True

    def pause_writing(self) -> None:
        self.is_stalled = True
        self._untaken_bytes, self._untaken_us = self._output_bytes(), self._clock.monotonic_us()

    def resume_writing(self) -> None:
        if self.is_stalled:
            self.is_stalled = False
            self._committer.release()
        pushes, self._pushes = self._pushes, []
        self._pushes_bytes = 0
        self._output += pushes
        self._pump()

    # -- called by the committer ------------------------------------------------------------------

    def answer(self, request: Request, reply: Reply) -> None:
        self._in_flight.discard(request.identifier)
        self._in_flight_bytes -= request.size
        self._memory.used_bytes -= request.size + limits.REQUEST_KEPT_BYTES
        if type(reply) is Refusal:
            self._committer.note_refusal(reply.code)
        self._output += wire.encode_reply(
            request, reply, now_us=self._clock.wall_us(), cursors=self._shared.cursors
        )

    def flush(self) -> None:
        """Sends replies, and continues with requests that had to wait for them."""
        if not self._output:
            return  # sent with an earlier reply of the same group
        self._send()
        if self._last_words is not None:
            self._close_when_answered()
            self._leave_when_answered()
        elif self._decoder.pending_bytes or not self._reading:
            self._pump()

    def forget(self, request: Request) -> None:
        self._in_flight.discard(request.identifier)
        self._in_flight_bytes -= request.size
        self._memory.used_bytes -= request.size + limits.REQUEST_KEPT_BYTES
        self._leave_when_answered()

    def push(self, messages: Sequence[bytes]) -> None:
        """Sends changes, or keeps them while the peer does not read its output."""
        if self._transport is None or self._last_words is not None:
            return
        if not self.is_stalled:
            self._output += messages
            self._send()
            return
        self._pushes += messages
        self._pushes_bytes += sum(map(len, messages))
        if self._pushes_bytes > limits.OUTPUT_BYTES_MAX:
            self._cut_off("changes are not read as fast as they arrive")
        else:
            self._note_kept()

    # -- called by the daemon ---------------------------------------------------------------------

    def check_deadlines(self, now_us: int) -> None:
        """Gives up on a peer that has been stalled or idle for too long."""
        bounds = self._shared.bounds
        message_us = bounds.message_seconds * 1_000_000
        if self._closed_us is not None:
            if now_us - self._closed_us > message_us and self._transport is not None:
                self._transport.abort()
        elif self.is_stalled:
            self._check_taking(now_us, message_us)
        elif self._begun_us is not None:
            if now_us - self._begun_us > message_us:
                self._begun_us = None
                text = f"a message must be complete within {bounds.message_seconds:g} s"
                self._finish(RemoteProtocolError(Code.READ_TIMEOUT, text))
        elif self._has_sent or self._in_flight or self in self._listeners:
            self._has_sent = False
            self._quiet_us = now_us
        elif now_us - self._quiet_us > bounds.idle_seconds * 1_000_000:
            text = f"no request for {bounds.idle_seconds:g} s; connect again"
            self._finish(RemoteProtocolError(Code.IDLE_TIMEOUT, text))

    def kept_bytes(self) -> int:
        """Returns the bytes kept beside requests in flight, 0 if they are few."""
        kept = self._output_bytes() + self._decoder.pending_bytes + self._pushes_bytes
        self._is_noted = kept > limits.KEPT_NOTED_BYTES
        return kept if self._is_noted else 0

    def stop(self) -> None:
        """Accepts no more requests, and closes when those in flight are answered."""
        self._finish(None)

    # -- requests ---------------------------------------------------------------------------------

    def _pump(self) -> bool:
        """Takes received requests, as far as the bounds allow; False: there is none.

        This takes only a moment: a peer that never stops sending must not block others.
        """
        decoder, is_any = self._decoder, False
        pending, rest_us = 1, 0
        while pending and self._last_words is None and self._has_room():
            try:
                request = decoder.next()
            except RemoteProtocolError as error:
                self._finish(error)
                return True
            if request is None:
                break
            self._begun_us, is_any = None, True
            self._handle(request)
            pending = decoder.pending_bytes
            if pending:  # mostly there is one request, and no need to know how long it takes
                now_us = self._clock.monotonic_us()
                if not rest_us:
                    rest_us = now_us + limits.PUMP_US_MAX
                elif now_us > rest_us:
                    self._rest()
        if self._output:
            self._send()
        if pending:  # no longer known, or never was
            pending = decoder.pending_bytes
        if pending or self._begun_us is not None:
            self._watch_deadline()
        if pending > limits.KEPT_NOTED_BYTES or self._is_noted:
            self._note_kept()
        if not self._reading or not self._has_room():
            self._set_reading(wanted=self._last_words is None and self._has_room())
        return is_any

    def _rest(self) -> None:
        if not self._is_resting:
            self._is_resting = True
            self._shared.loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._is_resting = False
        self._pump()

    def _handle(self, request: Request) -> None:
        identifier = request.identifier
        if identifier in self._in_flight:
            text = f"identifier {identifier} belongs to a request still in flight"
            refusal = Refusal(code=Code.DUPLICATE_ID, text=text)
            self._output += wire.encode_reply(request, refusal, now_us=self._clock.wall_us())
            return
        self._counters.requests[request.function] += 1
        self._in_flight.add(identifier)
        self._in_flight_bytes += request.size
        memory = self._memory
        memory.used_bytes += request.size + limits.REQUEST_KEPT_BYTES
        if memory.used_bytes > memory.bytes_max and memory.is_exceeded():
            self.answer(request, _BUSY)
            return
        command = request.command
        serve = type(command).row.serve
        if serve is not None:
            serve(self, request, command)
        elif request.flags & commands.Flag.LISTEN:
            listened = cast("commands.Set | commands.Get | commands.Touch", command)
            self._listen_with(request, listened, listened.table, listened.keys, None)
        else:
            self._run(request, command)
        if request.function == Function.QUIT:
            self._finish(None)

    def _numbered(self, request: Request, command: Any) -> Command | None:
        """Returns a command with its number, which is applied once; None if it was refused."""
        if not request.number:
            return cast(Command, command)
        if not self.client_id:
            self.answer(request, _NO_HELLO)
            return None
        return commands.Numbered(command=command, client=self.client_id, number=request.number)

    # -- requests that need more than to be run ----------------------------------------------------

    @serves(commands.Scan, commands.Span)
    def _scan(self, request: Request, command: commands.Scan | commands.Span) -> None:
        self._committer.scan(self, request, command)

    @serves(commands.Stats)
    def _stats(self, request: Request, command: commands.Stats) -> None:
        self._committer.submit(self, request, Nop(), lambda reply: self._shared.stats())

    @serves(commands.Hello)
    def _hello(self, request: Request, command: commands.Hello) -> None:
        if command.revision != commands.REVISION:
            self.answer(request, _OTHER_REVISION)
            return
        client = command.client if any(command.client) else self._shared.new_client()
        self.client_id = client

        def welcome(reply: Reply) -> Reply:
            if not isinstance(reply, commands.Done):
                return reply
            master, version = reply.master, fjord.__version__
            return commands.Welcome(client=client, master=master, version=version)

        self._committer.submit(self, request, Nop(), welcome)

    @serves(Next)
    def _next(self, request: Request, command: Next) -> None:
        self._waits.begin(self, request, command)

    @serves(commands.Batch)
    def _batch(self, request: Request, command: commands.Batch) -> None:
        (self._read if leaving(command) else self._run)(request, command)

    def _run(self, request: Request, command: Any) -> None:
        found = self._numbered(request, command)
        if found is not None:
            self._committer.submit(self, request, found)

    def _read(self, request: Request, command: Command) -> None:
        """Runs a command that may lead into blocks, or that releases parts of them."""
        found = self._numbered(request, command)
        if found is not None:
            self._waits.begin(self, request, found)

    @serves(commands.SealNow)
    def _seal(self, request: Request, command: commands.SealNow) -> None:
        sealer = self._shared.sealer
        if sealer is None:
            self.answer(request, _NO_SEALER)
        else:
            sealer.seal(self, request, command)

    # -- requests to listen -----------------------------------------------------------------------

    @serves(commands.Listen)
    def _listen(self, request: Request, command: commands.Listen) -> None:
        problem = _listen_problem(command)
        self._listen_with(request, Nop(), command.table, command.keys, problem)

    @serves(commands.ListenJobs)
    def _listen_jobs(self, request: Request, command: commands.ListenJobs) -> None:
        problem = jobs_problem(self._shared.engine, command.table)
        self._listen_with(request, Nop(), command.table, Strings.of([JOBS_KEY]), problem)

    def _listen_with(
        self, request: Request, command: Command, table: str, keys: Strings, problem: Refusal | None
    ) -> None:
        """Runs a command; keys are listened to from then on, unless it is refused."""
        # They are counted before it runs, so that requests in flight count too.
        if problem is None and self._listened_keys + len(keys) > limits.LISTENED_KEYS_MAX:
            problem = _TOO_MANY_KEYS
        if problem is not None:
            self.answer(request, problem)
            return
        self._listened_keys += len(keys)

        def listen(reply: Reply) -> Reply:
            added = 0
            if isinstance(request.command, commands.ListenJobs):
                self._committer.look_at_dates(table)
            if not isinstance(reply, Refusal) and self.is_open:
                added = self._listeners.add(self, request.identifier, table, keys.rows())
            self._listened_keys -= len(keys) - added
            return reply

        self._committer.submit(self, request, command, listen)

    @serves(commands.Unlisten)
    def _unlisten(self, request: Request, command: commands.Unlisten) -> None:
        def end(reply: Reply) -> Reply:
            ended = self._listeners.end(self, command.identifier)
            if ended is None:
                return _NOT_LISTENING
            self._listened_keys -= ended
            return reply

        self._committer.submit(self, request, Nop(), end)

    # -- the connection ---------------------------------------------------------------------------

    def _send(self) -> None:
        output = self._output
        if not output:
            return
        transport = self._transport
        size = sum(map(len, output))
        # Joining large pieces takes longer than sending each of them.
        data = output[:] if size > limits.JOINED_BYTES_MAX else [b"".join(output)]
        output.clear()
        if transport is not None and self.is_open:
            transport.writelines(data)
            self._counters.sent_bytes += size
            if self._is_noted or transport.get_write_buffer_size() > limits.KEPT_NOTED_BYTES:
                self._note_kept()

    def _note_kept(self) -> None:
        """Reports to the memory; if it is full, an unfinished message is given up."""
        self._memory.note(self.kept_bytes, self.kept_bytes())
        if self._decoder.pending_bytes > limits.KEPT_NOTED_BYTES and self._memory.is_exceeded():
            self._finish(RemoteProtocolError(_BUSY.code, _BUSY.text))

    def _output_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _drop_requests(self) -> None:
        """Drops commands that have not run yet: nobody would read the answers."""
        self.is_stalled = True
        self._waits.drop(self)
        self._committer.release()

    def _has_room(self) -> bool:
        return (
            len(self._in_flight) < limits.IN_FLIGHT_MAX
            and self._in_flight_bytes < limits.IN_FLIGHT_BYTES_MAX
            and not self.is_stalled
            and not self._is_resting
        )

    def _watch_deadline(self) -> None:
        if not self._decoder.pending_bytes or not self._has_room():
            self._begun_us = None
        elif self._begun_us is None:
            self._begun_us = self._clock.monotonic_us()

    def _check_taking(self, now_us: int, message_us: float) -> None:
        untaken = self._output_bytes()
        if untaken < self._untaken_bytes:
            self._untaken_us = now_us
        self._untaken_bytes = untaken
        if now_us - self._untaken_us > message_us:
            self._cut_off("replies are not read")

    def _set_reading(self, *, wanted: bool) -> None:
        if self._transport is None or wanted == self._reading or self._transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _finish(self, error: RemoteProtocolError | None) -> None:
        """Reads no more; after the replies in flight it sends the reason, if there is one."""
        if self._last_words is not None:
            return
        self.is_ending, self._last_words = True, b""
        if error is not None:
            self._last_words = self._farewell(error)
        self._set_reading(wanted=False)
        self._waits.end(self)
        self._close_when_answered()

    def _close_when_answered(self) -> None:
        if self._in_flight or self._last_words is None or self._closed_us is not None:
            return
        self._output.append(self._last_words)
        self._close()

    def _cut_off(self, text: str) -> None:
        """Closes without waiting for requests in flight, which themselves wait for the peer."""
        self.is_ending = True
        self._last_words = self._farewell(RemoteProtocolError(Code.SLOW_CONSUMER, text))
        self._set_reading(wanted=False)
        self._listeners.drop(self)
        self._output.append(self._last_words)
        self._close()
        self._drop_requests()

    def _close(self) -> None:
        self._send()
        self._pushes.clear()
        self._pushes_bytes = 0
        self._closed_us, self.is_open = self._clock.monotonic_us(), False
        if self._transport is not None:
            self._transport.close()

    def _leave_when_answered(self) -> None:
        """Releases the client's locks: not earlier, since requests in flight may take some."""
        if self._transport is None and not self._in_flight:
            self._shared.engine.release(self.client)

    def _farewell(self, error: RemoteProtocolError) -> bytes:
        """Logs and counts why the connection is closed; returns the message that says so."""
        self._counters.closed[error.code] += 1
        logs.note(logging.INFO, "a connection is closed", code=error.code, reason=error.text)
        return encode_fatal(error, now_us=self._clock.wall_us())


serves(Refusal)(Session.answer)
for _row in commands.FUNCTIONS.values():
    if _row.look is not None or _row.leave is not None:
        _row.serve = Session._read


def _listen_problem(command: commands.Listen) -> Refusal | None:
    """Returns why a LISTEN is invalid, or None."""
    sizes = [len(key) for key in command.keys.rows()]
    if not sizes:
        return Refusal(code=Code.BAD_BATCH, text="there is no key to listen to")
    if min(sizes) == 0:
        return Refusal(code=Code.EMPTY_KEY, text="a key has at least one byte")
    if max(sizes) > limits.KV_KEY_BYTES_MAX:
        text = f"a key has at most {limits.KV_KEY_BYTES_MAX} bytes"
        return Refusal(code=Code.KEY_TOO_LONG, text=text)
    return commands.name_problem(command.table)


_NO_HELLO: Final = Refusal(code=Code.BAD_BATCH, text="a number needs a HELLO before it")
_BUSY: Final = Refusal(
    code=Code.BUSY, text="the server has no memory for more requests; try again in a moment"
)
_OTHER_REVISION: Final = Refusal(
    code=Code.BAD_VERSION,
    text=f"this daemon speaks revision {commands.REVISION} of the protocol; "
    "use a client of its version",
)
_NO_SEALER: Final = Refusal(code=Code.FAILED, text="this server cannot seal; its log says why")
_TOO_MANY_KEYS: Final = Refusal(
    code=Code.QUOTA, text=f"a connection listens to at most {limits.LISTENED_KEYS_MAX} keys"
)
_NOT_LISTENING: Final = Refusal(
    code=Code.NOT_FOUND, text="no request with this identifier began to listen"
)
