"""One asyncio connection to a daemon: matches replies with the requests that they answer."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from fjord.client import retry
from fjord.client.duplex import keep_alive
from fjord.client.link import Link
from fjord.client.retry import Request
from fjord.commands import Changed, Hello, Reply
from fjord.errors import Code, FjordError, RemoteProtocolError


class Pending:
    """A request that somebody waits for."""

    __slots__ = ("deadline", "future", "request", "waits")

    def __init__(self, request: Request, future: asyncio.Future[Reply], deadline: float) -> None:
        self.request = request
        self.future = future
        self.deadline = deadline  # of the loop's time
        self.waits = False  # it lets the server wait

    def fail(self, error: FjordError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Owner(Protocol):
    """Whoever has made a channel."""

    def answered(self, pending: Pending, reply: Reply, /) -> None: ...

    def lost(self, channel: Channel, error: Exception, /) -> None: ...


class Channel(asyncio.Protocol):
    """One TCP connection: matches replies with the requests that they answer."""

    def __init__(self, owner: Owner, hello: Hello) -> None:
        self._owner = owner
        self._hello = hello
        self._link = Link()
        self._transport: asyncio.Transport | None = None
        self.greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting: dict[int, Pending] = {}  # in the order in which they were sent

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        keep_alive(self._transport.get_extra_info("socket"))  # an answer may take its time
        self._transport.write(self._link.send(self._hello)[1])

    def data_received(self, data: bytes) -> None:
        try:
            for identifier, reply in self._link.receive(data):
                if isinstance(reply, Changed):
                    raise RemoteProtocolError(Code.FAILED, "a change where a reply is due")
                pending = self.waiting.pop(identifier, None)
                if pending is None:
                    self._welcome(reply)
                else:
                    self._owner.answered(pending, reply)
        except RemoteProtocolError as error:
            self.end(error)

    def connection_lost(self, error: Exception | None) -> None:
        self.end(error or ConnectionResetError("the server closed it"))

    def send(self, pending: Pending) -> None:
        identifier, message = self._link.send(pending.request.command, pending.request.number)
        self.waiting[identifier] = pending
        if self._transport is not None:  # else it is ending, and its owner will hear of it
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
        retry.check_welcome(reply)
        if not self.greeted.done():
            self.greeted.set_result(None)
