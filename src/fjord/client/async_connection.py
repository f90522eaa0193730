"""The asyncio connection: many requests in flight, each awaited by its caller.

    execute -> queue, while there is no connection -> channel, until its reply -> caller
                 ^------------ broken, retryable -----------+
                 ^------------ BUSY, after a pause ---------+

When a channel breaks, retryable requests go back to the queue in the order in which they were
sent, and one task opens the next channel.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Iterator
from typing import Final, cast

from fjord import limits
from fjord.client import calls
from fjord.client.address import parse_url
from fjord.client.calls import Client, InFlight, Locks
from fjord.client.connection import keep_alive
from fjord.commands import Changed, Command, Hello, Refusal, Reply
from fjord.errors import ClosedError, Code, FjordError, LocalProtocolError, RemoteProtocolError
from fjord.wire import Link

# One timer for all requests, since one for each would cost more than the request.
_WATCH_SECONDS: Final = 1.0


class AsyncConnection:
    """A client of a daemon, for any number of tasks at a time."""

    def __init__(self, url: str, *, timeout: float) -> None:
        if timeout <= 0:
            raise FjordError("timeout must be more than 0 seconds")
        self.address = parse_url(url)
        self.name = f"fjord://{self.address[0]}:{self.address[1]}"
        self.timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._client = Client(uuid.uuid4().bytes)
        self._locks = Locks()
        self._places = Places(limits.IN_FLIGHT_MAX)
        # Requests that wait on the server take at most half of the places.
        self._waits = Places(limits.IN_FLIGHT_MAX // 2)
        self._channel: Channel | None = None
        self._queue: list[Pending] = []  # to be sent when there is a channel
        self._resting: set[Pending] = set()  # the server was busy
        self._undoing: set[asyncio.Task[Reply]] = set()  # give jobs back
        self._task: asyncio.Task[None] | None = None  # opens the next channel
        self._pauses: Iterator[float] | None = None  # None: the last channel worked
        self._watch: asyncio.TimerHandle | None = None
        self._reason: object = "no connection"  # why there is no channel
        self._untold: FjordError | None = None  # lost locks, reported to the next caller
        self._closed = False

    async def open(self) -> None:
        """Makes the first connection.

        Raises:
            UnavailableError: if nobody answers.
        """
        try:
            self._channel = await self._new_channel()
        except OSError as error:
            raise calls.nobody(self.name, error) from error

    async def execute(self, command: Command) -> Reply:
        deadline = self._loop.time() + self.timeout
        if command.wait_us:
            deadline += command.wait_us / 1_000_000
            await self._take_places()
        elif self._places.free:
            self._places.free -= 1
        else:
            await self._places.wait()
        # The place is given back with the reply: a request whose caller was cancelled is still in
        # flight.
        try:
            if self._closed or self._untold is not None or not self._places.free:
                self._check_usable(deadline)
            pending = Pending(self._client, command, self._loop.create_future(), deadline)
            if command.wait_us:
                pending.waits = True
                self._shorten_wait(pending)
            self._send(pending)
        except FjordError:
            self._places.give_back()
            if command.wait_us:
                self._waits.give_back()
            raise
        if self._watch is None:
            self._watch = self._loop.call_later(self._watch_seconds(), self._check_deadlines)
        try:
            return await pending.future
        except asyncio.CancelledError:
            future = pending.future
            if future.done() and not future.cancelled() and future.exception() is None:
                self._undo(pending, future.result())  # the reply came just before
            raise

    def close(self) -> None:
        self._closed = True
        error = ClosedError("this connection is closed; connect again")
        if self._channel is not None:
            self._channel.end(error)
        if self._task is not None:
            self._task.cancel()
        if self._watch is not None:
            self._watch.cancel()
        self._fail_all(error)

    # -- one request ------------------------------------------------------------------------------

    async def _take_places(self) -> None:
        await self._waits.take()
        try:
            await self._places.take()
        except asyncio.CancelledError:
            self._waits.give_back()
            raise

    def _give_back(self, pending: Pending) -> None:
        self._places.give_back()
        if pending.waits:
            self._waits.give_back()

    def _check_usable(self, deadline: float) -> None:
        if self._closed:
            raise ClosedError("this connection is closed; connect again")
        if self._untold is not None:
            error, self._untold = self._untold, None
            raise error
        if self._loop.time() > deadline:
            raise calls.too_late(self.name, self.timeout, "too many requests are in flight")

    def _send(self, pending: Pending) -> None:
        if self._channel is not None:
            self._channel.send(pending)
            return
        self._queue.append(pending)
        if self._task is None:
            self._task = self._loop.create_task(self._reconnect())

    def answered(self, pending: Pending, reply: Reply) -> None:
        self._pauses = None
        if not pending.can_repeat:
            self._locks.note(pending.command, reply)
        if type(reply) is Refusal and reply.code is Code.BUSY and self._rest(pending):
            return
        self._give_back(pending)
        if pending.future.done():
            self._undo(pending, reply)
        else:
            pending.future.set_result(reply)

    def _undo(self, pending: Pending, reply: Reply) -> None:
        """Gives jobs back if their caller was cancelled."""
        command = calls.undoing(pending.command, reply)
        if command is not None:
            task = self._loop.create_task(self.execute(command))
            self._undoing.add(task)
            task.add_done_callback(self._undone)

    def _undone(self, task: asyncio.Task[Reply]) -> None:
        self._undoing.discard(task)
        if not task.cancelled():
            task.exception()  # on failure the jobs come back when their leases expire

    def _rest(self, pending: Pending) -> bool:
        """Sends a request again after a pause, if there is time left."""
        pause = pending.pause_seconds()
        if pending.future.done() or self._loop.time() + pause > pending.deadline:
            return False
        self._resting.add(pending)
        self._loop.call_later(pause, self._wake, pending)
        return True

    def _wake(self, pending: Pending) -> None:
        if pending in self._resting:
            self._resting.discard(pending)
            pending.was_busy()
            self._shorten_wait(pending)
            self._send(pending)

    def _shorten_wait(self, pending: Pending) -> None:
        if pending.waits:
            pending.wait_at_most(pending.deadline - self.timeout - self._loop.time())

    def _fail(self, pending: Pending, error: FjordError) -> None:
        self._give_back(pending)
        pending.fail(error)

    # -- the connection ---------------------------------------------------------------------------

    def lost(self, channel: Channel, error: Exception) -> None:
        """Puts the retryable requests of a broken channel back in the queue."""
        if channel is not self._channel:
            return  # it was never in use
        self._channel, self._reason = None, error
        waiting = list(channel.waiting.values())
        channel.waiting.clear()
        locks_lost = self._locks.lose()
        if locks_lost and not waiting:
            self._untold = calls.broken(self.name, error, locks_lost=True)
        for pending in waiting:
            if pending.future.done():
                self._give_back(pending)
            elif isinstance(error, FjordError) and calls.is_final(error):
                self._fail(pending, error)
            elif locks_lost or not pending.can_repeat:
                self._fail(pending, calls.broken(self.name, error, locks_lost=locks_lost))
            else:
                pending.is_unsure = True
                self._queue.append(pending)
        if self._queue and self._task is None and not self._closed:
            self._task = self._loop.create_task(self._reconnect())

    async def _reconnect(self) -> None:
        """Tries until there is a channel, or no request waits for one."""
        try:
            while self._queue:
                await self._pause()
                try:
                    channel = await self._new_channel()
                except (OSError, RemoteProtocolError) as error:
                    if isinstance(error, RemoteProtocolError) and calls.is_final(error):
                        self._fail_all(error)
                    self._reason = error
                    continue
                self._channel = channel
                self._send_queue(channel)
        finally:
            self._task = None

    async def _pause(self) -> None:
        if self._pauses is None:
            self._pauses = calls.pauses()  # the first try is immediate
        else:
            await asyncio.sleep(next(self._pauses))

    def _send_queue(self, channel: Channel) -> None:
        queue, self._queue = self._queue, []
        for place, pending in enumerate(queue):
            if self._channel is not channel:  # it broke meanwhile
                self._queue.extend(queue[place:])
                return
            if pending.future.done():
                self._give_back(pending)
                continue
            self._shorten_wait(pending)
            try:
                channel.send(pending)
            except LocalProtocolError as error:
                self._fail(pending, error)

    async def _new_channel(self) -> Channel:
        """Connects and exchanges HELLO.

        Raises:
            OSError: if there is no answer.
            RemoteProtocolError: if the peer is not a server, or is full.
        """
        async with asyncio.timeout(min(self.timeout, limits.CONNECT_SECONDS_MAX)):
            _, channel = await self._loop.create_connection(
                lambda: Channel(self, self._client.hello), *self.address
            )
            try:
                await channel.greeted
            except BaseException:
                channel.end(ConnectionAbortedError("not greeted"))
                raise
        return channel

    # -- time -------------------------------------------------------------------------------------

    def _check_deadlines(self) -> None:
        """Fails overdue requests; a connection with an overdue reply is closed."""
        self._watch = None
        now = self._loop.time()
        late = calls.too_late(self.name, self.timeout, self._reason)
        for pending in [one for one in self._queue if one.deadline < now]:
            self._queue.remove(pending)
            self._fail(pending, late)
        channel = self._channel
        if channel is not None:
            silent = calls.too_late(self.name, self.timeout, "no answer")
            overdue = [one for one in channel.waiting.values() if one.deadline < now]
            for pending in overdue:
                pending.fail(silent)  # the channel's end gives its place back
            if overdue:
                channel.end(TimeoutError("no answer in time"))
        is_waiting = self._channel is not None and self._channel.waiting
        if self._queue or self._resting or is_waiting:
            self._watch = self._loop.call_later(self._watch_seconds(), self._check_deadlines)

    def _watch_seconds(self) -> float:
        return min(_WATCH_SECONDS, self.timeout / 4)

    def _fail_all(self, error: FjordError) -> None:
        resting, self._resting = self._resting, set()
        queue, self._queue = self._queue, []
        for pending in (*queue, *resting):
            self._fail(pending, error)


class Pending(InFlight):
    """A request and the future of its caller."""

    waits = False  # on the server

    def __init__(
        self, client: Client, command: Command, future: asyncio.Future[Reply], deadline: float
    ) -> None:
        super().__init__(client, command)
        self.future = future
        self.deadline = deadline  # of the loop's time

    def fail(self, error: FjordError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Channel(asyncio.Protocol):
    """One TCP connection: matches replies to requests."""

    def __init__(self, owner: AsyncConnection, hello: Hello) -> None:
        self._owner = owner
        self._hello = hello
        self._link = Link()
        self._transport: asyncio.Transport | None = None
        self.greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting: dict[int, Pending] = {}  # in the order in which they were sent

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        keep_alive(self._transport.get_extra_info("socket"))  # a reply may take long
        self._transport.write(self._link.send(self._hello)[1])

    def data_received(self, data: bytes) -> None:
        try:
            found = self._link.receive(data)
            while found is not None:
                identifier, reply = found
                if isinstance(reply, Changed):
                    raise RemoteProtocolError(Code.FAILED, "a change instead of a reply")
                pending = self.waiting.pop(identifier, None)
                if pending is None:
                    self._welcome(reply)
                else:
                    self._owner.answered(pending, reply)
                found = self._link.receive()
        except RemoteProtocolError as error:
            self.end(error)

    def connection_lost(self, error: Exception | None) -> None:
        self.end(error or ConnectionResetError("the server closed it"))

    def send(self, pending: Pending) -> None:
        identifier, message = self._link.send(pending.command, pending.number)
        self.waiting[identifier] = pending
        if self._transport is not None:  # otherwise it is ending, and its owner will be told
            self._transport.write(message)

    def end(self, error: Exception) -> None:
        if self._transport is None:
            return
        self._transport.abort()
        self._transport = None
        if not self.greeted.done():
            self.greeted.set_exception(error)
        self._owner.lost(self, error)

    def _welcome(self, reply: Reply) -> None:
        calls.check_welcome(reply)
        if not self.greeted.done():
            self.greeted.set_result(None)


class Places:
    """A bounded number of places for requests: a semaphore that is cheap while a place is free.

    A caller does `free -= 1` if there is a free place, otherwise `await wait()`.
    """

    def __init__(self, count: int) -> None:
        self.free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Takes a place, waiting for one if needed."""
        if self.free:
            self.free -= 1
        else:
            await self.wait()

    async def wait(self) -> None:
        """Waits for a place; first come, first served."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.give_back()  # the place was given just before
            raise

    def give_back(self) -> None:
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self.free += 1
