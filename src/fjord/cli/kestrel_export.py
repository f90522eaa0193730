"""What `fjord kestrel export` does: what is in a table of a daemon becomes a queue of Kestrel's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from fjord import kinds, limits, ops
from fjord.cli import jobs, output
from fjord.client.database import Database
from fjord.client.socket import Connection
from fjord.client.stream_batch import MessageBatch, MessageColumns
from fjord.clock import SystemClock
from fjord.columns import repeat
from fjord.commands import JobPage
from fjord.disk import LocalDisk
from fjord.errors import Code, FjordError, NotFoundError, UsageError
from fjord.jobs import State
from fjord.kestrel import exporting

# Messages of one read, which has 8 MiB at most.
_MESSAGES: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is exported, and where to."""

    table: str
    url: str
    directory: str
    queue: str  # empty: named as the table
    after: int | None  # of a stream: messages behind this seq; None: all
    subscriber: str  # of a stream: messages behind its mark; empty: all
    appends: bool  # True: behind what the queue has


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one table."""

    table: str
    queue: str
    items: int
    expired: int  # left out
    bytes: int  # of the ops that were written


Show = Callable[[int, int | None], None]  # items that are done, of how many


def run(options: Options, show: Show) -> Outcome:
    """Exports a table.

    Raises:
        NotFoundError: if there is no such table, or subscriber.
        UsageError: if it is a table that has nothing to export, or the queue cannot have its name.
        DirectoryError: if the directory cannot be written to.
        FjordError: if the queue has items, or the table changed meanwhile.
    """
    clock, queue = SystemClock(), options.queue or options.table
    connection = Connection(options.url, timeout=limits.REPLY_SECONDS_MAX)
    with Database(connection, name=connection.name, is_remote=True) as db:
        kind = db.table(options.table).kind
        source: _Jobs | _Messages
        if kind == kinds.Kind.JOBS:
            if options.after is not None or options.subscriber:
                raise UsageError("--after and --subscriber are for streams; this is a jobs table")
            source = _Jobs(options.table, db, clock.wall_us(), show)
        elif kind == kinds.Kind.STREAM:
            source = _Messages(options.table, db, _start(options, db), show)
        else:
            raise UsageError(f"{options.table} is a {kind} table; a queue has jobs or messages")
        size = exporting.write(
            LocalDisk(),
            options.directory,
            queue,
            source.chunks(),
            appends=options.appends,
            now_ms=lambda: clock.wall_us() // 1000,
        )
    return Outcome(
        table=options.table,
        queue=queue,
        items=source.items,
        expired=source.expired,
        bytes=size,
    )


def _start(options: Options, db: Database) -> int:
    """Returns the seq behind which messages are exported."""
    if not options.subscriber:
        return options.after or 0
    if options.after is not None:
        raise UsageError("--after and --subscriber each say where to begin; give one")
    for one in db.stream(options.table).subscribers():
        if one.name == options.subscriber:
            return one.position
    text = f"stream {options.table} has no subscriber {options.subscriber}"
    raise NotFoundError(Code.NOT_FOUND, text)


class _Jobs:
    """The jobs of a table: taken ones, then those that are due, then those that are not yet."""

    def __init__(self, table: str, db: Database, now_us: int, show: Show) -> None:
        self._table = table
        self._db = db
        self._now_us = now_us
        self._show = show
        self.items = self.expired = 0

    def chunks(self) -> Iterator[bytes]:
        begun = jobs.moment(self._db)
        counts = self._db.jobs(self._table).count()
        total = counts.waiting + counts.taken
        has_later = False
        for page in self._pages(State.TAKEN):
            yield self._chunk(page, range(len(page.types)), total)
        for page in self._pages(State.WAITING):
            due = [at for at, date_us in enumerate(page.process_at_us) if date_us <= self._now_us]
            has_later = has_later or len(due) < len(page.types)
            yield self._chunk(page, due, total)
        if has_later:
            for page in self._pages(State.WAITING):
                dates_us = enumerate(page.process_at_us)
                later = [at for at, date_us in dates_us if date_us > self._now_us]
                yield self._chunk(page, later, total)
        if jobs.has_changed(self._db, self._table, begun):
            raise FjordError(
                f"table {self._table} changed while it was read, so nothing was exported; stop "
                "who pushes and takes its jobs, and export it again"
            )

    def _pages(self, state: State) -> Iterator[JobPage]:
        return jobs.pages(self._db, self._table, state)

    def _chunk(self, page: JobPage, rows: range | list[int], total: int) -> bytes:
        expiries_us = page.expires_at_us
        live = [at for at in rows if not 0 < expiries_us[at] <= self._now_us]
        self.expired += len(rows) - len(live)
        self.items += len(live)
        self._show(self.items, total)
        data = page.values.rows()
        return exporting.encoded(
            bytes([page.types[at] for at in live]),
            [data[at] for at in live],
            [page.inserted_us[at] for at in live],
            [expiries_us[at] for at in live],
        )


class _Messages:
    """The messages of a stream that there were when the first of them was read."""

    def __init__(self, table: str, db: Database, after: int, show: Show) -> None:
        self._stream = db.stream(table)
        self._after = after
        self._show = show
        self.items = self.expired = 0

    def chunks(self) -> Iterator[bytes]:
        place: int | MessageBatch = self._after
        while True:
            batch = self._stream.read(_MESSAGES, after=place)
            for part in batch.columns:
                yield self._chunk(part)
            self._show(self.items, None)
            if batch.end_of_snapshot:
                return
            place = batch

    def _chunk(self, part: MessageColumns) -> bytes:
        types, data, dates_us = part.types, part.values.rows(), part.at_us
        if ops.TOMBSTONE in types:
            rows = [at for at, type_ in enumerate(types) if type_ != ops.TOMBSTONE]
            types = bytes([types[at] for at in rows])
            data = [data[at] for at in rows]
            dates_us = [dates_us[at] for at in rows]
        self.items += len(types)
        return exporting.encoded(types, data, dates_us, repeat(0, len(types)))


# -- words ----------------------------------------------------------------------------------------


def line(one: Outcome) -> str:
    expired = f" ({one.expired} expired)" if one.expired else ""
    items = output.counted(one.items, "item")
    return f"{one.table}: {items} exported to queue {one.queue}, {one.bytes} bytes{expired}"


def as_json(one: Outcome) -> dict[str, object]:
    return {
        "table": one.table,
        "queue": one.queue,
        "items": one.items,
        "expired": one.expired,
        "bytes": one.bytes,
    }
