"""The forwarder: sends the records of a spool to a daemon, exactly once.

    check the files -> send, several batches in flight -> confirmed: erase -> fully sent: delete
            ^                          |
            |   nothing left: sleep    +-- down, busy, full: pause, ask for its offset, go on
            +-- PING, file event, wake-up, poll

Each batch holds an `Advance`: the daemon's present offset of the file, and the one that it has
afterwards.  So batches are applied in order or not at all, and one whose reply was lost is
not applied again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import sys
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import fjord
from fjord import limits
from fjord.client.async_connection import AsyncConnection
from fjord.client.async_waker import AsyncWaker
from fjord.client.calls import pauses
from fjord.client.spool import bell, files, reader, records, survey
from fjord.client.spool.reader import FileReader, Load
from fjord.clock import Clock, SystemClock
from fjord.commands import Advance, AskWriter, Batch, Command, Committed, Refusal, Reply
from fjord.errors import Code, DurabilityError, FjordError, RemoteProtocolError, UnavailableError
from fjord.server import exposition, logs, service
from fjord.server.exposition import Metric, count, count_by, gauge
from fjord.server.http import Answer, Pages
from fjord.wire import wakeups

_log = logging.getLogger(__name__)

# Batches that are sent before the first of them is confirmed.
IN_FLIGHT: Final = 4
PAUSE_SECONDS_FIRST: Final = 0.05
PAUSE_SECONDS_MAX: Final = 5.0
POLL_SECONDS: Final = 1.0
WATCH_US: Final = 10 * 1_000_000
REPLY_SECONDS: Final = 5.0

# Temporary refusals; all others are final.
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
# Refusals of a whole table: none of its records will ever be accepted.
_OF_THE_TABLE: Final = frozenset({Code.BAD_NAME, Code.WRONG_KIND})
# The daemon has no room for another file.
_OF_THE_ADVANCE: Final = "command 1 of the batch: "
_REFUSED_COMMAND = re.compile(r"command (\d+) of the batch: ")


@dataclass(slots=True)
class Progress:
    """The state and the totals of a forwarder."""

    records: int = 0  # that arrived
    batches: int = 0
    bytes: int = 0  # of spool files
    retries: int = 0  # because the daemon was down, or could not take a batch
    files_deleted: int = 0
    set_aside: Counter[files.Fate] = field(default_factory=Counter)  # torn and damaged
    refused: Counter[Code] = field(default_factory=Counter)  # set aside, by reason
    waiting_bytes: int = 0  # at the last check
    waiting_files: int = 0
    oldest_us: int = 0  # when the oldest waiting record was written; 0 = none waits
    unopened: list[str] = field(default_factory=list)  # files that cannot be opened
    problem: str = ""  # why nothing can be sent
    alerts: list[survey.Alert] = field(default_factory=list)


class _PassingError(FjordError):
    """The daemon cannot take the batch now; retry later."""


class Forwarder:
    """Sends one spool to one daemon."""

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
        self._sources = reader.OpenFiles(directory, self._clock)
        self._connection: AsyncConnection | None = None
        self._rung = asyncio.Event()
        self._stopping = asyncio.Event()
        self._pauses = pauses(PAUSE_SECONDS_FIRST, PAUSE_SECONDS_MAX)
        self._watched_us = 0  # when to check the alert rules next

    def stop(self) -> None:
        """Lets `run` end once the batches in flight are confirmed."""
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
            with (
                contextlib.closing(bell.Doorbell(self.directory)) as doorbell,
                self._listen() as waker,
            ):
                on_ready()
                await self._run(doorbell, waker, until_empty=until_empty)
        finally:
            if self._connection is not None:
                self._connection.close()
            self._sources.close()
            lock.release()

    def _listen(self) -> contextlib.AbstractContextManager[AsyncWaker | None]:
        if self._wake is None:
            return contextlib.nullcontext()
        return AsyncWaker(self._wake, tables=[wakeups.SPOOL])

    async def _run(
        self, doorbell: bell.Doorbell, waker: AsyncWaker | None, *, until_empty: bool
    ) -> None:
        while not self._stopping.is_set():
            doorbell.wake()
            self._rung.clear()
            if await self._try_pass():
                continue  # more may have come meanwhile
            if until_empty and not self._sources.has_more():
                self.look()  # for the final report
                return
            doorbell.sleep()
            if not self._sources.has_more():
                await self._sleep(doorbell, waker)

    async def _sleep(self, doorbell: bell.Doorbell, waker: AsyncWaker | None) -> None:
        """Waits for a PING or event, or until the files must be checked."""
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
        """Sends what is present; False if there was nothing, or nothing could be sent."""
        try:
            is_sent = await self._pass()
        except (_PassingError, UnavailableError, RemoteProtocolError) as error:
            self._sources.begin_again()
            self.progress.retries += 1
            if str(error) != self.progress.problem:
                _log.warning("nothing can be sent: %s", error)
                self.progress.problem = str(error)
            self._watch()
            # New records do not shorten this pause, but a stop does.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), next(self._pauses))
            return True
        self._pauses = pauses(PAUSE_SECONDS_FIRST, PAUSE_SECONDS_MAX)
        if self.progress.problem:
            _log.info("records are sent again")
            self.progress.problem = ""
        self._watch()
        return is_sent

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
                self._sources.fail(source, error)  # other files continue
            else:
                self._sources.unopened.pop(source.file.name, None)
        return self.progress.batches > before

    # -- one file ---------------------------------------------------------------------------------

    async def _forward(self, source: FileReader) -> None:
        """Sends everything in a file."""
        if not source.has_more():
            return
        if source.known is None or source.is_cut():
            await self._align(source)
        while await self._send_all(source):
            pass  # something was found out, and it begins again from what is confirmed
        if not self._stopping.is_set():  # else there may be more
            source.rest()
        self._note_set_aside(source)

    async def _send_all(self, source: FileReader) -> bool:
        """Sends loads until there are no more; True if there may be more."""
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
            # The daemon's offset will tell which of those in flight were applied.
            await asyncio.gather(*(task for _, task in flight), return_exceptions=True)
        # Later ones were refused too, since they begin where it ends.
        await self._settle(source, load, reply)
        return True

    def _fill(self, source: FileReader, flight: deque[tuple[Load, asyncio.Task[Reply]]]) -> None:
        while len(flight) < IN_FLIGHT and not self._stopping.is_set():
            load = source.next_load(self._clock.wall_us())
            if load is None:
                return
            flight.append((load, asyncio.create_task(self._send(source, load))))

    def _send(self, source: FileReader, load: Load) -> Coroutine[Any, Any, Reply]:
        """Returns the coroutine that sends a load."""
        advance = Advance(writer=source.writer, expected=source.sent, batch=load.end)
        source.sent = load.end
        return self._execute(Batch(commands=[advance, *load.commands]))

    def _confirm(self, source: FileReader, load: Load) -> None:
        source.confirm(load)
        self.progress.batches += 1
        self.progress.records += len(load.records)
        self.progress.bytes += load.end - load.start

    # -- refusals ---------------------------------------------------------------------------------

    async def _settle(self, source: FileReader, load: Load, refusal: Refusal) -> None:
        """Handles a refused load; nothing is in flight."""
        source.rewind()
        await self._refused(source, load, refusal)
        source.rewind()

    async def _refused(self, source: FileReader, load: Load, refusal: Refusal) -> None:
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
            for half in reader.halves(load, self._clock.wall_us()):
                if not await self._send_alone(source, half):
                    return  # the daemon's offset is another: skip the other half
            return
        if refusal.code is Code.BAD_TIMEOUT:
            # The daemon's clock may be ahead, so that the record has expired there.
            late_us = self._clock.wall_us() + limits.TIMESTAMP_AHEAD_US_MAX
            last = reader.as_of(load, late_us)
            if last.commands != load.commands:
                await self._send_alone(source, last)
                return
        source.refuse(load)
        self._tell_refused(source, 1, load.start, refusal)

    def _tell_refused(self, source: FileReader, count: int, start: int, refusal: Refusal) -> None:
        self.progress.refused[refusal.code] += count
        what = f"the record at byte {start} is refused and was"
        if count > 1:
            what = f"{count} records from byte {start} on are refused and were"
        _log.error("%s: %s set aside: %s: %s", source.file.name, what, refusal.code, refusal.text)

    def _is_clock_ahead(self, refusal: Refusal, load: Load) -> bool:
        """Says whether the clocks of the two machines differ: waiting helps, or setting one.

        A record that is ahead of the clock here was written while that was wrong, and may be for
        years.
        """
        newest_us = self._clock.wall_us() + limits.TIMESTAMP_AHEAD_US_MAX
        return refusal.code is Code.BAD_TIMESTAMP and all(
            limits.TIMESTAMP_US_MIN <= stamp_us <= newest_us
            for command in load.commands
            for stamp_us in records.stamps_of(command)
        )

    async def _send_alone(self, source: FileReader, load: Load) -> bool:
        """Sends a load and handles a refusal; False if the daemon's offset is needed again."""
        reply = await self._send(source, load)
        if not isinstance(reply, Refusal):
            self._confirm(source, load)
            return True
        await self._settle(source, load, reply)
        return source.done >= load.end

    # -- the end of a file ------------------------------------------------------------------------

    async def _retire(self, source: FileReader) -> None:
        """Removes a fully sent file whose period is over and that nobody has open."""
        file = source.file
        slot = files.slot_of(self._clock.wall_us(), self._period_us)
        is_current = file.name == files.name_of(slot) and file.is_named()
        if is_current or not file.try_lock():
            return
        is_named = file.is_named()  # otherwise it was renamed or removed
        if file.is_moved():
            file.unlock()
            return
        # Nobody writes to it any more: a partial line is torn.
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
                file.sync()  # sent records must not reappear after a power cut
                file.rename(files.named("aside", source.header.identity))
                _log.warning("%s has records that were set aside", file.path)
            else:
                file.remove()
                self.progress.files_deleted += 1
        finally:
            self._sources.drop(source)
        if is_named and source.known is not None and source.known != reader.UNKNOWN:
            # It will not be sent again, so the daemon can forget it soon.
            await self._execute(Advance(writer=source.writer, expected=source.known, batch=0))

    # -- the daemon -------------------------------------------------------------------------------

    async def _align(self, source: FileReader) -> None:
        """Fetches the daemon's offset of a file."""
        reply = await self._execute(AskWriter(table="", writer=source.writer))
        if isinstance(reply, Refusal):
            raise _PassingError(f"{reply.code}: {reply.text}")
        if not isinstance(reply, Committed):
            raise RemoteProtocolError(Code.FAILED, "not a reply to AskWriter")
        known = reply.batch  # the daemon's offset
        # A power cut may have shortened the file; then all of it has arrived.
        is_short = known > source.file.size() and source.header.is_of_this_boot
        if is_short or source.is_cut():
            _log.error(
                "%s was cut, or put back to what it was: all that is in it is sent, also what has "
                "arrived before", source.file.path,
            )  # fmt: skip
            source.renew(self._clock.wall_us())
            known = reader.UNKNOWN
        source.align(known)

    async def _execute(self, command: Command) -> Reply:
        if self._connection is None:
            connection = AsyncConnection(self._url, timeout=REPLY_SECONDS)
            await connection.open()
            self._connection = connection
        return await self._connection.execute(command)

    # -- reports ----------------------------------------------------------------------------------

    def _note_set_aside(self, source: FileReader) -> None:
        """Logs torn and damaged records of a file."""
        new = source.set_aside - source.told
        source.told = source.set_aside.copy()
        for fate in (files.Fate.TORN, files.Fate.DAMAGED):
            if new[fate]:
                self.progress.set_aside[fate] += new[fate]
                were = "record was" if new[fate] == 1 else "records were"
                _log.error("%s: %d %s %s set aside", source.file.name, new[fate], fate.value, were)

    def _watch(self) -> None:
        """Checks the alert rules from time to time."""
        if self._clock.monotonic_us() >= self._watched_us:
            self.look()

    def look(self) -> None:
        """Checks the alert rules, logs new alerts, and counts waiting records."""
        now_us = self._clock.wall_us()
        self._watched_us = self._clock.monotonic_us() + WATCH_US
        watched = self._sources.watched()
        found = survey.find(watched, self.directory, os.stat(self.directory), now_us)
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
    """Returns the command that is refused because of its table; None if a row is the reason."""
    found = _REFUSED_COMMAND.match(refusal.text)
    if refusal.code not in _OF_THE_TABLE or found is None:
        return None
    number = int(found[1]) - 2  # the first one is the Advance
    return load.commands[number] if 0 <= number < len(load.commands) else None


# -- the forwarder as a service: signals, systemd, the log, and pages over HTTP -------------------


_SHOWN_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardOptions:
    """Options of a forwarder."""

    directory: str
    url: str
    is_once: bool  # True: it ends when all is sent
    period: float  # seconds
    poll: float  # seconds
    wake: str  # address of wake-ups; empty = none
    http: tuple[str, int] | None  # address of the metrics; None = off
    on_ready: Callable[[tuple[str, int] | None], None]  # told the address of HTTP
    show: Callable[[int, int | None], None]  # called with the bytes sent and the total


def run(options: ForwardOptions) -> tuple[Progress, bool]:
    """Forwards until SIGTERM or SIGINT, or until everything is sent.

    Returns:
        The totals, and whether everything was sent.

    Raises:
        DirectoryError: if the directory cannot be used.
        DurabilityError: if its disk failed; what is in it stays there.
        FjordError: if the HTTP address cannot be used.
    """
    files.check_owner(options.directory)
    os.umask(0o077)
    listener = None if options.http is None else service.listen(*options.http)
    running = _Service(options)
    try:
        service.run(running.run(listener))
    except OSError as error:
        raise DurabilityError(
            f"the spool {options.directory} failed: {error}; unsent records stay in it"
        ) from error
    return running.forwarder.progress, not running.is_stopped


class _Service:
    """The parts of a running forwarder."""

    def __init__(self, options: ForwardOptions) -> None:
        self._options = options
        self._clock = SystemClock()
        self._begun_us = self._clock.monotonic_us()
        self.is_stopped = False
        self.forwarder = Forwarder(
            options.directory,
            options.url,
            period=options.period,
            poll=options.poll,
            wake=options.wake or None,
        )

    async def run(self, listener: socket.socket | None) -> None:
        service.on_stop(self._stop)
        http = None if listener is None else await service.serve_pages(listener, self._pages())
        showing = asyncio.create_task(self._show())
        try:
            await self.forwarder.run(
                until_empty=self._options.is_once, on_ready=lambda: self._say_ready(http)
            )
        finally:
            showing.cancel()
            if http is not None:
                http.close()
        service.notify("STOPPING=1")
        logs.note(logging.INFO, "stopped", records=self.forwarder.progress.records)

    def _stop(self) -> None:
        self.is_stopped = True
        logs.note(logging.INFO, "stopping")
        self.forwarder.stop()

    def _say_ready(self, http: asyncio.Server | None) -> None:
        address = None if http is None else http.sockets[0].getsockname()[:2]
        logs.note(
            logging.INFO,
            "forwarding",
            spool=self._options.directory,
            to=self._options.url,
            http="off" if address is None else "{}:{}".format(*address),
            wake=self._options.wake or "off",
            version=fjord.__version__,
        )
        self._options.on_ready(address)
        service.notify("READY=1")

    async def _show(self) -> None:
        """Shows the progress of `--once`."""
        while self._options.is_once and sys.stderr.isatty():
            await asyncio.sleep(_SHOWN_SECONDS)
            self.forwarder.look()
            progress = self.forwarder.progress
            self._options.show(progress.bytes, progress.bytes + progress.waiting_bytes)

    # -- pages ------------------------------------------------------------------------------------

    def _pages(self) -> Pages:
        return Pages(
            {"/metrics": self._show_metrics, "/healthz": self._show_health},
            seconds_max=limits.MESSAGE_SECONDS_MAX,
        )

    def _show_metrics(self) -> Answer:
        self.forwarder.look()  # otherwise the numbers would be some seconds old
        uptime_us = self._clock.monotonic_us() - self._begun_us
        return exposition.page(metrics(self.forwarder.progress, uptime_us, self._clock.wall_us()))

    def _show_health(self) -> Answer:
        """Answers ok even while the daemon is down, for which the forwarder waits."""
        if self.is_stopped:
            return Answer(status=503, body=b"stopping\n")
        return Answer(status=200, body=b"ok\n")


# -- metrics; docs/operations.md explains each ----------------------------------------------------


def metrics(progress: Progress, uptime_us: int, now_us: int) -> Iterator[Metric]:
    def name(last: str) -> str:
        return f"fjord_forwarder_{last}"

    yield gauge(name("uptime_seconds"), "Since the start.", uptime_us / 1e6)
    yield count(name("records"), "Records that arrived.", progress.records)
    yield count(name("bytes"), "Bytes of spool files that arrived.", progress.bytes)
    yield count(name("batches"), "Batches that arrived.", progress.batches)
    yield count(name("retries"), "Retries because nothing could be sent.", progress.retries)
    yield count(
        name("files_deleted"), "Files deleted after they were fully sent.", progress.files_deleted
    )
    # Torn and damaged ones, and refused ones by code.
    why = {str(one.value): number for one, number in progress.set_aside.items()}
    why |= {one.value: number for one, number in progress.refused.items()}
    yield count_by(name("set_aside"), "Records that were set aside.", "why", why)
    yield gauge(name("waiting_bytes"), "Bytes that wait.", progress.waiting_bytes)
    yield gauge(name("waiting_files"), "Files with waiting records.", progress.waiting_files)
    age_us = max(0, now_us - progress.oldest_us) if progress.oldest_us else 0
    yield gauge(name("oldest_seconds"), "Age of the oldest waiting record.", age_us / 1e6)
    yield gauge(name("problem"), "1 while nothing can be sent.", bool(progress.problem))
    found = Counter(alert.rule for alert in progress.alerts)
    yield exposition.by_labels(
        name("alerts"),
        "Current alerts.",
        ["rule"],
        [((rule,), found[rule]) for rule in survey.RULES],
    )
