"""What `fjord kestrel import` does: what is in queues goes to tables of a daemon, each item once.

    look at every queue, and ask the daemon how far it is  ->  make the tables  ->  send, in order

All that can be refused is found while queues are looked at, before anything is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Final

from fjord import limits
from fjord.cli import output
from fjord.cli.kestrel_reports import broken_sentence, changed_sentence, queues
from fjord.cli.kestrel_sending import Sending, Target
from fjord.client.calls import Call, Result, follow
from fjord.client.job_calls import JobCalls
from fjord.client.socket import Connection
from fjord.client.stream_calls import StreamCalls
from fjord.clock import Stamps, SystemClock
from fjord.disk import LocalDisk
from fjord.errors import DirectoryError, FjordError, UnavailableError, UsageError
from fjord.kestrel import contents, import_marks, importing, reading
from fjord.kestrel.contents import Contents
from fjord.kestrel.importing import UNKNOWN, Kind, Tally

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
            if import_marks.table_id(daemon, table) is not None:
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
            import_marks.note(daemon, target.writer, importing.number_of(target.crc, items))
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
        table_id = import_marks.table_id(daemon, table)
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
        at = import_marks.ask(daemon, target.writer)
        if target.files_writer:
            return replace(target, at=at, files_at=import_marks.ask(daemon, target.files_writer))
        plain_at = import_marks.ask(daemon, target.plain_writer)
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
        if import_marks.ask(daemon, writer, target.table) != UNKNOWN:
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

        read = contents.read(disk, self._options.directory, queue, options, on_bytes=on_bytes)
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
