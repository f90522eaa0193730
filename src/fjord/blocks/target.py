"""A folder that jobs write tables to: on this machine, or wherever fsspec can reach.

What says what is true is a small file, and such a file is there whole or not at all.  It is *made*,
by one of all who try to, or *replaced*.

On this machine a file is written under another name and synced.  A link gives it its name, which
must be free: that is how one of several wins; or it is renamed.  Elsewhere the store decides.  S3,
Google's and Azure's refuse to make what is there already; where fsspec knows no such call, it looks
first and writes then, and two who do so at the same instant are not told apart.

Names of what is written carry the moment at which it was begun (`stamp`), so the age of something
that was left behind is known in every store.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from typing import IO, Any, Final, Protocol

import fsspec
from fsspec.core import url_to_fs

from fjord.clock import Clock, SystemClock
from fjord.disk import Disk, LocalDisk, read_whole, replace_whole

_STAMP: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
_UNFINISHED: Final = ".unfinished"


def stamp(clock: Clock | None = None) -> str:
    """Returns a name that nobody else has: 16 digits of now, and 16 of chance."""
    return f"{(clock or SystemClock()).wall_us():016x}{LocalDisk().new_uuid().hex()[:16]}"


def stamped_us(name: str) -> int | None:
    """Returns when a name with a stamp was made, as Unix microseconds; None if it has none."""
    found = _STAMP.search(name)
    return int(found[0][:16], 16) if found else None


class Target(Protocol):
    """Files below a location, by paths that have no `..` in them."""

    location: str  # as Spark calls it

    def shown(self, path: str) -> str:
        """Returns a path as Spark and people call it."""
        ...

    def read(self, path: str) -> bytes:
        """Returns the bytes of a small file.

        Raises:
            FileNotFoundError: if it is not there.
        """
        ...

    def make(self, path: str, data: bytes) -> None:
        """Ensures that a new file durably holds `data`.

        Raises:
            FileExistsError: if there is one of this name.
        """
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Ensures that a file durably holds `data`, in place of what it held."""
        ...

    def names(self, folder: str = "") -> list[str]:
        """Returns the names in a folder, sorted; none if it does not exist."""
        ...

    def open(self, path: str) -> IO[bytes]: ...

    def size(self, path: str) -> int: ...

    def sync(self, folder: str, names: list[str]) -> None:
        """Ensures that files which others have written survive a power cut, where we can."""
        ...

    def remove(self, path: str) -> None:
        """Ensures that a file, or a folder with all that is in it, is not there."""
        ...


def target_at(location: str) -> Target:
    """Returns the folder at a path or a URL; nothing is made yet."""
    if "://" not in location or location.startswith("file://"):
        return LocalTarget(location.removeprefix("file://"))
    return RemoteTarget(location)


class LocalTarget:
    """A folder of this machine."""

    def __init__(self, path: str, *, disk: Disk | None = None) -> None:
        self.location = os.path.abspath(path)
        self._disk = disk or LocalDisk()

    def shown(self, path: str) -> str:
        return os.path.join(self.location, path)

    def read(self, path: str) -> bytes:
        found = read_whole(self._disk, self.shown(path))
        if found is None:
            raise FileNotFoundError(self.shown(path))
        return found

    def make(self, path: str, data: bytes) -> None:
        folder = self._made_folder(path)
        draft = os.path.join(folder, f".{stamp()}{_UNFINISHED}")
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
        self._made_folder(path)
        replace_whole(self._disk, self.shown(path), data)

    def names(self, folder: str = "") -> list[str]:
        return self._disk.names(self.shown(folder))

    def open(self, path: str) -> IO[bytes]:
        found: IO[bytes] = fsspec.filesystem("file").open(self.shown(path), "rb")
        return found

    def size(self, path: str) -> int:
        return os.stat(self.shown(path)).st_size

    def sync(self, folder: str, names: list[str]) -> None:
        for name in names:
            path = os.path.join(self.shown(folder), name)
            with contextlib.closing(self._disk.open(path)) as file:
                file.sync()
        self._disk.sync_directory(self.shown(folder))
        self._disk.sync_directory(self.location)

    def remove(self, path: str) -> None:
        full = self.shown(path)
        with contextlib.suppress(FileNotFoundError):
            if os.path.isdir(full):
                shutil.rmtree(full)
            else:
                self._disk.remove(full)

    def _made_folder(self, path: str) -> str:
        """Ensures that the folder of a file is there, durably; returns it."""
        folder = os.path.dirname(self.shown(path))
        if not self._disk.exists(folder):
            self._disk.make_directory(folder)
            for above in (folder, os.path.dirname(folder), os.path.dirname(self.location)):
                self._disk.sync_directory(above)
        return folder


class RemoteTarget:
    """A folder that fsspec reaches."""

    def __init__(self, location: str) -> None:
        self.location = location.rstrip("/")
        self._files: Any
        self._files, root = url_to_fs(location)
        self._root = root.rstrip("/")

    def shown(self, path: str) -> str:
        return f"{self.location}/{path}"

    def read(self, path: str) -> bytes:
        found: bytes = self._files.cat_file(self._path(path))
        return found

    def make(self, path: str, data: bytes) -> None:
        self._files.makedirs(self._path(path).rpartition("/")[0], exist_ok=True)
        self._files.invalidate_cache()
        self._files.pipe_file(self._path(path), data, mode="create")

    def replace(self, path: str, data: bytes) -> None:
        self._files.makedirs(self._path(path).rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(self._path(path), data)

    def names(self, folder: str = "") -> list[str]:
        self._files.invalidate_cache()
        try:
            found = self._files.ls(self._path(folder).rstrip("/"), detail=False)
        except FileNotFoundError:
            return []
        return sorted(one.rstrip("/").rpartition("/")[2] for one in found)

    def open(self, path: str) -> IO[bytes]:
        found: IO[bytes] = self._files.open(self._path(path), "rb")
        return found

    def size(self, path: str) -> int:
        return int(self._files.size(self._path(path)))

    def sync(self, folder: str, names: list[str]) -> None:
        """An object store answers when it has what it was given."""

    def remove(self, path: str) -> None:
        # One by one: what removes many at once takes brackets in a name for a pattern.
        for one in self._files.find(self._path(path)):
            with contextlib.suppress(FileNotFoundError):
                self._files.rm_file(one)
        with contextlib.suppress(OSError, NotImplementedError):
            self._files.rmdir(self._path(path))  # object stores have no folders

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}"
