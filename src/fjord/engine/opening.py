"""Opening a data directory for writing: recovery.

    lock -> tail of the journal -> clean mark (removed) -> a new segment, or the old one
         -> is the index ours? else drop it -> replay what it lacks -> takeover -> serve

After a clean stop the journal continues where it was.  After any other stop the frames above the
last seq that is known to be durable are written once more, to a new segment, and synced: a page
cache that lost its disk for a moment may show bytes that no disk holds.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from fjord import disk as disks
from fjord import errors, limits
from fjord.clock import Clock, SystemClock
from fjord.disk import Disk, LocalDisk
from fjord.engine import layout as layouts
from fjord.engine.engine import Engine
from fjord.engine.group import read_applied, read_tables
from fjord.engine.layout import Clean, Layout, Owner, Recovered
from fjord.engine.memory import TREE_COUNT
from fjord.engine.replay import Progress, Replay
from fjord.index import Index, IndexDamagedError, Indexes, viewed
from fjord.index.lmdb import LmdbIndexes
from fjord.index.memory import MemoryIndex
from fjord.journal import frame as frames
from fjord.journal.frame import SegmentHeader
from fjord.journal.reader import Journal, Located
from fjord.journal.writer import Writer
from fjord.tables import catalog
from fjord.tables.state import Tree
from fjord.tables.upkeep import Begin

# The space that a start needs beside the first segment and the index: locks, marks, directories.
_BESIDES_BYTES: Final = 1 * limits.MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How a directory is opened; the defaults are for production."""

    segment_bytes: int = limits.SEGMENT_BYTES
    index_step_bytes: int = limits.INDEX_STEP_BYTES
    rebuild_rows: int = limits.REBUILD_ROWS
    progress: Progress = field(default=lambda done, total: None)
    disk: Disk = field(default_factory=LocalDisk)
    clock: Clock = field(default_factory=SystemClock)
    indexes: Indexes | None = None  # LMDB in the directory, unless given


def open_engine(path: str, settings: EngineSettings | None = None) -> Engine:
    """Opens or creates a data directory, and brings its index up to date with its journal.

    Raises:
        DirectoryError: if it cannot be opened, for example because another process writes to it.
        DiskFullError: if there is not enough space to start.
        CorruptionError: if the journal is damaged.
        DurabilityError: if the disk fails meanwhile.
    """
    settings = settings or EngineSettings()
    layout = Layout(path)
    try:
        engine = _open(settings, layout)
    except errors.DiskFullError:
        if not settings.disk.exists(layout.ballast):
            raise
        settings.disk.remove(layout.ballast)
        engine = _open(settings, layout)
    _take_ballast(settings, layout)
    return engine


def _open(settings: EngineSettings, layout: Layout) -> Engine:
    try:
        with contextlib.ExitStack() as undo:
            parts = _recover(settings, layout, undo)
            engine = Engine(parts)
            _record_begin(engine, parts)
            undo.pop_all()
            return engine
    except OSError as error:
        if disks.is_full(error):
            text = f"there is not enough space to start in {layout.root}"
            if not layouts.has_journal(settings.disk, layout):
                needed = settings.segment_bytes + settings.index_step_bytes + _BESIDES_BYTES
                text += f"; {needed} bytes are needed"
            raise errors.DiskFullError(errors.Code.DISK_FULL, text) from error
        raise errors.DirectoryError(f"{layout.root} cannot be opened: {error}") from error


def _take_ballast(settings: EngineSettings, layout: Layout) -> None:
    """Allocates space that a later start frees if it finds the disk full."""
    disk = settings.disk
    if disk.exists(layout.ballast):
        return
    try:
        with contextlib.closing(disk.open(layout.ballast, writable=True, create=True)) as file:
            file.allocate(min(limits.BALLAST_BYTES, settings.segment_bytes))
    except OSError as error:
        if not disks.is_full(error):
            raise errors.DirectoryError(f"{layout.ballast} cannot be created: {error}") from error
        if disk.exists(layout.ballast):
            disk.remove(layout.ballast)


def _recover(settings: EngineSettings, layout: Layout, undo: contextlib.ExitStack) -> Recovered:
    """Opens all parts; `undo` closes them if a later step fails."""
    disk = settings.disk
    if layouts.is_foreign(disk, layout):
        raise errors.DirectoryError(
            f"{layout.root} contains files that are not Fjord's; choose an empty or a new directory"
        )
    unmake = _Undo(disk, layout)
    undo.push(unmake.directories)
    _make_directories(disk, layout)
    lock = disk.lock(layout.lock)
    undo.callback(lock.release)
    undo.push(unmake.files)
    _remove_unfinished(disk, layout)
    journal = Journal(disk, layout.journal)
    undo.callback(journal.close)
    tail = read_tail(journal, layouts.known_seq(disk, layout))
    # Not before: if the journal lacks what the mark promises, the next start must know it too.
    clean = layouts.take_clean(disk, layout)
    writer = _open_writer(settings, layout, journal, tail, clean)
    undo.callback(writer.abandon)
    index = _open_index(settings, layout, clean, tail.last_seq)
    undo.callback(index.close)
    replay = Replay(journal, index, settings.rebuild_rows, settings.progress)
    replay.run(tail.last_seq, moved_from=tail.uncertain_seq)
    _check_begin(journal, index)
    _remove_packed(journal, writer, index)
    return Recovered(
        disk=disk,
        clock=settings.clock,
        layout=layout,
        lock=lock,
        journal=journal,
        writer=writer,
        indexes=indexes_of(settings, layout),
        index=index,
        last_lease_us=max(tail.lease_us, clean.lease_us if clean else 0),
        segment_bytes=settings.segment_bytes,
    )


class _Undo:
    """Removes what a first start has created before it ran out of space, and nothing else.

    Files are removed while the lock is held, and then the empty directories.
    """

    def __init__(self, disk: Disk, layout: Layout) -> None:
        self._disk = disk
        self._layout = layout
        self._is_new = not layouts.has_journal(disk, layout)
        path = layout.root
        self._made = [layout.index, layout.journal]  # the deepest first
        while not disk.exists(path):
            self._made.append(path)
            path = os.path.dirname(path)

    def files(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if self._is_wanted(error):
            disk, layout = self._disk, self._layout
            # In this order, whatever a crash leaves is recognized as Fjord's.
            for path in (layout.published, layout.lock):
                if disk.exists(path):
                    disk.remove(path)
            for directory in (layout.index, layout.journal):
                for name in disk.names(directory):
                    disk.remove(os.path.join(directory, name))
        return False

    def directories(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if self._is_wanted(error):
            for path in self._made:
                with contextlib.suppress(OSError):  # another start has begun already
                    self._disk.remove_directory(path)
        return False

    def _is_wanted(self, error: BaseException | None) -> bool:
        return self._is_new and isinstance(error, OSError) and disks.is_full(error)


def _make_directories(disk: Disk, layout: Layout) -> None:
    """Ensures that the directories exist and survive a power cut."""
    for directory in (layout.root, layout.journal, layout.index):
        disk.make_directory(directory)
    if not layouts.has_journal(disk, layout):
        disks.sync_upwards(disk, layout.root)


# -- the journal ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The end of the journal."""

    last_seq: int
    lease_us: int
    end: int  # offset after the last whole frame of the last segment
    uncertain: list[Located]  # frames that are not known to be durable

    @property
    def uncertain_seq(self) -> int:
        """The first seq that is written again to a new segment, and so moves."""
        return self.uncertain[0].frame.first_seq if self.uncertain else self.last_seq + 1


def read_tail(journal: Journal, known_seq: int) -> Tail:
    """Reads the last segment to its end.

    Raises:
        CorruptionError: if a frame that was durable cannot be read.
    """
    if not journal.segments:
        if known_seq:
            raise errors.CorruptionError(
                journal.path(1), 0, f"seqs up to {known_seq} were durable here"
            )
        return Tail(last_seq=0, lease_us=0, end=0, uncertain=[])
    last = journal.segments[-1]
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
        raise errors.CorruptionError(
            journal.path(last.segment), end, f"the frame of seq {last_seq + 1} was durable"
        )
    return Tail(last_seq=last_seq, lease_us=lease_us, end=end, uncertain=list(uncertain))


def _open_writer(
    settings: EngineSettings, layout: Layout, journal: Journal, tail: Tail, clean: Clean | None
) -> Writer:
    disk, last = settings.disk, journal.segments[-1] if journal.segments else None
    if last is not None and clean is not None and clean.seq == tail.last_seq:
        writer = Writer(disk, layout.journal, last, segment_bytes=settings.segment_bytes)
        writer.resume(position=tail.end, next_seq=tail.last_seq + 1)
        return writer
    header = SegmentHeader(
        segment=last.segment + 1 if last else 1,
        first_seq=tail.uncertain_seq,
        shard=last.shard if last else disk.new_uuid(),
        created_us=settings.clock.wall_us(),
        lease_us=tail.lease_us,
    )
    if last is not None:
        _sync(disk, journal.path(last.segment))
        # Also its name: a recovery that crashed may have created it, and the next segment must not
        # outlive it.
        disk.sync_directory(layout.journal)
        # What follows the last whole frame is torn, or was allocated ahead; on a full disk the new
        # segment needs this space.
        with contextlib.closing(disk.open(journal.path(last.segment), writable=True)) as file:
            file.truncate(tail.end)
        _sync(disk, journal.path(last.segment))
    writer = Writer(disk, layout.journal, header, segment_bytes=settings.segment_bytes)
    body = b"".join(one.frame.encode(header.salt) + one.body for one in tail.uncertain)
    writer.create(body, last_seq=tail.last_seq, is_whole=last is None)
    journal.add(header)
    return writer


def _sync(disk: Disk, path: str) -> None:
    with contextlib.closing(disk.open(path, writable=True)) as file:
        try:
            file.sync()
        except OSError as error:
            raise errors.DurabilityError(f"{path} cannot be synced: {error.strerror}") from error


def _remove_unfinished(disk: Disk, layout: Layout) -> None:
    for name in disk.names(layout.journal):
        path = os.path.join(layout.journal, name)
        if name.endswith(frames.UNWIPED):
            disks.overwrite(disk, path)
        if name.endswith((frames.UNFINISHED, frames.UNWIPED)):
            disk.remove(path)


# -- the index ------------------------------------------------------------------------------------


def indexes_of(settings: EngineSettings, layout: Layout) -> Indexes:
    if settings.indexes is not None:
        return settings.indexes
    return LmdbIndexes(layout.index, TREE_COUNT, step_bytes=settings.index_step_bytes)


def replayed(settings: EngineSettings, journal: Journal, last_seq: int) -> MemoryIndex:
    """Returns an index in memory, built by replaying the journal up to a seq."""
    index = MemoryIndex(TREE_COUNT)
    replay = Replay(journal, index, settings.rebuild_rows, settings.progress)
    replay.run(last_seq, moved_from=last_seq + 1)
    return index


def _open_index(
    settings: EngineSettings, layout: Layout, clean: Clean | None, last_seq: int
) -> Index:
    """Opens the index; empty if the existing one cannot be trusted."""
    disk, indexes = settings.disk, indexes_of(settings, layout)
    if not is_index_trusted(disk, layout, indexes, clean):
        return _fresh_index(disk, layout, indexes)
    _own_index(disk, layout, indexes)
    try:
        index = indexes.open()
    except IndexDamagedError:
        return _fresh_index(disk, layout, indexes)
    with viewed(index) as transaction:
        applied_seq = read_applied(transaction)
    if applied_seq <= last_seq:
        return index
    index.close()
    return _fresh_index(disk, layout, indexes)


def is_index_trusted(disk: Disk, layout: Layout, indexes: Indexes, clean: Clean | None) -> bool:
    """Returns whether the stored index is exactly what the last writer left."""
    identity = indexes.identity()
    if identity is None:
        return False
    if clean is not None and clean.index == identity:
        return True
    if layouts.read_published(disk, layout)[1]:
        return False
    owner = Owner(boot=disk.boot_id(), index=identity)
    return layouts.read_mark(disk, layout.owner, Owner) == owner


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


# -- the begin of the journal ---------------------------------------------------------------------


def _begin(index: Index) -> tuple[int, int] | None:
    """Returns the segment and the seq at which the journal begins, according to its ops.

    None: the op with this fact may be among those lost to repaired damage.
    """
    with viewed(index) as transaction:
        said = transaction.get(Tree.META, catalog.BEGINS)
        has_lost = transaction.get(Tree.META, catalog.LOST) is not None
    return None if has_lost and said is None else catalog.begins(said)


def _check_begin(journal: Journal, index: Index) -> None:
    begin, first = _begin(index), journal.segments[0]
    if begin is not None and first.first_seq > max(begin[1], 1):
        path = journal.path(first.segment)
        raise errors.CorruptionError(path, 24, "segments before it are missing")


def _record_begin(engine: Engine, parts: Recovered) -> None:
    """Writes where the journal begins, if that is not known."""
    if _begin(parts.index) is None:
        first = parts.journal.segments[0]
        engine.run_internal(Begin(segment=first.segment, seq=first.first_seq))
        engine.sync()


def _remove_packed(journal: Journal, writer: Writer, index: Index) -> None:
    """Removes segments that were packed before a crash, but not yet removed."""
    segment, _ = _begin(index) or (0, 0)
    with viewed(index) as transaction:
        wipes = catalog.is_secure(read_tables(transaction))
    for header in journal.segments[:-1]:
        if header.segment < segment:
            journal.remove(header.segment)
            writer.recycle(header.segment, wipes=wipes)
