"""Reading a directory of Kestrel's: the files of a queue, one behind the other, as one journal.

The law of the tail.  Only the last file of a queue may just stop: within an op, or with nothing
but zeros, which is what a power cut leaves of a file that had grown.  There the writer died, and
what is left of its last op is cut off.  If whole items stand in what is left, it is not a tail but
a size that is wrong.  That, a short op in another file, and bytes that are no op in any file, are
damage: reported with the file, where it begins, and how many bytes of that file cannot
be read behind it.  Later files are read all the same.

Files that Fjord wrote have a sum, see `sums`.  One that does not have the bytes that its sum tells
of is *changed*.  All of it that can be read counts, but it is said.  Where a sum tells of bytes,
there is no torn tail: they were whole ops once.

Nothing is written, removed or renamed here.  What a pack makes dead is passed over.  A Kestrel may
be running: a file is read up to where it ended when the directory was looked at, and if files were
renamed meanwhile, that is said instead of reading half of a journal.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from fjord import disk as disks
from fjord import limits
from fjord.errors import CorruptionError, DirectoryError
from fjord.kestrel import codec, names, sums
from fjord.kestrel.codec import Broken, Placed
from fjord.kestrel.sums import Sum

_CHUNK_BYTES: Final = 1 * limits.MIB
# A look at the directory is repeated while files are renamed meanwhile.
_LOOKS_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How journals are read."""

    now_ms: int = 0  # the add time of items that have none
    item_bytes_max: int = codec.ITEM_BYTES_MAX  # larger ones are damage


class JournalFile:
    """One file: its ops in order, and how it ended."""

    def __init__(self, disk: disks.Disk, path: str, *, is_last: bool = True) -> None:
        """Takes note of a file and its size.

        Args:
            disk: where it is.
            path: its name.
            is_last: whether it is the last one of its queue, which may be torn.

        Raises:
            OSError: if there is no such file, or it is none that can be read.
        """
        self._disk = disk
        self.path = path
        self.is_last = is_last
        self._identity = disk.identity(path)
        with contextlib.closing(disk.open(path)) as file:
            self.size = file.size()
        self.read_bytes = 0  # how far it is read
        self.crc = 0  # of what was read
        self.sum: Sum | None = None  # what it has to be
        self._front_crc = 0  # of so many bytes as the sum tells of
        self.broken: Broken | None = None  # set when all ops were given
        self.changed: str | None = None  # the same: how it is not what its sum says

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    @property
    def skipped_bytes(self) -> int:
        """How much of it cannot be read: from where it is broken to its end."""
        return self.size - self.broken.offset if self.broken else 0

    @property
    def is_torn(self) -> bool:
        return self.broken is not None and self.broken.is_torn

    @property
    def is_damaged(self) -> bool:
        return self.broken is not None and not self.broken.is_torn

    def expect(self, known: Sum | None) -> None:
        """Takes note of its sum, if that is of this very file."""
        if known is not None and sums.counts(known, self.size, self._identity or ""):
            self.sum = known

    def ops(
        self, is_open: Callable[[int], bool], options: Options | None = None
    ) -> Iterator[Placed]:
        """Yields the ops of the file; each is to be applied before the next one is asked for.

        Args:
            is_open: says whether an xid is that of an open item, as `replay.State` does.
            options: how to read.

        Raises:
            DirectoryError: if the file cannot be read, or was renamed or removed meanwhile.
        """
        options = options or Options()
        decoder = codec.Decoder(
            is_open=is_open, now_ms=options.now_ms, item_bytes_max=options.item_bytes_max
        )
        with contextlib.closing(self.open()) as file:
            while self.read_bytes < self.size and decoder.wanted_end <= self.size:
                size = min(_CHUNK_BYTES, self.size - self.read_bytes)
                data = self._read(file, self.read_bytes, size)
                if not data:
                    self.size = self.read_bytes  # it was cut meanwhile
                    break
                self._add_to_crc(data)
                self.read_bytes += len(data)
                decoder.feed(data)
                yield from decoder.ops()
                if decoder.broken is not None:
                    break
            decoder.end()
            yield from decoder.ops()
            self.broken = self._judge(file, decoder.broken)
        self.changed = self._difference()

    def check(self) -> None:
        """Ensures that the file is whole, but for a torn tail where one may be.

        Raises:
            CorruptionError: if it is damaged or changed.
        """
        if self.broken is not None and not self.broken.is_torn:
            raise CorruptionError(self.path, self.broken.offset, self.broken.reason)
        if self.changed is not None:
            raise CorruptionError(self.path, 0, self.changed)

    def open(self) -> disks.File:
        """Opens what was found when the directory was looked at.

        Raises:
            DirectoryError: if it cannot be read, or was renamed or removed since.
        """
        try:
            file = self._disk.open(self.path)
        except FileNotFoundError as error:
            raise self._changed() from error
        except OSError as error:
            raise unreadable(self.path, error) from error
        if self._disk.identity(self.path) != self._identity:
            file.close()
            raise self._changed()
        return file

    def _read(self, file: disks.File, offset: int, size: int) -> bytes:
        try:
            return file.read(offset, size)
        except OSError as error:
            raise unreadable(self.path, error) from error

    def _is_zero(self, file: disks.File, offset: int) -> bool:
        """Says whether there is nothing but zeros from an offset to the end."""
        while offset < self.size:
            data = self._read(file, offset, min(_CHUNK_BYTES, self.size - offset))
            if not data or data.count(0) < len(data):
                return False
            offset += len(data)
        return True

    def _add_to_crc(self, data: bytes) -> None:
        """Adds the bytes at `read_bytes`."""
        left = self.sum.size - self.read_bytes if self.sum else 0
        if 0 < left <= len(data):
            self._front_crc = sums.add_to_crc(self.crc, data[:left])
        self.crc = sums.add_to_crc(self.crc, data)

    def _is_summed(self, offset: int) -> bool:
        return self.sum is not None and offset < self.sum.size

    def _difference(self) -> str | None:
        """Says how the file is not what its sum says; if it is damaged there, that says it."""
        if self.sum is None or (self.broken is not None and self._is_summed(self.broken.offset)):
            return None
        if self.size < self.sum.size:
            return f"it had {self.sum.size} bytes and has {self.size}"
        if self._front_crc != self.sum.crc:
            return f"its first {self.sum.size} bytes are not those that were written"
        return None

    def _changed(self) -> DirectoryError:
        return DirectoryError(
            f"{self.path} was renamed or removed while it was read, so somebody writes to this "
            "directory; read it again, or stop the writer"
        )

    def _judge(self, file: disks.File, broken: Broken | None) -> Broken | None:
        """Returns how the file ended, by the law of the tail."""
        if broken is None:
            return None
        if not self.is_last or self._is_summed(broken.offset):
            return broken._replace(is_torn=False)
        if not broken.is_torn and self._is_zero(file, broken.offset):
            return broken._replace(reason="nothing but zeros up to the end", is_torn=True)
        if broken.is_torn:
            # What is left is shorter than one op, so this is bounded by the largest one.
            rest = self._read(file, broken.offset, self.size - broken.offset)
            if (at := codec.find_item(rest, 1)) is not None:
                reason = f"{broken.reason}, yet an item stands at byte {broken.offset + at}"
                return broken._replace(reason=reason, is_torn=False)
        return broken


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSurvey:
    """What a directory has of one queue."""

    queue: str
    files: list[JournalFile]  # one journal, in this order
    dead: list[str]  # names that a pack has taken the place of
    temporary: list[str]  # names that count for nothing

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def queues(disk: disks.Disk, directory: str) -> list[str]:
    """Returns the queues of a directory, sorted; directories in it are none, as for Kestrel.

    Raises:
        DirectoryError: if it cannot be read.
    """
    found = _names(disk, directory)
    return names.queues_of(
        name for name in found if disk.identity(os.path.join(directory, name)) is not None
    )


def foreign(disk: disks.Disk, directory: str) -> list[str]:
    """Returns the names in a directory that are neither Kestrel's nor Fjord's."""
    found = _names(disk, directory)
    return [name for name in found if names.parse(name) is None and not names.is_own(name)]


def survey(disk: disks.Disk, directory: str, queue: str) -> QueueSurvey:
    """Looks up the files of a queue; it has none if there is no such queue.

    Raises:
        DirectoryError: if one of them, or the directory, cannot be read.
    """
    for _ in range(_LOOKS_MAX):
        known = sums.read(disk, directory, queue)
        found = names.files_of(queue, _names(disk, directory))
        try:
            files = _files(disk, directory, found.live)
        except FileNotFoundError:
            continue  # renamed since the names were listed
        is_same = names.files_of(queue, _names(disk, directory)).live == found.live
        if is_same and sums.read(disk, directory, queue) == known:
            _expect(files, known)
            return QueueSurvey(queue=queue, files=files, dead=found.dead, temporary=found.temporary)
    raise DirectoryError(
        f"the files of {queue} in {directory} change all the time; stop the writer"
    )


def ops(
    found: QueueSurvey, is_open: Callable[[int], bool], options: Options | None = None
) -> Iterator[tuple[JournalFile, Placed]]:
    """Yields the ops of all files of a queue, as of one file; then each file says how it ended."""
    for file in found.files:
        for placed in file.ops(is_open, options):
            yield file, placed


def unreadable(path: str, error: OSError) -> DirectoryError:
    """Returns how it is told that a disk refuses to read something."""
    return DirectoryError(f"{path} cannot be read: {error.strerror}")


def _names(disk: disks.Disk, directory: str) -> list[str]:
    try:
        return disk.names(directory)
    except OSError as error:
        raise unreadable(directory, error) from error


def _expect(files: list[JournalFile], known: dict[int, Sum]) -> None:
    """Tells files of their sums; see `sums` for why there are none beside a pack."""
    parsed = [names.parse(file.name) for file in files]
    if any(one is not None and one.role is names.Role.PACK for one in parsed):
        return
    for file, one in zip(files, parsed, strict=True):
        assert one is not None
        is_current = one.role is names.Role.CURRENT
        file.expect(known.get(sums.CURRENT if is_current else one.number))


def _files(disk: disks.Disk, directory: str, live: list[str]) -> list[JournalFile]:
    """Returns the files of a queue; directories and the like are passed over, as Kestrel does."""
    files: list[JournalFile] = []
    for name in live:
        path = os.path.join(directory, name)
        try:
            files.append(JournalFile(disk, path))
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise unreadable(path, error) from error
    for file in files[:-1]:
        file.is_last = False
    return files
