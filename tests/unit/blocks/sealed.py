"""Small journals, what is sealed of them, and readers of the blocks, for tests of this folder."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from fjord import limits, ops
from fjord.blocks.store import Store
from fjord.blocks.writer import write_blocks
from fjord.columns import Strings
from fjord.commands import InBlock, Messages, Read
from fjord.disk import Disk
from fjord.history import Block, SealedRange, SealPlan
from fjord.journal.frame import SegmentHeader
from fjord.journal.writer import Commit, Writer
from fjord.ops import Op, Opcode
from fjord.testing import SimDisk
from tests.unit.blocks import scans

SHARD = b"the shard's uuid"
TABLE = scans.TABLE
WALL_US = scans.WALL_US
KIND = 3
TAG = 0xABC
DIRECTORY = "/data/journal"

_STORES = itertools.count()


def memory_store() -> Store:
    """Returns a store that no other test has."""
    return Store(f"memory://blocks-{next(_STORES)}")


def append(values: Sequence[bytes], *, keys: Sequence[bytes] = (), table: int = TABLE) -> Op:
    """Returns the op that adds messages to a log."""
    count = len(values)
    found = Strings.of(list(keys) or [b""] * count)
    return Op(Opcode.STREAM_APPEND, table, count, (bytes([1]) * count, found, Strings.of(values)))


def messages(count: int, first: int = 0) -> list[bytes]:
    return [b"message %d" % number for number in range(first, first + count)]


class Journal:
    """A journal on a disk; each commit comes a second after the one before."""

    def __init__(self, disk: Disk | None = None, directory: str = DIRECTORY) -> None:
        self.disk = disk or SimDisk()
        self.directory = directory
        self.disk.make_directory(directory)
        if isinstance(self.disk, SimDisk):
            for path in ("/", "/data"):
                self.disk.sync_directory(path)
        header = SegmentHeader(segment=1, first_seq=1, shard=SHARD, created_us=1, lease_us=1)
        self._writer = Writer(self.disk, directory, header, segment_bytes=4 * limits.MIB)
        self._writer.create()
        self._wall_us = WALL_US

    @property
    def last(self) -> int:
        return self._writer.next_seq - 1

    def commit(self, *found: Op) -> None:
        self.commit_bytes([ops.encode(op)[0] for op in found], rows=sum(op.rows for op in found))

    def commit_bytes(self, encoded: Sequence[bytes], *, rows: int) -> None:
        self._writer.append(Commit(wall_us=self._wall_us, lease_us=1, ops=encoded, rows=rows))
        self._writer.confirm()
        self._writer.sync()
        self._wall_us += 1_000_000

    def range(self, **changes: Any) -> SealedRange:
        """Returns all of it as a range of the table."""
        found = SealedRange(TABLE, "events", KIND, 1, self.last, TAG, 1_000_000)
        return found._replace(**changes)

    def seal(self, store: Store, *ranges: SealedRange) -> list[Block]:
        plan = SealPlan(SHARD, ranges or [self.range()])
        return write_blocks(self.directory, plan, store, disk=self.disk)


def journal_of(sizes: Sequence[int]) -> Journal:
    """Returns a journal with an append of so many messages in each commit."""
    journal = Journal()
    done = 0
    for size in sizes:
        journal.commit(append(messages(size, done)))
        done += size
    return journal


def block_rows(store: Store, name: str) -> list[dict[str, Any]]:
    """Returns all rows of a block."""
    import pyarrow.parquet as pq

    with store.open(name) as file:
        found: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    return found


def where(block: Block, *, after: int | None = None, until: int = 0) -> InBlock:
    """Returns what the engine says of a place in a block."""
    return InBlock(
        table=block.table,
        first=block.first,
        last=block.last,
        name=block.name,
        after=block.first - 1 if after is None else after,
        until=until or block.last,
        crc=block.crc,
    )


def read(**found: Any) -> Read:
    return Read(table="events", after=0, **found)


def decoded(found: Messages) -> list[tuple[int, int, int, bytes, bytes]]:
    """Returns seq, moment, type, key and value of messages that came out of a block."""
    given: list[tuple[int, int, int, bytes, bytes]] = []
    for data in found.ops:
        op, _, _ = ops.decode(memoryview(data), 0)
        assert op.opcode == Opcode.STREAM_MOVE
        names = ("row", "at_us", "type", "key", "value")
        given += zip(*[op.column(name) for name in names], strict=True)
    assert len(given) == found.rows
    return given


def values(found: Messages) -> list[bytes]:
    return [message[-1] for message in decoded(found)]
