"""The only caller of files.

Everything that must survive goes through a `Disk`: the real one is here, `fjord.testing.SimDisk`
loses, tears and reorders what was not synced.  Paths are strings and are used as they are.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import stat
import struct
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from fjord.errors import DirectoryInUseError

# struct flock: type, whence, start, length (0 = to the end), process.
_FLOCK = struct.Struct("hhqqi4x")
_WHOLE_FILE = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)

# How many pieces the kernel accepts in one call.
_PARTS_MAX = 1024
_ZEROS_BYTES = 1024 * 1024
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_full(error: OSError) -> bool:
    """Returns whether a write failed for lack of space, not because of a broken disk."""
    return error.errno in _FULL


class File(Protocol):
    """An open file, read and written at given offsets."""

    def read(self, offset: int, size: int) -> bytes:
        """Returns up to `size` bytes; fewer only at the end of the file."""

    def write(self, offset: int, data: bytes) -> None: ...

    def write_parts(self, offset: int, parts: Sequence[bytes]) -> None:
        """Writes pieces one after the other, as one write."""

    def sync(self) -> None:
        """Ensures that everything written survives a power cut (fdatasync)."""

    def allocate(self, size: int) -> None:
        """Ensures that `size` bytes of the file can be written without more space."""

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class Page(Protocol):
    """A few bytes of a file that processes share through memory.

    Writing never fails and never blocks; what was written survives the process, and may or may
    not survive a power cut.
    """

    def read(self) -> bytes: ...

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class Lock(Protocol):
    """An exclusive lock on a directory, released when its process ends."""

    def release(self) -> None: ...


class Disk(Protocol):
    """The file system and the machine, as the journal and the engine need them."""

    def boot_id(self) -> str:
        """Changes whenever the machine restarts, and so whenever a page cache is lost."""

    def new_uuid(self) -> bytes: ...

    def make_directory(self, path: str) -> None: ...

    def names(self, path: str) -> list[str]:
        """Returns the names in a directory, sorted; none if it does not exist."""

    def exists(self, path: str) -> bool: ...

    def identity(self, path: str) -> str | None:
        """Returns an identity that a copy of the file does not have, None if there is no file."""

    def modified_s(self, path: str) -> int:
        """Returns when a file was last written to, in seconds since 1970; 0 if there is none."""

    def free_bytes(self, path: str) -> int:
        """Returns the free space that this process may use in the file system of a path."""

    def open(self, path: str, *, writable: bool = False, create: bool = False) -> File: ...

    def open_page(self, path: str, *, writable: bool = False) -> Page: ...

    def rename(self, old: str, new: str) -> None: ...

    def keep_owner(self, path: str, old: str) -> None:
        """Gives a file the owner and the mode of another, or a directory's owner alone."""
        ...

    def link(self, old: str, new: str) -> None:
        """Gives a file a second name, which must be free."""

    def remove(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """Removes a directory, which must be empty."""

    def sync_directory(self, path: str) -> None:
        """Ensures that names created, changed or removed in `path` are durable."""

    def lock(self, path: str) -> Lock:
        """Takes the writer's lock.

        Raises:
            DirectoryInUseError: if another process holds it.
        """

    def is_locked(self, path: str) -> bool: ...


def read_whole(disk: Disk, path: str) -> bytes | None:
    """Returns a small file's bytes, None if it does not exist."""
    if not disk.exists(path):
        return None
    with contextlib.closing(disk.open(path)) as file:
        return file.read(0, file.size())


def sync_upwards(disk: Disk, directory: str) -> None:
    """Syncs a directory and its parents, up to one that may not be read.

    Any of them may have been created just now, by this process or by one that crashed; a directory
    that may not be read was not created by Fjord.
    """
    with contextlib.suppress(PermissionError):
        while True:
            disk.sync_directory(directory)
            if directory == os.path.dirname(directory):
                break
            directory = os.path.dirname(directory)


def replace_whole(disk: Disk, path: str, data: bytes) -> None:
    """Ensures that `path` durably holds `data`: either the old bytes or the new, never a mix."""
    fresh = path + ".new"
    with contextlib.closing(disk.open(fresh, writable=True, create=True)) as file:
        file.truncate(0)
        file.write(0, data)
        file.sync()
    disk.rename(fresh, path)
    disk.sync_directory(os.path.dirname(path))


def overwrite(disk: Disk, path: str) -> None:
    """Ensures that a file durably holds only zeros, as many bytes as it had."""
    with contextlib.closing(disk.open(path, writable=True)) as file:
        size = file.size()
        for offset in range(0, size, _ZEROS_BYTES):
            file.write(offset, bytes(min(_ZEROS_BYTES, size - offset)))
        file.sync()


class OpenFile:
    """A descriptor that is closed with its object at the latest."""

    _fd = -1

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class LocalFile(OpenFile):
    """A file of the operating system."""

    def __init__(self, path: str, *, writable: bool, create: bool) -> None:
        flags = os.O_RDWR if writable else os.O_RDONLY
        flags |= os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
        self._fd = os.open(path, flags | os.O_NONBLOCK, 0o600)  # a FIFO must not block
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            self.close()
            raise OSError(errno.EINVAL, "not a regular file", path)

    def read(self, offset: int, size: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        while data and (size := size - len(data)):
            offset += len(data)
            data = os.pread(self._fd, size, offset)
            parts.append(data)
        return b"".join(parts)

    def write(self, offset: int, data: bytes) -> None:
        done = os.pwrite(self._fd, data, offset)
        while done < len(data):
            done += os.pwrite(self._fd, memoryview(data)[done:], offset + done)

    def write_parts(self, offset: int, parts: Sequence[bytes]) -> None:
        done = os.pwritev(self._fd, parts[:_PARTS_MAX], offset)
        if done < sum(map(len, parts)):
            self.write(offset + done, b"".join(parts)[done:])

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def allocate(self, size: int) -> None:
        before = self.size()
        try:
            os.posix_fallocate(self._fd, 0, size)
        except OSError:
            os.ftruncate(self._fd, before)  # ext4 keeps what it could allocate
            raise

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def fileno(self) -> int:
        return self._fd


class LocalPage:
    """A mapped file, allocated before it is mapped, so that writing never meets a full disk."""

    def __init__(self, path: str, *, writable: bool) -> None:
        file = LocalFile(path, writable=writable, create=writable)
        try:
            if writable:
                file.allocate(mmap.PAGESIZE)
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            # A truncated file is treated like a page of zeros.
            fd = file.fileno() if file.size() >= mmap.PAGESIZE else -1
            self._map = mmap.mmap(fd, mmap.PAGESIZE, access=access)
        finally:
            file.close()

    def read(self) -> bytes:
        return self._map[:]

    def write(self, data: bytes) -> None:
        self._map[: len(data)] = data

    def close(self) -> None:
        self._map.close()


class LocalLock:
    """An open-file-description lock: tested without side effects, released with its descriptor."""

    def __init__(self, path: str, *, needs_space: bool = True) -> None:
        """Takes the lock.

        Args:
            path: the file.
            needs_space: False: a disk too full to record the holder does not matter.
        """
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _WHOLE_FILE)
        except BlockingIOError:
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip()
            os.close(self._fd)
            raise DirectoryInUseError(
                f"process {holder or '(unknown)'} writes to {os.path.dirname(path)}; "
                "stop it, or open with read_only=True"
            ) from None
        if not os.path.exists(path) or not os.path.samestat(os.fstat(self._fd), os.stat(path)):
            self.release()
            raise DirectoryInUseError(f"{os.path.dirname(path)} was just removed; try again")
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            if needs_space or not is_full(error):
                self.release()
                raise

    def release(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class LocalDisk:
    """The file system of this machine."""

    def boot_id(self) -> str:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    def new_uuid(self) -> bytes:
        return uuid.uuid4().bytes

    def make_directory(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)

    def names(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def identity(self, path: str) -> str | None:
        try:
            status = os.stat(path, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return None if stat.S_ISDIR(status.st_mode) else f"{status.st_dev}:{status.st_ino}"

    def modified_s(self, path: str) -> int:
        try:
            return max(0, int(os.stat(path, follow_symlinks=False).st_mtime))
        except FileNotFoundError:
            return 0

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def open(self, path: str, *, writable: bool = False, create: bool = False) -> LocalFile:
        return LocalFile(path, writable=writable, create=create)

    def open_page(self, path: str, *, writable: bool = False) -> LocalPage:
        return LocalPage(path, writable=writable)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def keep_owner(self, path: str, old: str) -> None:
        status = os.stat(old)
        if not stat.S_ISDIR(status.st_mode):
            os.chmod(path, stat.S_IMODE(status.st_mode))
        with contextlib.suppress(PermissionError):  # only root may give files away
            os.chown(path, status.st_uid, status.st_gid, follow_symlinks=False)

    def link(self, old: str, new: str) -> None:
        os.link(old, new, follow_symlinks=False)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> LocalLock:
        return LocalLock(path)

    def is_locked(self, path: str) -> bool:
        if not self.exists(path):
            return False
        with open(path, "rb") as file:
            answer = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _WHOLE_FILE)
        kind: int = _FLOCK.unpack(answer)[0]
        return kind != fcntl.F_UNLCK
