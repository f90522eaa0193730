"""Writing the files of one queue: append, rotate, pack, rewrite, each safe against a crash.

    append    to `cars`
    rotate    sync `cars`, make `cars~~904`; rename `cars` to `cars.904` and that to `cars`
    pack      `cars.904` and all before become one: write `cars~~961`, sync it, rename it to
              `cars.904.pack`; remove what that makes dead; rename it to `cars.904`
    rewrite   rotate, then pack up to there, but the last rename is to `cars`

The directory is synced behind each of these steps.  A crash leaves, between any two of them, names
that mean either what was before or what is behind, never both and never half of one.  What has to
be replaced gets a number first, so that the pack can say that it is dead: that is the step that
Kestrel leaves out, and why its rewrite may double what is in `cars`.

Opening ends what a crash has left: dead and temporary files are removed, a pack loses its ending.
A torn tail is cut off the file that has it.  What is damaged is kept in a directory of its own,
see `quarantine`, and its file ends before it: `alerts` says so.

What a file holds is summed as it is written, and put down in `cars~~sums` when nothing more comes:

    rotate    before `cars` gets its number
    pack      behind the rename to `cars.904.pack`, while no sum counts
    close     if all is durable

So a crash leaves sums that are true, or none.  A file that is not what its sum says is left as it
is, and told at every start until it is replaced.  So is one that is missing, and its sum stays.

Nothing is durable before `sync`.  When the disk fails to write or sync, nothing more is written.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from fjord import disk as disks
from fjord import limits
from fjord.clock import Clock
from fjord.errors import CorruptionError, DurabilityError
from fjord.kestrel import codec, names, reader
from fjord.kestrel.codec import Dialect, Item, Op, OpBatch, Opcode
from fjord.kestrel.reader import Sum

_log = logging.getLogger("fjord.kestrel")

_WRITE_BYTES: Final = 1 * limits.MIB

_add_to_crc = reader.add_to_crc


@dataclass(slots=True, eq=False)
class Segment:
    """One file of the journal."""

    name: str  # changes when it is rotated
    era: int  # how many files were begun before it
    size: int = 0
    number: int = reader.CURRENT  # of a file that is written to no more
    crc: int = 0  # of all of it
    sum: Sum | None = None  # its entry in `cars~~sums`
    is_changed: bool = False  # it differs from its sum, and the old sum is kept

    def summed(self, identity: str = "", written_s: int = 0) -> Sum:
        """Returns its sum, now that nothing more is written to it."""
        if self.is_changed and self.sum is not None:
            return self.sum._replace(identity=identity, written_s=written_s)
        return Sum(self.size, self.crc, identity, written_s)


class Segments:
    """The files of a journal, the oldest first, from which items are read again."""

    def __init__(
        self,
        open_segment: Callable[[Segment], disks.File],
        item_bytes_max: int,
        *,
        has_checkpoints: bool = False,
    ) -> None:
        """Begins with none; `has_checkpoints`: older ones may be packed while others are read."""
        self.listed: list[Segment] = []
        self.open = open_segment
        self.item_bytes_max = item_bytes_max
        self.has_checkpoints = has_checkpoints

    def after(self, segment: Segment) -> Segment | None:
        """Returns the next file, None if this is the last."""
        at = self.listed.index(segment)
        return self.listed[at + 1] if at + 1 < len(self.listed) else None


class Journal:
    """The files of one queue, which nobody else writes to."""

    def __init__(
        self,
        disk: disks.Disk,
        folder: str,
        queue: str,
        clock: Clock,
        *,
        dialect: Dialect = Dialect.V24,
        item_bytes_max: int = codec.ITEM_BYTES_MAX,
    ) -> None:
        """Ends what a crash has left; `replay` is to follow, and `begin`.

        Raises:
            DirectoryError: if the directory cannot be read.
        """
        self._disk = disk
        self._folder = folder
        self.queue = queue
        self.dialect = dialect
        self._clock = clock
        # Only one dialect names xids wherever it is, so that a pack in the middle means the same.
        self.files = Segments(
            lambda segment: disk.open(self._path(segment.name)),
            item_bytes_max,
            has_checkpoints=dialect is Dialect.V24,
        )
        self.segments = self.files.listed
        self.alerts: list[str] = []  # what was damaged, and where it is kept
        self.rewrites = 0
        self.rotations = 0
        self._file: disks.File | None = None
        self.size = 0  # of all files, in bytes
        self._is_dirty = False
        self._is_renamed = False  # the directory is not synced
        self._failure: str | None = None
        self._sums: dict[int, Sum] = {}  # as they are on the disk
        self._missing: dict[int, Sum] = {}  # of older files that are missing; kept
        self._clean()

    @property
    def current(self) -> Segment:
        return self.segments[-1]

    @property
    def is_dirty(self) -> bool:
        return self._is_dirty or self._is_renamed

    # -- opening ----------------------------------------------------------------------------------

    def replay(self, now_ms: int) -> Iterator[tuple[Segment, OpBatch]]:
        """Yields all ops; each is to be applied before the next.  What is broken is cut off."""
        found = reader.survey(self._disk, self._folder, self.queue)
        options = reader.ReadOptions(now_ms=now_ms, item_bytes_max=self.files.item_bytes_max)
        for lost in found.missing:
            self.alerts.append(lost.report().sentence)
            if lost.number != reader.CURRENT:
                self._missing[lost.number] = lost.sum
        for file in found.files:
            parsed = names.parse(file.name)
            assert parsed is not None
            segment = Segment(file.name, len(self.segments), file.size, parsed.number)
            self.segments.append(segment)
            for batch in file.batches(options):
                yield segment, batch
            segment.crc = file.crc
            if file.broken is not None:
                segment.crc = self._cut(file, segment.number)
                segment.size = file.broken.offset
            self._take_sum(segment, file)
            self.size += segment.size

    def begin(self) -> None:
        """Opens the current file; makes one if there is none."""
        known = self._known()
        if any(known.get(number) != one for number, one in self._sums.items()):
            with self._failing():
                self._put_sums(known)  # a file that is made now must not have the sum of another
        older = self.segments[-1].name if self.segments else ""  # "": the directory
        if not self.segments or self.segments[-1].number >= 0:
            self.segments.append(Segment(self.queue, len(self.segments)))
            self._is_renamed = True
        self._file = self._disk.open(self._path(self.current.name), writable=True, create=True)
        if self._is_renamed:
            self._disk.keep_owner(self._path(self.current.name), self._path(older))
        self._is_dirty = True  # a process that died may have left what no disk has yet

    # -- writing ----------------------------------------------------------------------------------

    def append(self, op: Op) -> None:
        """Appends an op.

        Raises:
            OSError: if there is no space; nothing has changed.
            DurabilityError: if the disk is broken.
        """
        self.append_bytes(codec.encode(op, self.dialect))

    def append_bytes(self, data: bytes) -> None:
        """Writes the bytes of ops; raises what `append` does."""
        file, segment = self._writable(), self.segments[-1]
        try:
            file.write(segment.size, data)
        except OSError as error:
            self._take_back(segment, error)
            raise
        segment.size += len(data)
        segment.crc = _add_to_crc(segment.crc, data)
        self.size += len(data)
        self._is_dirty = True

    def sync(self) -> None:
        """Makes everything that was written durable.

        Raises:
            DurabilityError: if it is not.
        """
        file = self._writable()
        with self._failing():
            if self._is_renamed:
                self._sync_names()
            if self._is_dirty:
                file.sync()
                self._is_dirty = False

    def rotate(self) -> Segment:
        """Begins a new file; returns the one that is written to no more.

        Raises:
            OSError: if there is no space for a new one; nothing has changed.
            DurabilityError: if the disk is broken.
        """
        self.sync()
        old = self.current
        taken = max([*self._missing, *(one.number for one in self.segments)])
        number = max(self._clock.wall_us() // 1000, taken + 1)
        name, temporary = names.rotated(self.queue, number), names.temporary(self.queue, number)
        path = self._path(temporary)
        file = self._disk.open(path, writable=True, create=True)
        try:
            with made(self._disk, path):
                self._disk.keep_owner(path, self._path(old.name))
                self._exchange(number, temporary)
        except BaseException:
            file.close()
            raise
        self._close_file()
        self._file = file
        self.segments.append(Segment(old.name, old.era + 1))
        old.name, old.number, old.sum = name, number, old.summed()
        self.rotations += 1
        return old

    def pack(self, last: Segment, ops: Iterable[Op]) -> None:
        """Replaces all files up to `last`, which is a rotated one, by these ops.

        Raises:
            OSError: if there is no space; nothing has changed.
            DurabilityError: if the disk is broken.
        """
        self._writable()
        size, crc = self._write_pack(last.number, ops)
        name = names.rotated(self.queue, last.number)
        packed = Segment(name, last.era, size, last.number, crc, Sum(size, crc))
        with self._failing():
            left = [one for one in self.segments if not 0 <= one.number <= last.number]
            self._forget_missing(last.number)
            self._put_sums(self._known([packed, *left]))
            self._bury(last)
            self._rename(names.pack(self.queue, last.number), name)
            self._sync_names()
        self.segments.insert(0, packed)
        self.size += size
        self.rewrites += 1

    def rewrite(self, ops: Iterable[Op]) -> None:
        """Replaces all files by these ops; raises what `pack` does."""
        old = self.rotate()
        size, crc = self._write_pack(old.number, ops)
        current = self.current
        with self._failing():
            current.sum = Sum(size, crc, *self._identity(names.pack(self.queue, old.number)))
            self._forget_missing(old.number)
            self._put_sums(self._known([current]))
            self._bury(old)
            self._close_file()
            # It has no byte so far, and its name is taken over.
            self._rename(names.pack(self.queue, old.number), current.name)
            self._sync_names()
            self._file = self._disk.open(self._path(current.name), writable=True)
        current.size, current.crc = size, crc
        self.size = size
        self.rewrites += 1

    def bear(self, error: OSError) -> None:
        """Logs that files could not be replaced; work continues with those that are there."""
        fields = {"queue": self.queue, "error": error}
        _log.warning("files of a queue could not be replaced", extra={"fields": fields})

    def delete(self) -> None:
        """Removes the queue; a crash leaves all of it or nothing."""
        self.rewrite(())
        self._close_file()
        with self._failing():
            self._disk.remove(self._path(self.current.name))
            self._sync_names()
        self._failure = "it was deleted"

    def close(self) -> None:
        if self._file is not None and self._failure is None and not self.is_dirty:
            current = self.current
            current.sum = current.summed(*self._identity(current.name))
            # What is there is true of the front of the file, so it may stay.
            with contextlib.suppress(OSError):
                self._put_sums(self._known())
        self._close_file()
        self._failure = self._failure or "it was closed"

    # -- inside -----------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _rename(self, old: str, new: str) -> None:
        self._disk.rename(self._path(old), self._path(new))

    def _identity(self, name: str) -> tuple[str, int]:
        """Returns which file has a name, and when that was written to last."""
        path = self._path(name)
        return self._disk.identity(path) or "-", self._disk.modified_s(path)

    def _known(self, segments: Iterable[Segment] | None = None) -> dict[int, Sum]:
        """Returns the sums of files, missing ones too; of an empty one is nothing to tell."""
        listed = self.segments if segments is None else segments
        known = {one.number: one.sum for one in listed if one.sum is not None and one.sum.size}
        return self._missing | known

    def _forget_missing(self, number: int) -> None:
        """Lets go of files up to a number, since others have taken their place."""
        self._missing = {one: told for one, told in self._missing.items() if one > number}

    def _put_sums(self, known: dict[int, Sum]) -> None:
        """Ensures that these sums are on the disk, or none."""
        if known != self._sums:
            is_put = reader.put_sums(self._disk, self._folder, self.queue, known)
            self._sums = known if is_put else {}

    def _take_sum(self, segment: Segment, file: reader.JournalFile) -> None:
        """Takes over the sum of a file that was read; one without gets it from what was read."""
        segment.sum = file.sum
        if file.changed is not None:
            segment.is_changed = True
            self.alerts.append(f"{file.report().sentence}; it counts as it is")
        elif segment.number != reader.CURRENT:
            segment.sum = segment.summed()

    def _sync_names(self) -> None:
        self._disk.sync_directory(self._folder)
        self._is_renamed = False

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _writable(self) -> disks.File:
        if self._failure is not None:
            raise DurabilityError(f"the journal of {self.queue} takes nothing: {self._failure}")
        assert self._file is not None
        return self._file

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Whatever fails in here leaves it open what the disk has."""
        try:
            yield
        except OSError as error:
            self._failure = f"{error.strerror}; start again when the disk is well"
            raise DurabilityError(f"the journal of {self.queue} failed: {self._failure}") from error

    def _take_back(self, segment: Segment, error: OSError) -> None:
        """Cuts off what a failed write may have left."""
        assert self._file is not None
        try:
            self._file.truncate(segment.size)
        except OSError:
            self._failure = f"{error.strerror}, and its end could not be cut off"
        if not disks.is_full(error):
            self._failure = str(error.strerror)

    def _exchange(self, number: int, fresh: str) -> None:
        """Gives the current file a number and its name to a fresh one: both or neither."""
        old, name = self.current, names.rotated(self.queue, number)
        summed = Segment(name, old.era, old.size, number, old.crc, old.summed())
        with self._failing():
            self._put_sums(self._known([*self.segments[:-1], summed]))
        self._rename(old.name, name)
        with self._failing():
            # Before another file can have the name: else that one might be all that is left.
            self._sync_names()
        try:
            self._rename(fresh, old.name)
        except OSError:
            with self._failing():
                self._rename(name, old.name)
                self._sync_names()
            raise
        with self._failing():
            self._sync_names()

    def _write_pack(self, number: int, ops: Iterable[Op]) -> tuple[int, int]:
        """Makes a pack durable; returns its size and CRC.  Nothing has changed if that fails."""
        temporary = names.temporary(self.queue, number)
        path = self._path(temporary)
        with made(self._disk, path):
            like = self._path(self.current.name)
            size, crc = write_file(self._disk, path, self._encoded(ops), like)
            self._rename(temporary, names.pack(self.queue, number))
        with self._failing():
            self._sync_names()
        return size, crc

    def _encoded(self, ops: Iterable[Op]) -> Iterator[bytes]:
        """Yields the bytes of ops, many at a time."""
        parts: list[bytes] = []
        size, last, data = 0, None, b""
        for op in ops:
            if op is not last:
                last, data = op, codec.encode(op, self.dialect)
            parts.append(data)
            size += len(data)
            if size >= _WRITE_BYTES:
                yield b"".join(parts)
                parts, size = [], 0
        yield b"".join(parts)

    def _bury(self, last: Segment) -> None:
        """Removes the files up to `last`, durably: a pack has what they had."""
        while self.segments[0].number >= 0 and self.segments[0].number <= last.number:
            dead = self.segments.pop(0)
            self.size -= dead.size
            self._disk.remove(self._path(dead.name))
        self._sync_names()

    def _clean(self) -> None:
        """Ends what a crash has left."""
        with self._failing():
            found = names.files_of(self.queue, self._disk.names(self._folder))
            # What was renamed last may be in memory alone: a pack has to be there for good before
            # what it replaces goes, and that has to be gone for good before it is no pack.
            self._sync_names()
            for name in found.temporary:
                self._disk.remove(self._path(name))
            self._sums = reader.read_sums(self._disk, self._folder, self.queue)
            if any(name.endswith(names.PACK) for name in found.live):
                self._put_sums({})  # they may be those of what is dead
            for name in found.dead:
                self._disk.remove(self._path(name))
            if found.dead:
                self._sync_names()
            for name in found.live:
                if name.endswith(names.PACK):
                    self._rename(name, name.removesuffix(names.PACK))
                    self._sync_names()

    def _cut(self, file: reader.JournalFile, number: int) -> int:
        """Cuts off what cannot be read of a file; if it is damage, keeps a copy.

        Returns its CRC.
        """
        assert file.broken is not None
        with (
            self._failing(),
            contextlib.closing(self._disk.open(file.path, writable=True)) as opened,
        ):
            if not file.broken.is_torn:
                kept = keep(self._disk, self._folder, file.name, opened, file.broken.offset)
                self.alerts.append(f"{file.report().sentence}; they are kept in {kept}")
            if file.sum is not None and file.sum.size > file.broken.offset:
                file.sum = None
                self._put_sums({one: self._sums[one] for one in self._sums if one != number})
            opened.truncate(file.broken.offset)
            opened.sync()
            return reader.crc_of(opened, file.broken.offset)


@contextlib.contextmanager
def made(disk: disks.Disk, path: str) -> Iterator[None]:
    """Removes a file that is being made, if what is done in here fails."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            disk.remove(path)
        raise


def write_file(
    disk: disks.Disk, path: str, chunks: Iterable[bytes], like: str = ""
) -> tuple[int, int]:
    """Makes a file, durably; returns its size and CRC.

    Args:
        disk: where it is.
        path: its name.
        chunks: its bytes.
        like: the file whose owner and mode it gets, if there is one.
    """
    size = crc = 0
    with contextlib.closing(disk.open(path, writable=True, create=True)) as file:
        file.truncate(0)
        if disk.exists(like):
            disk.keep_owner(path, like)
        for chunk in filter(None, chunks):
            file.write(size, chunk)
            size += len(chunk)
            crc = _add_to_crc(crc, chunk)
        file.sync()
    return size, crc


# -- bytes of a queue's files that cannot be read: kept where nobody looks for queues -------------
#
#     ~~corrupt/cars.904      what stood in cars.904 from where it was damaged on
#     ~~corrupt/cars.904~1    the same, of another time
#
# Kestrel ignores directories, and takes the text after a dot of any file for a number; no
# queue can have this name.


DIRECTORY: Final = "~~corrupt"
_MADE: Final = "~new"  # what is being copied


def keep(disk: disks.Disk, folder: str, name: str, damaged: disks.File, offset: int) -> str:
    """Copies what a file has from an offset on, durably; returns where it is in the folder.

    Raises:
        OSError: if it may be nowhere but in the file itself.
    """
    directory = os.path.join(folder, DIRECTORY)
    disk.make_directory(directory)
    disk.keep_owner(directory, folder)
    disk.sync_directory(folder)
    fresh = os.path.join(directory, name + _MADE)
    rest = reader.chunks(damaged, offset, damaged.size())
    write_file(disk, fresh, rest, like=os.path.join(folder, name))
    taken = set(disk.names(directory))
    kept, count = name, 0
    while kept in taken:
        count += 1
        kept = f"{name}~{count}"
    disk.rename(fresh, os.path.join(directory, kept))
    disk.sync_directory(directory)
    return f"{DIRECTORY}/{kept}"


# -------------------------------------------------------------------------------------------------
#
# Read-behind: a queue that is larger than memory is read again from the files it was written to.
#
# `Behind` goes through the journal from the first item that is not in memory.  It looks for items
# alone: removes that it meets have been done already, and open items of a rewritten file never
# waited.  The caller knows how many items there are, and never asks for more than were written.


# Read at a time, beside the items in memory.
_BEHIND_BYTES: Final = 256 * limits.KIB
# A name of a module is found faster than one of an enum.
_ADD_XID: Final = Opcode.ADD_XID


class Behind:
    """Reads items from a place in the journal on."""

    def __init__(self, files: Segments, segment: Segment, offset: int, now_ms: int) -> None:
        """Begins.

        Args:
            files: the files of the journal.
            segment: the file in which the first item stands.
            offset: where its op begins.
            now_ms: the add time of items that have none.
        """
        self._files = files
        self.segment = segment  # where the last item was read
        self._now_ms = now_ms
        self._ops = self._all_ops(offset)
        self._items = self._all_items()

    def next(self) -> Item:
        """Returns the next item, which must be there; copy its data before the next call.

        Raises:
            CorruptionError: if the file has changed since it was written.
        """
        return next(self._items)

    def close(self) -> None:
        self._items.close()
        self._ops.close()

    def _all_items(self) -> Generator[Item]:
        dump_left = 0
        op = self._next_op()
        while True:
            item, following = op.item, None
            if op.opcode is _ADD_XID:
                assert item is not None
                copy = item._replace(data=bytes(item.data))
                is_told = bool(dump_left and op.xid)
                dump_left -= is_told
                following = next(self._ops)
                if following is not None and following.opcode is Opcode.REMOVE_TENTATIVE:
                    following = None  # it was open at once
                elif not is_told:
                    yield copy
            elif item is not None:
                dump_left = 0
                yield item
            else:
                dump_left = op.open_count
            op = following or self._next_op()

    def _next_op(self) -> Op:
        op = next(self._ops)
        if op is None:
            raise CorruptionError(self.segment.name, self.segment.size, "an item is missing")
        return op

    def _all_ops(self, offset: int) -> Generator[Op | None]:
        """Yields ops, and None where there are no more so far."""
        while True:
            segment, following = self.segment, None
            decoder = codec.Decoder(
                now_ms=self._now_ms, item_bytes_max=self._files.item_bytes_max, offset=offset
            )
            with contextlib.closing(self._files.open(segment)) as file:
                while offset < segment.size or (following := self._files.after(segment)) is None:
                    if offset >= segment.size:
                        yield None
                        continue
                    data = file.read(offset, min(_BEHIND_BYTES, segment.size - offset))
                    offset += len(data)
                    decoder.feed(data)
                    yield from (op for op, _, _ in decoder.ops())
                    broken = decoder.broken
                    # What a start has cut off since this was read is not damage.
                    if broken is not None and broken.offset < segment.size:
                        raise CorruptionError(segment.name, broken.offset, broken.reason)
                decoder.end()  # a STATE_DUMP may be the last op of a file
                yield from (op for op, _, _ in decoder.ops())
            self.segment, offset = following, 0
