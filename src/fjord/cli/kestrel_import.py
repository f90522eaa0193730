"""What `fjord kestrel import` does: what is in queues goes to tables of a daemon, each item once.

    look at every queue, and ask the daemon how far it is  ->  make the tables  ->  send, in order

All that can be refused is found while queues are looked at, before anything is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from fjord import limits
from fjord.cli import output
from fjord.cli.kestrel_reports import broken_sentence, changed_sentence, queues
from fjord.client.async_connection import AsyncConnection
from fjord.client.calls import Call, Result, expect, follow
from fjord.client.job_calls import JobCalls
from fjord.client.socket import Connection
from fjord.client.stream_calls import StreamCalls
from fjord.clock import Stamps, SystemClock
from fjord.commands import Advance, AskWriter, Batch, Command, Committed, Refusal, Reply
from fjord.disk import LocalDisk
from fjord.errors import Code, DirectoryError, FjordError, UnavailableError, UsageError
from fjord.kestrel import importing, inspect, reading
from fjord.kestrel.importing import UNKNOWN, Kind, Load, Tally
from fjord.kestrel.inspect import Contents

# Items that are counted before the next look at the bar.
_COUNTED: Final = 10_000
_AGAIN: Final = "nothing is lost or twice: run the same command again to go on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is imported, and where to."""

    directory: str
    url: str
    queues: tuple[str, ...] = ()  # none: all of the directory
    tables: tuple[str, ...] = ()  # those that are not named as their queues
    kind: Kind = Kind.JOBS
    is_anew: bool = False  # True: whatever was imported before
    is_moved: bool = False  # True: what was imported of the same files from elsewhere counts
    is_dry: bool = False  # True: nothing is sent
    skips_too_large: bool = False
    takes_damaged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What becomes of one queue."""

    queue: str
    table: str
    kind: Kind
    is_dry: bool
    items: int  # in the queue, open ones included
    before: int  # of them, done by an earlier run
    tally: Tally  # of the others
    damaged: tuple[str, ...]  # a sentence for each file of which a part is missing


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """A queue that may be imported."""

    target: Target
    outcome: Outcome  # as it will be

    @property
    def is_done(self) -> bool:
        return self.outcome.before == self.outcome.items


Show = Callable[[str, int, int], None]  # what is done, how far, of how much


def run(options: Options, on_outcome: Callable[[Outcome], None], show: Show) -> None:
    """Imports queues, and tells what becomes of each.

    Raises:
        UsageError: if a queue needs another name for its table, or options exclude each other.
        NotFoundError: if there is no such queue.
        DirectoryError: if the directory cannot be read, or changes meanwhile.
        FjordError: if something is refused, or the daemon is away; nothing is lost then.
    """
    if options.is_anew and options.is_moved:
        raise UsageError("--anew imports all, and --moved what is left: give one of them")
    importer = _Importer(options, show)
    tables = importing.tables_of(queues(options.directory, options.queues), options.tables)
    with contextlib.closing(Connection(options.url, timeout=limits.REPLY_SECONDS_MAX)) as daemon:
        plans = [importer.plan(queue, table, daemon) for queue, table in tables.items()]
        _check_sizes(options, plans)
        if not options.is_dry:
            plans = [importer.settle(plan, daemon) for plan in plans]
    for plan in plans:
        is_over = options.is_dry or plan.is_done
        on_outcome(plan.outcome if is_over else importer.send(plan))


def _check_sizes(options: Options, plans: list[_Plan]) -> None:
    """Makes sure that nothing is too large, unless that is to be left out."""
    found = [plan.outcome for plan in plans if plan.outcome.tally.too_large]
    if found and not options.skips_too_large:
        counts = ", ".join(
            f"{one.queue} has {output.counted(one.tally.too_large, 'item')}" for one in found
        )
        raise FjordError(
            f"{counts} of more than {limits.VALUE_BYTES_MAX} bytes, which is the most that a value "
            "may have; --skip-too-large imports all others"
        )


class _Importer:
    """Imports the queues of one directory."""

    def __init__(self, options: Options, show: Show) -> None:
        self._options = options
        self._show = show
        self._clock = SystemClock()

    def plan(self, queue: str, table: str, daemon: Connection) -> _Plan:
        """Looks at a queue, and asks how far it is imported."""
        options = self._options
        with self._opened(queue) as found:
            damaged = tuple(_damage(found))
            if damaged and not options.takes_damaged:
                raise FjordError(f"{'; '.join(damaged)}; --damaged imports what can be read")
            target = Target(table=table, kind=options.kind, crc=found.crc(), size=found.size)
            if importing.table_id(daemon, table) is not None:
                target = self._asked(self._named(queue, target, daemon), daemon)
            before = self._before(queue, target, found.count)
            if target.files_writer and before < found.count:
                self._check_batch(queue, target, daemon)
            outcome = Outcome(
                queue=queue,
                table=table,
                kind=options.kind,
                is_dry=options.is_dry,
                items=found.count,
                before=before,
                tally=self._tally(found, before),
                damaged=damaged,
            )
        return _Plan(target=target, outcome=outcome)

    def settle(self, plan: _Plan, daemon: Connection) -> _Plan:
        """Makes the table of a queue that has items, if it is not there.

        Of one that is done, that is noted for this directory: its files alone may have said so.
        """
        target, items = plan.target, plan.outcome.items
        if plan.is_done and items and target.at == UNKNOWN:
            importing.note(daemon, target.writer, importing.number_of(target.crc, items))
        if plan.is_done or target.writer:
            return plan
        return replace(plan, target=self._named(plan.outcome.queue, target, daemon))

    def _named(self, queue: str, target: Target, daemon: Connection) -> Target:
        """Makes a table, or finds that it is as it should be; its writers have names then.

        Raises:
            RefusedError: if the table is of another kind, or has other settings.
        """
        table = target.table
        if target.kind is Kind.JOBS:
            declaration = JobCalls(table, Stamps(self._clock)).declare({"merge": False})
        else:
            declaration = StreamCalls(table).declare({"mode": "log"})
        follow(partial(_run, daemon), declaration.steps())
        table_id = importing.table_id(daemon, table)
        if table_id is None:
            raise FjordError(f"somebody has dropped the table {table}; run the same command again")
        crc, directory = target.crc, self._options.directory
        if self._options.is_anew:
            return replace(
                target,
                writer=importing.writer_of(directory, queue, table, table_id, crc),
                plain_writer=importing.writer_of(directory, queue, table, table_id),
            )
        return replace(
            target,
            writer=importing.writer_of(directory, queue, table, table_id),
            files_writer=importing.files_writer_of(
                queue, table, table_id, crc=crc, size=target.size
            ),
        )

    def _asked(self, target: Target, daemon: Connection) -> Target:
        """Asks where the writers are."""
        at = importing.ask(daemon, target.writer)
        if target.files_writer:
            return replace(target, at=at, files_at=importing.ask(daemon, target.files_writer))
        plain_at = importing.ask(daemon, target.plain_writer)
        if plain_at != UNKNOWN and not importing.is_same(importing.place_of(plain_at), target.crc):
            # It is of other files, so that whoever goes by it is refused.
            return replace(target, at=at, plain_writer="")
        return replace(target, at=at, plain_at=plain_at)

    def _check_batch(self, queue: str, target: Target, daemon: Connection) -> None:
        """Makes sure that no pipeline has imported what is left of a queue.

        Raises:
            FjordError: if one has.
        """
        writer = importing.writer_of(self._options.directory, queue, target.table)
        if importing.ask(daemon, writer, target.table) != UNKNOWN:
            raise FjordError(
                f"{queue} was imported into {target.table} by fjord pipeline kestrel-import "
                "before, and what is still in it would be there twice; go on with that, or "
                "--anew imports all that is in it now"
            )

    def _tally(self, found: Contents, before: int) -> Tally:
        """Counts what is to become of items that are not done yet."""
        tally = Tally()
        if before == found.count:
            return tally
        now_us, items = self._clock.wall_us(), islice(found.items(), before, None)
        while any(counted := importing.tally(islice(items, _COUNTED), now_us)):
            tally = tally.plus(counted)
            self._show(f"looking at {found.queue}", before + sum(tally), found.count)
        return tally

    def send(self, plan: _Plan) -> Outcome:
        """Sends what is in a queue and not imported yet."""
        outcome, directory = plan.outcome, self._options.directory
        with self._opened(outcome.queue) as found:
            if found.crc() != plan.target.crc:
                raise DirectoryError(
                    f"the files of {outcome.queue} in {directory} changed while they were read; "
                    "stop the writer"
                )
            sending = Sending(
                importing.loads(found.items(), self._clock.wall_us(), skip=outcome.before),
                plan.target,
                lambda done: self._show(f"importing {outcome.queue}", done, outcome.items),
            )
            try:
                asyncio.run(sending.run(self._options.url))
            except UnavailableError as error:
                raise UnavailableError(f"{error}; {_AGAIN}") from error
        return replace(outcome, tally=sending.tally)

    def _before(self, queue: str, target: Target, count: int) -> int:
        """Returns how many items of a queue are done, going by where its writers are."""
        done = importing.done_of(target.at, target.files_at, target.crc)
        if done is None:
            place = importing.place_of(target.at)
            raise FjordError(
                f"the files of {queue} have changed since {place.done} items of it were imported; "
                "--anew imports all that is in it now"
            )
        if done and target.at == UNKNOWN and not self._options.is_moved:
            raise FjordError(
                f"{done} of the {count} items in these files of {queue} were imported into "
                f"{target.table} before, from another directory or by fjord pipeline "
                "kestrel-import; --moved counts them as done, --anew imports all of them"
            )
        return done

    @contextlib.contextmanager
    def _opened(self, queue: str) -> Iterator[Contents]:
        options = reading.Options(now_ms=self._clock.wall_us() // 1000)
        disk = LocalDisk()
        total = reading.survey(disk, self._options.directory, queue).size
        done = 0

        def on_bytes(size: int) -> None:
            nonlocal done
            done += size
            self._show(f"reading {queue}", done, total)

        read = inspect.read_contents(
            disk, self._options.directory, queue, options, on_bytes=on_bytes
        )
        with contextlib.closing(read) as found:
            yield found


def _damage(found: Contents) -> Iterator[str]:
    """Yields what is wrong with the files of a queue, in words."""
    for file in found.files:
        if file.is_damaged:
            yield broken_sentence(file)
        elif file.changed is not None:
            yield changed_sentence(file)
    for lost in found.missing:
        yield lost.sentence


def _run(daemon: Connection, call: Call[Result]) -> Result:
    return call.result(daemon.execute(call.command))


# -- words ----------------------------------------------------------------------------------------


def line(one: Outcome) -> str:
    """Returns what became of a queue, in words."""
    items = output.counted(one.items, "item")
    into = f"{one.kind} table" if one.kind is Kind.JOBS else "stream"
    if not one.items:
        return f"{one.queue}: no items"
    if one.before == one.items:
        return f"{one.queue}: {items}, imported into {into} {one.table} before"
    would = "to be imported" if one.is_dry else "imported"
    notes = [
        f"{count} {what}"
        for count, what in (
            (one.before, "imported before"),
            (one.tally.expired, "expired"),
            (one.tally.too_large, "too large"),
        )
        if count
    ]
    told = f" ({', '.join(notes)})" if notes else ""
    return f"{one.queue}: {items}, {one.tally.imported} {would} into {into} {one.table}{told}"


def total(found: list[Outcome]) -> str:
    """Returns what became of all queues, in words."""
    imported = sum(one.tally.imported for one in found)
    would = "to be imported" if any(one.is_dry for one in found) else "imported"
    return f"{output.counted(len(found), 'queue')}, {output.counted(imported, 'item')} {would}"


def as_json(one: Outcome) -> dict[str, object]:
    return {
        "queue": one.queue,
        "table": one.table,
        "kind": str(one.kind),
        "dry_run": one.is_dry,
        "items": one.items,
        "imported_before": one.before,
        **one.tally._asdict(),
        "damaged": list(one.damaged),
    }


# -- sending the items of a queue to a table of a daemon, several batches under way ---------------
#
# Each batch holds an `Advance`, so batches are applied in their order or not at all.  When one is
# refused, all behind it are, too; then the daemon is asked how far it is, and what has not arrived
# is sent again.


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
