"""Where blocks are kept: a local folder, or whatever fsspec can reach.

    <location>/<table>-<id>/<first>-<last>-<tag>.parquet      the rows of a block
    <location>/<table>-<id>/_<first>-<last>-<tag>.json        its metadata, written after them

Readers of Parquet pass over names that begin with an underscore, so a folder is a table for them.

A file is there whole or not at all.  In a folder it is written under another name, synced, renamed
and its directory synced, all through a `Disk`.  Object stores show an upload once it is whole; what
goes there is written to a temporary file first, since its name is known only at its end.

Names of files come from `history.block_name` only, and are checked here all the same.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import tempfile
from abc import abstractmethod
from collections.abc import Iterator
from typing import IO, Any, Final, Protocol

import fsspec
import google_crc32c
from fsspec.core import url_to_fs

from fjord import disk as disks
from fjord import limits
from fjord.history import data_path, described_block, metadata_path

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*-[0-9]+/[0-9]{20}-[0-9]{20}-[0-9a-f]{16}\Z")
_FOLDER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*-[0-9]+\Z")
_DATA: Final = ".parquet"  # see history.data_path
_UNFINISHED: Final = ".unfinished"
_UNFINISHED_METADATA: Final = ".json.new"  # see disk.replace_whole
_REWRITTEN: Final = ".rewritten"
_LOCK: Final = "sealing.lock"
_REWRITING_LOCK: Final = "rewriting.lock"
_CHUNK_BYTES: Final = 1 * limits.MIB


class Draft(io.RawIOBase):
    """A file that has no name yet: it is written from beginning to end, and then kept or not."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0
        self.crc = 0  # CRC32C of all that was written
        self._waiting: list[bytes] = []  # what comes in small pieces is written in large ones
        self._waiting_bytes = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: Any) -> int:
        piece = bytes(data)  # what is bytes already is not copied
        self.crc = google_crc32c.extend(self.crc, piece)
        self.size += len(piece)
        self._waiting.append(piece)
        self._waiting_bytes += len(piece)
        if self._waiting_bytes >= _CHUNK_BYTES:
            self._write_waiting()
        return len(piece)

    def _write_waiting(self) -> None:
        self._append(b"".join(self._waiting))
        self._waiting.clear()
        self._waiting_bytes = 0

    def keep(self, name: str) -> None:
        """Ensures that this is the data of the block `name`, durably, in place of any other."""
        self._write_waiting()
        self._keep(_checked(name))

    @abstractmethod
    def drop(self) -> None:
        """Takes away what was written, if it was not kept."""

    @abstractmethod
    def _append(self, data: bytes) -> None: ...

    @abstractmethod
    def _keep(self, name: str) -> None: ...


class Files(Protocol):
    """Files at a location, by paths below it that are checked already."""

    is_shared: bool  # other processes see them too

    def read(self, path: str) -> bytes: ...

    def write(self, path: str, data: bytes) -> None: ...

    def open(self, path: str) -> IO[bytes]: ...

    def size(self, path: str) -> int: ...

    def exists(self, path: str) -> bool: ...

    def remove(self, path: str) -> None: ...

    def folders(self) -> list[str]: ...

    def names(self, folder: str) -> list[str]: ...

    def draft(self, folder: str, suffix: str) -> Draft: ...

    def lock(self, name: str) -> contextlib.AbstractContextManager[None]: ...

    def shown(self, path: str) -> str: ...


class Store:
    """The files of all blocks of one node.  Safe to use from several threads.

    Args:
        location: a path, or a URL that fsspec knows: file, memory, s3 and many more.
        disk: what a local folder is on.
    """

    def __init__(self, location: str, *, disk: disks.Disk | None = None) -> None:
        self.location = location
        self._files: Files
        if "://" not in location or location.startswith("file://"):
            path = os.path.abspath(location.removeprefix("file://"))
            self._files = _Folder(disk or disks.LocalDisk(), path)
            self._is_local = disk is None or isinstance(disk, disks.LocalDisk)
        else:
            self._is_local = False
            self._files = _Remote(location)

    @property
    def is_shared(self) -> bool:
        """Says whether other processes see it too."""
        return self._files.is_shared

    def draft(self, name: str, *, is_rewrite: bool = False) -> Draft:
        """Returns a file to write the data of a block to; any name of its table will do.

        `is_rewrite`: its rows are in other blocks, and whoever has the lock of rewriting writes it.
        """
        suffix = _REWRITTEN if is_rewrite else _UNFINISHED
        return self._files.draft(_checked(name).partition("/")[0], suffix)

    def open(self, name: str) -> IO[bytes]:
        """Opens the data of a block for reading.

        Raises:
            FileNotFoundError: if it is not there.
        """
        return self._files.open(data_path(_checked(name)))

    def local_path(self, name: str) -> str | None:
        """Returns where the data of a block is on this machine; None if it is elsewhere."""
        return self.path(name) if self._is_local else None

    def size(self, name: str) -> int:
        """Returns how many bytes of data a block has."""
        return self._files.size(data_path(_checked(name)))

    def checksum(self, name: str) -> int:
        """Returns the CRC32C of the data of a block."""
        crc = 0
        with self.open(name) as file:
            while data := file.read(_CHUNK_BYTES):
                crc = google_crc32c.extend(crc, data)
        return int(crc)

    def read_metadata(self, name: str) -> bytes:
        return self._files.read(metadata_path(_checked(name)))

    def write_metadata(self, name: str, data: bytes) -> None:
        """Ensures that `data` is the metadata of a block, durably, in place of any other."""
        self._files.write(metadata_path(_checked(name)), data)

    def exists(self, name: str) -> bool:
        """Says whether a block is there whole: its metadata is written last."""
        return self._files.exists(metadata_path(_checked(name)))

    def has_data(self, name: str) -> bool:
        return self._files.exists(data_path(_checked(name)))

    def remove(self, name: str) -> None:
        """Ensures that a block is not there; its metadata goes first.

        It goes once more behind the data: who changed it meanwhile looks at the data afterwards.
        """
        data, metadata = data_path(_checked(name)), metadata_path(name)
        for path in (metadata, data, metadata):
            try:
                self._files.remove(path)
            except FileNotFoundError:
                pass  # it went before a crash, or was never there

    def names(self, folder: str = "") -> list[str]:
        """Returns the names of all blocks, or of those of one table's folder, in order."""
        found = [
            described_block(f"{one}/{file}")
            for one in ([folder] if folder else self.folders())
            for file in self._files.names(one)
        ]
        return sorted(name for name in found if _NAME.match(name))

    def data_names(self, folder: str) -> list[str]:
        """Returns the names of all data in a table's folder, with metadata or without, in order."""
        found = [f"{folder}/{file.removesuffix(_DATA)}" for file in self._files.names(folder)]
        return sorted({name for name in found if _NAME.match(name)})

    def folders(self) -> list[str]:
        """Returns the folders of all tables that have blocks."""
        return sorted(folder for folder in self._files.folders() if _FOLDER.match(folder))

    def drop_unfinished(self, folder: str) -> None:
        """Removes what a writer that died has left behind.

        Assumes that the caller has the lock.
        """
        self._drop(folder, (_UNFINISHED, _UNFINISHED_METADATA))

    def drop_rewrites(self, folder: str) -> None:
        """Removes what somebody who rewrote blocks, and died, has left behind.

        Assumes that the caller has the lock of rewriting.
        """
        self._drop(folder, (_REWRITTEN,))

    def _drop(self, folder: str, suffixes: tuple[str, ...]) -> None:
        for file in self._files.names(folder):
            if file.endswith(suffixes):
                self._files.remove(f"{folder}/{file}")

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Keeps other writers of blocks out of a folder.

        Raises:
            DirectoryInUseError: if there is one.
        """
        return self._files.lock(_LOCK)

    def rewriting_lock(self) -> contextlib.AbstractContextManager[None]:
        """Keeps others out of a folder who rewrite blocks; sealing goes on.

        Raises:
            DirectoryInUseError: if there is one.
        """
        return self._files.lock(_REWRITING_LOCK)

    def path(self, name: str) -> str:
        """Returns where the data of a block is, as Spark and people call it."""
        return self._files.shown(data_path(_checked(name)))

    def metadata_path(self, name: str) -> str:
        return self._files.shown(metadata_path(_checked(name)))


def _checked(name: str) -> str:
    if not _NAME.match(name):
        raise ValueError(f"{name!r} is not the name of a block")
    return name


# -- a local folder -------------------------------------------------------------------------------


class _Folder:
    """Files in a folder of a disk."""

    is_shared = True

    def __init__(self, disk: disks.Disk, root: str) -> None:
        self._disk = disk
        self._root = root

    def read(self, path: str) -> bytes:
        found = disks.read_whole(self._disk, self.shown(path))
        if found is None:
            raise _missing(self.shown(path))
        return found

    def write(self, path: str, data: bytes) -> None:
        disks.replace_whole(self._disk, self.shown(path), data)

    def open(self, path: str) -> IO[bytes]:
        if not self._disk.exists(self.shown(path)):
            raise _missing(self.shown(path))
        return io.BufferedReader(_Reading(self._disk.open(self.shown(path))))

    def size(self, path: str) -> int:
        if not self._disk.exists(self.shown(path)):
            raise _missing(self.shown(path))
        with contextlib.closing(self._disk.open(self.shown(path))) as file:
            return file.size()

    def exists(self, path: str) -> bool:
        return self._disk.exists(self.shown(path))

    def remove(self, path: str) -> None:
        if not self.exists(path):
            raise _missing(self.shown(path))
        self._disk.remove(self.shown(path))
        self._disk.sync_directory(os.path.dirname(self.shown(path)))

    def folders(self) -> list[str]:
        return self._disk.names(self._root)

    def names(self, folder: str) -> list[str]:
        return self._disk.names(self.shown(folder))

    def draft(self, folder: str, suffix: str) -> Draft:
        self._make(self.shown(folder))
        return _LocalDraft(self._disk, self._root, folder, suffix)

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        self._make(self._root)
        held = self._disk.lock(self.shown(name))
        try:
            yield
        finally:
            held.release()

    def shown(self, path: str) -> str:
        return os.path.join(self._root, path)

    def _make(self, path: str) -> None:
        """Ensures that a directory is there, durably."""
        if self._disk.exists(path):
            return
        above = os.path.dirname(path)
        self._make(above)
        self._disk.make_directory(path)
        self._disk.sync_directory(above)


class _LocalDraft(Draft):
    """A draft in the folder that it will stay in."""

    def __init__(self, disk: disks.Disk, root: str, folder: str, suffix: str) -> None:
        super().__init__()
        self._disk = disk
        self._root = root
        self._path = os.path.join(root, folder, f"_{disk.new_uuid().hex()}{suffix}")
        self._file = disk.open(self._path, writable=True, create=True)
        self._end = 0
        self._is_kept = False

    def _append(self, data: bytes) -> None:
        self._file.write(self._end, data)
        self._end += len(data)

    def _keep(self, name: str) -> None:
        path = os.path.join(self._root, data_path(name))
        self._file.sync()
        self._disk.rename(self._path, path)
        self._is_kept = True
        self._disk.sync_directory(os.path.dirname(path))

    def drop(self) -> None:
        self._file.close()
        if not self._is_kept and self._disk.exists(self._path):
            self._disk.remove(self._path)


class _Reading(io.RawIOBase):
    """A file of a disk as Python reads one."""

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


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


# -- everything else ------------------------------------------------------------------------------


class _Remote:
    """Files that fsspec reaches."""

    def __init__(self, location: str) -> None:
        self._files: fsspec.AbstractFileSystem
        self._files, root = url_to_fs(location)
        self._root = root.rstrip("/")
        self._location = location.rstrip("/")
        self.is_shared = not location.startswith("memory://")

    def read(self, path: str) -> bytes:
        found: bytes = self._files.cat_file(self._path(path))
        return found

    def write(self, path: str, data: bytes) -> None:
        self._files.makedirs(self._path(path).rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(self._path(path), data)

    def open(self, path: str) -> IO[bytes]:
        found: IO[bytes] = self._files.open(self._path(path), "rb")
        return found

    def size(self, path: str) -> int:
        return int(self._files.size(self._path(path)))

    def exists(self, path: str) -> bool:
        self._files.invalidate_cache()  # others write here too
        return bool(self._files.exists(self._path(path)))

    def remove(self, path: str) -> None:
        self._files.rm_file(self._path(path))

    def folders(self) -> list[str]:
        return self._names(self._root)

    def names(self, folder: str) -> list[str]:
        return self._names(self._path(folder))

    def draft(self, folder: str, suffix: str) -> Draft:
        return _RemoteDraft(self)

    def lock(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Uploads are whole, so two writers of one block only do the work twice."""
        return contextlib.nullcontext()

    def shown(self, path: str) -> str:
        return f"{self._location}/{path}"

    def upload(self, source: str, path: str) -> None:
        self._files.makedirs(self._path(path).rpartition("/")[0], exist_ok=True)
        self._files.put_file(source, self._path(path))

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _names(self, path: str) -> list[str]:
        self._files.invalidate_cache()
        try:
            found = self._files.ls(path, detail=False)
        except FileNotFoundError:
            return []
        return [one.rstrip("/").rpartition("/")[2] for one in found]


class _RemoteDraft(Draft):
    """A draft in a temporary file, to be uploaded."""

    def __init__(self, files: _Remote) -> None:
        super().__init__()
        self._files = files
        self._file = tempfile.NamedTemporaryFile(prefix="fjord-", suffix=_UNFINISHED)  # noqa: SIM115 - `drop` closes it

    def _append(self, data: bytes) -> None:
        self._file.write(data)

    def _keep(self, name: str) -> None:
        self._file.flush()
        self._files.upload(self._file.name, data_path(name))

    def drop(self) -> None:
        self._file.close()
