"""Opening a data directory for writing: recovery.

    lock -> clean mark (taken away) -> tail of the journal -> a new segment, or the old one
         -> is the index ours? else drop it -> replay what it lacks -> takeover -> serve

After a clean stop the journal goes on where it was.  After any other stop the frames above the
last seq that is known to be durable are written once more, to a new segment, and synced: a page
cache that lost its disk for a moment may show bytes that no disk holds.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from fjord import disk as disks
from fjord import limits, tables
from fjord.clock import Clock, SystemClock
from fjord.disk import Disk, LocalDisk
from fjord.engine import layout as layouts
from fjord.engine.engine import Engine, Parts
from fjord.engine.group import read_applied, write_applied
from fjord.engine.layout import Clean, Layout, Owner
from fjord.errors import (
    Code,
    CorruptionError,
    DirectoryError,
    DiskFullError,
    DurabilityError,
)
from fjord.index import Index, IndexDamagedError, Indexes, IndexFullError, Transaction
from fjord.index.lmdb import LmdbIndexes
from fjord.journal import frame as frames
from fjord.journal import names
from fjord.journal.frame import SegmentHeader
from fjord.journal.reader import Journal, Located
from fjord.journal.writer import Writer
from fjord.tables.state import Tree

# Told how many of how many seqs a rebuild has applied.
Progress = Callable[[int, int], None]
TREE_COUNT = len(Tree)


def _silent(done: int, total: int) -> None:
    """Nobody watches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a directory is opened; the defaults are right for all but tests."""

    segment_bytes: int = limits.SEGMENT_BYTES
    index_step_bytes: int = limits.INDEX_STEP_BYTES
    rebuild_rows: int = limits.REBUILD_ROWS
    progress: Progress = _silent
    disk: Disk = field(default_factory=LocalDisk)
    clock: Clock = field(default_factory=SystemClock)
    indexes: Indexes | None = None  # LMDB in the directory, unless given


def open_engine(path: str, settings: Settings | None = None) -> Engine:
    """Opens or makes a data directory, and makes its index agree with its journal.

    Raises:
        DirectoryError: if it cannot be opened, as when another process writes to it.
        DiskFullError: if there is no space to begin with.
        CorruptionError: if the journal is damaged.
        DurabilityError: if the disk fails meanwhile.
    """
    settings = settings or Settings()
    layout = Layout(path)
    try:
        with contextlib.ExitStack() as undo:
            engine = Engine(_recover(settings, layout, undo))
            undo.pop_all()
            return engine
    except OSError as error:
        if disks.is_full(error):
            text = f"there is too little space for {layout.root} to begin with"
            raise DiskFullError(Code.DISK_FULL, text) from error
        raise DirectoryError(f"{layout.root} cannot be opened: {error}") from error


def _recover(settings: Settings, layout: Layout, undo: contextlib.ExitStack) -> Parts:
    """Opens all parts; what is to be closed should a later step fail goes to `undo`."""
    disk = settings.disk
    _make_directories(disk, layout)
    lock = disk.lock(layout.lock)
    undo.callback(lock.release)
    clean = layouts.take_clean(disk, layout)
    _remove_unfinished(disk, layout)
    journal = Journal(disk, layout.journal)
    undo.callback(journal.close)
    known_seq = max(clean.seq if clean else 0, layouts.read_published(disk, layout)[0])
    tail = read_tail(journal, known_seq)
    writer = _open_writer(settings, layout, journal, tail, clean)
    undo.callback(writer.abandon)
    index = _open_index(settings, layout, clean, tail.last_seq)
    undo.callback(index.close)
    catch_up(journal, index, tail.last_seq, settings.rebuild_rows, settings.progress)
    return Parts(
        disk=disk,
        clock=settings.clock,
        layout=layout,
        lock=lock,
        journal=journal,
        writer=writer,
        indexes=indexes_of(settings, layout),
        index=index,
        last_lease_us=tail.lease_us,
    )


def _make_directories(disk: Disk, layout: Layout) -> None:
    """Ensures that the directories are there, and that a power cut leaves them there.

    Any level above may have been made just now, by this start or by one that crashed, so until
    there is a journal all of them are synced; one that may not be read was not made by us.
    """
    for directory in (layout.root, layout.journal, layout.index):
        disk.make_directory(directory)
    if any(names.segment_number(name) for name in disk.names(layout.journal)):
        return
    directory = layout.root
    with contextlib.suppress(PermissionError):
        while True:
            disk.sync_directory(directory)
            if directory == os.path.dirname(directory):
                break
            directory = os.path.dirname(directory)


# -- the journal --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """How the journal ends."""

    last_seq: int
    durable_seq: int  # known to be durable, from whatever source
    lease_us: int
    end: int  # offset after the last whole frame of the last segment
    uncertain: list[Located]  # frames above durable_seq


def read_tail(journal: Journal, known_seq: int) -> Tail:
    """Reads the last segment to its end.

    Raises:
        CorruptionError: if a frame that was durable cannot be read.
    """
    if not journal.segments:
        if known_seq:
            raise CorruptionError(journal.path(1), 0, f"seqs up to {known_seq} were durable here")
        return Tail(last_seq=0, durable_seq=0, lease_us=0, end=0, uncertain=[])
    first, last = journal.segments[0], journal.segments[-1]
    if first.first_seq != 1:
        path = journal.path(first.segment)
        raise CorruptionError(path, 24, "the segments before it are missing")
    durable_seq = max(known_seq, last.first_seq - 1)
    end, last_seq, lease_us = frames.SEGMENT_HEADER_BYTES, last.first_seq - 1, last.lease_us
    uncertain: deque[Located] = deque()
    for located in journal.frames(last.first_seq, durable_seq=known_seq):
        frame = located.frame
        end, last_seq, lease_us = located.end, frame.last_seq, frame.lease_us
        durable_seq = max(durable_seq, frame.durable_seq)
        uncertain.append(located)
        while uncertain and uncertain[0].frame.last_seq <= durable_seq:
            uncertain.popleft()
    if journal.synced_claim(last, end) > last_seq:
        raise CorruptionError(
            journal.path(last.segment), end, f"the frame of seq {last_seq + 1} was durable"
        )
    return Tail(
        last_seq=last_seq,
        durable_seq=durable_seq,
        lease_us=lease_us,
        end=end,
        uncertain=list(uncertain),
    )


def _open_writer(
    settings: Settings, layout: Layout, journal: Journal, tail: Tail, clean: Clean | None
) -> Writer:
    disk, last = settings.disk, journal.segments[-1] if journal.segments else None
    if last is not None and clean is not None and clean.seq == tail.last_seq:
        writer = Writer(disk, layout.journal, last, segment_bytes=settings.segment_bytes)
        writer.resume(position=tail.end, next_seq=tail.last_seq + 1)
        return writer
    header = SegmentHeader(
        segment=last.segment + 1 if last else 1,
        first_seq=tail.uncertain[0].frame.first_seq if tail.uncertain else tail.last_seq + 1,
        shard=last.shard if last else disk.new_uuid(),
        created_us=settings.clock.wall_us(),
        lease_us=tail.lease_us,
    )
    if last is not None:
        # An index that survived points into the old segment: its frames must be durable too.
        _sync(disk, journal.path(last.segment))
    writer = Writer(disk, layout.journal, header, segment_bytes=settings.segment_bytes)
    body = b"".join(one.frame.encode(header.salt) + one.body for one in tail.uncertain)
    writer.create(body, last_seq=tail.last_seq)
    journal.add(header)
    if last is not None:
        # What follows the last whole frame is torn, or was allocated ahead.
        with contextlib.closing(disk.open(journal.path(last.segment), writable=True)) as file:
            file.truncate(tail.end)
    return writer


def _sync(disk: Disk, path: str) -> None:
    with contextlib.closing(disk.open(path, writable=True)) as file:
        try:
            file.sync()
        except OSError as error:
            raise DurabilityError(f"{path} cannot be synced: {error.strerror}") from error


def _remove_unfinished(disk: Disk, layout: Layout) -> None:
    for name in disk.names(layout.journal):
        if name.endswith(names.UNFINISHED):
            disk.remove(os.path.join(layout.journal, name))


# -- the index ----------------------------------------------------------------------------------


def indexes_of(settings: Settings, layout: Layout) -> Indexes:
    if settings.indexes is not None:
        return settings.indexes
    return LmdbIndexes(layout.index, TREE_COUNT, step_bytes=settings.index_step_bytes)


def _open_index(settings: Settings, layout: Layout, clean: Clean | None, last_seq: int) -> Index:
    """Opens the index, empty if the one that is there cannot be trusted."""
    disk, indexes = settings.disk, indexes_of(settings, layout)
    if not is_index_trusted(disk, layout, indexes, clean):
        return _fresh_index(disk, layout, indexes)
    _own_index(disk, layout, indexes)
    try:
        index = indexes.open()
    except IndexDamagedError:
        return _fresh_index(disk, layout, indexes)
    if applied_seq(index) <= last_seq:
        return index
    index.close()
    return _fresh_index(disk, layout, indexes)


def is_index_trusted(disk: Disk, layout: Layout, indexes: Indexes, clean: Clean | None) -> bool:
    """Says whether the stored index is what the last writer left, and nothing less."""
    identity = indexes.identity()
    if identity is None:
        return False
    if clean is not None and clean.index == identity:
        return True
    if layouts.read_published(disk, layout)[1]:
        return False
    return layouts.read_mark(disk, layout.owner, Owner) == Owner(
        boot=disk.boot_id(), index=identity
    )


def _fresh_index(disk: Disk, layout: Layout, indexes: Indexes) -> Index:
    indexes.drop()
    indexes.create()
    _own_index(disk, layout, indexes)
    return indexes.open()


def _own_index(disk: Disk, layout: Layout, indexes: Indexes) -> None:
    """Ensures that the owner file is durable before the index is opened for writing."""
    identity = indexes.identity()
    assert identity is not None
    owner = Owner(boot=disk.boot_id(), index=identity)
    if layouts.read_mark(disk, layout.owner, Owner) != owner:
        layouts.write_mark(disk, layout.owner, owner)


def applied_seq(index: Index) -> int:
    transaction = index.view()
    try:
        return read_applied(transaction)
    finally:
        transaction.abort()


def catch_up(
    journal: Journal, index: Index, last_seq: int, rebuild_rows: int, progress: Progress
) -> None:
    """Applies every op that the index lacks, gathered, sorted, in large transactions."""
    applied = start = applied_seq(index)
    if applied >= last_seq:
        return
    replay = _Replay()
    for located in journal.frames(applied + 1, durable_seq=last_seq):
        try:
            for op, place in located.ops():
                tables.APPLY[op.opcode](replay, op, place)
        except ValueError as error:
            path = journal.path(located.segment)
            raise CorruptionError(path, located.offset, str(error)) from error
        applied = located.frame.last_seq
        if replay.rows >= rebuild_rows:
            _flush(index, replay, applied)
            progress(applied - start, last_seq - start)
            replay = _Replay()
    _flush(index, replay, applied)
    progress(last_seq - start, last_seq - start)


class _Replay:
    """Writes gathered in memory: since apply never reads, only the last one of a key counts."""

    def __init__(self) -> None:
        self._trees: list[dict[bytes, bytes | None]] = [{} for _ in range(TREE_COUNT)]

    @property
    def rows(self) -> int:
        return sum(map(len, self._trees))

    def put_many(self, tree: int, items: Sequence[tuple[bytes, bytes]]) -> None:
        self._trees[tree].update(items)

    def delete_many(self, tree: int, keys: Iterable[bytes]) -> None:
        self._trees[tree].update(dict.fromkeys(keys))

    def write(self, transaction: Transaction) -> None:
        for tree, items in enumerate(self._trees):
            gone = sorted(key for key, value in items.items() if value is None)
            kept = sorted((key, value) for key, value in items.items() if value is not None)
            transaction.delete_many(tree, gone)
            transaction.put_many(tree, kept)


def _flush(index: Index, replay: _Replay, applied: int) -> None:
    while True:
        transaction = index.begin()
        try:
            replay.write(transaction)
            write_applied(transaction, applied)
            transaction.commit()
            return
        except IndexFullError:
            transaction.abort()
            index.grow()
        except BaseException:
            transaction.abort()
            raise
