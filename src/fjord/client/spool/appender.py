"""Writing to spool files: any number of processes append to one, and none waits for another.

A writer has a shared lock on a file for as long as it has it open.  When it has got the lock it
looks whether the name still means this file, since the forwarder may just have removed it.

A file is written to in one period only, so that what is in a later one was written later; if it
is still there when its name comes round again, it gets another name, and is only sent.  So does one
from before the machine was last started: a power cut may have taken its end, also what the daemon
has of it, and would take for that what is written to those offsets again.  Who renames has a lock
on the directory, so that only one does; and its own lock on the file keeps the forwarder away.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator

from fjord.client.spool import files
from fjord.client.spool.files import COMMON, HEADER_BYTES


class Appender:
    """A file that is open for writing, beside any number of others that write to it."""

    _fd = -1

    def __init__(self, directory: str, now_us: int, period_us: int, *, flags: int = 0) -> None:
        self.slot = files.slot_of(now_us, period_us)
        name = files.name_of(self.slot)
        path = os.path.join(directory, name)
        flags |= os.O_RDWR | os.O_APPEND | COMMON
        while True:
            try:
                fd = os.open(path, flags)
            except FileNotFoundError:
                _make(directory, name, now_us)
                continue
            self._fd = fd  # from here on it is closed with the object
            if _hold(fd, path) and not self._put_away(directory, path, period_us):
                return
            self.close()

    def write(self, line: bytes) -> int:
        """Adds a line; returns how much of it was written: less if the disk is full."""
        return os.write(self._fd, line)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def is_removed(self) -> bool:
        """Says whether somebody has removed the file; what is written to it then is lost."""
        return os.fstat(self._fd).st_nlink == 0

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    def _put_away(self, directory: str, path: str, period_us: int) -> bool:
        """Gives a file from earlier another name; False if it is none."""
        header = files.decode_header(os.pread(self._fd, HEADER_BYTES, 0))
        if header is None:
            return False  # damaged; the forwarder mends it
        if header.is_of_this_boot and files.slot_of(header.created_us, period_us) == self.slot:
            return False
        with _locked(directory):
            if files.is_at(os.fstat(self._fd), path):
                os.rename(path, os.path.join(directory, files.old_name(header.identity)))
                files.sync_directory(directory)
        return True


def _make(directory: str, name: str, now_us: int) -> None:
    """Makes a file with its header, unless another writer was faster."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    fresh = files.prepare(directory, files.new_header(now_us))
    try:
        os.link(fresh, os.path.join(directory, name), follow_symlinks=False)
    except FileExistsError:
        return  # it is there now, whoever has made it
    except FileNotFoundError:
        return  # the forwarder took it for a leftover; once more
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)
    files.sync_directory(directory)


def _hold(fd: int, path: str) -> bool:
    """Takes the writer's lock; False if the name means another file by now, or none."""
    fcntl.flock(fd, fcntl.LOCK_SH)
    ours = os.fstat(fd)
    if not stat.S_ISREG(ours.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    return files.is_at(ours, path)


@contextlib.contextmanager
def _locked(directory: str) -> Iterator[None]:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
