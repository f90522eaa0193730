"""Writing blocks: ranges of the journal become blocks, and blocks become larger ones.

    frames of the journal -> ops, by table -> rows, a part at a time -> Parquet -> metadata

One walk over the journal serves all ranges of a plan.  A block ends at the end of a commit, so that
rows committed together are in one block, and at the same places whenever a range is written again:
so whole blocks that exist are kept, and after a crash the rest is written.  The last block of a
range ends with the range, each other one just before the commit with which the next one begins, and
a range without rows makes no block.

Memory holds the parts that are not full yet, never a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import parquet as pq

from fjord import disk as disks
from fjord import limits, ops
from fjord.blocks import parquet, rows
from fjord.blocks.files import Draft
from fjord.blocks.store import Catalog, Metadata, Store
from fjord.errors import CorruptionError, FjordError
from fjord.history import HISTORIC, Block, SealedRange, SealPlan, block_name, bounded, data_path
from fjord.journal import reader
from fjord.journal.reader import Journal, Located, ScannedOps
from fjord.ops import Opcode

# Ranges written by one walk: each may have a file open.
RANGES_MAX: Final = 256
# Ops not written yet, of all ranges together; beyond this the largest part is written early.
PENDING_BYTES_MAX: Final = 64 * limits.MIB
# Small ops are decoded together, up to this size; a larger one alone, without copying it.
_PIECE_BYTES: Final = 1 * limits.MIB

# Unknown ops are not skipped, but refused by the decoder.
_SKIPPED: Final = frozenset(int(opcode) for opcode in Opcode if opcode not in HISTORIC)


def write_blocks(
    journal_directory: str,
    plan: SealPlan,
    store: Store,
    *,
    progress: Callable[[Block], None] | None = None,
    disk: disks.Disk | None = None,
) -> list[Block]:
    """Writes the blocks of a plan, and returns them by range, each in order.

    Ensures that they are durable.  Existing blocks are kept.

    Args:
        journal_directory: where the segments are.
        progress: called with each finished block.
        disk: of the journal, if not that of this machine.

    Raises:
        CorruptionError: if the journal is damaged, or is not the one of the plan.
        DirectoryInUseError: if another process writes blocks there.
    """
    journal = Journal(disk or disks.LocalDisk(), journal_directory)
    try:
        _check_shard(journal, plan)
        with store.lock():
            blocks: list[Block] = []
            for start in range(0, len(plan.ranges), RANGES_MAX):
                some = plan.ranges[start : start + RANGES_MAX]
                writers = [_RangeWriter(one, plan.shard, Catalog(store), progress) for one in some]
                blocks += _write_ranges(journal, journal_directory, writers)
            return blocks
    finally:
        journal.close()


def _check_shard(journal: Journal, plan: SealPlan) -> None:
    for header in journal.segments[:1]:
        if header.shard != plan.shard:
            path = journal.path(header.segment)
            raise CorruptionError(path, 32, "it belongs to another journal than the plan")


def _write_ranges(journal: Journal, directory: str, writers: Sequence[_RangeWriter]) -> list[Block]:
    """Writes the blocks of ranges by one walk over the journal."""
    try:
        _walk(journal, directory, [one for one in writers if not one.is_done])
        for writer in writers:
            writer.finish()
    finally:
        for writer in writers:
            writer.abandon()
    return [block for writer in writers for block in writer.blocks]


def _walk(journal: Journal, directory: str, writers: Sequence[_RangeWriter]) -> None:
    if not writers:
        return
    by_table: dict[int, list[_RangeWriter]] = {}
    for writer in writers:
        by_table.setdefault(writer.range.table, []).append(writer)
    # What was packed away before a range was fixed had none of its rows.
    start = max(min(writer.first for writer in writers), journal.first_seq)
    end = max(writer.range.last for writer in writers)
    examined_bytes = 0
    for located in journal.frames(start, durable_seq=end):
        for table, found in _ops(located, by_table.keys()).items():
            for writer in by_table[table]:
                writer.add(located, found, journal)
        examined_bytes += len(located.body)
        if examined_bytes > _PIECE_BYTES:
            examined_bytes = 0
            if sum(writer.pending_bytes for writer in writers) > PENDING_BYTES_MAX:
                max(writers, key=lambda writer: writer.pending_bytes).write_all()
        if located.frame.last_seq >= end:
            return
    # A missing journal has no damage either, and must not count as one without rows.
    raise CorruptionError(directory, 0, f"the journal in it ends before seq {end}")


class _FoundOp(NamedTuple):
    """An op of a commit, not decoded."""

    opcode: int
    seq: int  # of its first row
    row_count: int
    data: memoryview


def _ops(located: Located, tables: Set[int]) -> dict[int, list[_FoundOp]]:
    """Returns the ops of a commit that belong to the history of some tables, by table."""
    body = memoryview(located.body)
    found: dict[int, list[_FoundOp]] = {}
    position, seq = 0, located.frame.first_seq
    while position < len(body):
        opcode, _, _, table, row_count, length = ops.HEADER.unpack_from(body, position)
        if table in tables and opcode not in _SKIPPED:
            data = body[position : position + length]
            found.setdefault(table, []).append(_FoundOp(opcode, seq, row_count, data))
        position += length
        seq += row_count
    return found


class _RangeWriter:
    """Writes the blocks of one range, from its ops in order."""

    def __init__(
        self,
        range_: SealedRange,
        shard: bytes,
        catalog: Catalog,
        progress: Callable[[Block], None] | None,
    ) -> None:
        self.range = range_
        self.first = range_.first  # of the block being written
        self.blocks: list[Block] = []
        self.is_done = False
        self.pending_bytes = 0
        self._shard = shard
        self._catalog = catalog
        self._store = catalog.store
        self._progress = progress
        self._previous = range_.previous
        self._rows = 0  # of the block, written or not
        self._pending = ScannedOps()
        self._batches: list[pa.RecordBatch] = []
        self._batch_rows = 0
        self._draft: Draft | None = None
        self._writer: parquet.BlockWriter | None = None
        folder = block_name(range_, range_.first, range_.last).partition("/")[0]
        self._store.drop_unfinished(folder)
        self._there: dict[tuple[int, int], str] = {}  # existing ones, by first seq and tag
        for name in self._store.names(folder):
            first, _, tag = name.rpartition("/")[2].split("-")
            self._there[int(first), int(tag, 16)] = name
        self._skip_existing()

    def add(self, located: Located, found: Sequence[_FoundOp], journal: Journal) -> None:
        """Adds the ops of one commit on the table: all of them are for one block."""
        wanted = [] if self.is_done else [op for op in found if self._row_count(op)]
        count = sum(map(self._row_count, wanted))
        if count and self._rows and self._rows + count > self.range.block_rows:
            self._close(located.frame.first_seq - 1)
            self.add(located, found, journal)  # unless the next one exists already
            return
        self._rows += count
        for op in wanted:
            data = op.data
            if op.opcode == reader.COMMIT:  # staged ops are fetched one at a time
                data = memoryview(reader.messages_of(journal, data))
            self._take(located, op.seq, data)

    def _row_count(self, op: _FoundOp) -> int:
        """Returns how many rows of an op are for the block."""
        end = min(op.seq + op.row_count, self.range.last + 1)
        return max(0, end - max(op.seq, self.first))

    def _take(self, located: Located, seq: int, data: memoryview) -> None:
        self.pending_bytes += len(data)
        if self._pending.bytes + len(data) > _PIECE_BYTES:
            self._decode()
        # A small op must not keep the whole frame in memory.
        data = data if 2 * len(data) > len(located.body) else memoryview(bytes(data))
        self._pending.add(located.frame, seq, data)
        if self._pending.bytes > _PIECE_BYTES:
            self._decode()
        if self.pending_bytes >= limits.BLOCK_PART_BYTES:
            self.write_all()
        elif self._batch_rows >= limits.BLOCK_PART_ROWS:
            self._write_part()

    def finish(self) -> None:
        """Closes the last block; it ends with the range."""
        if self._rows:
            self._close(self.range.last)

    def abandon(self) -> None:
        """Removes an unfinished block."""
        if self._draft is not None:
            self._draft.drop()
            self._draft = None

    def write_all(self) -> None:
        """Writes all full parts, and the rest."""
        self._decode()
        while self._batches:
            self._write_part()

    def _write_part(self) -> None:
        batches, self._batches = _split(self._batches, limits.BLOCK_PART_ROWS)
        if self._writer is None:
            self._draft = self._store.draft(block_name(self.range, self.first, self.first))
            self._writer = parquet.BlockWriter(self._draft, has_keys=parquet.has_keys(batches))
        self._writer.write_part(batches)
        rest = sum(batch.num_rows for batch in self._batches)
        self.pending_bytes = self.pending_bytes * rest // self._batch_rows
        self._batch_rows = rest

    def _decode(self) -> None:
        if not self._pending.bytes:
            return
        piece, self._pending = self._pending.scanned(), ScannedOps()
        for batch in rows.record_batches([piece], self.first, self.range.last + 1):
            if batch.num_rows:
                self._batches.append(batch)
                self._batch_rows += batch.num_rows

    def _close(self, last: int) -> None:
        """Makes a block of the rows so far; the next one begins after `last`."""
        self.write_all()
        self._rows = 0
        if self._writer is None or self._draft is None:
            return  # none of the ops had a row to show
        summary = self._writer.close()
        name = block_name(self.range, self.first, last)
        self._draft.keep(name)
        metadata = self._metadata(name, last, summary, self._draft)
        self._draft.drop()
        self._draft = self._writer = None
        self._catalog.add(name, metadata)
        self._continue_after(name, metadata)
        self._skip_existing()

    def _metadata(self, name: str, last: int, found: parquet.Summary, draft: Draft) -> Metadata:
        return Metadata(
            table=self.range.name,
            table_id=self.range.table,
            kind=self.range.kind,
            shard=self._shard.hex(),
            first=self.first,
            last=last,
            bytes=draft.size,
            crc32c=draft.crc,
            path=data_path(name),
            previous=self._previous,
            next="",
            **found._asdict(),
        )

    def _continue_after(self, name: str, metadata: Metadata) -> None:
        block = metadata.block(name)
        self.blocks.append(block)
        self._previous = name
        self.first = block.last + 1
        self.is_done = self.first > self.range.last
        if self._progress is not None:
            self._progress(block)

    def _skip_existing(self) -> None:
        """Skips blocks that were written before a crash, and are whole."""
        while not self.is_done and (name := self._there.get((self.first, self.range.tag))):
            try:
                metadata = self._catalog.verify(name)
            except CorruptionError:
                return  # it is written again
            if metadata.last > self.range.last or metadata.shard != self._shard.hex():
                return
            self._catalog.link(self._previous, name)
            self._continue_after(name, metadata)


def _split(
    batches: Sequence[pa.RecordBatch], row_count: int
) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
    """Returns the first rows, and the others."""
    first: list[pa.RecordBatch] = []
    for number, batch in enumerate(batches):
        if batch.num_rows > row_count:
            rest = [batch.slice(row_count), *batches[number + 1 :]]
            return ([*first, batch.slice(0, row_count)] if row_count else first), rest
        first.append(batch)
        row_count -= batch.num_rows
    return first, []


# -- rewriting: consecutive blocks become one with the same rows ----------------------------------
#
#     blocks, in order -> checked -> parts, put together up to a full one -> Parquet    `rewrite`
#     it is announced, and gets its name and its metadata                               `publish`
#     (the node is told of the new block) -> it is announced no more                    `conclude`
#     the chain is repaired                                                             `relink`
#     blocks that were published by crashed runs and never used are removed             `sweep`
#
# Memory holds a part of the old and a part of the new block, never a block.  Nothing here changes
# which blocks are in use: the caller tells the node of the new one.  Until it is published it has a
# name that everybody ignores, including those who read a folder as a table, and that differs from
# that of a draft of sealing, so that a node that seals meanwhile does not take it for a leftover of
# a crashed writer.
#
# Invariants:
# - A new block has a name that no block had before, and no file is ever overwritten: so whatever
#   is removed here is a block that this run, or a crashed one, has made.
# - From before a new block is visible until the node has it in use, or it is gone, it is announced.
#   An announced block is removed only if the node does not list it.


class Rewritten(NamedTuple):
    """A block that is written and not visible yet."""

    name: str  # its future name
    path: str  # of its data, below the location
    metadata: Metadata


def rewrite(store: Store, names: Sequence[str], *, tag: int) -> Rewritten:
    """Writes the rows of some blocks to a new one, durably.

    Args:
        names: of consecutive blocks of one table, in order.
        tag: makes the name of the new block unique; no earlier run has used it.

    Raises:
        CorruptionError: if one of them is damaged, or the new one does not match them.
        FileNotFoundError: if one of them is gone.
    """
    catalog = Catalog(store)
    old = [catalog.verify(name) for name in names]
    one, last = old[0], old[-1].last
    where = SealedRange(one.table_id, one.table, one.kind, one.first, last, tag, 0)
    name = block_name(where, one.first, last)
    draft = store.draft(name, is_rewrite=True)
    try:
        writer: parquet.BlockWriter | None = None
        for batches in _parts(store, names):
            if writer is None:
                writer = parquet.BlockWriter(draft, has_keys=parquet.has_keys(batches))
            writer.write_part(batches)
        if writer is None:
            raise CorruptionError(store.path(names[0]), 0, "it has no rows")
        found = writer.close()
        _check(store, name, old, found)
        metadata = replace(
            old[0],
            last=old[-1].last,
            bytes=draft.size,
            crc32c=draft.crc,
            path=data_path(name),
            next=old[-1].next,
            **found._asdict(),
        )
        return Rewritten(name, draft.set_aside(name.partition("/")[0]), metadata)
    finally:
        draft.drop()


def publish(store: Store, found: Rewritten, wall_us: int) -> None:
    """Gives a new block its name and its metadata; it is announced from now on.

    Assumes that the caller has the lock of sealing.

    Raises:
        FileNotFoundError: if its data is missing.
        FileExistsError: if there is such a block, which stays unchanged.
    """
    store.announce(found.name, wall_us)
    try:
        store.adopt(found.path, found.name)
    except (FileNotFoundError, FileExistsError):
        store.conclude(found.name)
        raise
    store.write_metadata(found.name, found.metadata.encode())


def withdraw(store: Store, name: str) -> None:
    """Ensures that a published block does not exist.

    Assumes that the node does not list it, and never will.
    """
    store.remove(name)
    store.conclude(name)


def sweep(store: Store, folder: str, listed: Callable[[], Sequence[str]], before_us: int) -> None:
    """Removes blocks that were announced before a moment and are not in use.

    Args:
        listed: returns the names of the blocks in use; called after the announced ones are known.
    """
    announced = store.announced(folder)
    if not announced:
        return
    used = set(listed())
    for name, since_us in announced.items():
        if name in used:
            store.conclude(name)
        elif since_us < before_us:
            withdraw(store, name)


def relink(catalog: Catalog, names: Sequence[str]) -> None:
    """Ensures that blocks name their neighbours, in this order.

    Assumes that nobody else writes metadata meanwhile.
    """
    neighbours = zip(["", *names[:-1]], names, [*names[1:], ""], strict=True)
    for previous, name, following in neighbours:
        try:
            found = catalog.read(name)
        except FileNotFoundError:
            continue  # removed by retention meanwhile
        # The first one may still name one that is gone, and the last one a newer one.
        wanted = replace(found, previous=previous or found.previous, next=following or found.next)
        if wanted != found:
            catalog.store.write_metadata(name, wanted.encode())


def _parts(store: Store, names: Sequence[str]) -> Iterator[list[pa.RecordBatch]]:
    """Yields the rows of blocks, in order, in parts of a bounded size."""
    most = (limits.BLOCK_PART_ROWS, limits.BLOCK_PART_BYTES)
    return bounded(_batches(store, names), lambda batch: (batch.num_rows, batch.nbytes), most)


def _batches(store: Store, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for name in names:
        with store.open(name) as file, pq.ParquetFile(file) as found:
            for number in range(found.num_row_groups):
                part: Any = found.read_row_group(number, columns=rows.SCHEMA.names)
                if part.schema != rows.SCHEMA:
                    part = part.cast(rows.SCHEMA)
                for batch in part.to_batches(max_chunksize=limits.BLOCK_PART_ROWS):
                    if batch.num_rows:
                        yield batch


def _check(store: Store, name: str, old: Sequence[Metadata], found: parquet.Summary) -> None:
    """Checks that a new block has exactly the contents of the old ones, by their metadata.

    Raises:
        FjordError: if they are not consecutive.
        CorruptionError: if it does not.
    """
    for before, after in pairwise(old):
        if after.table_id != before.table_id or after.first <= before.last:
            raise FjordError(f"{after.path} does not follow {before.path}; list the blocks again")
    expected = parquet.Summary.joined(old)
    if found != expected:
        reason = f"it would contain {found}, the old blocks contain {expected}"
        raise CorruptionError(store.path(name), 0, reason)
