"""Files at a location, a local folder or anything that fsspec supports, and drafts of new blocks.

Jobs write tables to such a folder; nodes write blocks, which are drafted, locked and wiped.

A file exists whole or not at all.  A small file is *made*, by exactly one of several writers, or
*replaced*.  On this machine it is written under another name and synced, all through a `Disk`.
Then a link gives it its name, which must be free, so that one of several writers wins; or it is
renamed.  Elsewhere the store decides.  S3, Google's and Azure's stores refuse to make an existing
file; where fsspec has no such call, it checks first and then writes, and two writers at the same
instant are not detected.

Object stores show an upload once it is whole.  A draft of a block is first written to a temporary
file, since its name is known only at its end.  It then becomes a file, or it is set aside, under a
name that readers ignore, until it is adopted.  An adopted draft never replaces another file.

Names of written files contain the moment at which they were begun (`stamp`), so the age of
leftovers is known in every store.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import shutil
import tempfile
from abc import abstractmethod
from collections.abc import Iterator
from typing import IO, Any, Final

import google_crc32c
from fsspec import url_to_fs

from fjord import disk as disks
from fjord import limits
from fjord.clock import Clock, SystemClock
from fjord.history import data_path

#: Suffixes of drafts that are not adopted: one written by sealing, and one that was set aside.
UNFINISHED: Final = ".unfinished"
REWRITTEN: Final = ".rewritten"
_UNWIPED: Final = ".old"  # a file that is about to be overwritten
_STAMP: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*-[0-9]+/[0-9]{20}-[0-9]{20}-[0-9a-f]{16}\Z")


def is_name(name: str) -> bool:
    """Returns whether this is a valid name of a block."""
    return _NAME.match(name) is not None


def checked(name: str) -> str:
    """Checks the name of a block, and returns it.

    Raises:
        ValueError: if it is invalid.
    """
    if not is_name(name):
        raise ValueError(f"{name!r} is not the name of a block")
    return name


def stamp(clock: Clock | None = None) -> str:
    """Returns a unique name: 16 digits of the current time, and 16 random ones."""
    return f"{(clock or SystemClock()).wall_us():016x}{disks.LocalDisk().new_uuid().hex()[:16]}"


def stamped_us(name: str) -> int | None:
    """Returns when a stamped name was made, as Unix microseconds; None if it has no stamp."""
    found = _STAMP.search(name)
    return int(found[0][:16], 16) if found else None


class Draft(io.RawIOBase):
    """A file without a name: written from beginning to end, and then kept or not."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0
        self.crc = 0  # CRC32C of all written data
        self._waiting: list[bytes] = []  # small pieces are collected into large ones
        self._waiting_bytes = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: Any) -> int:
        piece = bytes(data)  # bytes are not copied
        self.crc = google_crc32c.extend(self.crc, piece)
        self.size += len(piece)
        self._waiting.append(piece)
        self._waiting_bytes += len(piece)
        if self._waiting_bytes >= limits.CHUNK_BYTES:
            self._write_waiting()
        return len(piece)

    def _write_waiting(self) -> None:
        self._append(b"".join(self._waiting))
        self._waiting.clear()
        self._waiting_bytes = 0

    @abstractmethod
    def keep(self, name: str) -> None:
        """Ensures that this is the data of the block `name`, durably, replacing any other."""

    @abstractmethod
    def set_aside(self, folder: str) -> str:
        """Keeps the draft, durably, where it is not taken for a block; returns its path."""

    @abstractmethod
    def drop(self) -> None:
        """Removes what was written, if it was not kept."""

    @abstractmethod
    def _append(self, data: bytes) -> None: ...


# -- a local folder -------------------------------------------------------------------------------


class LocalTarget:
    """A folder of this machine; paths have no `..` in them."""

    is_shared = True  # other processes see it too
    has_locks = True  # `lock` excludes others

    def __init__(self, path: str, *, disk: disks.Disk | None = None) -> None:
        self.location = os.path.abspath(path)  # as Spark calls it
        self._disk = disk or disks.LocalDisk()

    def shown(self, path: str) -> str:
        """Returns a path as Spark and people write it."""
        return os.path.join(self.location, path)

    def read(self, path: str) -> bytes:
        """Returns the bytes of a small file.

        Raises:
            FileNotFoundError: if it is not there.
        """
        found = disks.read_whole(self._disk, self.shown(path))
        if found is None:
            raise _failed(FileNotFoundError, errno.ENOENT, self.shown(path))
        return found

    def make(self, path: str, data: bytes) -> None:
        """Ensures that a new file durably holds `data`.

        Raises:
            FileExistsError: if it exists.
        """
        folder = os.path.dirname(self.shown(path))
        self._make_folder(folder)
        draft = os.path.join(folder, f".{stamp()}{UNFINISHED}")
        file = self._disk.open(draft, writable=True, create=True)
        try:
            with contextlib.closing(file):
                file.write(0, data)
                file.sync()
            self._disk.link(draft, self.shown(path))
        finally:
            self._disk.remove(draft)
        self._disk.sync_directory(folder)

    def replace(self, path: str, data: bytes) -> None:
        """Ensures that a file durably holds `data`, replacing its contents."""
        self._make_folder(os.path.dirname(self.shown(path)))
        disks.replace_whole(self._disk, self.shown(path), data)

    def names(self, folder: str = "") -> list[str]:
        """Returns the names in a folder, sorted; none if it does not exist."""
        return self._disk.names(self.shown(folder).rstrip("/"))

    def exists(self, path: str) -> bool:
        return self._disk.exists(self.shown(path))

    def open(self, path: str) -> IO[bytes]:
        return io.BufferedReader(_Reading(self._opened(path)))

    def size(self, path: str) -> int:
        with contextlib.closing(self._opened(path)) as file:
            return file.size()

    def sync(self, folder: str, names: list[str]) -> None:
        """Ensures that files written by others survive a power cut, if possible."""
        for name in names:
            path = os.path.join(self.shown(folder), name)
            with contextlib.closing(self._disk.open(path)) as file:
                file.sync()
        self._disk.sync_directory(self.shown(folder))
        self._disk.sync_directory(self.location)

    def remove(self, path: str) -> None:
        """Ensures that a file, or a folder with its contents, does not exist."""
        full = self.shown(path)
        with contextlib.suppress(FileNotFoundError):
            if os.path.isdir(full):
                shutil.rmtree(full)
            else:
                self.remove_file(path)

    def remove_file(self, path: str) -> None:
        full = self.shown(path)
        if self._disk.exists(full):
            self._disk.remove(full)
            self._disk.sync_directory(os.path.dirname(full))

    # -- for blocks -------------------------------------------------------------------------------

    def draft(self, folder: str, suffix: str) -> Draft:
        self._make_folder(self.shown(folder))
        return LocalDraft(self._disk, self.location, folder, suffix)

    def adopt(self, path: str, name: str) -> None:
        """Ensures that a draft that was set aside is the data of a new block, durably.

        Raises:
            FileNotFoundError: if it is gone.
            FileExistsError: if the block has data already; that stays unchanged.
        """
        self._require(path)
        target = self.shown(data_path(name))
        self._disk.link(self.shown(path), target)  # fails if the name is taken
        self._disk.remove(self.shown(path))
        self._disk.sync_directory(os.path.dirname(target))

    def wipe(self, path: str) -> None:
        """Overwrites a file, if it is there, and removes it."""
        shown = self.shown(path)
        folder, name = os.path.split(shown)
        unwiped = os.path.join(folder, f"_{name}{_UNWIPED}")  # which Spark ignores
        if self._disk.exists(shown):
            # Under another name first: under its own it is whole, or does not exist.
            self._disk.rename(shown, unwiped)
            self._disk.sync_directory(folder)
        if self._disk.exists(unwiped):
            disks.overwrite(self._disk, unwiped)
            self._disk.remove(unwiped)
            self._disk.sync_directory(folder)

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        self._make_folder(self.location)
        held = self._disk.lock(self.shown(name))
        try:
            yield
        finally:
            held.release()

    # -- internals --------------------------------------------------------------------------------

    def _require(self, path: str) -> None:
        if not self.exists(path):
            raise _failed(FileNotFoundError, errno.ENOENT, self.shown(path))

    def _opened(self, path: str) -> disks.File:
        self._require(path)
        return self._disk.open(self.shown(path))

    def _make_folder(self, path: str) -> None:
        """Ensures that a folder exists, durably."""
        if self._disk.exists(path):
            return
        above = os.path.dirname(path)
        self._make_folder(above)
        self._disk.make_directory(path)
        self._disk.sync_directory(above)


class LocalDraft(Draft):
    """A draft in its final folder."""

    def __init__(self, disk: disks.Disk, root: str, folder: str, suffix: str) -> None:
        super().__init__()
        self._disk = disk
        self._root = root
        self._path = os.path.join(root, folder, f"_{disk.new_uuid().hex()}{suffix}")
        self._file = disk.open(self._path, writable=True, create=True)
        self._is_kept = False

    def _append(self, data: bytes) -> None:
        self._file.write(self.size - len(data), data)

    def keep(self, name: str) -> None:
        path = os.path.join(self._root, data_path(checked(name)))
        self._write_waiting()
        self._file.sync()
        self._disk.rename(self._path, path)
        self._is_kept = True
        self._disk.sync_directory(os.path.dirname(path))

    def set_aside(self, folder: str) -> str:
        self._write_waiting()
        self._file.sync()
        self._is_kept = True
        self._disk.sync_directory(os.path.dirname(self._path))
        return os.path.relpath(self._path, self._root)

    def drop(self) -> None:
        self._file.close()
        if not self._is_kept and self._disk.exists(self._path):
            self._disk.remove(self._path)


class _Reading(io.RawIOBase):
    """A file of a disk as a Python file object."""

    def __init__(self, file: disks.File) -> None:
        super().__init__()
        self._file = file
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        bases = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._file.size()}
        self._position = bases[whence] + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(self._position, len(buffer))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _failed(kind: type[OSError], number: int, path: str) -> OSError:
    return kind(number, os.strerror(number), path)


# -- other locations ------------------------------------------------------------------------------


class RemoteTarget:
    """A folder that fsspec supports."""

    has_locks = False

    def __init__(self, location: str) -> None:
        self.location = location.rstrip("/")
        self.is_shared = not location.startswith("memory://")
        self._files: Any
        self._files, root = url_to_fs(location)
        self._root = root.rstrip("/")

    def shown(self, path: str) -> str:
        return f"{self.location}/{path}"

    def read(self, path: str) -> bytes:
        found: bytes = self._files.cat_file(self._path(path))
        return found

    def make(self, path: str, data: bytes) -> None:
        self._make_folder_of(path)
        self._files.invalidate_cache()
        self._files.pipe_file(self._path(path), data, mode="create")

    def replace(self, path: str, data: bytes) -> None:
        self._make_folder_of(path)
        self._files.pipe_file(self._path(path), data)

    def names(self, folder: str = "") -> list[str]:
        self._files.invalidate_cache()
        try:
            found = self._files.ls(self._path(folder).rstrip("/"), detail=False)
        except FileNotFoundError:
            return []
        return sorted(one.rstrip("/").rpartition("/")[2] for one in found)

    def exists(self, path: str) -> bool:
        self._files.invalidate_cache()  # others write here too
        return bool(self._files.exists(self._path(path)))

    def open(self, path: str) -> IO[bytes]:
        found: IO[bytes] = self._files.open(self._path(path), "rb")
        return found

    def size(self, path: str) -> int:
        return int(self._files.size(self._path(path)))

    def sync(self, folder: str, names: list[str]) -> None:
        """Does nothing: object stores answer once they have the data."""

    def remove(self, path: str) -> None:
        # One by one: removing many at once takes brackets in a name for a pattern.
        for one in self._files.find(self._path(path)):
            with contextlib.suppress(FileNotFoundError):
                self._files.rm_file(one)
        with contextlib.suppress(OSError, NotImplementedError):
            self._files.rmdir(self._path(path))  # object stores have no folders

    # -- for blocks -------------------------------------------------------------------------------

    def remove_file(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.rm_file(self._path(path))

    def wipe(self, path: str) -> None:
        """Does nothing: the store would write new data elsewhere."""

    def draft(self, folder: str, suffix: str) -> Draft:
        return RemoteDraft(self)

    def adopt(self, path: str, name: str) -> None:
        # Names of blocks are unique, so this one is not taken between the check and the move.
        if self.exists(data_path(name)):
            raise _failed(FileExistsError, errno.EEXIST, self.shown(data_path(name)))
        self._files.mv(self._path(path), self._path(data_path(name)))

    def lock(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Excludes nobody.

        Uploads are whole, so two writers that seal one block only do the work twice; and two that
        rewrite blocks make different ones, of which the node takes one.
        """
        return contextlib.nullcontext()

    def upload(self, source: str, path: str) -> None:
        self._make_folder_of(path)
        self._files.put_file(source, self._path(path))

    # -- internals --------------------------------------------------------------------------------

    def _make_folder_of(self, path: str) -> None:
        self._files.makedirs(self._path(path).rpartition("/")[0], exist_ok=True)

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}"


class RemoteDraft(Draft):
    """A draft in a temporary file, to be uploaded."""

    def __init__(self, files: RemoteTarget) -> None:
        super().__init__()
        self._files = files
        self._file = tempfile.NamedTemporaryFile(prefix="fjord-", suffix=UNFINISHED)  # noqa: SIM115 - `drop` closes it

    def _append(self, data: bytes) -> None:
        self._file.write(data)

    def keep(self, name: str) -> None:
        self._upload(data_path(checked(name)))

    def set_aside(self, folder: str) -> str:
        return self._upload(f"{folder}/_{stamp()}{REWRITTEN}")

    def _upload(self, path: str) -> str:
        self._write_waiting()
        self._file.flush()
        self._files.upload(self._file.name, path)
        return path

    def drop(self) -> None:
        self._file.close()


Target = LocalTarget | RemoteTarget


def target_at(location: str, *, disk: disks.Disk | None = None) -> Target:
    """Returns the folder at a path or a URL; nothing is created yet.

    Args:
        disk: for a local folder.
    """
    if "://" not in location or location.startswith("file://"):
        return LocalTarget(location.removeprefix("file://"), disk=disk)
    return RemoteTarget(location)
