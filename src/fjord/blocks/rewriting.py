"""Rewriting: blocks that follow each other become one, row by row the same.

    blocks, in order -> checked -> parts, put together up to a full one -> Parquet    `rewrite`
    it is announced, and gets its name and its metadata                               `publish`
    (the node is told of the new block) -> it is announced no more                    `conclude`
    the chain is mended                                                               `relink`
    what runs that died have published in vain is removed                             `sweep`

Memory holds a part of the old and a part of the new block, never a block.  Nothing here changes
which blocks are in use: whoever asked tells the node of the new one.  Until it is published it is
under a name that everybody passes over, those included who read a folder as a table, and that is
not the one of a draft of sealing, so that a node that seals meanwhile does not take it for what a
writer that died has left behind.

Invariants:
- A new block has a name that no block had before, and no file is ever written over: so whatever is
  removed here is a block that this, or a run that died, has made.
- From before a new block is seen until the node has it in use, or it is gone, it is announced.
  What is announced is removed only if the node does not list it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import parquet as pq

from fjord import limits
from fjord.blocks import parquet, rows
from fjord.blocks.store import Catalog, Metadata, Store
from fjord.errors import CorruptionError, FjordError
from fjord.history import SealedRange, block_name, data_path

_VALUE_CRC_MASK: Final = 2**63 - 1


class Rewritten(NamedTuple):
    """A block that is written and that nobody sees yet."""

    name: str  # that it will have
    path: str  # of its data, below the location
    metadata: Metadata


def rewrite(store: Store, names: Sequence[str], *, tag: int) -> Rewritten:
    """Writes the rows of some blocks to a new one, durably.

    Args:
        names: of blocks of one table that follow each other, in order.
        tag: makes the name of the new block unique; no run before has had it.

    Raises:
        CorruptionError: if one of them is damaged, or the new one does not hold what they did.
        FileNotFoundError: if one of them is gone.
    """
    catalog = Catalog(store)
    old = [catalog.verify(name) for name in names]
    name = _new_name(old, tag)
    draft = store.draft(name, is_rewrite=True)
    try:
        writer: parquet.Writer | None = None
        for batches in _parts(store, names):
            if writer is None:
                writer = parquet.Writer(draft, has_keys=parquet.has_keys(batches))
            writer.write_part(batches)
        if writer is None:
            raise CorruptionError(store.path(names[0]), 0, "it has no rows")
        metadata = _metadata(name, old, writer.close(), draft.size, draft.crc)
        _check(store, name, old, metadata)
        return Rewritten(name, store.set_aside(draft, name), metadata)
    finally:
        draft.drop()


def publish(store: Store, found: Rewritten, wall_us: int) -> None:
    """Gives a new block its name and its metadata; it is announced from now on.

    Assumes that the caller has the lock of sealing.

    Raises:
        FileNotFoundError: if its data is not here.
        FileExistsError: if there is such a block, which stays as it is.
    """
    store.announce(found.name, wall_us)
    try:
        store.adopt(found.path, found.name)
    except (FileNotFoundError, FileExistsError):
        store.conclude(found.name)
        raise
    store.write_metadata(found.name, found.metadata.encode())


def withdraw(store: Store, name: str) -> None:
    """Ensures that a block that was published is not there.

    Assumes that the node does not list it, and never will.
    """
    store.remove(name)
    store.conclude(name)


def sweep(store: Store, folder: str, listed: Callable[[], Sequence[str]], before_us: int) -> None:
    """Removes blocks that were announced before a moment and are not in use.

    Args:
        listed: returns the names of the blocks in use; asked after it is known what is announced.
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
    """Ensures that blocks name the ones beside them, in this order.

    Assumes that nobody else writes metadata meanwhile.
    """
    neighbours = zip(["", *names[:-1]], names, [*names[1:], ""], strict=True)
    for previous, name, following in neighbours:
        try:
            found = catalog.read(name)
        except FileNotFoundError:
            continue  # retention took it away meanwhile
        # The first one may still name one that is gone, and the last one a newer one.
        wanted = replace(found, previous=previous or found.previous, next=following or found.next)
        if wanted != found:
            catalog.store.write_metadata(name, wanted.encode())


def _new_name(old: Sequence[Metadata], tag: int) -> str:
    first, last = old[0], old[-1]
    where = SealedRange(first.table_id, first.table, first.kind, first.first, last.last, tag, 0)
    return block_name(where, first.first, last.last)


def _parts(store: Store, names: Sequence[str]) -> Iterator[list[pa.RecordBatch]]:
    """Yields the rows of blocks, in order, in parts of a bounded size."""
    held: list[pa.RecordBatch] = []
    count = size = 0
    for batch in _batches(store, names):
        if held and (
            count + batch.num_rows > limits.BLOCK_PART_ROWS
            or size + batch.nbytes > limits.BLOCK_PART_BYTES
        ):
            yield held
            held, count, size = [], 0, 0
        held.append(batch)
        count += batch.num_rows
        size += batch.nbytes
    if held:
        yield held


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


def _metadata(
    name: str, old: Sequence[Metadata], found: parquet.Summary, size: int, crc: int
) -> Metadata:
    return replace(
        old[0],
        last=old[-1].last,
        min_seq=found.min_seq,
        max_seq=found.max_seq,
        min_ts=found.min_us,
        max_ts=found.max_us,
        rows=found.rows,
        bytes=size,
        crc32c=crc,
        value_crc=found.value_crc,
        path=data_path(name),
        next=old[-1].next,
    )


def _check(store: Store, name: str, old: Sequence[Metadata], new: Metadata) -> None:
    """Makes sure that a new block holds just what the old ones say that they do.

    Raises:
        FjordError: if they do not follow each other.
        CorruptionError: if it does not.
    """
    for before, after in pairwise(old):
        if after.table_id != before.table_id or after.first <= before.last:
            raise FjordError(f"{after.path} does not follow {before.path}; list the blocks again")
    expected = (
        sum(one.rows for one in old),
        sum(one.value_crc for one in old) & _VALUE_CRC_MASK,
        old[0].min_seq,
        old[-1].max_seq,
        min(one.min_ts for one in old),
        max(one.max_ts for one in old),
    )
    found = (new.rows, new.value_crc, new.min_seq, new.max_seq, new.min_ts, new.max_ts)
    if found != expected:
        reason = f"it would hold {found}, the blocks that it is made of say {expected}"
        raise CorruptionError(store.path(name), 0, reason)
