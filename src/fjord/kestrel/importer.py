"""Importing queues: their items go to jobs tables or streams of a daemon, in order, each once.

    look at every queue, and ask the daemon how far it is  ->  make the tables  ->  send, in order
    items of the queue  ->  loads, in order  ->  ADVANCE and PUSH or APPEND, in one commit

Everything that can be refused is found while queues are looked at, before anything is sent.

Only the daemon knows how far an import is: each batch moves a writer of no table on to

    number = CRC of the files << 32 | how many items of the queue are done

So an import that was cut off asks where the writer is, and continues there; and one that finds
another CRC there knows that the files have changed since.  Items that are left out count as done.

That writer is known by the directory.  A second one, known by the bytes of the files, moves along
with it: it tells when the same files were imported from somewhere else.

An item was inserted when it was added to the queue, and is due since then.  Both dates never go
back from one item to the next, since the order of jobs is that of their dates.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import add
from typing import Final, NamedTuple

from fjord import commands, errors, limits
from fjord.client.blocking.runner import Runner
from fjord.client.calls import Call, expect
from fjord.client.connection import Connection
from fjord.client.declared_tables import table_call
from fjord.client.jobs.calls import JobCalls
from fjord.client.streams import StreamCalls
from fjord.clock import Stamps, SystemClock
from fjord.columns import Strings
from fjord.disk import LocalDisk
from fjord.jobs import Priority
from fjord.kestrel import reader
from fjord.kestrel.codec import Item
from fjord.kestrel.inspect import Contents
from fjord.kinds import Kind
from fjord.values import Type

# Of one batch; a larger item is sent alone.
ITEMS_MAX: Final = 1000
BYTES_MAX: Final = 1 * limits.MIB

UNKNOWN: Final = -1  # where a writer is that is not known

_DONE_BITS: Final = 32
_DONE_MASK: Final = (1 << _DONE_BITS) - 1
# The sign is not used, so that a number has 63 bits.
_CRC_MASK: Final = 0x7FFF_FFFF
_DIGEST_BYTES: Final = 16


def writer_of(directory: str, queue: str, table: str, *numbers: int) -> str:
    """Returns the name under which the daemon knows how far an import is.

    Numbers make it that of one table, by its id, and of one state of the files, by their CRC.  A
    table that is dropped and made again has another id, and no import has begun there.
    """
    path = os.fsencode(os.path.realpath(directory))
    return f"kestrel:{_digest(path, os.fsencode(queue), table.encode(), *numbers)}"


def files_writer_of(queue: str, table: str, table_id: int, *, crc: int, size: int) -> str:
    """Returns the name under which the daemon knows how far these files are, wherever they are."""
    return f"kestrel-files:{_digest(os.fsencode(queue), table.encode(), table_id, crc, size)}"


def _digest(*parts: bytes | int) -> str:
    named = b"\0".join(b"%d" % one if isinstance(one, int) else one for one in parts)
    return hashlib.blake2b(named, digest_size=_DIGEST_BYTES).hexdigest()


def tables_of(queues: Sequence[str], named: Sequence[str]) -> dict[str, str]:
    """Returns the table of each queue, by the queue's name.

    Args:
        queues: those to import.
        named: tables that are not named as their queues: `QUEUE=TABLE` each; or, of one queue
            alone, `TABLE`.

    Raises:
        UsageError: if a name is none that a table may have, or is given twice, or for no queue.
    """
    tables = dict(zip(queues, queues, strict=True))
    for text in named:
        queue, equals, table = text.rpartition("=")
        if not equals and len(queues) != 1:
            raise errors.UsageError(
                f"--table {text} names the table of one queue, and these are {len(queues)}; say "
                f"which one, as in --table QUEUE={text}"
            )
        queue = queue if equals else queues[0]
        if queue not in tables:
            raise errors.UsageError(f"--table {text}: no queue {queue} is imported")
        tables[queue] = table
    for queue, table in tables.items():
        if problem := commands.name_problem(table):
            raise errors.UsageError(
                f"no table can be called {table}: {problem.text}; give another name, as in "
                f"--table {queue}=TABLE"
            )
    if twice := [one for one, count in Counter(tables.values()).items() if count > 1]:
        raise errors.UsageError(f"{twice[0]} would be the table of two queues; rename one")
    return tables


def number_of(crc: int, done: int) -> int:
    """Returns the number of a writer that has done at least one item."""
    assert 0 < done < 1 << _DONE_BITS
    return (crc & _CRC_MASK) << _DONE_BITS | done


def done_by(number: int) -> int:
    """Returns how many items are done, by where a writer is."""
    return number & _DONE_MASK if number != UNKNOWN else 0


def is_same(number: int, crc: int) -> bool:
    """Says whether a writer is where an import of files of this CRC has taken it."""
    return number >> _DONE_BITS == crc & _CRC_MASK


class Tally(NamedTuple):
    """What becomes of items."""

    imported: int = 0
    expired: int = 0  # left out
    too_large: int = 0  # left out

    def plus(self, other: Tally) -> Tally:
        return Tally(*map(add, self, other))


@dataclass(slots=True, kw_only=True)
class Load:
    """Items that are sent together, as columns."""

    end: int  # how many items of the queue are done after it
    too_large: int = 0  # items that no value may hold; they are not in it
    data: list[bytes] = field(default_factory=list)
    dates_us: array[int] = field(default_factory=lambda: array("Q"))
    expiries_us: array[int] = field(default_factory=lambda: array("Q"))  # 0 = never

    @property
    def done(self) -> int:
        """How many items are done with it, left out or not."""
        return len(self.data) + self.too_large

    def tally(self, live_count: int) -> Tally:
        """Returns what becomes of its items if so many of them are sent."""
        return Tally(live_count, len(self.data) - live_count, self.too_large)

    def live(self, now_us: int) -> Sequence[int]:
        """Returns which of its items have not expired."""
        expiries = self.expiries_us
        if not any(expiries):
            return range(len(expiries))
        return [at for at, expiry_us in enumerate(expiries) if not expiry_us or expiry_us > now_us]


def loads(items: Iterable[Item], now_us: int, *, skip: int = 0) -> Iterator[Load]:
    """Yields the items of a queue after those that are done, a batch at a time.

    Args:
        items: all of the queue, in order.
        now_us: no date is later.
        skip: so many are done already.
    """
    date_us = limits.TIMESTAMP_US_MIN
    source = iter(items)
    for item in islice(source, skip):
        date_us = max(date_us, min(item.add_ms * 1000, now_us))
    load, size = Load(end=skip), 0
    for data, add_ms, expiry_ms, _ in source:
        if load.done >= ITEMS_MAX or (load.data and size + len(data) > BYTES_MAX):
            yield load
            load, size = Load(end=load.end), 0
        load.end += 1
        date_us = max(date_us, min(add_ms * 1000, now_us))
        if len(data) > limits.VALUE_BYTES_MAX:
            load.too_large += 1
            continue
        load.data.append(bytes(data))
        load.dates_us.append(date_us)
        load.expiries_us.append(_expiry_us(expiry_ms))
        size += len(data)
    if load.done:
        yield load


def command(
    load: Load, rows: Sequence[int], table: str, kind: Kind, now_us: int
) -> commands.Push | commands.Append:
    """Returns what adds some items of a load to a table; there is one at least."""
    data, count = [load.data[row] for row in rows], len(rows)
    types, keys = bytes((Type.BUFFER,)) * count, Strings.of([b""] * count)
    if kind is Kind.STREAM:
        return commands.Append(table=table, types=types, keys=keys, values=Strings.of(data))
    dates_us = array("Q", [load.dates_us[row] for row in rows])
    last_us = now_us + limits.PROCESS_AHEAD_US_MAX - limits.TIMESTAMP_AHEAD_US_MAX
    expiries_us = (load.expiries_us[row] for row in rows)
    return commands.Push(
        table=table,
        keys=keys,
        domains=keys,
        types=types,
        values=Strings.of(data),
        priorities=bytes((Priority.DEFAULT,)) * count,
        process_at_us=dates_us,
        # Later than a job can expire: it does not, rather than too early.
        expires_at_us=array("Q", [one if one <= last_us else 0 for one in expiries_us]),
        timestamps_us=dates_us,
    )


def _expiry_us(expiry_ms: int) -> int:
    """Returns an expiry as jobs have it: 0 = never, and what was before 1970 is over."""
    if expiry_ms <= 0:
        return 1 if expiry_ms else 0
    return min(expiry_ms * 1000, _NEVER_US)


# More than any date has, and less than what a column holds.
_NEVER_US: Final = 2**62


# -- importing the queues of a directory ----------------------------------------------------------


_KINDS: Final = (Kind.JOBS, Kind.STREAM)
_AGAIN: Final = "nothing is lost or twice: run the same command again to go on"

Show = Callable[[str, int, int], None]  # what is done, how far, of how much


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """What is imported, and where to."""

    directory: str
    url: str
    queues: Sequence[str] | None = None  # none: all of the directory
    tables: Sequence[str] | None = None  # those that are not named as their queues
    kind: str = Kind.JOBS  # or a stream
    anew: bool = False  # True: whatever was imported before
    moved: bool = False  # True: what was imported of the same files from elsewhere counts
    dry_run: bool = False  # True: nothing is sent
    skip_too_large: bool = False
    damaged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOutcome:
    """What becomes of one queue."""

    queue: str
    table: str
    kind: Kind
    items: int  # in the queue, open ones included
    bytes: int  # of their data
    damaged: list[str]  # a sentence for each file of which a part is missing
    damaged_bytes: int  # of these files, that cannot be read
    imported_before: int  # items that an earlier run has done
    tally: Tally  # of the others

    @property
    def is_done(self) -> bool:
        return self.imported_before == self.items


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """A queue that may be imported."""

    outcome: ImportOutcome  # as it will be
    crc: int  # of the files of the queue
    size: int  # of them
    writer: str = ""  # says how far it is; empty: the table is not there yet
    files_writer: str = ""  # says the same of these files, wherever they are; empty: nobody does
    places: Mapping[str, int] = field(default_factory=dict)  # where all writers are that go along

    @property
    def at(self) -> int:
        return self.places.get(self.writer, UNKNOWN)

    def done(self, places: Mapping[str, int]) -> int | None:
        """Returns how many items are done if the writers are at these places.

        None if the files are not those with which the import of this directory has begun.
        """
        at = places.get(self.writer, UNKNOWN)
        if at != UNKNOWN and not is_same(at, self.crc):
            return None
        return max(done_by(at), places.get(self.files_writer, 0))

    def number(self, writer: str, done: int) -> int:
        """Returns where a writer is once so many items are done."""
        return done if writer == self.files_writer else number_of(self.crc, done)


class Importer:
    """Imports the queues of one directory."""

    def __init__(
        self,
        options: ImportOptions,
        show: Show = lambda what, done, total: None,
        *,
        passes_unchanged: bool = False,
    ) -> None:
        """`passes_unchanged`: an import anew passes over what is imported from here as it is."""
        self._options = options
        self._passes_unchanged = passes_unchanged
        self._show = show
        self._clock = SystemClock()
        self._ahead_us = 0  # by how much the clock of the daemon may be ahead

    def plans(self) -> list[ImportPlan]:
        """Looks at all queues, and makes their tables unless it is a dry run.

        Raises:
            UsageError: if a queue needs another name for its table, or options exclude each other.
            NotFoundError: if there is no such queue.
            DirectoryError: if the directory cannot be read, or changes meanwhile.
            FjordError: if something is refused, or the daemon is away.
        """
        options = self._options
        if options.anew and options.moved:
            raise errors.UsageError("--anew or --moved: give one of them")
        if options.kind not in _KINDS:
            raise errors.UsageError(f"items become {' or '.join(_KINDS)}, not {options.kind!r}")
        queues = reader.wanted_queues(LocalDisk(), options.directory, options.queues or ())
        tables = tables_of(queues, options.tables or ())
        with self._daemon() as daemon:
            plans = [self._plan(queue, table, daemon) for queue, table in tables.items()]
            self._check_sizes([plan.outcome for plan in plans])
            return plans if options.dry_run else [self._settle(plan, daemon) for plan in plans]

    def send(self, plan: ImportPlan) -> ImportOutcome:
        """Sends what is in a queue and not imported yet.

        Raises:
            FjordError: if something is refused, or the daemon is away; nothing is lost then.
        """
        outcome = plan.outcome
        if self._options.dry_run or outcome.is_done or not plan.writer:
            return outcome
        tally = Tally()
        with self._opened(outcome.queue) as found, self._daemon() as daemon:
            if found.crc() != plan.crc:
                raise self.changed(outcome.queue)
            places = dict(plan.places)
            for load in loads(found.items(), self._clock.wall_us(), skip=outcome.imported_before):
                try:
                    imported = self._send(load, plan, places, daemon)
                except errors.UnavailableError as error:
                    raise errors.UnavailableError(f"{error}; {_AGAIN}") from error
                tally = tally.plus(load.tally(imported))
                self._show(f"importing {outcome.queue}", load.end, outcome.items)
        return replace(outcome, tally=tally)

    def _send(
        self, load: Load, plan: ImportPlan, places: dict[str, int], daemon: Connection
    ) -> int:
        """Sends a load and moves the writers to its end, in one commit; returns how many items.

        Args:
            load: what is sent.
            plan: of its queue.
            places: where the writers are; changed to where they are then.
            daemon: where to.
        """
        outcome = plan.outcome
        while True:
            now_us = self._clock.wall_us() + self._ahead_us
            rows = load.live(now_us)
            numbers = {one: max(at, plan.number(one, load.end)) for one, at in places.items()}
            made: list[commands.Command] = [
                commands.Advance(writer=one, expected=at, batch=numbers[one])
                for one, at in places.items()
                if at < numbers[one]
            ]
            if rows:
                made.append(command(load, rows, outcome.table, outcome.kind, now_us))
            reply = daemon.execute(commands.Batch(commands=made))
            if not isinstance(reply, commands.Refusal):
                places.update(numbers)
                return len(rows)
            if reply.code is errors.Code.BAD_TIMEOUT and not self._ahead_us:
                # By the clock of the daemon, something has expired meanwhile.
                self._ahead_us = limits.TIMESTAMP_AHEAD_US_MAX
            elif reply.code is not errors.Code.STALE_NUMBER:
                raise reply.error()
            places.update(_places(daemon, places))
            done = plan.done(places)
            if done == load.end:
                return len(rows)  # the answer was lost
            if done != load.end - load.done:
                raise errors.FjordError("somebody else imports this queue, too; try again later")

    # -- planning ---------------------------------------------------------------------------------

    def _plan(self, queue: str, table: str, daemon: Connection) -> ImportPlan:
        """Looks at a queue, and asks how far it is imported."""
        options = self._options
        with self._opened(queue) as found:
            damaged = [one for one in found.reports() if one.is_damaged]
            sentences = [one.sentence for one in damaged]
            if damaged and not options.damaged:
                text = "; ".join(sentences)
                raise errors.FjordError(f"{text}; --damaged imports what can be read")
            cut = (one for one in damaged if one.ending is reader.Ending.DAMAGED)
            outcome = ImportOutcome(
                queue=queue,
                table=table,
                kind=Kind[options.kind.upper()],
                items=found.count,
                bytes=found.bytes,
                damaged=sentences,
                damaged_bytes=sum(one.skipped_bytes for one in cut),
                imported_before=0,
                tally=Tally(),
            )
            plan = ImportPlan(outcome=outcome, crc=found.crc(), size=found.size)
            if _table_id(daemon, table) is not None:
                plan = self._asked(self._named(plan, daemon), daemon)
            before = self._before(plan)
            outcome = replace(outcome, imported_before=before, tally=self._tally(found, before))
            return replace(plan, outcome=outcome)

    def _settle(self, plan: ImportPlan, daemon: Connection) -> ImportPlan:
        """Makes the table of a queue that has items to import, if it is not there.

        Of one that is done, that is noted for this directory: its files alone may have said so.
        """
        outcome = plan.outcome
        if plan.done({plan.writer: plan.at}) != outcome.imported_before == outcome.items:
            number = number_of(plan.crc, outcome.items)
            reply = daemon.execute(
                commands.Advance(writer=plan.writer, expected=plan.at, batch=number)
            )
            if isinstance(reply, commands.Refusal) and reply.code is not errors.Code.STALE_NUMBER:
                raise reply.error()
        if outcome.is_done or plan.writer or not outcome.tally.imported:
            return plan
        return self._named(plan, daemon)

    def _named(self, plan: ImportPlan, daemon: Connection) -> ImportPlan:
        """Makes a table, or finds that it is as it should be; its writers have names then.

        Raises:
            RefusedError: if the table is of another kind, or has other settings.
        """
        queue, table = plan.outcome.queue, plan.outcome.table
        if plan.outcome.kind is Kind.JOBS:
            declaration = JobCalls(table, Stamps(self._clock)).declare({"merge": False})
        else:
            declaration = StreamCalls(table).declare({"mode": "log"})
        Runner(daemon).follow(declaration.steps())
        table_id = _table_id(daemon, table)
        if table_id is None:
            raise errors.FjordError(f"table {table} was dropped; run the same command again")
        plain = writer_of(self._options.directory, queue, table, table_id)
        if self._options.anew:
            anew = writer_of(self._options.directory, queue, table, table_id, plan.crc)
            return replace(plan, writer=anew, places={anew: UNKNOWN, plain: UNKNOWN})
        files = files_writer_of(queue, table, table_id, crc=plan.crc, size=plan.size)
        places = {plain: UNKNOWN, files: UNKNOWN}
        return replace(plan, writer=plain, files_writer=files, places=places)

    def _asked(self, plan: ImportPlan, daemon: Connection) -> ImportPlan:
        """Asks where the writers are."""
        places = _places(daemon, plan.places)
        if self._options.anew:
            # The writer of imports without --anew moves along.
            ((writer, at), (plain, plain_at)) = places.items()
            if plain_at != UNKNOWN and not is_same(plain_at, plan.crc):
                # It is of other files: imports without --anew are refused.
                places = {writer: at}
            elif plain_at != UNKNOWN and self._passes_unchanged:
                return replace(plan, writer=plain, places={plain: plain_at})
        return replace(plan, places=places)

    def _before(self, plan: ImportPlan) -> int:
        """Returns how many items of a queue are done, going by where its writers are."""
        done, outcome = plan.done(plan.places), plan.outcome
        if done is None:
            text = f"the files of {outcome.queue} have changed since {done_by(plan.at)} items of it"
            raise errors.FjordError(f"{text} were imported; --anew imports all that is in it now")
        if done and plan.at == UNKNOWN and not self._options.moved:
            raise errors.FjordError(
                f"{done} of the {outcome.items} items in these files of {outcome.queue} were "
                f"imported into {outcome.table} before, from another directory; --moved counts "
                "them as done, --anew imports all of them"
            )
        return done

    def _check_sizes(self, outcomes: Sequence[ImportOutcome]) -> None:
        """Makes sure that nothing is too large, unless that is to be left out."""
        found = [(one.queue, one.tally.too_large) for one in outcomes if one.tally.too_large]
        if found and not self._options.skip_too_large:
            counts = [f"{queue} has {n} {'item' if n == 1 else 'items'}" for queue, n in found]
            text = f"of more than {limits.VALUE_BYTES_MAX} bytes; --skip-too-large leaves them out"
            raise errors.FjordError(f"{', '.join(counts)} {text}")

    def _tally(self, found: Contents, before: int) -> Tally:
        """Counts what is to become of items that are not done yet."""
        counted, now_us = Tally(), self._clock.wall_us()
        for load in loads(found.items(), now_us, skip=before) if before < found.count else ():
            counted = counted.plus(load.tally(len(load.live(now_us))))
            self._show(f"looking at {found.queue}", load.end, found.count)
        return counted

    # -- inside -----------------------------------------------------------------------------------

    def _daemon(self) -> contextlib.closing[Connection]:
        url = self._options.url
        return contextlib.closing(Connection(url, timeout=limits.REPLY_SECONDS_MAX))

    def changed(self, queue: str) -> errors.DirectoryError:
        return errors.DirectoryError(
            f"the files of {queue} in {self._options.directory} changed while they were read; "
            "stop the writer"
        )

    @contextlib.contextmanager
    def _opened(self, queue: str) -> Iterator[Contents]:
        survey = reader.survey(LocalDisk(), self._options.directory, queue)
        done = 0

        def on_bytes(size: int) -> None:
            nonlocal done
            done += size
            self._show(f"reading {queue}", done, survey.size)

        options = reader.ReadOptions(now_ms=self._clock.wall_us() // 1000)
        with contextlib.closing(Contents(survey, options, on_bytes=on_bytes)) as found:
            yield found


def _table_id(daemon: Connection, table: str) -> int | None:
    """Returns the id of a table, None if it is not there."""
    try:
        return Runner(daemon).run(table_call(table)).id
    except errors.NotFoundError:
        return None


def _places(daemon: Connection, writers: Iterable[str]) -> dict[str, int]:
    """Asks where writers are; UNKNOWN if one is nowhere."""
    return {
        one: Runner(daemon).run(
            Call(
                commands.AskWriter(table="", writer=one),
                lambda reply: expect(reply, commands.Committed).batch,
            )
        )
        for one in writers
    }
