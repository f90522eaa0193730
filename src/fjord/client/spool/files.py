"""Files of a spool: names and headers, reading, erasing and removing.

The forwarder removes a file only under an exclusive lock, which it never waits for: writers have a
shared one for as long as they have it open; see `Appender`.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import errno
import fcntl
import functools
import mmap
import os
import re
import stat
import struct
import uuid
from binascii import Error, a2b_base64, b2a_base64, hexlify, unhexlify
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final
from zlib import crc32

from fjord import limits
from fjord.disk import LocalDisk, LocalLock, OpenFile
from fjord.errors import DirectoryError, DirectoryInUseError

SLOTS: Final = 24
CHUNK_BYTES: Final = 1024 * 1024  # that are read at once
PERIOD_SECONDS: Final = 3600
HEADER_BYTES: Final = 96
_MAGIC: Final = "#fjord-spool 1 "
_HEADER = re.compile(
    rb"#fjord-spool 1 ([0-9a-f]{32}) ([0-9a-f]{16}) ([0-9a-f]{16}) ([0-9a-f]{8}) *\n"
)
_NAME = re.compile(r"(\d\d|(old|retry)-[0-9a-f]{32})\.spool")
_ASIDE = re.compile(r"aside-[0-9a-f]{32}\.spool")
_NEW = re.compile(r"\.new-[0-9a-f]{32}")
COMMON: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a FIFO must not hold us up
_LOCK: Final = "forwarder.lock"

# Of fallocate(2): the pages of a stretch are given back, and the file stays as long as it is.
_PUNCH_HOLE: Final = 0x03
_PAGE: Final = mmap.PAGESIZE
_SPACES: Final = b" " * (2 * _PAGE)
#: Makes created, changed and removed names in a directory durable.
sync_directory: Final = LocalDisk().sync_directory
_libc = ctypes.CDLL(None, use_errno=True)
_fallocate: Final = getattr(_libc, "fallocate64", _libc.fallocate)  # musl has one for all sizes


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a file."""

    identity: bytes  # 16 bytes, another one for each file
    created_us: int
    boot: bytes  # 8 bytes, another one each time the machine is started

    @property
    def is_of_this_boot(self) -> bool:
        return self.boot == _boot()


# -- names and headers ----------------------------------------------------------------------------


def slot_of(now_us: int, period_us: int) -> int:
    """Returns the period of a time, counted from 1970."""
    return now_us // period_us


def name_of(slot: int) -> str:
    return f"{slot % SLOTS:02}.spool"


def waiting_names(directory: str) -> list[str]:
    """Returns the names of files to send."""
    return [name for name in sorted(os.listdir(directory)) if _NAME.fullmatch(name)]


def aside_names(directory: str) -> list[str]:
    """Returns the names of files that hold only records that were set aside."""
    return [name for name in sorted(os.listdir(directory)) if is_aside(name)]


def is_aside(name: str) -> bool:
    return _ASIDE.fullmatch(name) is not None


def named(what: str, identity: bytes) -> str:
    """Returns the name of a file that is `old`, of an earlier cycle or boot, `aside` or `retry`."""
    return f"{what}-{identity.hex()}.spool"


def encode_header(header: Header) -> bytes:
    identity, boot = header.identity.hex(), header.boot.hex()
    text = f"{_MAGIC}{identity} {header.created_us:016x} {boot} ".encode()
    line = text + b"%08x" % crc32(text)
    return line.ljust(HEADER_BYTES - 1) + b"\n"


def decode_header(data: bytes) -> Header | None:
    """Returns the header of a file; None if it is damaged."""
    match = _HEADER.fullmatch(data)
    if match is None or int(match[4], 16) != crc32(data[: match.start(4)]):
        return None
    return Header(unhexlify(match[1]), int(match[2], 16), unhexlify(match[3]))


def new_header(now_us: int) -> Header:
    return Header(uuid.uuid4().bytes, now_us, _boot())


@functools.cache
def _boot() -> bytes:
    return unhexlify(LocalDisk().boot_id().replace("-", ""))[:8]


# -- the directory --------------------------------------------------------------------------------


def make_directory(path: str) -> None:
    """Creates the directory of a spool, writable only by its owner.

    Raises:
        DirectoryError: if it cannot be created, or is not a directory.
    """
    try:
        if not os.path.isdir(path):
            os.makedirs(path, mode=0o700, exist_ok=True)
            sync_directory(os.path.dirname(os.path.abspath(path)))
    except OSError as error:
        raise DirectoryError(f"cannot create the spool {path}: {error.strerror}") from error


def status_of(directory: str, name: str) -> os.stat_result:
    return os.stat(os.path.join(directory, name), follow_symlinks=False)


def check_owner(path: str) -> None:
    """Checks that this process runs as the owner of a spool.

    Raises:
        DirectoryError: if the directory does not exist, or belongs to another user.
    """
    try:
        owner = os.stat(path).st_uid
    except OSError as error:
        raise DirectoryError(f"{path} cannot be used as a spool: {error.strerror}") from error
    if owner != os.geteuid():
        raise DirectoryError(f"{path} belongs to user {owner}; run this as that user")


def is_forwarded(path: str) -> bool:
    """Says whether a forwarder runs, without changing anything."""
    return LocalDisk().is_locked(os.path.join(path, _LOCK))


def lock_for_forwarder(directory: str) -> LocalLock:
    """Makes this process the one forwarder.

    Raises:
        DirectoryError: if the directory does not exist, or has another forwarder.
    """
    try:
        return LocalLock(os.path.join(directory, _LOCK), needs_space=False)
    except DirectoryInUseError as error:
        text = str(error).partition(" writes to ")[0]
        raise DirectoryInUseError(f"{text} forwards from {directory}; stop it first") from None
    except OSError as error:
        raise DirectoryError(f"{directory} cannot be used as a spool: {error.strerror}") from error


def prepare(directory: str, header: Header, data: bytes = b"") -> str:
    """Creates a durable file under a temporary name; returns its path."""
    fresh = os.path.join(directory, f".new-{header.identity.hex()}")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | COMMON, 0o600)
    try:
        data = encode_header(header) + data
        if os.write(fd, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), fresh)
        os.fsync(fd)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)
        raise
    finally:
        os.close(fd)
    return fresh


def make(directory: str, name: str, header: Header, data: bytes) -> None:
    """Creates a durable file, replacing one of this name."""
    os.rename(prepare(directory, header, data), os.path.join(directory, name))
    sync_directory(directory)


def remove_leftovers(directory: str) -> None:
    """Removes temporary files of writers that died.

    One that is being made goes with the rest; its writer then makes another.
    """
    for name in os.listdir(directory):
        if _NEW.fullmatch(name):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(directory, name))


def is_at(ours: os.stat_result, path: str) -> bool:
    """Says whether a path is still that of this file."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)


# -- the forwarder's side -------------------------------------------------------------------------


class SpoolFile(OpenFile):
    """A file that is read and erased piece by piece."""

    def __init__(self, directory: str, name: str, *, is_writable: bool = True) -> None:
        self.directory = directory
        self.name = name
        self.path = os.path.join(directory, name)
        self._fd = os.open(self.path, (os.O_RDWR if is_writable else os.O_RDONLY) | COMMON)
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            self.close()
            raise OSError(errno.EINVAL, "not a regular file", self.path)
        self.header = decode_header(self.read(0, HEADER_BYTES))  # None: it is damaged

    def read(self, offset: int, size: int) -> bytes:
        """Returns up to `size` bytes; fewer only at the end of the file."""
        return b"".join(self._pieces(offset, size))

    def _pieces(self, offset: int, size: int) -> Iterator[bytes]:
        while size and (data := os.pread(self._fd, size, offset)):
            yield data
            offset += len(data)
            size -= len(data)

    def stat(self) -> os.stat_result:
        return os.fstat(self._fd)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def next_data(self, offset: int) -> int:
        """Returns where the next data after a hole is, or the end."""
        try:
            return os.lseek(self._fd, offset, os.SEEK_DATA)
        except OSError as error:
            return self.size() if error.errno == errno.ENXIO else offset

    def erase(self, start: int, end: int) -> None:
        """Overwrites a range with spaces; whole pages become holes instead."""
        first, last = -(-start // _PAGE) * _PAGE, end // _PAGE * _PAGE
        if first < last and self._punch(first, last - first):
            self._blank(start, first)
            self._blank(last, end)
        else:
            self._blank(start, end)

    def put_status(self, offset: int, status: bytes) -> None:
        """Changes the first byte of a line."""
        os.pwrite(self._fd, status, offset)

    def put_header(self, header: Header) -> None:
        os.pwrite(self._fd, encode_header(header), 0)
        self.header = header

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def try_lock(self) -> bool:
        """Tries to take the exclusive lock; fails if a writer has the file open."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def is_named(self) -> bool:
        """Says whether the file still has its name."""
        return is_at(os.fstat(self._fd), self.path)

    def is_moved(self) -> bool:
        """Says whether the file was renamed."""
        return os.fstat(self._fd).st_nlink > 0 and not self.is_named()

    def remove(self) -> None:
        """Removes the file durably.  Assumes the exclusive lock."""
        os.unlink(self.path)
        sync_directory(self.directory)

    def rename(self, name: str) -> None:
        """Renames the file durably.  Assumes the exclusive lock."""
        path = os.path.join(self.directory, name)
        os.rename(self.path, path)
        self.name, self.path = name, path
        sync_directory(self.directory)

    def _punch(self, offset: int, size: int) -> bool:
        """Makes a hole; False if the file system cannot."""
        wide = ctypes.c_longlong
        return not _fallocate(self._fd, _PUNCH_HOLE, wide(offset), wide(size))

    def _blank(self, start: int, end: int) -> None:
        while start < end:
            size = min(end - start, len(_SPACES))
            spaces = _SPACES[:size]
            os.pwrite(self._fd, spaces if start + size < end else spaces[:-1] + b"\n", start)
            start += size


# -- lines of a spool file.  Pure -----------------------------------------------------------------
#
#     line = status length crc text "\n"
#
# A line begins with `@` or `!`, which are part of no text, and ends with a newline.  So whatever
# has happened to one, the next one is found.  What lies between whole lines is cut into pieces,
# each of which ends where a line may begin, or where something was erased:
#
#     blank     spaces, newlines and zeros      erased
#     aside     begins with `!`                 set aside before
#     torn      the beginning of a line         its writer died, or got an error
#     damaged   anything else


WAITING: Final = b"@"
ASIDE: Final = b"!"
BLANK: Final = b" \n\0"  # what was erased
HEAD_BYTES: Final = 17  # of a line: status, length, crc
# The largest line: that of a message of the wire, in base64.
LINE_BYTES_MAX: Final = 4 * limits.MESSAGE_BYTES_MAX // 3 + 64

_NUMBERS: Final = struct.Struct(">II")  # the length and the checksum
_LINE = re.compile(rb"@([0-9a-f]{8})([0-9a-f]{8})([A-Za-z0-9+/]*={0,2}\n)")
_PIECE = re.compile(rb"[^ \n\0][^@! \n\0]*")
_BEGUN = re.compile(rb"@(?:[0-9a-f]{0,15}|[0-9a-f]{16}[A-Za-z0-9+/]*={0,2})")


class Fate(enum.Enum):
    """Why a piece cannot be sent."""

    ASIDE = "set aside"
    TORN = "torn"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a file that is not a sendable line."""

    start: int  # offsets in the file
    end: int
    fate: Fate


@dataclass(slots=True)
class Lines:
    """The contents of a range of a file; line n goes from `starts[n]` to `ends[n]`."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    stop: int = 0  # all before this offset was looked at


def line_of(record: bytes) -> bytes:
    text = b2a_base64(record)
    return WAITING + hexlify(_NUMBERS.pack(len(text) - 1, crc32(text))) + text


def parse(data: bytes, offset: int, *, is_closed: bool = False) -> Lines:
    """Returns the lines in a range of a file.

    Args:
        data: the stretch; it begins where another one stopped.
        offset: where it begins in the file.
        is_closed: nothing follows, and nobody writes any more; else the last piece is left for
            later, when there is more of it.
    """
    whole = _parse_whole(data, offset)
    if whole is not None and (whole.stop == offset + len(data) or not is_closed):
        return whole
    found = Lines(stop=offset)
    starts, ends, records = found.starts, found.ends, found.records
    last = 0
    for match in _LINE.finditer(data):
        start, end = match.span()
        if start != last:
            found.pieces.extend(_pieces(data, last, start, offset))
        last = end
        length, crc, text = match.groups()
        record = _decode(text) if int(crc, 16) == crc32(text) else None
        if record is None or int(length, 16) != len(text) - 1:
            found.pieces.append(Piece(offset + start, offset + end, Fate.DAMAGED))
            continue
        starts.append(offset + start)
        ends.append(offset + end)
        records.append(record)
    for piece in _pieces(data, last, len(data), offset):
        if piece.end == offset + len(data) and not is_closed:
            found.stop = piece.start
            return found
        found.pieces.append(piece)
    found.stop = offset + len(data)
    return found


def _parse_whole(data: bytes, offset: int) -> Lines | None:
    """Returns the lines of a range that has only good ones up to its last newline.

    Returns None for any other.  This is what a forwarder nearly always meets, and no step of
    Python is made for each line.
    """
    found = _LINE.findall(data)
    if not found:
        return None
    lengths, sums, texts = zip(*found, strict=True)
    sizes = [HEAD_BYTES + len(text) for text in texts]
    ends = list(accumulate(sizes, initial=offset))
    if ends[-1] != offset + data.rfind(b"\n") + 1 or _numbers(sums) != tuple(map(crc32, texts)):
        return None
    if _numbers(lengths) != tuple([size - HEAD_BYTES - 1 for size in sizes]):
        return None
    try:
        records = list(map(a2b_base64, texts))
    except Error:
        return None
    return Lines(ends[:-1], ends[1:], records, [], ends[-1])


def _numbers(digits: tuple[bytes, ...]) -> tuple[int, ...]:
    """Parses numbers of eight hexadecimal digits."""
    return struct.unpack(f">{len(digits)}I", unhexlify(b"".join(digits)))


def _decode(text: bytes) -> bytes | None:
    try:
        return a2b_base64(text)
    except Error:
        return None


def _pieces(data: bytes, start: int, end: int, offset: int) -> Iterator[Piece]:
    while match := _PIECE.search(data, start, end):
        piece = match[0]
        if piece.startswith(ASIDE):
            fate = Fate.ASIDE
        else:
            fate = Fate.TORN if _is_torn(piece) else Fate.DAMAGED
        yield Piece(offset + match.start(), offset + match.end(), fate)
        start = match.end()


def _is_torn(piece: bytes) -> bool:
    """Says whether a piece is the beginning of a line."""
    if not _BEGUN.fullmatch(piece):
        return False
    return len(piece) < HEAD_BYTES or len(piece) - HEAD_BYTES <= int(piece[1:9], 16)


def stretch(file: SpoolFile, start: int, end: int, *, is_closed: bool) -> Lines:
    """Returns the lines in a range of a file, or in its beginning if it is long.

    Args:
        is_closed: nobody writes to the file any more, so half a line will never be whole.
    """
    for size in (CHUNK_BYTES, LINE_BYTES_MAX):
        data = file.read(start, min(size, end - start))
        is_all = start + len(data) >= end
        found = parse(data, start, is_closed=is_closed and is_all)
        if found.stop > start or is_all:
            return found
    return parse(data, start, is_closed=True)  # it is longer than any line
