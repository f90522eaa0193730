"""Reading a directory of Kestrel's: the files of a queue, one after the other, as one journal.

The law of the tail.  Only the last file of a queue may just stop: within an op, or with nothing
but zeros, which is what a power cut leaves of a file that had grown.  There the writer died, and
what is left of its last op is cut off.  If whole items stand in what is left, it is not a tail but
a size that is wrong.  That, a short op in another file, and bytes that are no op in any file, are
damage: reported with the file, where it begins, and how many bytes of that file cannot
be read behind it.  Later files are read all the same.

Files that Fjord wrote have a sum, see `sums`.  One that does not have the bytes that its sum tells
of is *changed*.  All of it that can be read counts, but it is said.  Where a sum tells of bytes,
there is no torn tail: they were whole ops once.  One that is not there may be *missing*.

Nothing is written, removed or renamed here.  What a pack makes dead is passed over.  A Kestrel may
be running: a file is read up to where it ended when the directory was looked at, and if files were
renamed meanwhile, that is said instead of reading half of a journal.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import google_crc32c

from fjord import disk as disks
from fjord import limits
from fjord.errors import Code, CorruptionError, DirectoryError, NotFoundError
from fjord.kestrel import codec, names
from fjord.kestrel.codec import Broken, Decoder, OpBatch, Placed

_log = logging.getLogger("fjord.kestrel")

_CHUNK_BYTES: Final = 1 * limits.MIB
# A look at the directory is repeated while files are renamed meanwhile.
_LOOKS_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How journals are read."""

    now_ms: int = 0  # the add time of items that have none
    item_bytes_max: int = codec.ITEM_BYTES_MAX  # larger ones are damage


PLAIN: Final = ReadOptions()


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
        self._written_s = disk.modified_s(path)
        with contextlib.closing(disk.open(path)) as file:
            self.size = file.size()
        self.read_bytes = 0  # how far it is read
        self._decoder = Decoder()  # of what was read
        self.crc = 0  # of what was read
        self.sum: Sum | None = None  # what it has to be
        self._front_crc = 0  # of the bytes that the sum covers
        self.broken: Broken | None = None  # set when all ops were given
        self.changed: str | None = None  # the same: how it is not what its sum says

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    def report(self, unreadable: str = "") -> FileReport:
        """Returns what was read of it, and why no more was."""
        offset, reason, ending = self.size, "", Ending.WHOLE
        if self.broken is not None:
            offset, reason, is_torn = self.broken
            ending = Ending.TORN if is_torn else Ending.DAMAGED
        if unreadable:
            offset, reason, ending = self.read_bytes, unreadable, Ending.UNREADABLE
        elif self.changed is not None and ending is not Ending.DAMAGED:
            reason, ending = self.changed, Ending.CHANGED
        return FileReport(
            path=self.path,
            ending=ending,
            bytes=self.size,
            ops=self._decoder.op_count,
            offset=offset,
            skipped_bytes=self.size - offset,
            reason=reason,
        )

    def expect(self, known: Sum | None) -> None:
        """Takes note of its sum, if that is of this very file."""
        if known and is_held_to(known, self.size, self._identity or "", self._written_s):
            self.sum = known

    def ops(self, options: ReadOptions = PLAIN) -> Iterator[Placed]:
        """Yields the ops of `batches` one by one."""
        for batch in self.batches(options):
            yield from batch.ops()

    def batches(
        self, options: ReadOptions = PLAIN, on_bytes: Callable[[int], None] = lambda size: None
    ) -> Iterator[OpBatch]:
        """Yields the ops of the file, many at a time; `on_bytes` gets the number of bytes read.

        Raises:
            DirectoryError: if the file cannot be read, or was renamed or removed meanwhile.
        """
        decoder = Decoder(now_ms=options.now_ms, item_bytes_max=options.item_bytes_max)
        self._decoder = decoder
        with readable(self.path), contextlib.closing(self.open()) as file:
            while self.read_bytes < self.size and decoder.wanted_end <= self.size:
                size = min(_CHUNK_BYTES, self.size - self.read_bytes)
                data = file.read(self.read_bytes, size)
                if not data:
                    self.size = self.read_bytes  # it was cut meanwhile
                    break
                self._add_to_crc(data)
                self.read_bytes += len(data)
                decoder.feed(data)
                yield from decoder.batches()
                on_bytes(len(data))
                if decoder.broken is not None:
                    break
            decoder.end()
            yield from decoder.batches()
            self.broken = self._judge(file, decoder.broken)
        on_bytes(self.size - self.read_bytes)  # what nobody needs to read
        self.changed = self._difference()

    def open(self) -> disks.File:
        """Opens the file that the survey found.

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

    def _is_zero(self, file: disks.File, offset: int) -> bool:
        """Says whether there is nothing but zeros from an offset to the end."""
        return all(data.count(0) == len(data) for data in chunks(file, offset, self.size))

    def _add_to_crc(self, data: bytes) -> None:
        """Adds the bytes at `read_bytes`."""
        left = self.sum.size - self.read_bytes if self.sum else 0
        if 0 < left <= len(data):
            self._front_crc = add_to_crc(self.crc, data[:left])
        self.crc = add_to_crc(self.crc, data)

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
            rest = file.read(broken.offset, self.size - broken.offset)
            if (at := codec.find_item(rest, 1)) is not None:
                reason = f"{broken.reason}, yet an item stands at byte {broken.offset + at}"
                return broken._replace(reason=reason, is_torn=False)
        return broken


class Ending(enum.StrEnum):
    """How a file ends."""

    WHOLE = "whole"
    TORN = "torn"  # its last op is cut off, and it is the last file: the writer died
    DAMAGED = "damaged"  # what follows some byte cannot be read
    CHANGED = "changed"  # it can be read, but it is not what was written
    MISSING = "missing"  # it was written, and is not there
    UNREADABLE = "unreadable"  # the disk, or the system, refuses to read it


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """One file that was read, or should have been."""

    path: str
    ending: Ending
    bytes: int = 0
    ops: int = 0
    offset: int = 0  # up to where it was read; nothing after it counts
    skipped_bytes: int = 0  # how much that is
    reason: str = ""  # why, empty if it is whole

    @property
    def is_damaged(self) -> bool:
        return self.ending not in (Ending.WHOLE, Ending.TORN)

    @property
    def sentence(self) -> str:
        """How it ends, in words."""
        if self.ending is Ending.WHOLE:
            return f"{self.path} is whole: {self.bytes} bytes"
        if self.ending is Ending.UNREADABLE:
            return f"{self.path} {self.reason}"
        if self.ending in (Ending.CHANGED, Ending.MISSING):
            return f"{self.path} is {self.ending}: {self.reason}"
        lost = "do not count" if self.ending is Ending.TORN else "cannot be read"
        how = f"{self.ending} at byte {self.offset}: {self.reason}"
        return f"{self.path} is {how}; {self.skipped_bytes} bytes {lost}"

    def check(self) -> None:
        """Ensures that the file is whole, but for a torn tail.

        Raises:
            CorruptionError: if it is not.
        """
        if self.ending is Ending.DAMAGED:
            raise CorruptionError(self.path, self.offset, self.reason)
        if self.is_damaged:
            raise CorruptionError(self.path, 0, f"it is {self.ending}: {self.reason}")


class UnreadableError(DirectoryError):
    """A file cannot be read; mend its disk or its rights, or put the file in its place."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} {reason}")
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[type[UnreadableError], tuple[str, str]]:
        return type(self), (self.path, self.reason)


class Missing(NamedTuple):
    """A file that has a sum, and is not there."""

    path: str
    number: int
    sum: Sum

    def report(self) -> FileReport:
        size = self.sum.size
        reason = f"it had {size} bytes, and an older file is there; put it back"
        ending = Ending.MISSING
        return FileReport(path=self.path, ending=ending, skipped_bytes=size, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSurvey:
    """What a directory has of one queue."""

    queue: str
    files: list[JournalFile]  # one journal, in this order
    dead: list[str]  # names that a pack has taken the place of
    temporary: list[str]  # names that count for nothing
    missing: list[Missing] = field(default_factory=list)
    unreadable: list[UnreadableError] = field(default_factory=list)  # if they are passed over

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


def wanted_queues(disk: disks.Disk, directory: str, wanted: Sequence[str]) -> list[str]:
    """Returns the queues that are wanted of a directory; all of them, if none is named.

    Raises:
        DirectoryError: if there is no such directory.
        NotFoundError: if there is no such queue.
    """
    if not os.path.isdir(directory):
        raise DirectoryError(f"{directory} is not a directory")
    known = queues(disk, directory)
    for queue in wanted:
        if queue not in known:
            raise NotFoundError(Code.NOT_FOUND, f"{directory} has no queue {queue}")
    return list(dict.fromkeys(wanted)) or known


def foreign(disk: disks.Disk, directory: str) -> list[str]:
    """Returns the names in a directory that are neither Kestrel's nor Fjord's."""
    found = (name for name in _names(disk, directory) if not name.startswith(names.TEMPORARY))
    return [name for name in found if names.parse(name) is None]


def survey(
    disk: disks.Disk, directory: str, queue: str, *, passes_unreadable: bool = False
) -> QueueSurvey:
    """Looks up the files of a queue; it has none if there is no such queue.

    Raises:
        DirectoryError: if the directory cannot be read, or one of them, unless those are passed.
    """
    for _ in range(_LOOKS_MAX):
        known = read_sums(disk, directory, queue)
        found = names.files_of(queue, _names(disk, directory))
        try:
            files, refused = _files(disk, directory, found.live)
            if refused and not passes_unreadable:
                raise refused[0]
            there = [file.path for file in files] + [error.path for error in refused]
            missing = _missing(disk, directory, queue, there, known)
        except FileNotFoundError:
            continue  # renamed since the names were listed
        is_same = names.files_of(queue, _names(disk, directory)).live == found.live
        if is_same and read_sums(disk, directory, queue) == known:
            for file, number in zip(files, _numbers(one.path for one in files), strict=False):
                file.expect(known.get(number))
            return QueueSurvey(
                queue=queue,
                files=files,
                dead=found.dead,
                temporary=found.temporary,
                missing=missing,
                unreadable=refused,
            )
    raise DirectoryError(
        f"the files of {queue} in {directory} change all the time; stop the writer"
    )


def surveys(
    disk: disks.Disk, directory: str, queue: str = "", *, passes_unreadable: bool = False
) -> Iterator[QueueSurvey]:
    """Looks up the files of all queues, or of one; raises what `wanted_queues` and `survey` do."""
    for one in wanted_queues(disk, directory, [queue] if queue else []):
        yield survey(disk, directory, one, passes_unreadable=passes_unreadable)


def alone(disk: disks.Disk, path: str) -> QueueSurvey:
    """Returns a file as a queue of its own, which is named by its path."""
    with readable(path):
        return QueueSurvey(queue=path, files=[JournalFile(disk, path)], dead=[], temporary=[])


def unreadable(path: str, error: OSError) -> UnreadableError:
    """Returns the error for something that the disk refuses to read."""
    if error.errno == errno.ELOOP:
        return UnreadableError(path, "is a symbolic link; put the file itself in its place")
    return UnreadableError(path, f"cannot be read: {error.strerror}")


@contextlib.contextmanager
def readable(path: str) -> Iterator[None]:
    """Turns what the disk refuses in here into an UnreadableError."""
    try:
        yield
    except OSError as error:
        raise unreadable(path, error) from error


def _names(disk: disks.Disk, directory: str) -> list[str]:
    with readable(directory):
        return disk.names(directory)


def _numbers(paths: Iterable[str]) -> list[int]:
    """Returns the numbers of files as sums tell them; none beside a pack, see `sums` for why."""
    parsed = [one for path in paths if (one := names.parse(os.path.basename(path)))]
    if any(one.role is names.Role.PACK for one in parsed):
        return []
    return [one.number for one in parsed]


def _missing(
    disk: disks.Disk, directory: str, queue: str, there: list[str], known: dict[int, Sum]
) -> list[Missing]:
    """Returns the files that should be there; raises FileNotFoundError if some go meanwhile."""
    numbers = _numbers(there)
    lost = missing_numbers(known, numbers)
    newest = max(lost, default=CURRENT)
    if newest > max(numbers, default=newest) and CURRENT in numbers:
        path = os.path.join(directory, queue)
        if _begins_with(disk, path, known[newest]):
            lost.remove(newest)  # its writer died before it got that number
    return [
        Missing(os.path.join(directory, names.rotated(queue, one)), one, known[one]) for one in lost
    ]


def _begins_with(disk: disks.Disk, path: str, known: Sum) -> bool:
    """Says whether a file has the bytes of a sum at its front, or may have them."""
    try:
        with contextlib.closing(disk.open(path)) as file:
            return file.size() >= known.size and crc_of(file, known.size) == known.crc
    except FileNotFoundError:
        raise
    except OSError:
        return True  # that it cannot be read is reported elsewhere


def _files(
    disk: disks.Disk, directory: str, live: list[str]
) -> tuple[list[JournalFile], list[UnreadableError]]:
    """Returns the files of a queue, and those that cannot be read.

    Directories and the like are passed over, as Kestrel does.
    """
    files: list[JournalFile] = []
    refused: list[UnreadableError] = []
    last = ""
    for path in (os.path.join(directory, name) for name in live):
        try:
            files.append(JournalFile(disk, path))
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno == errno.EINVAL:
                continue
            refused.append(unreadable(path, error))
        last = path
    for file in files:
        file.is_last = file.path == last
    return files, refused


# -- checksums of a queue's files, in a small file beside them: Kestrel's format has none ---------
#
#     fjord-sums 1
#     904 32 6fea3b87
#     current 33 f64565fa 2049:1311 1000000000
#     crc 258250d2
#
# A line is a number, a size and a CRC-32C: so many bytes at the front of `cars.904` have that
# CRC. `current` is `cars`, and its line also says which file that was, and in which second it was
# written to last.  The last line is the CRC-32C of all lines before it.  A file that is not
# exactly so counts for nothing, and neither does one while there is a `.pack`: then a writer died
# while it replaced files.
#
# The file is called `cars~~sums`.  Kestrel takes that for something temporary and removes it when
# it opens the queue, so there are no sums of what a Kestrel 2 has written to.  Kestrel 1 and
# Starling leave it, but they replace `cars` alone: a `cars` that is another file than the one
# that was summed is not held to its sum, unless size and time say that it is a copy.
#
# The law for a writer: the sum of a file is durable before the file gets its name, and no sum is
# left of a name when another file gets it.  What is only appended to keeps its sum.
#
# Files go from the oldest on, and their sums go before them, or there is a `.pack`.  So one that
# a sum tells of, and that is not there though an older one is, is *missing*.  A writer that died
# while it rotated leaves the sum of a number that no file has yet: then `cars` has those bytes.


CURRENT: Final = names.CURRENT
# A line has less than 80 bytes, so that is more than 13,000 files.  Of more, there are no sums.
SUMS_BYTES_MAX: Final = 1 * limits.MIB

# To change the format: count the version up, and go on reading this one.
_SUMS_HEAD: Final = "fjord-sums 1\n"
_SUM_LINE: Final = re.compile(
    r"(current|0|[1-9][0-9]{0,18}) ([1-9][0-9]{0,18}) ([0-9a-f]{8})"
    r"(?: ([!-~]{1,40})(?: ([1-9][0-9]{0,18}))?)?",
    re.ASCII,
)

add_to_crc: Final[Callable[[int, bytes], int]] = google_crc32c.extend


class Sum(NamedTuple):
    """What the front of a file was."""

    size: int  # so many bytes
    crc: int  # have this CRC-32C
    identity: str = ""  # of the current file: which one it is
    written_s: int = 0  # and when it was written to last, 0 = not known


def is_held_to(known: Sum, size: int, identity: str, written_s: int) -> bool:
    """Says whether a file must match its sum: see above."""
    if not known.identity or identity == known.identity:
        return True
    return size == known.size and known.written_s in (0, written_s)


def missing_numbers(known: Mapping[int, Sum], there: Collection[int]) -> list[int]:
    """Returns the files that have a sum and are missing, though an older one is there."""
    oldest = min((number for number in there if number != CURRENT), default=None)
    if oldest is None:
        return []
    lost = (number for number in known if number not in there)
    return [number for number in lost if number == CURRENT or number > oldest]


def chunks(file: disks.File, start: int, end: int) -> Iterator[bytes]:
    """Yields the bytes of a part of a file, some at a time; it may end before."""
    while data := file.read(start, min(_CHUNK_BYTES, end - start)):
        yield data
        start += len(data)


def crc_of(
    file: disks.File, size: int, crc: int = 0, extend: Callable[[int, bytes], int] = add_to_crc
) -> int:
    """Returns the CRC of the front of a file, continuing that of others."""
    for data in chunks(file, 0, size):
        crc = extend(crc, data)
    return crc


def encode_sums(known: Mapping[int, Sum]) -> bytes:
    """Returns the bytes of a file of sums."""
    lines = [_SUMS_HEAD]
    for number in sorted(known, key=lambda one: (one == CURRENT, one)):
        name = "current" if number == CURRENT else str(number)
        size, crc, identity, written_s = known[number]
        lines.append(f"{name} {size} {crc:08x} {identity} {written_s or ''}".rstrip() + "\n")
    data = "".join(lines).encode("ascii")
    return data + f"crc {add_to_crc(0, data):08x}\n".encode("ascii")


def decode_sums(data: bytes) -> dict[int, Sum]:
    """Reads a file of sums; returns none if any byte of it is wrong."""
    known: dict[int, Sum] = {}
    if not data.startswith(_SUMS_HEAD.encode("ascii")):
        return known
    for line in data[len(_SUMS_HEAD) :].decode("ascii", "replace").splitlines():
        found = _SUM_LINE.fullmatch(line)
        if found is not None:
            name, size, crc, identity, written_s = found.groups()
            number = CURRENT if name == "current" else int(name)
            known[number] = Sum(int(size), int(crc, 16), identity or "", int(written_s or 0))
    # What was left out, or is there twice, is missing here.
    return known if encode_sums(known) == data else {}


def read_sums(disk: disks.Disk, folder: str, queue: str) -> dict[int, Sum]:
    """Returns the sums of a queue's files by their numbers; none if they cannot be read."""
    try:
        with contextlib.closing(disk.open(os.path.join(folder, names.sums(queue)))) as file:
            data = file.read(0, SUMS_BYTES_MAX + 1)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENAMETOOLONG):
            _log.warning("sums cannot be read", extra={"fields": {"queue": queue, "error": error}})
        return {}
    return decode_sums(data) if len(data) <= SUMS_BYTES_MAX else {}


def put_sums(disk: disks.Disk, folder: str, queue: str, known: Mapping[int, Sum]) -> bool:
    """Replaces the sums of a queue durably; False if there are none now, for want of space.

    Raises:
        OSError: if old sums may be left.
    """
    path = os.path.join(folder, names.sums(queue))
    data = encode_sums(known)
    if known and len(data) <= SUMS_BYTES_MAX:
        with contextlib.suppress(OSError):  # a queue does without them, but not with old ones
            disks.replace_whole(disk, path, data)
            current = os.path.join(folder, queue)
            disk.keep_owner(path, current if disk.exists(current) else folder)
            return True
    for name in names.sums(queue), names.sums_made(queue):
        if disk.exists(os.path.join(folder, name)):
            disk.remove(os.path.join(folder, name))
    disk.sync_directory(folder)
    return not known
