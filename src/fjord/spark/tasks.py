"""Tasks: a partition becomes Arrow batches.

A cold task reads Parquet files, a part at a time, and only parts that have seqs of its range.  A
tail task asks the daemon, or reads the journal of a directory.  Both return the same rows for the
same range, so a range may move from the journal to blocks while a query runs:

    the daemon goes away                  the client reconnects, and continues after the last row
    the range has left the journal        it is now in blocks, and is read there
    a block is gone                       others now have its rows, and are read instead

Each task opens, reads and closes a directory, since LMDB allows a process to open it only once, and
Spark reuses worker processes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute

import fjord
from fjord import kinds, values
from fjord.blocks import rows, schema
from fjord.client.blocking.snapshots import SnapshotKv, SnapshotStream
from fjord.client.history import BlockInfo
from fjord.errors import Code, FjordError, RefusedError, UnavailableError
from fjord.history import HISTORIC
from fjord.ops import Opcode
from fjord.spark import declared_rows, extent, source
from fjord.spark.options import SourceOptions

_LOG: Final = logging.getLogger("fjord.spark")
# The best size for the conversion to rows of the JVM.
BATCH_ROWS: Final = 65_536
# The client itself tries for half a minute each time.
_TRIES: Final = 4


def read_cold(partition: source.ColdPartition) -> Iterator[pa.RecordBatch]:
    """Yields the rows of shares of blocks.

    Raises:
        FjordError: if a block is missing, or differs from its description.
    """
    wanted, end_seq = partition.wanted, partition.end_seq
    for share in partition.shares:
        start_seq = max(partition.start_seq, share.block.first)
        try:
            yield from _share(wanted, share, start_seq, end_seq)
        except extent.MissingBlockError as error:
            # No row of it was returned yet: an open file can be read to its end.
            yield from _instead(wanted, share, start_seq, end_seq, error)


def read_tail(partition: source.TailPartition) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a range of seqs.

    Raises:
        FjordError: if they can no longer be read.
    """
    wanted, start_seq, tries = partition.wanted, partition.start_seq, 0
    while True:
        try:
            with wanted.location.open() as database:
                for batch, next_seq in _ranged(database, wanted, start_seq, partition.end_seq):
                    start_seq = next_seq
                    if batch.num_rows:
                        yield batch
                return
        except UnavailableError:
            tries += 1
            if tries == _TRIES:
                raise
            _LOG.warning("%s went away; reading on from seq %d", wanted.location, start_seq)


# -- cold -----------------------------------------------------------------------------------------


def _share(
    wanted: SourceOptions, share: source.Share, start_seq: int, end_seq: int
) -> Iterator[pa.RecordBatch]:
    block = share.block
    start_seq = max(start_seq, block.first)
    is_cut = start_seq > block.first or end_seq <= block.last
    needed = _needed(wanted, ["seq"] if is_cut else [])
    with extent.opened(block, wanted.blocks) as file:
        parts = _parts(file.metadata, share, wanted, start_seq, end_seq)
        if not parts:
            return
        for found in file.iter_batches(BATCH_ROWS, row_groups=parts, columns=needed):
            batch = rows.between(found, start_seq, end_seq) if is_cut else found
            batch = _selected(batch, wanted)
            if batch.num_rows:
                yield batch


def _parts(
    metadata: Any, share: source.Share, wanted: SourceOptions, start_seq: int, end_seq: int
) -> list[int]:
    """Returns the numbers of the parts that belong to a share and have rows of a range."""
    found, row = [], 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        is_ours = share.start_row <= row < share.end_row
        row += group.num_rows
        if is_ours and _may_have(group, wanted, start_seq, end_seq):
            found.append(number)
    return found


_SEQ, _OP, _KEY = (rows.SCHEMA.names.index(name) for name in ("seq", "op", "key"))


def _may_have(group: Any, wanted: SourceOptions, start_seq: int, end_seq: int) -> bool:
    """Returns whether a part may have wanted rows, by its statistics."""
    seq, op, key = (group.column(number).statistics for number in (_SEQ, _OP, _KEY))
    if _has_bounds(seq) and (seq.max < start_seq or seq.min >= end_seq):
        return False
    if wanted.ops and _has_bounds(op) and op.min == op.max and op.min not in wanted.ops:
        return False
    prefix = wanted.key_prefix
    if prefix and _has_bounds(key):
        low, high = _bytes(key.min), _bytes(key.max)
        return high >= prefix and low[: len(prefix)] <= prefix
    return True


def _has_bounds(statistics: Any) -> bool:
    return statistics is not None and statistics.has_min_max


def _bytes(bound: str | bytes) -> bytes:
    return bound.encode("utf-8", "surrogateescape") if isinstance(bound, str) else bound


def _instead(
    wanted: SourceOptions, share: source.Share, start_seq: int, end_seq: int, error: FjordError
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a removed block from its replacements.

    It is no longer known which parts belonged to a share, so the share must have been all of it.
    """
    with wanted.location.open() as database:
        blocks = database.blocks(wanted.table)
    if any(block.name == share.block.name for block in blocks):
        raise error  # the node knows it, only this machine does not see it
    if share != source.whole(share.block):
        raise FjordError(
            f"the block {share.block.name} was replaced while it was read; run the query again"
        ) from error
    end_seq = min(end_seq, share.block.last + 1)
    for block in _covering(blocks, wanted, start_seq, end_seq):
        yield from _share(wanted, source.whole(block), start_seq, end_seq)


def _covering(
    blocks: Sequence[BlockInfo], wanted: SourceOptions, start_seq: int, end_seq: int
) -> list[BlockInfo]:
    """Returns the blocks that have a range, or the rest of it.

    Raises:
        FjordError: if a part of it is lost, unless losses are accepted.
    """
    found = [block for block in blocks if block.last >= start_seq and block.first < end_seq]
    first = found[0].first if found else end_seq
    if first > start_seq:
        extent.report_loss(wanted, start_seq, first - 1)
    return found


# -- tail -----------------------------------------------------------------------------------------

_EMPTY: Final = pa.RecordBatch.from_pylist([], schema=rows.SCHEMA)  # says only how far it is
_Ranged = Iterator[tuple[pa.RecordBatch, int]]


def _ranged(
    database: fjord.Database, wanted: SourceOptions, start_seq: int, end_seq: int
) -> _Ranged:
    """Yields batches, each with the next seq; from blocks if they have left the journal."""
    try:
        for found in _scanned(database, wanted, start_seq, end_seq):
            start_seq = found[1]
            yield found
        return
    except RefusedError as error:
        if error.code is not Code.BAD_RANGE:
            raise
    first_seq = min(database.stats()["first_seq"], end_seq)
    cold_seq = start_seq
    for block in _covering_tail(database, wanted, start_seq, first_seq):
        for batch in _share(wanted, source.whole(block), start_seq, end_seq):
            yield batch, cold_seq
        cold_seq = min(block.last + 1, end_seq)
        yield _EMPTY, cold_seq
    start_seq = max(first_seq, cold_seq)
    if start_seq < end_seq:
        yield from _scanned(database, wanted, start_seq, end_seq)


def _covering_tail(
    database: fjord.Database, wanted: SourceOptions, start_seq: int, first_seq: int
) -> list[BlockInfo]:
    """Returns the blocks of history before the beginning of the journal.

    If the node writes blocks, the journal has everything after the last block, so nothing is lost.
    """
    if not wanted.has_history:
        extent.report_loss(wanted, start_seq, first_seq - 1)
        return []
    blocks = database.blocks(wanted.table)
    last_seq = max(source.cold_end(blocks) + 1, start_seq)
    if last_seq < first_seq and not extent.is_behind_blocks(database, wanted.table, last_seq - 1):
        again = database.blocks(wanted.table)  # some may have come since
        if source.cold_end(again) + 1 <= last_seq:
            extent.report_loss(wanted, last_seq, first_seq - 1)
        blocks, last_seq = again, max(source.cold_end(again) + 1, last_seq)
    return _covering(blocks, wanted, start_seq, min(first_seq, last_seq))


def _scanned(
    database: fjord.Database, wanted: SourceOptions, start_seq: int, end_seq: int
) -> _Ranged:
    opcodes = wanted_opcodes(wanted)
    if opcodes is not None and not opcodes:
        return
    # A scan from seq 1 on is one of what is left, and a task is to have all of its range, or to
    # hear that it is gone.
    start_seq = max(start_seq, source.FIRST_ROW)
    # Ops as they are stored become rows here: the daemon has one processor for all tasks, and
    # takes a third of the time to send them as they are.
    pieces = database.scan(
        wanted.table, start_seq, end_seq, ops=opcodes, key_prefix=wanted.key_prefix
    )
    for found in rows.record_batches(pieces, start_seq, end_seq):
        for start in range(0, found.num_rows, BATCH_ROWS):
            batch = found.slice(start, BATCH_ROWS)
            yield _selected(batch, wanted), batch["seq"][-1].as_py() + 1


def wanted_opcodes(wanted: SourceOptions) -> list[Opcode] | None:
    """Returns the kinds of ops that may have wanted rows; None if all kinds do.

    The names of some ops depend on their contents: those are always requested, and their rows are
    checked one by one.
    """
    if not wanted.ops and not wanted.has_history:
        return None
    kinds = HISTORIC if wanted.has_history else HISTORIC | rows.NAMES.keys()
    names = {code: rows.NAMES.get(code, "") for code in kinds}
    return sorted(
        code for code, name in names.items() if not wanted.ops or not name or name in wanted.ops
    )


# -- rows -----------------------------------------------------------------------------------------


def _needed(wanted: SourceOptions, more: Sequence[str]) -> list[str]:
    """Returns the columns to read: wanted ones, and those needed for filters."""
    deciding = [*more, *(["op"] if wanted.ops else []), *(["key"] if wanted.key_prefix else [])]
    if wanted.typed.columns:
        deciding += declared_rows.NEEDED
    stored = [name for name in wanted.columns if name in schema.COLUMNS]
    return [*stored, *dict.fromkeys(one for one in deciding if one not in stored)]


def _selected(batch: pa.RecordBatch, wanted: SourceOptions) -> pa.RecordBatch:
    """Returns the wanted rows and columns of a batch."""
    if wanted.ops:
        batch = batch.filter(compute.is_in(batch["op"], pa.array(sorted(wanted.ops))))
    return declared_rows.shown(rows.with_prefix(batch, wanted.key_prefix), wanted)


# -------------------------------------------------------------------------------------------------
#
# The current value of each key as rows: `view=latest`, of key/value tables and latest streams.
#
# All rows are of one moment: a daemon keeps a snapshot open meanwhile; a directory is read as it
# was when it was opened.  Rows have the columns of the history.  Columns that a current value does
# not have are null: in key/value tables seq, txn and row.


_ROWS: Final = 10_000


def read_latest(partition: source.LatestPartition) -> Iterator[pa.RecordBatch]:
    """Yields the current value of each key."""
    wanted = partition.wanted
    with wanted.location.open() as database:
        # A directory is opened read-only, and a snapshot is a write.
        opening: AbstractContextManager[fjord.Snapshot | fjord.Database]
        opening = database.snapshot() if wanted.location.server else nullcontext(database)
        with opening as moment:
            if database.table(wanted.table).kind == kinds.Kind.KV:
                yield from _entries(moment.kv(wanted.table), wanted)
            else:
                yield from _messages(moment.stream(wanted.table), wanted)


def _entries(table: fjord.Kv | SnapshotKv, wanted: SourceOptions) -> Iterator[pa.RecordBatch]:
    found = iter(table.entries(fjord.Span(prefix=wanted.key_prefix)))
    while page := list(islice(found, _ROWS)):
        keys, entries = zip(*page, strict=True)
        types, data = zip(*(values.encode(entry.value) for entry in entries), strict=True)
        columns = {
            "ts": [entry.written_at for entry in entries],
            "op": ["SET"] * len(page),
            "key": keys,
            "expires_at": [entry.expires_at for entry in entries],
            "type": types,
            "value": data,
        }
        yield _batch(columns, len(page), wanted)


def _messages(
    table: fjord.Stream | SnapshotStream, wanted: SourceOptions
) -> Iterator[pa.RecordBatch]:
    # A snapshot gives batches itself, a table through a reader.
    reader = table if isinstance(table, SnapshotStream) else table.reader()
    for batch in reader.batches(_ROWS):
        found = batch.to_arrow()
        # A tombstone has no type: its key has no value.
        found = found.filter(compute.is_valid(found["type"]))
        for part in rows.with_prefix(found, wanted.key_prefix).to_batches():
            columns: dict[str, Any] = dict(zip(part.schema.names, part.columns, strict=True))
            columns |= {"op": pa.repeat("SET", part.num_rows), "row": part["seq"]}
            if part.num_rows:
                yield _batch(columns, part.num_rows, wanted)


def _batch(columns: dict[str, Any], count: int, wanted: SourceOptions) -> pa.RecordBatch:
    arrays = [
        pa.array(columns[one.name], one.type) if one.name in columns else pa.nulls(count, one.type)
        for one in rows.SCHEMA
    ]
    return declared_rows.shown(pa.RecordBatch.from_arrays(arrays, schema=rows.SCHEMA), wanted)
