"""Reading a stream with asyncio: the same as `fjord.Reader` and `fjord.Subscriber`, awaited."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Protocol, Self

from fjord.client.calls import AsyncRun, follow_async
from fjord.client.entries import Seconds
from fjord.client.stream_batch import Message, MessageBatch
from fjord.client.stream_places import COUNT, Cursor, Starting, read_on
from fjord.client.subscriber_calls import Processed, SubscriberCalls, first_of


class _Reads(Protocol):
    async def read(self, n: int = COUNT, *, wait: Seconds | None = None) -> MessageBatch: ...


async def _batches(reader: _Reads, n: int, wait: Seconds | None) -> AsyncIterator[MessageBatch]:
    while len(batch := await reader.read(n, wait=wait)):
        yield batch


class AsyncReader:
    """Reads a stream from some place on; each method is that of `fjord.Reader`, awaited."""

    def __init__(self, run: AsyncRun, cursor: Cursor) -> None:
        self._run = run
        self._cursor = cursor

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._cursor.table!r} after seq {self.position}>"

    @property
    def position(self) -> int:
        """Everything up to this seq was given."""
        return self._cursor.after

    async def read(self, n: int = COUNT, *, wait: Seconds | None = None) -> MessageBatch:
        return await follow_async(self._run, read_on(self._cursor, n, wait))

    def batches(
        self, n: int = COUNT, *, wait: Seconds | None = None
    ) -> AsyncIterator[MessageBatch]:
        return _batches(self, n, wait)


class AsyncSubscriber:
    """Reads a stream under a name; each method is that of `fjord.Subscriber`, awaited.

    It is for one task at a time.  Its properties are awaited too: `await subscriber.lag`.
    """

    def __init__(self, run: AsyncRun, calls: SubscriberCalls) -> None:
        self._run = run
        #: What a transaction needs to acknowledge for it.
        self.calls = calls

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.calls.table!r}>"

    @property
    def name(self) -> str:
        return self.calls.name

    # -- reading ----------------------------------------------------------------------------------

    async def read(self, n: int = COUNT, *, wait: Seconds | None = None) -> MessageBatch:
        return await follow_async(self._run, self.calls.read(n, wait))

    def batches(
        self, n: int = COUNT, *, wait: Seconds | None = None
    ) -> AsyncIterator[MessageBatch]:
        return _batches(self, n, wait)

    async def peek(self) -> Message | None:
        return await follow_async(self._run, self.calls.peek())

    async def pop(self, *, wait: Seconds | None = None) -> Message | None:
        return await follow_async(self._run, self.calls.pop(wait))

    @contextlib.asynccontextmanager
    async def taking(self, *, wait: Seconds | None = None) -> AsyncIterator[Message | None]:
        batch = await follow_async(self._run, self.calls.hold(wait))
        try:
            yield first_of(batch)
        except BaseException:
            self.calls.go_back(batch)
            raise
        finally:
            self.calls.let_go()
        if len(batch):
            await self.ack(batch)

    # -- the mark ---------------------------------------------------------------------------------

    async def ack(self, processed: Processed) -> None:
        await follow_async(self._run, self.calls.ack(processed))

    async def seek(self, start: Starting) -> None:
        await self._run(self.calls.seek(start))

    async def rewind(self) -> None:
        await follow_async(self._run, self.calls.rewind())

    @property
    async def position(self) -> int:
        return (await follow_async(self._run, self.calls.position())).position

    @property
    async def lag(self) -> int:
        return await self._run(self.calls.lag())

    # -- its end ----------------------------------------------------------------------------------

    async def sleep(self) -> None:
        await self._run(self.calls.rest(asleep=True))

    async def wake(self) -> None:
        await self._run(self.calls.rest(asleep=False))

    async def close(self) -> None:
        await self.sleep()

    async def delete(self) -> None:
        await self._run(self.calls.delete())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:  # else the connection may be gone, and sleep is a courtesy
            await self.close()
