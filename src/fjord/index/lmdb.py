"""The index on LMDB; the only module that imports lmdb.

The journal is the truth, so LMDB runs without fsync and with a writable map, which doubles its
rates.  This is safe because the file is allocated before it is mapped, and the map is never larger
than what is allocated.  A full disk is then an error at `grow`, never a SIGBUS; an index that runs
out of map raises IndexFullError, and the caller grows it and runs the transaction again.  A
transaction must begin and end on the same thread.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import os
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any

import lmdb

from fjord import limits
from fjord.errors import DirectoryInUseError, UnavailableError
from fjord.index import IndexDamagedError, IndexFullError
from fjord.layouts import Items

_FILE = "data.mdb"
# Raised when trees or entries change their layout: an older index is then rebuilt.
_LAYOUT = 6
_READERS_MAX = 1024
_PAGE_BYTES = 4096
# A delete copies a few pages of each tree; the reserve is for many deletes.
_RESERVE_PAGES_MIN = 64
_RESERVE_SHARE = 16
# If far more than the reserve is left, it is checked only once in so many times.
_PLENTY = 4
_LOOK_AGAIN = 15
# After so many keys of a deletion that were not adjacent, it stops looking for adjacent ones.
_JUMPS_MAX = 8
# How many items a scan reads first.
_SCAN_FIRST = 32


def _translation(error: Exception) -> Exception:
    """Translates an error of LMDB into the contract of this package."""
    if isinstance(error, lmdb.MapFullError):
        return IndexFullError()
    if isinstance(error, lmdb.DiskError) or os.strerror(errno.EFBIG) in str(error):
        return OSError(errno.ENOSPC, f"the index could not be written: {error}")
    if isinstance(error, lmdb.ReadersFullError):
        return UnavailableError(f"{_READERS_MAX} processes are reading this directory already")
    if "already open" in str(error):
        return DirectoryInUseError(
            "this process has already opened the directory; use that database object"
        )
    return IndexDamagedError()


class LmdbTransaction:
    """A transaction over all trees."""

    def __init__(self, transaction: Any, trees: list[Any]) -> None:
        self._transaction = transaction
        self._trees = trees

    def get(self, tree: int, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._transaction.get(key, db=self._trees[tree])
        except lmdb.Error as error:
            raise _translation(error) from error
        return value

    def get_many(self, tree: int, keys: Sequence[bytes]) -> list[bytes | None]:
        try:
            if len(keys) == 1:
                return [self._transaction.get(keys[0], db=self._trees[tree])]
            found = self._transaction.cursor(db=self._trees[tree]).getmulti(keys)
        except lmdb.Error as error:
            raise _translation(error) from error
        if not found:
            return [None] * len(keys)
        return list(map(dict(found).get, keys))

    def put_many(self, tree: int, items: Sequence[tuple[bytes, bytes]]) -> None:
        try:
            if len(items) == 1:
                self._transaction.put(*items[0], db=self._trees[tree])
                return
            self._transaction.cursor(db=self._trees[tree]).putmulti(items)
        except lmdb.Error as error:
            raise _translation(error) from error

    def delete_many(self, tree: int, keys: Iterable[bytes]) -> None:
        try:
            cursor = self._transaction.cursor(db=self._trees[tree])
            find, here, delete = cursor.set_key, cursor.key, cursor.delete
            jumps = 0
            rest = iter(keys)
            for key in rest:
                # The item after a deleted one is often the next to delete.
                if here() != key:
                    jumps += 1
                    if not find(key):
                        continue
                delete()
                if jumps > _JUMPS_MAX:
                    break
            # These are spread over the tree.
            remove, db = self._transaction.delete, self._trees[tree]
            for key in rest:
                remove(key, b"", db)
        except lmdb.Error as error:
            raise _translation(error) from error

    def scan(self, tree: int, start: bytes, stop: bytes | None, limit: int) -> Items:
        items: Items = []
        try:
            cursor = self._transaction.cursor(db=self._trees[tree])
            if not cursor.set_range(start):
                return items
            found = cursor.iternext(keys=True, values=True)
            # In growing pieces: if the stop is near, little is read beyond it.
            size = _SCAN_FIRST
            while len(items) < limit:
                piece = list(islice(found, min(size, limit - len(items))))
                items += piece
                if len(piece) < size or (stop is not None and piece[-1][0] >= stop):
                    break
                size *= 2
        except lmdb.Error as error:
            raise _translation(error) from error
        if stop is not None and items and items[-1][0] >= stop:
            del items[bisect.bisect_left(items, stop, key=itemgetter(0)) :]
        return items

    def count(self, tree: int) -> int:
        entries: int = self._transaction.stat(self._trees[tree])["entries"]
        return entries

    def commit(self) -> None:
        try:
            self._transaction.commit()
        except lmdb.Error as error:
            raise _translation(error) from error

    def abort(self) -> None:
        self._transaction.abort()


class LmdbIndex:
    """An open LMDB environment."""

    def __init__(
        self, directory: str, tree_count: int, *, step_bytes: int, read_only: bool
    ) -> None:
        self._path = os.path.join(directory, _FILE)
        self._step_bytes = self._first_step_bytes = step_bytes
        self._reserve_pages = max(step_bytes // _RESERVE_SHARE // _PAGE_BYTES, _RESERVE_PAGES_MIN)
        self._unlooked = 0  # how often the reserve may be assumed without a check
        self._map_bytes = max(os.path.getsize(self._path), step_bytes)
        if not read_only:
            self._allocate(self._map_bytes)
        self._environment = _open(
            directory,
            map_size=self._map_bytes,
            max_dbs=tree_count,
            readonly=read_only,
            writemap=not read_only,
        )
        try:
            self._trees = [
                self._environment.open_db(b"tree-%d" % tree, create=not read_only)
                for tree in range(tree_count)
            ]
        except lmdb.Error as error:
            self._environment.close()
            raise _translation(error) from error

    def begin(self) -> LmdbTransaction:
        return LmdbTransaction(self._environment.begin(write=True), self._trees)

    def view(self) -> LmdbTransaction:
        try:
            return LmdbTransaction(self._environment.begin(), self._trees)
        except lmdb.MapResizedError:
            self._environment.set_mapsize(0)  # adopt the size of the writer's file
            return LmdbTransaction(self._environment.begin(), self._trees)

    def has_reserve(self) -> bool:
        if self._unlooked:
            self._unlooked -= 1
            return True
        pages = self._map_bytes // _PAGE_BYTES
        last_page: int = self._environment.info()["last_pgno"]
        if pages - last_page > _PLENTY * self._reserve_pages:
            self._unlooked = _LOOK_AGAIN
        if pages - last_page > self._reserve_pages:
            return True
        # There may be little space after the last page; freed pages count as well.
        return pages - self._used_pages() > self._reserve_pages

    def _used_pages(self) -> int:
        with self._environment.begin() as transaction:
            found = [transaction.stat(tree) for tree in self._trees]
        kinds = ("branch_pages", "leaf_pages", "overflow_pages")
        return sum(stat[kind] for stat in found for kind in kinds)

    def grow(self) -> None:
        self._environment.reader_check()  # a killed reader must not hold pages for ever
        size = self._allocate_more()
        self._environment.set_mapsize(size)
        self._map_bytes = size
        # Growth is geometric up to a point: a rebuild of many rows should not retry too often.
        self._step_bytes = min(2 * self._step_bytes, 16 * limits.INDEX_STEP_BYTES)

    def sync(self) -> None:
        self._environment.sync(True)

    def close(self) -> None:
        self._environment.close()

    def _allocate_more(self) -> int:
        """Allocates a step, or a smaller one if the disk is short; returns the new size."""
        step = self._step_bytes
        while True:
            size = self._map_bytes + step
            try:
                if size > limits.INDEX_BYTES_MAX:
                    raise OSError(errno.ENOSPC, "the index has reached its maximum size")
                self._allocate(size)
            except OSError as error:
                if error.errno != errno.ENOSPC or step <= self._first_step_bytes:
                    raise
                step = max(self._first_step_bytes, step // 2)
            else:
                return size

    def _allocate(self, size: int) -> None:
        fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        before = os.fstat(fd).st_size
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError:
            os.ftruncate(fd, before)  # ext4 keeps what it could allocate
            raise
        finally:
            os.close(fd)


class LmdbIndexes:
    """The LMDB index of one directory."""

    def __init__(
        self, directory: str, tree_count: int, *, step_bytes: int = limits.INDEX_STEP_BYTES
    ) -> None:
        self._directory = directory
        self._tree_count = tree_count
        self._step_bytes = step_bytes

    def identity(self) -> str | None:
        try:
            status = os.stat(os.path.join(self._directory, _FILE), follow_symlinks=False)
        except FileNotFoundError:
            return None
        return f"{status.st_dev}:{status.st_ino}:layout-{_LAYOUT}"

    def create(self) -> None:
        if self.identity() is None:
            # Without a writable map the first pages are written by calls that can fail cleanly.
            _open(self._directory, map_size=self._step_bytes).close()

    def open(self, *, read_only: bool = False) -> LmdbIndex:
        return LmdbIndex(
            self._directory, self._tree_count, step_bytes=self._step_bytes, read_only=read_only
        )

    def drop(self) -> None:
        for name in (_FILE, "lock.mdb"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self._directory, name))


def _open(directory: str, **options: Any) -> Any:
    try:
        return lmdb.open(
            directory,
            create=not options.get("readonly", False),
            sync=False,
            metasync=False,
            mode=0o600,
            max_readers=_READERS_MAX,
            **options,
        )
    except lmdb.Error as error:
        raise _translation(error) from error
