"""Files of a spool: their names, how they are made, written, read, erased and removed.

Writers and the forwarder agree by locks on the files themselves.  A writer has a shared lock on a
file for as long as it has it open; the forwarder removes a file only under an exclusive one, which
it never waits for.  A writer that gets its lock looks whether the name still means this file.

A file is written to in one period only, so that what is in a later one was written later; if it
is still there when its name comes round again, it gets another name, and is only sent.  So does one
from before the machine was last started: a power cut may have taken its end, also what the daemon
has of it, and would take for that what is written to those offsets again.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import mmap
import os
import re
import stat
import uuid
import zlib
from binascii import unhexlify
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from fjord.disk import LocalDisk, LocalLock
from fjord.errors import DirectoryError, DirectoryInUseError

SLOTS: Final = 24
PERIOD_SECONDS: Final = 3600
HEADER_BYTES: Final = 96
_MAGIC: Final = "#fjord-spool 1 "
_HEADER = re.compile(
    rb"#fjord-spool 1 ([0-9a-f]{32}) ([0-9a-f]{16}) ([0-9a-f]{16}) ([0-9a-f]{8}) *\n"
)
_NAME = re.compile(r"(\d\d|(old|retry)-[0-9a-f]{32})\.spool")
_ASIDE = re.compile(r"aside-[0-9a-f]{32}\.spool")
_NEW = re.compile(r"\.new-[0-9a-f]{32}")
_COMMON: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a FIFO must not hold us up
_LOCK: Final = "forwarder.lock"
_SOCKET: Final = "forwarder.sock"
_ADDRESS_BYTES_MAX: Final = 107  # of a Unix socket

# Of fallocate(2): the pages of a stretch are given back, and the file stays as long as it is.
_PUNCH_HOLE: Final = 0x03
_PAGE: Final = mmap.PAGESIZE
_SPACES: Final = b" " * (2 * _PAGE)
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says of itself."""

    identity: bytes  # 16 bytes, another one for each file
    created_us: int
    boot: bytes  # 8 bytes, another one each time the machine is started

    @property
    def is_of_this_boot(self) -> bool:
        return self.boot == _boot()


# -- names and headers ----------------------------------------------------------------------------


def slot_of(now_us: int, period_us: int) -> int:
    """Returns the period that a moment is in, counted from 1970."""
    return now_us // period_us


def name_of(slot: int) -> str:
    return f"{slot % SLOTS:02}.spool"


def waiting_names(directory: str) -> list[str]:
    """Returns the names of files that are to be sent."""
    return [name for name in sorted(os.listdir(directory)) if _NAME.fullmatch(name)]


def aside_names(directory: str) -> list[str]:
    """Returns the names of files that hold nothing but what was set aside."""
    return [name for name in sorted(os.listdir(directory)) if is_aside(name)]


def is_aside(name: str) -> bool:
    return _ASIDE.fullmatch(name) is not None


def aside_name(identity: bytes) -> str:
    return f"aside-{identity.hex()}.spool"


def old_name(identity: bytes) -> str:
    """Returns the name of a file that was begun before the machine was last started."""
    return f"old-{identity.hex()}.spool"


def retry_name(identity: bytes) -> str:
    return f"retry-{identity.hex()}.spool"


def encode_header(header: Header) -> bytes:
    identity, boot = header.identity.hex(), header.boot.hex()
    text = f"{_MAGIC}{identity} {header.created_us:016x} {boot} ".encode()
    line = text + b"%08x" % zlib.crc32(text)
    return line.ljust(HEADER_BYTES - 1) + b"\n"


def decode_header(data: bytes) -> Header | None:
    """Returns the header of a file; None if it is damaged."""
    match = _HEADER.fullmatch(data)
    if match is None or int(match[4], 16) != zlib.crc32(data[: match.start(4)]):
        return None
    return Header(unhexlify(match[1]), int(match[2], 16), unhexlify(match[3]))


def new_header(now_us: int) -> Header:
    return Header(uuid.uuid4().bytes, now_us, _boot())


@functools.cache
def _boot() -> bytes:
    return unhexlify(LocalDisk().boot_id().replace("-", ""))[:8]


# -- the directory --------------------------------------------------------------------------------


def make_directory(path: str) -> None:
    """Makes the directory of a spool; nobody but its owner can write there.

    Raises:
        DirectoryError: if it cannot be made, or is none.
    """
    try:
        if not os.path.isdir(path):
            os.makedirs(path, mode=0o700, exist_ok=True)
            sync_directory(os.path.dirname(os.path.abspath(path)))
    except OSError as error:
        raise DirectoryError(f"{path} cannot be made a spool: {error.strerror}") from error


def status_of(directory: str, name: str) -> os.stat_result:
    return os.stat(os.path.join(directory, name), follow_symlinks=False)


def owner_of(path: str) -> int:
    """Returns the user that a directory belongs to."""
    return os.stat(path).st_uid


def check_owner(path: str) -> None:
    """Ensures that files which this process makes in a spool can be used by who writes to it.

    Raises:
        DirectoryError: if the directory is not there, or belongs to somebody else.
    """
    try:
        owner = owner_of(path)
    except OSError as error:
        raise DirectoryError(f"{path} cannot be used as a spool: {error.strerror}") from error
    if owner != os.geteuid():
        raise DirectoryError(f"{path} belongs to user {owner}; run this as that user")


def is_forwarded(path: str) -> bool:
    """Says whether a forwarder runs; nothing is touched."""
    return LocalDisk().is_locked(os.path.join(path, _LOCK))


def sync_directory(path: str) -> None:
    """Ensures that names made, changed or removed in `path` stay so."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def lock_for_forwarder(directory: str) -> LocalLock:
    """Makes this process the one forwarder.

    Raises:
        DirectoryError: if the directory is not there, or another process forwards from it.
    """
    try:
        return LocalLock(os.path.join(directory, _LOCK), needs_space=False)
    except DirectoryInUseError as error:
        text = str(error).partition(" writes to ")[0]
        raise DirectoryInUseError(f"{text} forwards from {directory}; one at a time") from None
    except OSError as error:
        raise DirectoryError(f"{directory} cannot be used as a spool: {error.strerror}") from error


def remove_leftovers(directory: str) -> None:
    """Removes what writers that died while they made a file have left.

    One that is being made goes with the rest; its writer then makes another.
    """
    for name in os.listdir(directory):
        if _NEW.fullmatch(name):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(directory, name))


@contextlib.contextmanager
def socket_address(directory: str, *, is_new: bool = False) -> Iterator[str]:
    """Yields the address of the forwarder's socket, also where the path is too long for one.

    Args:
        is_new: what is left there of an earlier forwarder is removed.
    """
    path = os.path.join(directory, _SOCKET)
    if is_new:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    if len(os.fsencode(path)) <= _ADDRESS_BYTES_MAX:
        yield path
        return
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{_SOCKET}"
    finally:
        os.close(fd)


class Flag:
    """One byte that processes share: whether the forwarder is asleep, and wants a PING."""

    def __init__(self, directory: str) -> None:
        path = os.path.join(directory, "asleep")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | _COMMON, 0o600)
        try:
            os.posix_fallocate(fd, 0, _PAGE)  # a full disk must not be met by a write to memory
            self.byte = mmap.mmap(fd, _PAGE)
        finally:
            os.close(fd)

    def __bool__(self) -> bool:
        return self.byte[0] != 0

    def put(self, *, is_set: bool) -> None:
        self.byte[0] = is_set

    def close(self) -> None:
        self.byte.close()


# -- the writer's side ----------------------------------------------------------------------------


class Appender:
    """A file that is open for writing, beside any number of others that write to it."""

    _fd = -1

    def __init__(self, directory: str, now_us: int, period_us: int, *, flags: int = 0) -> None:
        self.slot = slot_of(now_us, period_us)
        name = name_of(self.slot)
        path = os.path.join(directory, name)
        flags |= os.O_RDWR | os.O_APPEND | _COMMON
        while True:
            try:
                fd = os.open(path, flags)
            except FileNotFoundError:
                _make(directory, name, now_us)
                continue
            self._fd = fd  # from here on it is closed with the object
            if _hold(fd, path) and self._is_usable(directory, path, period_us):
                return
            self.close()

    def _is_usable(self, directory: str, path: str, period_us: int) -> bool:
        """Gives a file from earlier another name; False if the name is to be opened anew."""
        header = decode_header(os.pread(self._fd, HEADER_BYTES, 0))
        if header is None:
            return True  # damaged; the forwarder mends it
        if not header.is_of_this_boot:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            # Nobody keeps such a file open: others who look at it are done in a moment.
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        elif slot_of(header.created_us, period_us) != self.slot:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            if not _try_lock(self._fd):
                # Somebody has it open since then, or gives it another name just now.
                return _hold(self._fd, path)
        else:
            return True
        if _is_at(os.fstat(self._fd), path):
            os.rename(path, os.path.join(directory, old_name(header.identity)))
            sync_directory(directory)
        return False

    def write(self, line: bytes) -> int:
        """Adds a line; returns how much of it was written: less if the disk is full."""
        return os.write(self._fd, line)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __del__(self) -> None:
        self.close()


def _make(directory: str, name: str, now_us: int) -> None:
    """Makes a file with its header, unless another writer was faster."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    header = new_header(now_us)
    fresh = os.path.join(directory, f".new-{header.identity.hex()}")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _COMMON, 0o600)
    try:
        if os.write(fd, encode_header(header)) != HEADER_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), fresh)
        os.fsync(fd)
        os.link(fresh, os.path.join(directory, name), follow_symlinks=False)
    except FileExistsError:
        return  # it is there now, whoever has made it
    except FileNotFoundError:
        return  # the forwarder took it for a leftover; once more
    finally:
        os.close(fd)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)
    sync_directory(directory)


def _hold(fd: int, path: str) -> bool:
    """Takes the writer's lock; False if the name means another file by now, or none."""
    fcntl.flock(fd, fcntl.LOCK_SH)
    ours = os.fstat(fd)
    if not stat.S_ISREG(ours.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    return _is_at(ours, path)


def _is_at(ours: os.stat_result, path: str) -> bool:
    try:
        found = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# -- the forwarder's side -------------------------------------------------------------------------


class SpoolFile:
    """A file that is read, and erased bit by bit."""

    _fd = -1

    def __init__(self, directory: str, name: str, *, is_writable: bool = True) -> None:
        self.directory = directory
        self.name = name
        self.path = os.path.join(directory, name)
        self._fd = os.open(self.path, (os.O_RDWR if is_writable else os.O_RDONLY) | _COMMON)
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

    def erase(self, start: int, end: int) -> None:
        """Overwrites a stretch with spaces; whole pages give their space back instead."""
        first, last = -(-start // _PAGE) * _PAGE, end // _PAGE * _PAGE
        if first < last and self._punch(first, last - first):
            self._blank(start, first)
            self._blank(last, end)
        else:
            self._blank(start, end)

    def put_status(self, offset: int, status: bytes) -> None:
        """Changes the first byte of a line."""
        os.pwrite(self._fd, status, offset)

    def put_end(self, offset: int) -> None:
        """Writes the last byte of a line."""
        os.pwrite(self._fd, b"\n", offset)

    def put_header(self, header: Header) -> None:
        os.pwrite(self._fd, encode_header(header), 0)
        self.header = header

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def try_lock(self) -> bool:
        """Takes the exclusive lock, unless a writer has the file open."""
        return _try_lock(self._fd)

    def unlock(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def is_named(self) -> bool:
        """Says whether its name still means this file."""
        return _is_at(os.fstat(self._fd), self.path)

    def is_moved(self) -> bool:
        """Says whether it has another name by now."""
        return os.fstat(self._fd).st_nlink > 0 and not self.is_named()

    def remove(self) -> None:
        """Removes the file for good.  Assumes the exclusive lock."""
        os.unlink(self.path)
        sync_directory(self.directory)

    def rename(self, name: str) -> None:
        """Gives the file another name, for good.  Assumes the exclusive lock."""
        path = os.path.join(self.directory, name)
        os.rename(self.path, path)
        self.name, self.path = name, path
        sync_directory(self.directory)

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    def _punch(self, offset: int, size: int) -> bool:
        """Gives pages back to the disk; False where the file system cannot."""
        wide = ctypes.c_longlong
        failed: int = _libc.fallocate64(self._fd, _PUNCH_HOLE, wide(offset), wide(size))
        return not failed

    def _blank(self, start: int, end: int) -> None:
        while start < end:
            size = min(end - start, len(_SPACES))
            spaces = _SPACES[:size]
            os.pwrite(self._fd, spaces if start + size < end else spaces[:-1] + b"\n", start)
            start += size
