"""Backups: a copy of the journal up to a durable seq, taken while a writer may be running.

A backup is a directory with the segments, the cold blocks that are in the data directory, and a
manifest with the size and the checksum of each file.  Restoring checks all of them and copies them
into a new data directory; the first start rebuilds the index.

Blocks are copied after the segments that refer to them.  A file of a block is replaced as a whole
or removed for good; a file that is overwritten first gets another name.  So a file that still has
its name after it was copied is intact.  Blocks that are elsewhere, in an object store, are not
copied: a restored directory finds them there, and removes none that it shares.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import google_crc32c

from fjord import disk as disks
from fjord import limits
from fjord.disk import Disk
from fjord.engine import layout as layouts
from fjord.engine import opening
from fjord.engine.layout import BlocksPlace, Layout, Shared
from fjord.engine.opening import EngineSettings
from fjord.engine.replay import Progress
from fjord.errors import CorruptionError, DirectoryError, FjordError, UnavailableError
from fjord.journal import frame as frames
from fjord.journal.frame import SegmentHeader
from fjord.journal.reader import Journal

MANIFEST = "manifest.json"
_VERSION = 2
_VERSION_WITHOUT_BLOCKS = 1
_BLOCKS = "blocks"
# The name of a folder of blocks, or of a file in it; unfinished files have other names.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.parquet|\.json)?")
# The fields of a record of the manifest, and their conversions from JSON.
Kinds = Mapping[str, Callable[[Any], Any]]
# A writer that packs may remove a segment during the copy, which then starts again.
_ATTEMPTS = 10
_MANIFEST_BYTES_MAX = 16 * limits.MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """One segment of a backup."""

    segment: int
    size: int
    crc: int  # CRC-32C of the file

    def path(self, segments: str, blocks: str) -> str:
        return frames.segment_path(segments, self.segment)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedBlock:
    """One file of a cold block in a backup."""

    folder: str
    name: str
    size: int
    crc: int

    def path(self, segments: str, blocks: str) -> str:
        return os.path.join(blocks, self.folder, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The contents of a backup."""

    version: int
    seq: int  # everything up to here is in it
    created_us: int
    segments: list[Copied]
    blocks: list[CopiedBlock]
    location: str = ""  # where all other blocks are

    @property
    def files(self) -> list[Copied | CopiedBlock]:
        return [*self.segments, *self.blocks]

    @property
    def bytes(self) -> int:
        return sum(copied.size for copied in self.files)


class _SegmentGoneError(Exception):
    """A segment was packed away while it was being copied."""


def back_up(path: str, target: str, settings: EngineSettings | None = None) -> Manifest:
    """Copies what is durable in a data directory to `target`, a new or empty directory.

    Raises:
        DirectoryError: if `path` is not a data directory, or `target` is not empty.
        CorruptionError: if the journal is damaged.
    """
    settings = settings or EngineSettings()
    layout = Layout(path)
    disk = settings.disk
    if not layouts.has_journal(disk, layout):
        raise DirectoryError(f"{layout.root} is not a Fjord data directory")
    target = os.path.abspath(target)
    _make_empty(disk, target)
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(_SegmentGoneError):
            return _copy_all(settings, layout, target)
        for name in layouts.names_in(disk, target):  # blocks come last, so there are none yet
            disk.remove(os.path.join(target, name))
    raise UnavailableError("the journal is packed faster than it can be copied; try again")


def restore(backup: str, path: str, settings: EngineSettings | None = None) -> Manifest:
    """Creates a data directory at `path`, which must be new or empty, from a backup.

    Raises:
        DirectoryError: if `path` is not empty, or `backup` is not a backup.
        CorruptionError: if a file of the backup is damaged.
    """
    settings = settings or EngineSettings()
    disk, layout = settings.disk, Layout(path)
    manifest = read_manifest(disk, backup)
    _make_empty(disk, layout.root)
    disk.make_directory(layout.journal)
    folders = sorted({os.path.join(layout.blocks, one.folder) for one in manifest.blocks})
    for folder in folders:
        disk.make_directory(folder)
    progress = _adding(settings.progress, manifest.bytes)
    for copied in manifest.files:
        source = copied.path(backup, os.path.join(backup, _BLOCKS))
        target = copied.path(layout.journal, layout.blocks)
        if _copy(disk, source, target, copied.size, progress)[1] != copied.crc:
            raise CorruptionError(source, 0, "it differs from the file that was backed up")
    layouts.write_mark(disk, layout.shared, Shared(seq=manifest.seq))
    if manifest.location:
        layouts.write_mark(disk, layout.place, BlocksPlace(location=manifest.location))
    made = [*folders, layout.blocks] if folders else []
    for directory in (*made, layout.journal, layout.root, os.path.dirname(layout.root)):
        disk.sync_directory(directory)
    return manifest


def read_manifest(disk: Disk, backup: str) -> Manifest:
    """Returns the manifest of a backup.

    Raises:
        DirectoryError: if it is not a backup, or of a newer version.
    """
    path = os.path.join(backup, MANIFEST)
    data = disks.read_whole(disk, path)
    if data is None or len(data) > _MANIFEST_BYTES_MAX:
        raise DirectoryError(f"{backup} is not a backup: it has no {MANIFEST}")
    try:
        found = json.loads(data)
        if found["version"] not in (_VERSION, _VERSION_WITHOUT_BLOCKS):
            raise DirectoryError(f"{path} has version {found['version']}, not {_VERSION}")
        segment: Kinds = {"segment": int, "size": int, "crc": int}
        block: Kinds = {"folder": _plain, "name": _plain, "size": int, "crc": int}
        return Manifest(
            version=_VERSION,
            seq=int(found["seq"]),
            created_us=int(found["created_us"]),
            segments=[Copied(**_read(one, segment)) for one in found["segments"]],
            blocks=[CopiedBlock(**_read(one, block)) for one in found.get("blocks", ())],
            location=str(found.get("location", "")),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(path, 0, f"it cannot be read ({error})") from error


def _read(record: dict[str, Any], kinds: Kinds) -> dict[str, Any]:
    return {name: kind(record[name]) for name, kind in kinds.items()}


def _plain(name: object) -> str:
    """Returns a name from a manifest, which must not lead out of its directory."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid file name of a block")
    return name


# -- internals ------------------------------------------------------------------------------------


def _copy_all(settings: EngineSettings, layout: Layout, target: str) -> Manifest:
    disk = settings.disk
    # First the durable seq, then the segments, which contain at least that.  If none was packed
    # away in between, the seq also tells with which of them the journal begins.
    found = [frames.segment_number(name) for name in disk.names(layout.journal)]
    oldest = min((number for number in found if number is not None), default=None)
    published = layouts.read_published(disk, layout)
    copies = []
    try:
        with contextlib.closing(Journal(disk, layout.journal)) as journal:
            if journal.segments[0].segment != oldest:
                raise _SegmentGoneError
            seq, sizes = _check(disk, layout, journal, published)
            progress = _adding(settings.progress, sum(sizes.values()))
            for header in journal.segments:
                if header.segment in sizes:
                    size, source = sizes[header.segment], journal.path(header.segment)
                    copy = frames.segment_path(target, header.segment)
                    _, crc = _copy(disk, source, copy, size, progress)
                    _check_same(disk, source, header)
                    copies.append(Copied(segment=header.segment, size=size, crc=crc))
    except FileNotFoundError as error:
        raise _SegmentGoneError from error
    location = layouts.blocks_location(disk, layout, read_only=True)
    manifest = Manifest(
        version=_VERSION,
        seq=seq,
        created_us=settings.clock.wall_us(),
        segments=copies,
        blocks=_copy_blocks(settings, layout, target),
        location="" if location == layout.blocks else location,
    )
    data = json.dumps(asdict(manifest), indent=1).encode() + b"\n"
    disks.replace_whole(disk, os.path.join(target, MANIFEST), data)
    disk.sync_directory(os.path.dirname(target))
    return manifest


def _copy_blocks(settings: EngineSettings, layout: Layout, target: str) -> list[CopiedBlock]:
    """Copies the files of all blocks in the data directory, except those removed meanwhile."""
    disk = settings.disk
    found = [
        (folder, name)
        for folder in disk.names(layout.blocks)
        if _NAME.fullmatch(folder)
        for name in disk.names(os.path.join(layout.blocks, folder))
        if _NAME.fullmatch(name)
    ]
    copies = []
    for number, (folder, name) in enumerate(found, start=1):
        source = os.path.join(layout.blocks, folder, name)
        copy = os.path.join(target, _BLOCKS, folder, name)
        disk.make_directory(os.path.dirname(copy))
        with contextlib.suppress(FileNotFoundError):
            size, crc = _copy(disk, source, copy, None)
            if disk.exists(source):
                copies.append(CopiedBlock(folder=folder, name=name, size=size, crc=crc))
            else:  # it may have been overwritten during the copy
                disk.remove(copy)
        settings.progress(number, len(found))
    for folder in sorted({copied.folder for copied in copies}):
        disk.sync_directory(os.path.join(target, _BLOCKS, folder))
    if copies:
        disk.sync_directory(os.path.join(target, _BLOCKS))
    return copies


def _check(
    disk: Disk, layout: Layout, journal: Journal, published: tuple[int, bool]
) -> tuple[int, dict[int, int]]:
    """Reads all that is durable; returns its last seq, and its size in each segment."""
    sizes: dict[int, int] = {}
    try:
        seq = _durable_seq(disk, layout, journal, published)
        for header in journal.segments:
            if header.first_seq <= seq:
                sizes[header.segment] = frames.SEGMENT_HEADER_BYTES
        for located in journal.frames(journal.first_seq, durable_seq=seq):
            if located.frame.first_seq > seq:
                break
            sizes[located.segment] = located.end
    except CorruptionError:
        for header in journal.segments:
            _check_same(disk, journal.path(header.segment), header)
        raise
    return seq, sizes


def _durable_seq(disk: Disk, layout: Layout, journal: Journal, published: tuple[int, bool]) -> int:
    """Returns the seq up to which to copy: the published one, or the last in the journal."""
    published_seq, failed = published
    if disk.is_locked(layout.lock) and published_seq:
        return published_seq
    if failed:
        raise FjordError(f"the disk under {layout.root} failed; start it, then back it up")
    return opening.read_tail(journal, published_seq).last_seq


def _check_same(disk: Disk, path: str, header: SegmentHeader) -> None:
    """Refuses a file that was recycled meanwhile: it has another header, or another name."""
    with contextlib.closing(disk.open(path)) as file:
        if file.read(0, frames.SEGMENT_HEADER_BYTES) != header.encode():
            raise _SegmentGoneError


def _copy(
    disk: Disk,
    source: str,
    target: str,
    size: int | None,
    progress: Callable[[int], None] = lambda size: None,
) -> tuple[int, int]:
    """Copies the first `size` bytes durably, or all; returns their number and checksum."""
    crc = 0
    with (
        contextlib.closing(disk.open(source)) as old,
        contextlib.closing(disk.open(target, writable=True, create=True)) as new,
    ):
        wanted = old.size() if size is None else size
        for offset in range(0, wanted, limits.CHUNK_BYTES):
            data = old.read(offset, min(limits.CHUNK_BYTES, wanted - offset))
            if len(data) < min(limits.CHUNK_BYTES, wanted - offset):
                raise CorruptionError(source, offset + len(data), "it is truncated")
            crc = google_crc32c.extend(crc, data)
            new.write(offset, data)
            progress(len(data))
        new.sync()
    return wanted, crc


def _make_empty(disk: Disk, path: str) -> None:
    if layouts.names_in(disk, path):
        raise DirectoryError(f"{path} is not empty; choose a new directory")
    disk.make_directory(path)


def _adding(progress: Progress, total: int) -> Callable[[int], None]:
    """Returns a function that adds bytes to a progress bar."""
    done = 0

    def add(size: int) -> None:
        nonlocal done
        done += size
        progress(done, total)

    return add
