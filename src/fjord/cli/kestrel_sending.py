"""Sending the items of a queue to a table of a daemon, several batches under way.

Each batch holds an `Advance`, so batches are applied in their order or not at all.  When one is
refused, all behind it are, too; then the daemon is asked how far it is, and what has not arrived
is sent again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from fjord import limits
from fjord.client.async_connection import AsyncConnection
from fjord.client.calls import expect
from fjord.clock import SystemClock
from fjord.commands import Advance, AskWriter, Batch, Command, Committed, Refusal, Reply
from fjord.errors import Code, FjordError
from fjord.kestrel import importing
from fjord.kestrel.importing import UNKNOWN, Kind, Load, Tally

# Batches that are sent before the first of them is confirmed.
_IN_FLIGHT: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where the items of a queue go to."""

    table: str
    kind: Kind
    crc: int  # of the files of the queue
    size: int  # of them
    writer: str = ""  # says how far it is; empty: the table is not there yet
    at: int = UNKNOWN  # where that writer is
    files_writer: str = ""  # says the same of these files, wherever they are; empty: nobody does
    files_at: int = UNKNOWN
    plain_writer: str = ""  # of imports without --anew; goes along if it is behind, empty: it stays
    plain_at: int = UNKNOWN


class _Sent(NamedTuple):
    """A load that is under way."""

    load: Load
    imported: int  # items of it that had not expired
    reply: asyncio.Task[Reply]


class Sending:
    """Sends the loads of one queue."""

    def __init__(
        self, loads: Iterator[Load], target: Target, on_done: Callable[[int], None]
    ) -> None:
        """Takes note of what to send.

        Args:
            loads: what is not done yet.
            target: where to.
            on_done: told how many items of the queue are done.
        """
        self._loads = loads
        self._target = target
        self._on_done = on_done
        # Where the writers are once all that is under way has arrived.
        self._at, self._files_at, self._plain_at = target.at, target.files_at, target.plain_at
        self._clock = SystemClock()
        self._flight: deque[_Sent] = deque()
        self._again: deque[Load] = deque()  # to be sent before any other
        self._ahead_us = 0  # by how much the clock of the daemon may be ahead
        self.tally = Tally()  # of what has arrived

    async def run(self, url: str) -> None:
        """Sends all.

        Raises:
            UnavailableError: if the daemon is away for too long.
            RefusedError: if something is refused for good.
        """
        connection = AsyncConnection(url, timeout=limits.REPLY_SECONDS_MAX)
        await connection.open()
        try:
            while await self._fill(connection):
                reply = await self._flight[0].reply
                if isinstance(reply, Refusal):
                    await self._go_back(connection, reply)
                else:
                    self._confirm(self._flight.popleft())
        finally:
            connection.close()
            await self._replies()

    async def _fill(self, connection: AsyncConnection) -> bool:
        """Sends as much as may be under way; False if nothing is."""
        target = self._target
        while len(self._flight) < _IN_FLIGHT:
            load = self._again.popleft() if self._again else await self._next_load()
            if load is None:
                break
            now_us = self._clock.wall_us() + self._ahead_us
            rows = load.live(now_us)
            number = importing.number_of(target.crc, load.end)
            made: list[Command] = [*self._advances(number, load.end)]
            if rows:
                made.append(importing.command(load, rows, target.table, target.kind, now_us))
            reply = asyncio.create_task(connection.execute(Batch(commands=made)))
            self._flight.append(_Sent(load, len(rows), reply))
        return bool(self._flight)

    def _advances(self, number: int, end: int) -> Iterator[Advance]:
        """Moves the writers on to where so many items are done."""
        target = self._target
        yield Advance(writer=target.writer, expected=self._at, batch=number)
        self._at = number
        if target.files_writer:
            yield Advance(writer=target.files_writer, expected=self._files_at, batch=end)
            self._files_at = end
        if target.plain_writer and self._plain_at < number:
            yield Advance(writer=target.plain_writer, expected=self._plain_at, batch=number)
            self._plain_at = number

    async def _next_load(self) -> Load | None:
        # In a thread, so that replies are not late when much has to be read for one load.
        return await asyncio.to_thread(next, self._loads, None)

    def _confirm(self, sent: _Sent) -> None:
        load, expired = sent.load, len(sent.load.data) - sent.imported
        self.tally = self.tally.plus(Tally(sent.imported, expired, load.too_large))
        self._on_done(load.end)

    async def _go_back(self, connection: AsyncConnection, refusal: Refusal) -> None:
        """Something was refused, and so was all behind it: what has not arrived is to be sent."""
        for reply in await self._replies():
            if isinstance(reply, BaseException):
                raise reply
        if refusal.code is Code.BAD_TIMEOUT and not self._ahead_us:
            # By the clock of the daemon, something has expired meanwhile.
            self._ahead_us = limits.TIMESTAMP_AHEAD_US_MAX
        elif refusal.code is not Code.STALE_NUMBER:
            raise refusal.error()
        done = await self._ask(connection)
        while self._flight and self._flight[0].load.end <= done:
            self._confirm(self._flight.popleft())  # its answer was lost
        self._again.extendleft(sent.load for sent in reversed(self._flight))
        self._flight.clear()

    async def _ask(self, connection: AsyncConnection) -> int:
        """Returns how many items of the queue are done, by the daemon.

        Raises:
            FjordError: if it was not this import that has done them.
        """
        target = self._target
        self._at = await _place(connection, target.writer)
        if target.files_writer:
            self._files_at = await _place(connection, target.files_writer)
        if target.plain_writer:
            self._plain_at = await _place(connection, target.plain_writer)
        done = importing.done_of(self._at, self._files_at, target.crc)
        first = self._flight[0].load
        ends = {first.end - first.done, *(sent.load.end for sent in self._flight)}
        if done is None or done not in ends:
            raise FjordError(
                "somebody else imports this queue, too; when that is over, run the same command "
                "again, which finds what is left"
            )
        return done

    async def _replies(self) -> list[Reply | BaseException]:
        """Waits for all that is under way."""
        return await asyncio.gather(*(sent.reply for sent in self._flight), return_exceptions=True)


async def _place(connection: AsyncConnection, writer: str) -> int:
    """Returns where a writer is."""
    reply = await connection.execute(AskWriter(table="", writer=writer))
    if isinstance(reply, Refusal):
        raise reply.error()
    return expect(reply, Committed).batch
