"""Listening with asyncio, over a separate connection."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Generic, Self

from fjord import commands, limits
from fjord.client import calls
from fjord.client.async_connection import AsyncConnection
from fjord.client.listening import Told
from fjord.commands import Changed, Refusal
from fjord.errors import ClosedError, RemoteProtocolError
from fjord.wire import Link

_RECEIVE_BYTES = 64 * limits.KIB
AsyncExecutor = AsyncConnection  # runs a database's commands


class AsyncChanges(Generic[Told]):
    """An asynchronous iterator of changes; it connects on first use.

    For a slow reader the server buffers changes, up to a bound.
    """

    def __init__(
        self,
        executor: AsyncExecutor,
        command: commands.Listen | commands.ListenJobs,
        read: Callable[[Changed], Told],
    ) -> None:
        self._address = executor.address
        self._name = executor.name
        self._command = command
        self._read = read
        self._found: deque[Changed] = deque()
        self._link = Link()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._is_answered = False  # the server has accepted the command
        self._is_closed = False

    async def begin(self) -> Self:
        """Connects; changes are reported from now on.

        Raises:
            UnavailableError: if there is no answer.
            RefusedError: if the server refuses.
        """
        if self._is_closed:
            raise ClosedError("this listener is closed")
        if self._reader is None:
            try:
                async with asyncio.timeout(limits.CONNECT_SECONDS_MAX):
                    await self._connect()
            except OSError as error:
                self.close()
                raise calls.nobody(self._name, error) from error
            except BaseException:
                self.close()
                raise
        return self

    async def wait(self, timeout: float | None = None) -> Told | None:
        """Returns the next change, None if none comes within `timeout` seconds.

        Raises:
            ClosedError: if it was closed.
        """
        await self.begin()
        try:
            async with asyncio.timeout(timeout):
                while not self._found:
                    await self._next()
        except TimeoutError:
            return None
        return self._read(self._found.popleft())

    def close(self) -> None:
        """Stops listening, also while a task waits for a change."""
        self._is_closed = True
        if self._writer is not None:
            self._writer.close()

    def __aiter__(self) -> AsyncIterator[Told]:
        return self

    async def __anext__(self) -> Told:
        try:
            change = await self.wait()
        except ClosedError as error:
            raise StopAsyncIteration from error
        assert change is not None
        return change

    async def __aenter__(self) -> Self:
        return await self.begin()

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def _next(self) -> None:
        try:
            await self._receive()
        except (OSError, RemoteProtocolError) as error:
            if self._is_closed:
                raise ClosedError("this listener is closed") from error
            raise calls.deaf(self._name, error) from error

    async def _connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(
            *self._address, limit=_RECEIVE_BYTES
        )
        self._writer.write(self._link.send(self._command)[1])
        while not self._is_answered:
            await self._receive()

    async def _receive(self) -> None:
        assert self._reader is not None
        data = await self._reader.read(_RECEIVE_BYTES)
        if not data:
            raise ConnectionResetError("the server closed it")
        found = self._link.receive(data)
        while found is not None:
            event = found[1]
            if isinstance(event, Changed):
                self._found.append(event)
            elif isinstance(event, Refusal) and not self._is_answered:
                raise event.error()
            else:
                self._is_answered = True
            found = self._link.receive()
