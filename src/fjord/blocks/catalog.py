"""The metadata of blocks: what each one holds, its checksum, and its neighbours.

Blocks of a table are a chain: each knows the one before it from the beginning, and the one after
it as soon as that is written.  Data is written first, then metadata, then the name in the one
before; a crash in between is mended when the same range is written again.
"""

from __future__ import annotations

import builtins
import json
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from fjord.blocks.store import Store
from fjord.errors import CorruptionError
from fjord.history import Block


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What the JSON file beside a block says."""

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
    path: str  # of its file, below the location of all blocks
    previous: str  # names of the blocks beside it, empty if there is none
    next: str

    def encode(self) -> builtins.bytes:
        return json.dumps(asdict(self), indent=1).encode() + b"\n"

    def block(self, name: str) -> Block:
        """Returns what the engine wants to know."""
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
    """Reads metadata; members that are not known are of a later version, and left out.

    Raises:
        CorruptionError: if it is none.
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

    def list(self, table: str = "") -> list[Metadata]:
        """Returns the metadata of all blocks, or of those of one table, in order."""
        folders = [
            folder
            for folder in self.store.folders()
            if not table or folder.rpartition("-")[0] == table
        ]
        found = []
        for name in [name for folder in folders for name in self.store.names(folder)]:
            try:
                found.append(self.read(name))
            except FileNotFoundError:
                pass  # retention took it away meanwhile
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
            raise CorruptionError(path, 0, "its metadata is there, but the file is not") from None
        if size != metadata.bytes:
            reason = f"it has {size} bytes, its metadata says {metadata.bytes}"
            raise CorruptionError(path, min(size, metadata.bytes), reason)
        if crc != metadata.crc32c:
            reason = f"its checksum is {crc:08x}, its metadata says {metadata.crc32c:08x}"
            raise CorruptionError(path, 0, reason)
        return metadata

    def add(self, name: str, metadata: Metadata) -> None:
        """Makes a block known whose data is there, and tells the one before it."""
        self.store.write_metadata(name, metadata.encode())
        self.link(metadata.previous, name)

    def link(self, previous: str, name: str) -> None:
        """Ensures that the block before this one names it, if it is still there.

        Metadata that is damaged does not keep others from being written; `verify` reports it.
        """
        try:
            metadata = self.read(previous) if previous else None
        except (FileNotFoundError, CorruptionError):
            return
        if metadata is None or metadata.next == name:
            return
        self.store.write_metadata(previous, replace(metadata, next=name).encode())
        if not self.store.has_data(previous):
            self.store.remove(previous)  # retention took it away meanwhile

    def remove(self, name: str) -> None:
        """Ensures that a block is not there any more."""
        self.store.remove(name)
