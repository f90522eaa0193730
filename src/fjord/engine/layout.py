"""A data directory: where everything is, and the small files that say what state it is in.

DIR/lock            held by the one writer
DIR/clean           there after a clean stop only: what was durable then
DIR/published       the durable seq, for read-only processes and for recovery
DIR/ballast         space for a start on a full disk
DIR/journal/*.seg   the truth
DIR/index/owner     whose the index is; without a match it is thrown away
DIR/index/*.mdb     the index
DIR/blocks/*/*      cold blocks, unless they have a place elsewhere
DIR/place           where that is, as it was last said
DIR/shared          there after a restore: up to where those are also the original's
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
    """Left by a clean stop: journal and index are synced up to `seq`."""

    seq: int
    index: str  # identity of the index file
    lease_us: int  # lease time at the stop; frames know it only up to the last one


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Says under which boot, and as which file, the index was last opened for writing."""

    boot: str
    index: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksPlace:
    """Says where the cold blocks of a directory are, if not in itself."""

    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Says that cold blocks up to `seq` may also be those of the directory that was backed up."""

    seq: int


Mark = TypeVar("Mark", Clean, Owner, BlocksPlace, Shared)


def read_mark(disk: Disk, path: str, kind: type[Mark]) -> Mark | None:
    """Returns a mark; None if it is missing or damaged, which both mean: trust nothing."""
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
    """Returns where the cold blocks of a directory are: as it is said now, or was last said.

    Whoever opens the directory next need not say it again.
    """
    known = read_mark(disk, layout.place, BlocksPlace)
    found = given or (known.location if known else layout.blocks)
    if given and not read_only and found != (known.location if known else layout.blocks):
        write_mark(disk, layout.place, BlocksPlace(location=given))
        disk.sync_directory(layout.root)
    return found


def shared_seq(disk: Disk, layout: Layout, location: str) -> int:
    """Returns up to which seq cold blocks at a location may have another owner; 0 = none has."""
    shared = read_mark(disk, layout.shared, Shared)
    return shared.seq if shared is not None and location != layout.blocks else 0


def known_seq(disk: Disk, layout: Layout) -> int:
    """Returns what was durable, from whatever says so beside the journal itself."""
    clean = read_mark(disk, layout.clean, Clean)
    return max(clean.seq if clean else 0, read_published(disk, layout)[0])


def take_clean(disk: Disk, layout: Layout) -> Clean | None:
    """Returns the mark of a clean stop and ensures that it cannot be seen a second time."""
    clean = read_mark(disk, layout.clean, Clean)
    if disk.exists(layout.clean):
        disk.remove(layout.clean)
        disk.sync_directory(layout.root)
    return clean


def names_in(disk: Disk, path: str) -> list[str]:
    """Returns the names in a directory, without what a new file system begins with."""
    return [name for name in disk.names(path) if name != "lost+found"]


def has_journal(disk: Disk, layout: Layout) -> bool:
    try:
        return any(frame.segment_number(name) for name in disk.names(layout.journal))
    except NotADirectoryError:
        return False


def is_foreign(disk: Disk, layout: Layout) -> bool:
    """Says whether a directory holds something that no Fjord has put there."""
    found = set(names_in(disk, layout.root))
    if not found or has_journal(disk, layout):
        return False
    if read_mark(disk, layout.owner, Owner) or read_mark(disk, layout.clean, Clean):
        return False  # it was one, and has lost its journal
    if read_published(disk, layout)[0]:
        return False
    # The first start makes both directories, then the lock, then a segment under another name; it
    # may have crashed at any of these.
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
    """The durable seq as the writer last knew it: never ahead of the truth.

    The record is bound to the file's identity, so a copied directory does not believe it.
    """

    def __init__(self, disk: Disk, layout: Layout, *, writable: bool = False) -> None:
        self._page = disk.open_page(layout.published, writable=writable)
        self._identity = (disk.identity(layout.published) or "").encode()

    def read(self) -> tuple[int, bool]:
        """Returns the durable seq, and whether the writer stopped because a sync failed.

        The seq is 0 if there is no record, or one that is not to be believed.
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


# -- what an engine is made of, and what it is good for -------------------------------------------


class Status(enum.Enum):
    """What an engine is good for; it only ever moves down this list."""

    OPEN = "open"
    FAILED = "failed"  # the disk broke a promise: nothing is acknowledged any more
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What recovery hands to the engine."""

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
