"""Exporting: values of a table become items of a queue, all of them or none.

    write `cars~~0`, sync it  ->  rename it to `cars`  ->  sync the directory

If the queue is there, its current file gets a number first, so that the new one stands behind what
it has.  A crash between any two of these leaves the queue as it was; a file that was not finished
counts for nothing, and is written over by the next export or removed by who opens the queue.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from fjord import disk as disks
from fjord import errors, kinds, limits, ops, values
from fjord.client.blocking.database import Database
from fjord.client.connection import Connection
from fjord.client.messages import MessageBatch, MessageColumns
from fjord.clock import Clock, SystemClock
from fjord.columns import repeat
from fjord.commands import JobPage
from fjord.disk import LocalDisk
from fjord.jobs import State
from fjord.kestrel import codec, collection, inspect, names, reader
from fjord.kestrel.journal import Journal, made, write_file
from fjord.kestrel.reader import Sum
from fjord.values import Type

# Messages of one read, which has 8 MiB at most.
_MESSAGES: Final = 10_000
# Of a file that is being written; other temporary files of a queue have larger ones.
_NUMBER: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What is exported, and where to."""

    table: str
    url: str
    directory: str
    queue: str = ""  # empty: named as the table
    after: int | None = None  # of a stream: messages after this seq; None: all
    append: bool = False  # True: after what the queue has


class ExportOutcome(NamedTuple):
    """What became of one table."""

    table: str
    queue: str
    items: int
    expired: int  # left out
    bytes: int  # of the ops that were written


Show = Callable[[int, int | None], None]  # items that are done, of how many


def export(options: ExportOptions, show: Show) -> ExportOutcome:
    """Exports a table.

    Raises:
        NotFoundError: if there is no such table.
        UsageError: if it is a table that has nothing to export, or the queue cannot have its name.
        DirectoryError: if the directory cannot be written to.
        FjordError: if the queue has items, or the table changed meanwhile.
    """
    clock, queue = SystemClock(), options.queue or options.table
    connection = Connection(options.url, timeout=limits.REPLY_SECONDS_MAX)
    with Database(connection, name=connection.name, is_remote=True) as db:
        kind = db.table(options.table).kind
        source = _Source(options.table, db, clock.wall_us(), show)
        if kind == kinds.Kind.JOBS:
            if options.after is not None:
                raise errors.UsageError("--after is for streams")
            chunks = source.jobs()
        elif kind == kinds.Kind.STREAM:
            chunks = source.messages(options.after or 0)
        else:
            raise errors.UsageError(f"{options.table} is a {kind} table, which has no items")
        disk, folder = LocalDisk(), options.directory
        size = write(disk, folder, queue, chunks, clock, appends=options.append)
    return ExportOutcome(options.table, queue, source.items, source.expired, size)


class _Source:
    """The values of a table, as ops that add them to a queue; counts them meanwhile."""

    def __init__(self, table: str, db: Database, now_us: int, show: Show) -> None:
        self._table = table
        self._db = db
        self._now_us = now_us
        self._show = show
        self.items = self.expired = 0

    def jobs(self) -> Iterator[bytes]:
        """Yields jobs that are taken, then those that are due, then those that are not yet."""
        begun = self._db.stats()["applied_seq"]
        counts = self._db.jobs(self._table).count()
        total = counts.waiting + counts.taken
        for page in self._pages(State.TAKEN):
            yield self._jobs_chunk(page, range(len(page.types)), total)
        has_later = False
        for page in self._pages(State.WAITING):
            due = [at for at, date_us in enumerate(page.process_at_us) if date_us <= self._now_us]
            has_later = has_later or len(due) < len(page.types)
            yield self._jobs_chunk(page, due, total)
        for page in self._pages(State.WAITING) if has_later else ():
            dates_us = enumerate(page.process_at_us)
            later = [at for at, date_us in dates_us if date_us > self._now_us]
            yield self._jobs_chunk(page, later, total)
        # A jobs table cannot be read as of one moment, but its history has what was done since.
        if any(len(piece.first_seqs) for piece in self._db.scan(self._table, begun + 1)):
            raise errors.FjordError(
                f"table {self._table} changed while it was read, so nothing was exported; stop "
                "who pushes and takes its jobs, and export it again"
            )

    def messages(self, after: int) -> Iterator[bytes]:
        """Yields the messages that there were when the first of them was read."""
        place: int | MessageBatch = after
        while True:
            batch = self._db.stream(self._table).read(_MESSAGES, after=place)
            for part in batch.columns:
                yield self._messages_chunk(part)
            self._show(self.items, None)
            if batch.end_of_snapshot:
                return
            place = batch

    def _pages(self, state: State) -> Iterator[JobPage]:
        return self._db.jobs(self._table).pages(state)

    def _jobs_chunk(self, page: JobPage, rows: range | list[int], total: int) -> bytes:
        expiries_us = page.expires_at_us
        live = [at for at in rows if not 0 < expiries_us[at] <= self._now_us]
        self.expired += len(rows) - len(live)
        self.items += len(live)
        self._show(self.items, total)
        data = page.values.rows()
        return encoded(
            bytes([page.types[at] for at in live]),
            [data[at] for at in live],
            [page.inserted_us[at] for at in live],
            [expiries_us[at] for at in live],
        )

    def _messages_chunk(self, part: MessageColumns) -> bytes:
        types, data, dates_us = part.types, part.values.rows(), part.at_us
        if ops.TOMBSTONE in types:
            rows = [at for at, type_ in enumerate(types) if type_ != ops.TOMBSTONE]
            types = bytes([types[at] for at in rows])
            data = [data[at] for at in rows]
            dates_us = [dates_us[at] for at in rows]
        self.items += len(types)
        return encoded(types, data, dates_us, repeat(0, len(types)))


# -- writing a queue ------------------------------------------------------------------------------


def encoded(
    types: bytes, data: Sequence[bytes], added_us: Sequence[int], expiries_us: Sequence[int]
) -> bytes:
    """Returns the ops that add values to a queue; an expiry of 0 means never.

    Bytes and text are items as they are, other values as they are written; None is empty.
    """
    return b"".join(
        # The expiry is rounded up: 0 would be never.
        codec.encode_addx(item_data(type_, one), added // 1000, -(-expiry // 1000))
        for type_, one, added, expiry in zip(types, data, added_us, expiries_us, strict=True)
    )


def item_data(type_: int, data: bytes) -> bytes:
    if type_ in (Type.BUFFER, Type.STRING):
        return data
    value = values.decode(type_, data)
    return b"" if value is None else str(value).encode()


def write(
    disk: disks.Disk,
    folder: str,
    queue: str,
    chunks: Iterable[bytes],
    clock: Clock,
    *,
    appends: bool,
) -> int:
    """Makes a queue of ops that add items, durably; returns how many bytes they have.

    Args:
        disk: where it is.
        folder: the directory; it is made if it is not there.
        queue: its name.
        chunks: whole ops, some at a time.
        clock: tells the time, from which a file that is there has its number.
        appends: True: items that are there stay before the new ones; False: there may be none.

    Raises:
        UsageError: if no queue can have this name.
        DirectoryInUseError: if a Fjord serves the directory.
        DirectoryError: if it cannot be read or written, or there is no space.
        CorruptionError: if the queue is damaged; `fjord kestrel pack` keeps that apart.
        FjordError: if it has items.
        DurabilityError: if the disk failed.
    """
    problem = names.queue_problem(queue)
    if problem is not None:
        raise errors.UsageError(problem)
    try:
        if not disk.exists(folder):
            disk.make_directory(folder)
            disk.sync_directory(os.path.dirname(os.path.abspath(folder)))
        with collection.locked(disk, folder):
            _check(disk, folder, queue, appends=appends)
            return _write(disk, folder, queue, chunks, clock)
    except OSError as error:
        raise errors.DirectoryError(
            f"{queue} was not exported: {error.strerror}; {folder} is as it was"
        ) from error


def _check(disk: disks.Disk, folder: str, queue: str, *, appends: bool) -> None:
    """Makes sure that a queue is not there, or is whole and may get items."""
    with contextlib.closing(inspect.Contents(reader.survey(disk, folder, queue))) as found:
        found.check()
        if found.count and not appends:
            raise errors.FjordError(
                f"{folder} has a queue {queue} with {found.count} items; --append adds to it, "
                "--queue names another one"
            )


def _write(disk: disks.Disk, folder: str, queue: str, chunks: Iterable[bytes], clock: Clock) -> int:
    journal = None
    if queue in reader.queues(disk, folder):
        journal = Journal(disk, folder, queue, clock)
        deque(journal.replay(now_ms=0), maxlen=0)  # so it ends where its last whole op ends
        journal.begin()
    path = os.path.join(folder, names.temporary(queue, _NUMBER))
    current = os.path.join(folder, queue)
    try:
        with made(disk, path):
            size, crc = write_file(disk, path, chunks, like=current)
            if journal is not None and journal.current.size:
                journal.rotate()
            # The sum of the current file is there before the file has its name.
            new = Sum(size, crc, disk.identity(path) or "-")
            known = {**reader.read_sums(disk, folder, queue), reader.CURRENT: new}
            reader.put_sums(
                disk, folder, queue, {number: one for number, one in known.items() if one.size}
            )
            disk.rename(path, current)
    finally:
        if journal is not None:
            journal.close()
    try:
        disk.sync_directory(folder)
    except OSError as error:
        text = f"{queue} was exported, but may be gone after a power cut: {error.strerror}"
        raise errors.DurabilityError(text) from error
    return size
