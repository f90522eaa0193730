"""A data directory: its files, and the small files that record its state.

DIR/lock            held by the one writer
DIR/clean           only present after a clean stop: what was durable then
DIR/published       the durable seq, for read-only processes and for recovery
DIR/ballast         space that is freed if a start finds the disk full
DIR/journal/*.seg   the truth
DIR/index/owner     identifies the owner of the index; without a match the index is dropped
DIR/index/*.mdb     the index
DIR/blocks/*/*      cold blocks, unless they are elsewhere
DIR/place           the location of the blocks, as last given
DIR/shared          present after a restore: up to here blocks also belong to the original
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import struct
from dataclasses import asdict, dataclass
from typing import TypeVar

import google_crc32c

from fjord import disk as disks
from fjord.clock import Clock
from fjord.disk import Disk
from fjord.index import Index, Indexes
from fjord.journal import frame
from fjord.journal.reader import Journal
from fjord.journal.writer import Writer

_RECORD = struct.Struct("<QQ")  # durable seq, checksum of it with the file's identity
# Published instead of a seq once the disk has failed.
FAILED_SEQ = 2**64 - 1


class Layout:
    """The paths of a data directory."""

    def __init__(self, path: str) -> None:
        self.root = os.path.abspath(path)
        self.lock = os.path.join(self.root, "lock")
        self.clean = os.path.join(self.root, "clean")
        self.published = os.path.join(self.root, "published")
        self.ballast = os.path.join(self.root, "ballast")
        self.journal = os.path.join(self.root, "journal")
        self.index = os.path.join(self.root, "index")
        self.owner = os.path.join(self.index, "owner")
        self.blocks = os.path.join(self.root, "blocks")
        self.place = os.path.join(self.root, "place")
        self.shared = os.path.join(self.root, "shared")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clean:
    """Written by a clean stop: journal and index are synced up to `seq`."""

    seq: int
    index: str  # identity of the index file
    lease_us: int  # lease time at the stop; frames only have it up to the last one


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The boot and the file with which the index was last opened for writing."""

    boot: str
    index: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksPlace:
    """The location of the cold blocks of a directory, if not in itself."""

    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Cold blocks up to `seq` may also belong to the directory that was backed up."""

    seq: int


Mark = TypeVar("Mark", Clean, Owner, BlocksPlace, Shared)


def read_mark(disk: Disk, path: str, kind: type[Mark]) -> Mark | None:
    """Returns a mark; None if it is missing or damaged, so that nothing is to be trusted."""
    data = disks.read_whole(disk, path)
    if not data:
        return None
    body, _, crc = data.rstrip(b"\n").rpartition(b"\n")
    if crc != b"%08x" % google_crc32c.value(body):
        return None
    return kind(**json.loads(body))


def write_mark(disk: Disk, path: str, mark: Clean | Owner | BlocksPlace | Shared) -> None:
    body = json.dumps(asdict(mark), sort_keys=True).encode()
    disks.replace_whole(disk, path, body + b"\n%08x\n" % google_crc32c.value(body))


def blocks_location(disk: Disk, layout: Layout, given: str = "", *, read_only: bool = False) -> str:
    """Returns the location of the cold blocks of a directory, as given now or else last time."""
    known = read_mark(disk, layout.place, BlocksPlace)
    found = given or (known.location if known else layout.blocks)
    if given and not read_only and found != (known.location if known else layout.blocks):
        write_mark(disk, layout.place, BlocksPlace(location=given))
        disk.sync_directory(layout.root)
    return found


def shared_seq(disk: Disk, layout: Layout, location: str) -> int:
    """Returns the last seq of blocks that may have another owner; 0 = none has."""
    shared = read_mark(disk, layout.shared, Shared)
    return shared.seq if shared is not None and location != layout.blocks else 0


def known_seq(disk: Disk, layout: Layout) -> int:
    """Returns the durable seq from the marks, without the journal."""
    clean = read_mark(disk, layout.clean, Clean)
    return max(clean.seq if clean else 0, read_published(disk, layout)[0])


def take_clean(disk: Disk, layout: Layout) -> Clean | None:
    """Returns the mark of a clean stop and removes it, so that it is not seen twice."""
    clean = read_mark(disk, layout.clean, Clean)
    if disk.exists(layout.clean):
        disk.remove(layout.clean)
        disk.sync_directory(layout.root)
    return clean


def names_in(disk: Disk, path: str) -> list[str]:
    """Returns the names in a directory, without those of a new file system."""
    return [name for name in disk.names(path) if name != "lost+found"]


def has_journal(disk: Disk, layout: Layout) -> bool:
    try:
        return any(frame.segment_number(name) for name in disk.names(layout.journal))
    except NotADirectoryError:
        return False


def is_foreign(disk: Disk, layout: Layout) -> bool:
    """Returns whether a directory contains anything that Fjord did not create."""
    found = set(names_in(disk, layout.root))
    if not found or has_journal(disk, layout):
        return False
    if read_mark(disk, layout.owner, Owner) or read_mark(disk, layout.clean, Clean):
        return False  # it was a data directory, and has lost its journal
    if read_published(disk, layout)[0]:
        return False
    # The first start creates both directories, then the lock, then a segment under another name;
    # it may have crashed at any of these steps.
    first = os.path.basename(frame.segment_path("", 1)) + frame.UNFINISHED
    try:
        if disk.names(layout.index) or not set(disk.names(layout.journal)) <= {first}:
            return True
    except NotADirectoryError:
        return True
    if "lock" not in found:
        return not found <= {"journal", "index"}
    lock = disks.read_whole(disk, layout.lock) or b""
    return found != {"journal", "index", "lock"} or not (not lock or lock.strip().isdigit())


class Published:
    """The durable seq as last published by the writer: never ahead of the truth.

    The record is bound to the file's identity, so a copied directory does not trust it.
    """

    def __init__(self, disk: Disk, layout: Layout, *, writable: bool = False) -> None:
        self._page = disk.open_page(layout.published, writable=writable)
        self._identity = (disk.identity(layout.published) or "").encode()

    def read(self) -> tuple[int, bool]:
        """Returns the durable seq, and whether the writer stopped because a sync failed.

        The seq is 0 if there is no record, or it cannot be trusted.
        """
        seq, seal = _RECORD.unpack_from(self._page.read())
        if seal != self._seal(seq):
            return 0, False
        return (0, True) if seq == FAILED_SEQ else (seq, False)

    def write(self, seq: int) -> None:
        self._page.write(_RECORD.pack(seq, self._seal(seq)))

    def close(self) -> None:
        self._page.close()

    def _seal(self, seq: int) -> int:
        return int(google_crc32c.value(b"%d %s" % (seq, self._identity)))


def read_published(disk: Disk, layout: Layout) -> tuple[int, bool]:
    """Returns the published durable seq of a directory, and whether its writer's disk failed."""
    if not disk.exists(layout.published):
        return 0, False
    with contextlib.closing(Published(disk, layout)) as published:
        return published.read()


# -- the parts and the status of an engine --------------------------------------------------------


class Status(enum.Enum):
    """Whether an engine can be used; it only moves down this list."""

    OPEN = "open"
    FAILED = "failed"  # the disk broke a promise: nothing is acknowledged any more
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The parts that recovery hands to the engine."""

    disk: disks.Disk
    clock: Clock
    layout: Layout
    lock: disks.Lock
    journal: Journal
    writer: Writer
    indexes: Indexes
    index: Index
    last_lease_us: int
    segment_bytes: int
