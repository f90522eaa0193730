"""Where blocks are stored: a local folder, or anything that fsspec supports.

    <location>/<table>-<id>/<first>-<last>-<tag>.parquet      the rows of a block
    <location>/<table>-<id>/_<first>-<last>-<tag>.json        its metadata, written after them
    <location>/<table>-<id>/_<first>-<last>-<tag>.announced   when publishing a rewritten one began;
                                                              removed once it is in use

Readers of Parquet ignore names that begin with an underscore, so a folder is a table for them.
`files` writes a file whole or not at all.

File names come from `history.block_name` only, and are checked all the same.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import re
from dataclasses import asdict, dataclass, fields, replace
from typing import IO, Any, Final

import google_crc32c

from fjord import disk as disks
from fjord import limits
from fjord.blocks import files
from fjord.errors import CorruptionError
from fjord.history import Block, data_path, described_block, metadata_path

_FOLDER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*-[0-9]+\Z")
_UNFINISHED_METADATA: Final = ".json.new"  # see disk.replace_whole
_ANNOUNCED: Final = ".announced"
_UNFINISHED_ANNOUNCED: Final = ".announced.new"
_LOCK: Final = "sealing.lock"
_REWRITING_LOCK: Final = "rewriting.lock"


class Store:
    """The files of all blocks of one node.  Safe to use from several threads.

    Args:
        location: a path, or a URL that fsspec knows: file, memory, s3 and many more.
        disk: for a local folder.
    """

    def __init__(self, location: str, *, disk: disks.Disk | None = None) -> None:
        self.location = location
        self._files = files.target_at(location, disk=disk)
        is_real = disk is None or isinstance(disk, disks.LocalDisk)
        self._is_local = is_real and isinstance(self._files, files.LocalTarget)
        self.is_shared = self._files.is_shared  # other processes see it too

    def draft(self, name: str, *, is_rewrite: bool = False) -> files.Draft:
        """Returns a file for the data of a block; any name of its table will do.

        `is_rewrite`: its rows are in other blocks, and the writer has the lock of rewriting.
        """
        suffix = files.REWRITTEN if is_rewrite else files.UNFINISHED
        return self._files.draft(files.checked(name).partition("/")[0], suffix)

    def adopt(self, path: str, name: str) -> None:
        """Ensures that a draft that was set aside is the data of a new block, durably.

        Raises:
            FileNotFoundError: if it is gone.
            FileExistsError: if the block has data already; that stays unchanged.
        """
        self._files.adopt(path, files.checked(name))

    def open(self, name: str) -> IO[bytes]:
        """Opens the data of a block for reading.

        Raises:
            FileNotFoundError: if it does not exist.
        """
        return self._files.open(data_path(files.checked(name)))

    def local_path(self, name: str) -> str | None:
        """Returns the local path of the data of a block; None if it is elsewhere."""
        return self.path(name) if self._is_local else None

    def size(self, name: str) -> int:
        """Returns the size of the data of a block."""
        return self._files.size(data_path(files.checked(name)))

    def checksum(self, name: str) -> int:
        """Returns the CRC32C of the data of a block."""
        crc = 0
        with self.open(name) as file:
            while data := file.read(limits.CHUNK_BYTES):
                crc = google_crc32c.extend(crc, data)
        return int(crc)

    def read_metadata(self, name: str) -> bytes:
        return self._files.read(metadata_path(files.checked(name)))

    def write_metadata(self, name: str, data: bytes) -> None:
        """Ensures that `data` is the metadata of a block, durably, replacing any other."""
        self._files.replace(metadata_path(files.checked(name)), data)

    def exists(self, name: str) -> bool:
        """Returns whether a whole block exists: its metadata is written last."""
        return self._files.exists(metadata_path(files.checked(name)))

    def has_data(self, name: str) -> bool:
        return self._files.exists(data_path(files.checked(name)))

    def remove(self, name: str, *, wipes: bool = False) -> None:
        """Ensures that a block does not exist; its metadata is removed first.

        The metadata is removed again after the data, since a concurrent writer of metadata checks
        the data afterwards.  With `wipes` local files are overwritten before they are removed.
        """
        data, metadata = data_path(files.checked(name)), metadata_path(name)
        if wipes and self._is_local:
            for path in (metadata, data):
                self._files.wipe(path)
        for path in (metadata, data, metadata):
            self._files.remove_file(path)

    def announce(self, name: str, wall_us: int) -> None:
        """Records, durably, that a block is about to exist that may never be used."""
        self._files.replace(_announced_path(name), b"%d\n" % wall_us)

    def announced(self, folder: str) -> dict[str, int]:
        """Returns when blocks of a table were announced, by their names."""
        notes = [file for file in self._files.names(folder) if file.endswith(_ANNOUNCED)]
        names = [f"{folder}/{file.removeprefix('_').removesuffix(_ANNOUNCED)}" for file in notes]
        found: dict[str, int] = {}
        for name in filter(files.is_name, names):
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                found[name] = int(self._files.read(_announced_path(name)))
        return found

    def conclude(self, name: str) -> None:
        """Ensures that a block is not announced any more: it is in use, or removed."""
        self._files.remove_file(_announced_path(name))

    def names(self, folder: str = "") -> list[str]:
        """Returns the names of all blocks, or of those of one table's folder, in order."""
        found = [
            described_block(f"{one}/{file}")
            for one in ([folder] if folder else self.folders())
            for file in self._files.names(one)
        ]
        return sorted(name for name in found if files.is_name(name))

    def folders(self) -> list[str]:
        """Returns the folders of all tables that have blocks."""
        return sorted(folder for folder in self._files.names() if _FOLDER.match(folder))

    def drop_unfinished(self, folder: str) -> None:
        """Removes what a writer that crashed has left behind.

        Assumes that the caller has the lock.
        """
        self._drop(folder, (files.UNFINISHED, _UNFINISHED_METADATA))

    def drop_rewrites(self, folder: str, before_us: int | None = None) -> None:
        """Removes what a rewriter that crashed has left behind.

        Assumes that the caller has the lock of rewriting.  Where there are no locks another
        rewriter may be running: then only what was set aside `before_us` is removed, if that is
        given.
        """
        since_us = None if self._files.has_locks else before_us
        self._drop(folder, (files.REWRITTEN, _UNFINISHED_ANNOUNCED), since_us)

    def _drop(self, folder: str, suffixes: tuple[str, ...], before_us: int | None = None) -> None:
        for file in self._files.names(folder):
            is_old = before_us is None or (files.stamped_us(file) or 0) < before_us
            if file.endswith(suffixes) and is_old:
                self._files.remove_file(f"{folder}/{file}")

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Excludes other writers of blocks from a folder.

        Raises:
            DirectoryInUseError: if there is one.
        """
        return self._files.lock(_LOCK)

    def rewriting_lock(self) -> contextlib.AbstractContextManager[None]:
        """Excludes other rewriters of blocks from a folder; sealing continues.

        Raises:
            DirectoryInUseError: if there is one.
        """
        return self._files.lock(_REWRITING_LOCK)

    def path(self, name: str) -> str:
        """Returns the path of the data of a block, as Spark and people write it."""
        return self._files.shown(data_path(files.checked(name)))

    def metadata_path(self, name: str) -> str:
        return self._files.shown(metadata_path(files.checked(name)))


def _announced_path(name: str) -> str:
    folder, _, base = files.checked(name).rpartition("/")
    return f"{folder}/_{base}{_ANNOUNCED}"


# -- the metadata of blocks: contents, checksums and neighbours -----------------------------------
#
# The blocks of a table are a chain: each names the previous one from the beginning, and the next
# one as soon as that is written.  Data is written first, then metadata, then the name in the
# previous one; after a crash in between this is repaired when the same range is written again.


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The JSON file beside a block."""

    table: str
    table_id: int
    kind: int  # Kind.number
    shard: str  # UUID of the journal, hexadecimal
    first: int  # the seqs that the block covers, both included: no gap between blocks
    last: int
    min_seq: int  # of its rows
    max_seq: int
    min_ts: int  # wall times of its rows, Unix microseconds
    max_ts: int
    rows: int
    bytes: int  # of its file
    crc32c: int  # of its file
    value_crc: int  # sum of the CRC32 of all values, as Spark's crc32(value), modulo 2^63
    path: str  # of its file, relative to the location of all blocks
    previous: str  # names of the neighbours, empty if there is none
    next: str

    def encode(self) -> builtins.bytes:
        return json.dumps(asdict(self), indent=1).encode() + b"\n"

    def block(self, name: str) -> Block:
        """Returns the engine's data of this block."""
        return Block(
            table=self.table_id,
            first=self.first,
            last=self.last,
            rows=self.rows,
            bytes=self.bytes,
            min_us=self.min_ts,
            max_us=self.max_ts,
            crc=self.crc32c,
            name=name,
        )


def decode_metadata(data: bytes, path: str) -> Metadata:
    """Decodes metadata; unknown members belong to a later version, and are ignored.

    Raises:
        CorruptionError: if it is invalid.
    """
    try:
        found: Any = json.loads(data)
        kinds = {
            field.name: {"int": int, "str": str}[str(field.type)] for field in fields(Metadata)
        }
        known = {name: found[name] for name in kinds}
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise CorruptionError(path, 0, f"it is not the metadata of a block ({error!r})") from error
    for name, kind in kinds.items():
        if type(known[name]) is not kind:
            raise CorruptionError(path, 0, f"its member {name} is of the wrong type")
    return Metadata(**known)


class Catalog:
    """All blocks of a store, by their metadata."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def names(self, table: str = "") -> builtins.list[str]:
        """Returns the names of all blocks, or of those of one table, by folder and in order."""
        folders = self.store.folders()
        wanted = [one for one in folders if not table or one.rpartition("-")[0] == table]
        return [name for folder in wanted for name in self.store.names(folder)]

    def list(self, table: str = "") -> builtins.list[Metadata]:
        """Returns the metadata of all blocks, or of those of one table, in order."""
        found = []
        for name in self.names(table):
            with contextlib.suppress(FileNotFoundError):  # removed by retention meanwhile
                found.append(self.read(name))
        return sorted(found, key=lambda one: (one.table, one.table_id, one.first))

    def read(self, name: str) -> Metadata:
        """Returns the metadata of a block.

        Raises:
            FileNotFoundError: if there is no such block.
            CorruptionError: if its metadata is damaged.
        """
        data = self.store.read_metadata(name)
        return decode_metadata(data, self.store.metadata_path(name))

    def next(self, name: str) -> str:
        """Returns the name of the block after this one, empty if there is none."""
        return self._present(self.read(name).next)

    def previous(self, name: str) -> str:
        """Returns the name of the block before this one, empty if there is none any more."""
        return self._present(self.read(name).previous)

    def _present(self, name: str) -> str:
        return name if name and self.store.exists(name) else ""

    def verify(self, name: str) -> Metadata:
        """Reads a block's file and compares its checksum.

        Raises:
            FileNotFoundError: if there is no such block.
            CorruptionError: if it is damaged; names the file.
        """
        metadata = self.read(name)
        path = self.store.path(name)
        try:
            size = self.store.size(name)
            crc = self.store.checksum(name)
        except FileNotFoundError:
            if not self.store.exists(name):
                raise
            raise CorruptionError(path, 0, "its metadata exists, but the file does not") from None
        if size != metadata.bytes:
            reason = f"it has {size} bytes, its metadata says {metadata.bytes}"
            raise CorruptionError(path, min(size, metadata.bytes), reason)
        if crc != metadata.crc32c:
            reason = f"its checksum is {crc:08x}, its metadata says {metadata.crc32c:08x}"
            raise CorruptionError(path, 0, reason)
        return metadata

    def add(self, name: str, metadata: Metadata) -> None:
        """Adds a block whose data exists, and links it from the previous one."""
        self.store.write_metadata(name, metadata.encode())
        self.link(metadata.previous, name)

    def link(self, previous: str, name: str) -> None:
        """Ensures that the previous block names this one, if it still exists.

        Damaged metadata does not prevent others from being written; `verify` reports it.
        """
        try:
            metadata = self.read(previous) if previous else None
        except (FileNotFoundError, CorruptionError):
            return
        if metadata is None or metadata.next == name:
            return
        self.store.write_metadata(previous, replace(metadata, next=name).encode())
        if not self.store.has_data(previous):
            self.store.remove(previous)  # removed by retention meanwhile
