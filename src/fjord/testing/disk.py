"""A simulated disk: what was not synced may be lost, torn, garbled or reordered.

The rules, after SQLite's crash tests:

- A write lands in the page cache.  `sync` makes a file's bytes durable, `sync_directory` the
  names in a directory.  Neither does the other's work.
- `power_cut` keeps or drops each unsynced write on its own, in any order; one that is kept may be
  torn at a sector, and the sector at the tear may hold garbage.  Names likewise.  The boot id
  changes.
- `process_crash` keeps the page cache and the boot id, and releases the locks.
- A failed sync loses the data for good, although the page cache still shows it: the next sync
  succeeds and means nothing.  That is what Linux does.
- `capacity` is how many bytes all files together may have.  What does not fit is refused with
  ENOSPC, after the part of a write that fits; space comes back when a file's last name goes.

Every call that changes something has a number.  `crash_at` and `errors` name such calls, so a test
can crash or fail a script at each of them in turn.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fjord.errors import DirectoryInUseError

_SECTOR_BYTES = 512
_PAGE_BYTES = 4096
# More unsynced states of a shared page than this make no difference.
_PAGE_CHANGES_MAX = 8


class SimCrash(BaseException):
    """The simulated machine stopped here; no handler may catch this."""


@dataclass
class _Change:
    """A change of a file that is not durable yet."""

    offset: int
    data: bytes
    size: int | None = None  # a truncation or allocation to this size, instead of data


@dataclass
class _Inode:
    """A file: its content in the page cache, on the disk, and the changes in between."""

    number: int
    cached: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[_Change] = field(default_factory=list)
    modified_s: int = 0


class _Directory:
    """Represents a directory among the names."""


_Entry = _Inode | _Directory
# One step in the name space: names with their entries, None for a removed name.
_Step = dict[str, _Entry | None]


class SimFile:
    """An open file of a SimDisk."""

    def __init__(self, disk: SimDisk, inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode

    def read(self, offset: int, size: int) -> bytes:
        self._disk.check_alive()
        return bytes(self._inode.cached[offset : offset + size])

    def write(self, offset: int, data: bytes) -> None:
        with self._disk.call("write"):
            room = self._disk.room_for(self._inode)
            change = _Change(offset, bytes(data[: max(0, room - offset)]))
            if change.data:
                _apply(self._inode.cached, change)
                self._inode.unsynced.append(change)
                self._inode.modified_s = self._disk.now_s
            if len(change.data) < len(data):
                raise _full()

    def write_parts(self, offset: int, parts: Sequence[bytes]) -> None:
        self.write(offset, b"".join(parts))

    def sync(self) -> None:
        inode = self._inode
        try:
            self._disk.begin_call("sync")
        except OSError:
            inode.unsynced.clear()  # the kernel marks the pages clean; the data is lost
            raise
        for change in inode.unsynced:
            _apply(inode.durable, change)
        inode.unsynced.clear()

    def allocate(self, size: int) -> None:
        self._resize(max(size, len(self._inode.cached)), "allocate")

    def truncate(self, size: int) -> None:
        self._resize(size, "truncate")

    def size(self) -> int:
        self._disk.check_alive()
        return len(self._inode.cached)

    def close(self) -> None:
        """Does nothing."""

    def _resize(self, size: int, name: str) -> None:
        with self._disk.call(name):
            if size > self._disk.room_for(self._inode):
                raise _full()
            change = _Change(0, b"", size)
            _apply(self._inode.cached, change)
            self._inode.unsynced.append(change)
            self._inode.modified_s = self._disk.now_s


class SimPage:
    """A shared page of a SimDisk; its writes are never synced."""

    def __init__(self, disk: SimDisk, inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode

    def read(self) -> bytes:
        self._disk.check_alive()
        return bytes(self._inode.cached)

    def write(self, data: bytes) -> None:
        self._disk.check_alive()
        change = _Change(0, bytes(data))
        _apply(self._inode.cached, change)
        # May be written back at any moment: the disk holds this state or any earlier one.
        self._inode.unsynced = [*self._inode.unsynced[-_PAGE_CHANGES_MAX:], change]

    def close(self) -> None:
        """Does nothing."""


class SimLock:
    """The writer's lock of a SimDisk."""

    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locks.discard(self._path)


class SimDisk:
    """A machine's disk, in memory; everything random comes from `seed`."""

    def __init__(
        self,
        seed: int = 0,
        *,
        crash_at: int | None = None,
        errors: dict[int, int] | None = None,
        capacity: int | None = None,
    ) -> None:
        self._random = random.Random(seed)  # noqa: S311
        self.capacity = capacity  # may be changed at any time
        self._crash_at = crash_at
        self.errors = errors or {}  # number of a call -> errno
        self._names: dict[str, _Entry] = {"/": _Directory()}
        self._durable_names: dict[str, _Entry] = dict(self._names)
        self._steps: list[_Step] = []
        self._inodes = 0
        self._boots = 1
        self._dead = False
        self.locks: set[str] = set()
        self.now_s = 1  # time of writes to files; only changed by a test
        self.calls: list[str] = []  # names of the numbered calls so far, number 1 first

    # -- for tests --------------------------------------------------------------------------------

    def power_cut(self) -> None:
        """The machine loses power and boots again: the page cache is lost."""
        names = dict(self._durable_names)
        for step in self._steps:
            if self._random.random() < 0.5:
                _apply_step(names, step)
        for entry in names.values():
            if isinstance(entry, _Inode):
                self._lose_unsynced(entry)
        self._names = {path: entry for path, entry in names.items() if _is_reachable(path, names)}
        self._durable_names = dict(self._names)
        self._steps = []  # dropped steps are gone for good
        self._boots += 1
        self._disarm()

    def process_crash(self) -> None:
        """The process dies, but not the machine."""
        self._disarm()

    def crash_after(self, calls: int) -> None:
        """Arms a crash that many calls from now."""
        self._crash_at = len(self.calls) + calls

    def used_bytes(self) -> int:
        """Returns how much of the capacity the files use; one with two names counts once."""
        inodes = {id(one): one for one in self._names.values() if isinstance(one, _Inode)}
        return sum(len(inode.cached) for inode in inodes.values())

    def flip_bit(self, path: str, offset: int, bit: int = 0) -> None:
        """Damages one bit, in the page cache and on the disk."""
        inode = self._inode(path)
        for copy in (inode.cached, inode.durable):
            if offset < len(copy):
                copy[offset] ^= 1 << bit

    # -- for SimFile ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Counts a call: an error prevents it, a crash comes right after its effect was cached."""
        self.check_alive()
        self.calls.append(name)
        number = len(self.calls)
        if number in self.errors:
            code = self.errors[number]
            raise OSError(code, os.strerror(code))
        crashes = number == self._crash_at
        try:
            yield
        finally:
            if crashes:
                self.die()

    def begin_call(self, name: str) -> None:
        """Counts a call that a crash prevents."""
        with self.call(name):
            pass

    def room_for(self, inode: _Inode) -> int:
        """Returns how large a file may become: never smaller than it is."""
        size = len(inode.cached)
        if self.capacity is None:
            return sys.maxsize
        return max(size, self.capacity - self.used_bytes() + size)

    def check_alive(self) -> None:
        if self._dead:
            raise SimCrash

    def die(self) -> None:
        self._dead = True
        raise SimCrash

    # -- the contract of fjord.disk.Disk ----------------------------------------------------------

    def boot_id(self) -> str:
        return f"boot-{self._boots}"

    def new_uuid(self) -> bytes:
        return self._random.randbytes(16)

    def make_directory(self, path: str) -> None:
        missing = []
        while path not in self._names:
            missing.append(path)
            path = os.path.dirname(path)
        for name in reversed(missing):
            with self.call("make_directory"):
                self._step({name: _Directory()})

    def names(self, path: str) -> list[str]:
        self.check_alive()
        return sorted(os.path.basename(name) for name in self._names if _parent(name) == path)

    def exists(self, path: str) -> bool:
        self.check_alive()
        return path in self._names

    def identity(self, path: str) -> str | None:
        self.check_alive()
        entry = self._names.get(path)
        return f"sim:{entry.number}" if isinstance(entry, _Inode) else None

    def modified_s(self, path: str) -> int:
        self.check_alive()
        entry = self._names.get(path)
        return entry.modified_s if isinstance(entry, _Inode) else 0

    def free_bytes(self, path: str) -> int:
        self.check_alive()
        return sys.maxsize if self.capacity is None else max(0, self.capacity - self.used_bytes())

    def open(self, path: str, *, writable: bool = False, create: bool = False) -> SimFile:
        self.check_alive()
        if path not in self._names and create:
            if _parent(path) not in self._names:
                raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            with self.call("create"):
                self._inodes += 1
                self._step({path: _Inode(self._inodes)})
        return SimFile(self, self._inode(path))

    def open_page(self, path: str, *, writable: bool = False) -> SimPage:
        self.open(path, writable=writable, create=writable)
        inode = self._inode(path)
        _apply(inode.cached, _Change(0, b"", max(_PAGE_BYTES, len(inode.cached))))
        return SimPage(self, inode)

    def rename(self, old: str, new: str) -> None:
        inode = self._inode(old)
        with self.call("rename"):
            self._step({old: None, new: inode})

    def keep_owner(self, path: str, old: str) -> None:
        """Does nothing: nobody owns anything here."""

    def link(self, old: str, new: str) -> None:
        inode = self._inode(old)
        if new in self._names:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        with self.call("link"):
            self._step({new: inode})

    def remove(self, path: str) -> None:
        self._inode(path)
        with self.call("remove"):
            self._step({path: None})

    def remove_directory(self, path: str) -> None:
        if self.names(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        with self.call("remove_directory"):
            self._step({path: None})

    def sync_directory(self, path: str) -> None:
        self.begin_call("sync_directory")
        waiting = []
        for step in self._steps:
            if all(_parent(name) == path for name in step):
                _apply_step(self._durable_names, step)
            else:
                waiting.append(step)
        self._steps = waiting

    def lock(self, path: str) -> SimLock:
        self.check_alive()
        if path in self.locks:
            raise DirectoryInUseError
        self.locks.add(path)
        return SimLock(self, path)

    def is_locked(self, path: str) -> bool:
        return path in self.locks

    # -- internals --------------------------------------------------------------------------------

    def _disarm(self) -> None:
        self._dead = False
        self._crash_at = None
        self.errors = {}
        self.locks.clear()

    def _inode(self, path: str) -> _Inode:
        entry = self._names.get(path)
        if not isinstance(entry, _Inode):
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return entry

    def _step(self, step: _Step) -> None:
        _apply_step(self._names, step)
        self._steps.append(step)

    def _lose_unsynced(self, inode: _Inode) -> None:
        survivors = [one for one in inode.unsynced if self._random.random() < 0.5]
        self._random.shuffle(survivors)
        for change in survivors:
            _apply(inode.durable, self._torn(change))
        inode.unsynced.clear()
        inode.cached = bytearray(inode.durable)

    def _torn(self, change: _Change) -> _Change:
        """Returns all of a change, or its beginning with a sector of garbage at the tear."""
        if change.size is not None or self._random.random() < 0.5 or not change.data:
            return change
        end = change.offset + self._random.randrange(len(change.data))
        tear = max(change.offset, end - end % _SECTOR_BYTES)
        kept = change.data[: tear - change.offset]
        if self._random.random() < 0.5:
            room = min(_SECTOR_BYTES, len(change.data) - len(kept))
            kept += self._random.randbytes(room)
        return _Change(change.offset, kept)


def _full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _apply(target: bytearray, change: _Change) -> None:
    size = change.offset + len(change.data) if change.size is None else change.size
    if len(target) < size:
        target.extend(bytes(size - len(target)))
    if change.size is not None:
        del target[change.size :]
    else:
        target[change.offset : size] = change.data


def _apply_step(names: dict[str, _Entry], step: _Step) -> None:
    for path, entry in step.items():
        if entry is None:
            names.pop(path, None)
        else:
            names[path] = entry


def _parent(path: str) -> str:
    return os.path.dirname(path) if path != "/" else ""


def _is_reachable(path: str, names: dict[str, _Entry]) -> bool:
    while path != "/":
        if path not in names:
            return False
        path = _parent(path)
    return True
