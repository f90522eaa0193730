"""The forwarder: sends what is in a spool to a daemon, exactly once, for as long as it runs.

    look at the files -> send, several batches under way -> confirmed: erase -> sent whole: delete
            ^                          |
            |   nothing left: sleep    +-- away, busy, full: wait a little, ask how far it is, go on
            +-- PING, file event, wake-up, poll

Each batch holds an `Advance`: the number that the daemon has of the file, and the one that it has
afterwards.  So batches are applied in their order or not at all, and one whose answer was lost is
not applied again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final

from fjord import limits
from fjord.client.async_connection import AsyncConnection
from fjord.client.async_waker import AsyncWaker
from fjord.client.spool import alerts, batching, files, reading, survey
from fjord.client.spool.alerts import Alert
from fjord.client.spool.lines import Fate
from fjord.client.spool.reading import UNKNOWN, Load, Source
from fjord.client.spool.sources import Sources
from fjord.client.spool.waking import Doorbell
from fjord.clock import Clock, SystemClock
from fjord.commands import Advance, AskWriter, Batch, Command, Committed, Refusal, Reply
from fjord.errors import Code, FjordError, RemoteProtocolError, UnavailableError
from fjord.wire import wakeups

_log = logging.getLogger(__name__)

# Batches that are sent before the first of them is confirmed.
IN_FLIGHT: Final = 4
PAUSE_SECONDS_FIRST: Final = 0.05
PAUSE_SECONDS_MAX: Final = 5.0
POLL_SECONDS: Final = 1.0
WATCH_US: Final = 10 * 1_000_000
REPLY_SECONDS: Final = 5.0

# Refusals that are over some time; all others are for good.
_PASSING: Final = frozenset(
    {
        Code.BUSY,
        Code.DISK_FULL,
        Code.FAILED,
        Code.IDLE_TIMEOUT,
        Code.LOCKED,
        Code.READ_ONLY,
        Code.READ_TIMEOUT,
    }
)
# Refusals of a table as such: none of its records will ever be taken.
_OF_THE_TABLE: Final = frozenset({Code.BAD_NAME, Code.WRONG_KIND})
# The daemon has no room for a further file.
_OF_THE_ADVANCE: Final = "command 1 of the batch: "
_REFUSED_COMMAND = re.compile(r"command (\d+) of the batch: ")


@dataclass(slots=True)
class Progress:
    """What a forwarder has done, and how it is."""

    records: int = 0  # that arrived
    batches: int = 0
    bytes: int = 0  # of spool files
    retries: int = 0  # pauses because the daemon was away, or could not take a batch
    files_deleted: int = 0
    set_aside: Counter[Fate] = field(default_factory=Counter)  # torn and damaged
    refused: Counter[Code] = field(default_factory=Counter)  # set aside, by why
    waiting_bytes: int = 0  # when it last looked
    waiting_files: int = 0
    oldest_us: int = 0  # when the first record that waits was written; 0 = none does
    unopened: list[str] = field(default_factory=list)  # files that cannot be opened
    problem: str = ""  # why nothing is sent at the moment
    alerts: list[Alert] = field(default_factory=list)


class _PassingError(FjordError):
    """The daemon cannot take it now; try again later."""


class Forwarder:
    """Sends what is in one spool to one daemon."""

    def __init__(
        self,
        directory: str,
        url: str,
        *,
        period: float = files.PERIOD_SECONDS,
        poll: float = POLL_SECONDS,
        wake: str | int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.directory = directory
        self.progress = Progress()
        self._url = url
        self._period_us = round(period * 1_000_000)
        self._poll = poll
        self._wake = wake
        self._clock = clock or SystemClock()
        self._sources = Sources(directory, self._clock)
        self._connection: AsyncConnection | None = None
        self._rung = asyncio.Event()
        self._stopping = asyncio.Event()
        self._pauses = _pauses()
        self._watched_us = 0  # when the rules are looked at next

    def stop(self) -> None:
        """Lets `run` end when what is under way is confirmed."""
        self._stopping.set()
        self._rung.set()

    async def run(
        self, *, until_empty: bool = False, on_ready: Callable[[], None] = lambda: None
    ) -> None:
        """Forwards until it is stopped, or until nothing is left.

        Args:
            until_empty: end when all that is there now is sent.
            on_ready: told when it is the one forwarder, before it sends anything.

        Raises:
            DirectoryError: if the directory cannot be used, or another forwarder does.
            FjordError: if wake-ups cannot be heard where it shall.
        """
        lock = files.lock_for_forwarder(self.directory)
        try:
            files.remove_leftovers(self.directory)
            with contextlib.closing(Doorbell(self.directory)) as doorbell, self._listen() as waker:
                on_ready()
                await self._run(doorbell, waker, until_empty=until_empty)
        finally:
            if self._connection is not None:
                self._connection.close()
            self._sources.close()
            lock.release()

    def _listen(self) -> AbstractContextManager[AsyncWaker | None]:
        if self._wake is None:
            return contextlib.nullcontext()
        return AsyncWaker(self._wake, tables=[wakeups.SPOOL])

    async def _run(
        self, doorbell: Doorbell, waker: AsyncWaker | None, *, until_empty: bool
    ) -> None:
        while not self._stopping.is_set():
            doorbell.wake()
            self._rung.clear()
            if await self._try_pass():
                continue  # more may have come meanwhile
            if until_empty and not self._sources.has_more():
                self.look()  # what is told at the end is how it is then
                return
            doorbell.sleep()
            if not self._sources.has_more():
                await self._sleep(doorbell, waker)

    async def _sleep(self, doorbell: Doorbell, waker: AsyncWaker | None) -> None:
        """Waits until somebody rings, or for as long as it may go without a look at the files."""
        # Only now: while it works, or waits for the daemon, each write and each of its own erasures
        # is an event that nobody takes, and the loop would turn round and round.
        loop = asyncio.get_running_loop()
        for descriptor in doorbell.descriptors:
            loop.add_reader(descriptor, self._rung.set)
        hearing = None if waker is None else asyncio.create_task(self._hear(waker))
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._rung.wait(), self._poll)
        finally:
            for descriptor in doorbell.descriptors:
                loop.remove_reader(descriptor)
            if hearing is not None:
                hearing.cancel()
                await asyncio.gather(hearing, return_exceptions=True)

    async def _hear(self, waker: AsyncWaker) -> None:
        if await waker.wait(self._poll):
            self._rung.set()

    # -- one pass ---------------------------------------------------------------------------------

    async def _try_pass(self) -> bool:
        """Sends what is there; False if nothing was, or nothing could be sent."""
        try:
            is_sent = await self._pass()
        except (_PassingError, UnavailableError, RemoteProtocolError) as error:
            self._sources.begin_again()
            self.progress.retries += 1
            if str(error) != self.progress.problem:
                _log.warning("nothing can be sent: %s", error)
                self.progress.problem = str(error)
            self._watch()
            await self._pause(next(self._pauses))
            return True
        self._pauses = _pauses()
        if self.progress.problem:
            _log.info("records are sent again")
            self.progress.problem = ""
        self._watch()
        return is_sent

    async def _pause(self, seconds: float) -> None:
        """Waits; what is written meanwhile is no reason to try earlier, an end is."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _pass(self) -> bool:
        before = self.progress.batches
        self._sources.discover()
        sources = self._sources.in_order()
        for source in reversed(sources):
            # The newest first: what a writer has written to a file before it went on to the next
            # one is there by then, and so it is sent before what it wrote afterwards.
            source.limit = source.file.size() if len(sources) > 1 else None
        for source in sources:
            if self._stopping.is_set():
                break
            try:
                await self._forward(source)
                await self._retire(source)
            except OSError as error:
                self._sources.fail(source, error)  # the others go on
            else:
                self._sources.unopened.pop(source.file.name, None)
        return self.progress.batches > before

    # -- one file ---------------------------------------------------------------------------------

    async def _forward(self, source: Source) -> None:
        """Sends all that a file has at the moment."""
        if not source.has_more():
            return
        if source.known is None or source.is_cut():
            await self._align(source)
        while await self._send_all(source):
            pass  # something was found out, and it begins again from what is confirmed
        if not self._stopping.is_set():  # else there may be more
            source.rest()
        self._note_set_aside(source)

    async def _send_all(self, source: Source) -> bool:
        """Sends loads until there are no more; True if that was not the end of it."""
        flight: deque[tuple[Load, asyncio.Task[Reply]]] = deque()
        try:
            while True:
                self._fill(source, flight)
                if not flight:
                    return False
                load, task = flight.popleft()
                reply = await task
                if isinstance(reply, Refusal):
                    break
                self._confirm(source, load)
        finally:
            await _end(flight)
        # Those behind it were refused with it, since they begin where it ends.
        source.rewind()
        await self._refused(source, load, reply)
        source.rewind()
        return True

    def _fill(self, source: Source, flight: deque[tuple[Load, asyncio.Task[Reply]]]) -> None:
        while len(flight) < IN_FLIGHT and not self._stopping.is_set():
            load = source.next_load(self._clock.wall_us())
            if load is None:
                return
            flight.append((load, asyncio.create_task(self._send(source, load))))

    def _send(self, source: Source, load: Load) -> Coroutine[Any, Any, Reply]:
        """Returns what sends a load, once all before it are there."""
        advance = Advance(writer=source.writer, expected=source.sent, batch=load.end)
        source.sent = load.end
        return self._execute(Batch(commands=[advance, *load.commands]))

    def _confirm(self, source: Source, load: Load) -> None:
        source.confirm(load)
        self.progress.batches += 1
        self.progress.records += len(load.records)
        self.progress.bytes += load.end - load.start

    # -- refusals ---------------------------------------------------------------------------------

    async def _refused(self, source: Source, load: Load, refusal: Refusal) -> None:
        """Finds out what to do about a load that was refused; nothing else is under way."""
        if refusal.code is Code.STALE_NUMBER:
            await self._align(source)
            return
        is_passing = refusal.code in _PASSING or refusal.text.startswith(_OF_THE_ADVANCE)
        if is_passing or self._is_clock_ahead(refusal, load):
            raise _PassingError(f"{refusal.code}: {refusal.text}")
        command = _refused_for_its_table(refusal, load)
        if command is not None and (count := source.refuse_like(load, command)):
            self._tell_refused(source, count, load.start, refusal)
            return
        if len(load.records) > 1:
            for half in reading.halves(load, self._clock.wall_us()):
                if not await self._send_alone(source, half):
                    return  # the daemon is elsewhere: the other half may not follow
            return
        if refusal.code is Code.BAD_TIMEOUT:
            # The clock of the daemon may be ahead, and then the record has expired by it.
            late_us = self._clock.wall_us() + limits.TIMESTAMP_AHEAD_US_MAX
            last = reading.as_of(load, late_us)
            if last.commands != load.commands:
                await self._send_alone(source, last)
                return
        source.refuse(load)
        self._tell_refused(source, 1, load.start, refusal)

    def _tell_refused(self, source: Source, count: int, start: int, refusal: Refusal) -> None:
        self.progress.refused[refusal.code] += count
        what = f"the record at byte {start} is refused and was"
        if count > 1:
            what = f"{count} records from byte {start} on are refused and were"
        _log.error("%s: %s set aside: %s: %s", source.file.name, what, refusal.code, refusal.text)

    def _is_clock_ahead(self, refusal: Refusal, load: Load) -> bool:
        """Says whether the clocks of the two machines differ: then waiting helps, or setting one.

        A record that is ahead of the clock here was written while that was wrong, and may be for
        years.
        """
        newest_us = self._clock.wall_us() + limits.TIMESTAMP_AHEAD_US_MAX
        return refusal.code is Code.BAD_TIMESTAMP and all(
            limits.TIMESTAMP_US_MIN <= stamp_us <= newest_us
            for command in load.commands
            for stamp_us in batching.stamps_of(command)
        )

    async def _send_alone(self, source: Source, load: Load) -> bool:
        """Sends a load, or finds out what to do about it; False if it is to be looked up anew."""
        reply = await self._send(source, load)
        if not isinstance(reply, Refusal):
            self._confirm(source, load)
            return True
        source.rewind()
        await self._refused(source, load, reply)
        source.rewind()
        return source.done >= load.end

    # -- the end of a file ------------------------------------------------------------------------

    async def _retire(self, source: Source) -> None:
        """Removes a file that is sent whole, whose period is over, and that nobody has open."""
        file = source.file
        slot = files.slot_of(self._clock.wall_us(), self._period_us)
        is_current = file.name == files.name_of(slot) and file.is_named()
        if is_current or not file.try_lock():
            return
        is_named = file.is_named()  # else it has another name, or somebody took it away
        if file.is_moved():
            file.unlock()
            return
        # Nobody writes to it any more: half a line stays half a line.
        if source.next_load(self._clock.wall_us(), is_closed=True) is not None:
            source.rewind()  # there was more than that
            file.unlock()
            return
        self._note_set_aside(source)
        try:
            if not is_named:
                _log.error("%s was removed by somebody else", file.path)
            elif source.set_aside:
                source.erase_again()
                file.sync()  # what was sent must not be back there after a power cut
                file.rename(files.aside_name(source.identity))
                _log.warning("%s has records that were set aside", file.path)
            else:
                file.remove()
                self.progress.files_deleted += 1
        finally:
            self._sources.drop(source)
        if is_named and source.known is not None and source.known != UNKNOWN:
            # Nobody will send it again; so the daemon need not know it for long.
            await self._execute(Advance(writer=source.writer, expected=source.known, batch=0))

    # -- the daemon -------------------------------------------------------------------------------

    async def _align(self, source: Source) -> None:
        """Finds out how far the daemon is in a file."""
        known = await self._ask(source)
        # A power cut may have shortened it, and then all of it has arrived.
        is_short = known > source.file.size() and source.is_of_this_boot
        if is_short or source.is_cut():
            _log.error(
                "%s was cut, or put back to what it was: all that is in it is sent, also what has "
                "arrived before", source.file.path,
            )  # fmt: skip
            source.renew(self._clock.wall_us())
            known = UNKNOWN
        source.align(known)

    async def _ask(self, source: Source) -> int:
        """Returns the number that the daemon has of a file."""
        reply = await self._execute(AskWriter(table="", writer=source.writer))
        if isinstance(reply, Refusal):
            raise _PassingError(f"{reply.code}: {reply.text}")
        if not isinstance(reply, Committed):
            raise RemoteProtocolError(Code.FAILED, "not the answer to AskWriter")
        return reply.batch

    async def _execute(self, command: Command) -> Reply:
        if self._connection is None:
            connection = AsyncConnection(self._url, timeout=REPLY_SECONDS)
            await connection.open()
            self._connection = connection
        return await self._connection.execute(command)

    # -- what others are told ---------------------------------------------------------------------

    def _note_set_aside(self, source: Source) -> None:
        """Tells of what was found torn or damaged in a file."""
        new = source.set_aside - source.told
        source.told = source.set_aside.copy()
        for fate in (Fate.TORN, Fate.DAMAGED):
            if new[fate]:
                self.progress.set_aside[fate] += new[fate]
                were = "record was" if new[fate] == 1 else "records were"
                _log.error("%s: %d %s %s set aside", source.file.name, new[fate], fate.value, were)

    def _watch(self) -> None:
        """Looks at the rules now and then."""
        if self._clock.monotonic_us() >= self._watched_us:
            self.look()

    def look(self) -> None:
        """Looks at the rules, tells of what is new, and counts what waits."""
        now_us = self._clock.wall_us()
        self._watched_us = self._clock.monotonic_us() + WATCH_US
        watched = self._sources.watched()
        found = alerts.find(watched, survey.place(self.directory), now_us)
        before = {(alert.rule, alert.name) for alert in self.progress.alerts}
        for alert in found:
            if (alert.rule, alert.name) not in before:
                _log.warning("alert %d: %s", alert.severity, alert.text)
        self.progress.alerts = found
        self.progress.unopened = sorted(self._sources.unopened)
        self.progress.oldest_us = self._sources.oldest_us()
        self.progress.waiting_bytes = sum(file.waiting_bytes for file in watched)
        self.progress.waiting_files = sum(file.waiting_bytes > 0 for file in watched)


def _refused_for_its_table(refusal: Refusal, load: Load) -> Command | None:
    """Returns the command that is refused whatever its rows are; None if one is the reason."""
    found = _REFUSED_COMMAND.match(refusal.text)
    if refusal.code not in _OF_THE_TABLE or found is None:
        return None
    number = int(found[1]) - 2  # the first one is the Advance
    return load.commands[number] if 0 <= number < len(load.commands) else None


async def _end(flight: deque[tuple[Load, asyncio.Task[Reply]]]) -> None:
    """Waits for what is under way; how it ends, the daemon tells when it is asked."""
    await asyncio.gather(*(task for _, task in flight), return_exceptions=True)


def _pauses() -> Iterator[float]:
    """Yields how many seconds to wait before each further try."""
    seconds = PAUSE_SECONDS_FIRST
    while True:
        yield seconds
        seconds = min(2 * seconds, PAUSE_SECONDS_MAX)
