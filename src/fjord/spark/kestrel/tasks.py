"""A task of the source `kestrel`: one queue, from its files to batches of Arrow.

`state` reads the whole journal before it gives the first row, and then hands out what is left of
it; `ops` gives each op as it comes.  Memory is bounded in both: by a batch, and by what is open.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from fjord import disk as disks
from fjord import limits
from fjord.clock import Clock, SystemClock
from fjord.errors import DirectoryError
from fjord.kestrel import importing, reading
from fjord.kestrel.codec import Item, Opcode
from fjord.kestrel.inspect import Contents
from fjord.kestrel.reading import JournalFile
from fjord.spark.kestrel.source import COLUMNS, KestrelOptions

# Of the data in a batch; one item more may be in it.
BATCH_BYTES: Final = 8 * limits.MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePartition(InputPartition):
    """A task that reads a queue."""

    options: KestrelOptions
    queue: str
    columns: tuple[str, ...]  # in order


def read(partition: QueuePartition, clock: Clock | None = None) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a queue.

    Raises:
        DirectoryError: if its files change meanwhile, or cannot be read.
        CorruptionError: if one of them is damaged, unless that is to be skipped.
    """
    if partition.options.mode == "ops":
        return _read_ops(partition)
    return _read_state(partition, clock or SystemClock())


# -- what is in a queue ---------------------------------------------------------------------------


def _read_state(partition: QueuePartition, clock: Clock) -> Iterator[pa.RecordBatch]:
    options, queue = partition.options, partition.queue
    survey = reading.survey(disks.LocalDisk(), options.directory, queue)
    with contextlib.closing(Contents(survey)) as found:
        _check(found, options)
        first, date_ms = 0, importing.DATE_MS_MIN
        now_ms, has_dates = clock.wall_us() // 1000, "dated" in partition.columns
        for piece in pieces(found.items(), rows_max=options.batch_rows, bytes_max=BATCH_BYTES):
            positions = _alive(piece, first, options.alive_seconds, clock)
            alive = [piece[at - first] for at in positions]
            if alive:
                dates_ms = importing.dates(alive, date_ms, now_ms) if has_dates else [date_ms]
                date_ms = dates_ms[-1]
                yield of_items(queue, positions, alive, dates_ms, partition.columns)
            first += len(piece)


def _check(found: Contents, options: KestrelOptions) -> None:
    if not found.files:
        raise changed(options.directory, found.queue)
    if options.fails_on_damage:
        found.check()
    if options.crc is not None and found.crc() != options.crc:
        raise changed(options.directory, found.queue)


def changed(directory: str, queue: str) -> DirectoryError:
    """Returns how it is told that a queue is not what it was when a read was planned."""
    return DirectoryError(
        f"the files of {queue} in {directory} have changed since they were looked at, so somebody "
        "writes to this directory; read it again, or stop the writer"
    )


def _alive(items: list[Item], first: int, seconds: int | None, clock: Clock) -> Sequence[int]:
    """Returns the positions of the items that live long enough from now on."""
    if seconds is None:
        return range(first, first + len(items))
    end_ms = clock.wall_us() // 1000 + seconds * 1000
    return [
        at for at, item in enumerate(items, first) if not item.expiry_ms or item.expiry_ms > end_ms
    ]


# -- ops ------------------------------------------------------------------------------------------


def _read_ops(partition: QueuePartition) -> Iterator[pa.RecordBatch]:
    options, queue = partition.options, partition.queue
    survey = reading.survey(disks.LocalDisk(), options.directory, queue)
    if not survey.files:
        raise changed(options.directory, queue)
    if options.fails_on_damage:
        for lost in survey.missing:
            lost.check()
    first = 0
    for file in survey.files:
        found = _rows(file, has_data="data" in partition.columns)
        for piece in pieces(found, rows_max=options.batch_rows, bytes_max=BATCH_BYTES):
            yield of_ops(queue, file.name, first, piece, partition.columns)
            first += len(piece)
        if options.fails_on_damage:
            file.check()


def _rows(file: JournalFile, *, has_data: bool) -> Iterator[OpRow]:
    for (opcode, xid, item, _), offset, size in file.ops():
        if item is None:
            yield OpRow(offset, size, opcode, xid)
        else:
            data = bytes(item.data) if has_data else None
            yield OpRow(offset, size, opcode, xid, item.add_ms, item.expiry_ms, data)


# -- items and ops of a queue as rows of Arrow: a column at a time, with no object for a row ------
#
# Dates.  A journal has milliseconds in 64 bits, and Spark no date behind the year 9999; nobody
# has added an item before 1970.  What lies outside becomes the nearest date that every time zone
# has, so what never expires in practice stays so, and what expired long ago stays expired.


_TYPES: Final[dict[str, Any]] = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
SCHEMAS: Final = {
    mode: pa.schema([(name, _TYPES[word]) for name, word in columns.items()])
    for mode, columns in COLUMNS.items()
}
#: 9999-12-30: a day from the last one, which some time zones have a day later.
LAST_MS: Final = 253_402_128_000_000

# Looked up, since an enum takes its time to say a name.
_NAMES: Final = {opcode: opcode.name for opcode in Opcode}
_HAS_XID: Final = frozenset(Opcode) - {
    Opcode.ADD,
    Opcode.REMOVE,
    Opcode.ADDX,
    Opcode.REMOVE_TENTATIVE,
}


class OpRow(NamedTuple):
    """An op, as far as a row has it."""

    offset: int  # in its file
    size: int  # of the whole op
    opcode: Opcode
    xid: int
    add_ms: int = 0  # 0 = it does not say
    expiry_ms: int = 0  # 0 = never
    data: bytes | None = None  # None: it has none, or nobody wants it


T = TypeVar("T", Item, OpRow)


def pieces(found: Iterable[T], *, rows_max: int, bytes_max: int) -> Iterator[list[T]]:
    """Yields the same in lists that have at most so many rows, and bytes of data, but for one."""
    piece: list[T] = []
    size = 0
    for one in found:
        piece.append(one)
        if one.data is not None:
            size += len(one.data)
        if len(piece) >= rows_max or size >= bytes_max:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def of_items(
    queue: str,
    positions: Sequence[int],
    items: Sequence[Item],
    dates_ms: Sequence[int],
    columns: Sequence[str],
) -> pa.RecordBatch:
    """Returns items of a queue as rows; an xid means that the item is open.

    Args:
        queue: the queue.
        positions: of the items in it.
        items: the items.
        dates_ms: of jobs that they become.
        columns: the names of the columns that are wanted.
    """
    data, added, expires, xids = zip(*items, strict=True)
    makers: dict[str, Callable[[], pa.Array]] = {
        "queue": lambda: pa.repeat(queue, len(items)),
        "position": lambda: pa.array(positions, pa.int64()),
        "xid": lambda: pa.array([xid or None for xid in xids], pa.int32()),
        "added": lambda: moments(added),
        "dated": lambda: moments(dates_ms),
        "expires": lambda: moments(expires),
        "data": lambda: pa.array(data, pa.binary()),
    }
    return _batch("state", columns, makers)


def of_ops(
    queue: str, file: str, first: int, ops: Sequence[OpRow], columns: Sequence[str]
) -> pa.RecordBatch:
    """Returns ops of one file as rows.

    Args:
        queue: the queue.
        file: the name of the file.
        first: the number of the first op.
        ops: the ops.
        columns: the names of the columns that are wanted.
    """
    count = len(ops)
    offsets, sizes, opcodes, xids, added, expires, data = zip(*ops, strict=True)
    makers: dict[str, Callable[[], pa.Array]] = {
        "queue": lambda: pa.repeat(queue, count),
        "file": lambda: pa.repeat(file, count),
        "position": lambda: pa.array(range(first, first + count), pa.int64()),
        "offset": lambda: pa.array(offsets, pa.int64()),
        "op": lambda: pa.array([_NAMES[opcode] for opcode in opcodes], pa.string()),
        "xid": lambda: pa.array(
            [xid if op in _HAS_XID else None for op, xid in zip(opcodes, xids, strict=True)],
            pa.int32(),
        ),
        "added": lambda: moments(added),
        "expires": lambda: moments(expires),
        "size": lambda: pa.array(sizes, pa.int64()),
        "data": lambda: pa.array(data, pa.binary()),
    }
    return _batch("ops", columns, makers)


def moments(found: Sequence[int]) -> pa.Array:
    """Returns milliseconds since 1970 as dates; 0 is none."""
    ms = pa.array(found, pa.int64())
    inside = pc.min_element_wise(pc.max_element_wise(ms, 0), LAST_MS)
    dates = pc.multiply(inside, 1000).cast(_TYPES["timestamp"])
    return pc.if_else(pc.equal(ms, 0), pa.scalar(None, _TYPES["timestamp"]), dates)


def _batch(
    mode: str, columns: Sequence[str], makers: dict[str, Callable[[], pa.Array]]
) -> pa.RecordBatch:
    schema = pa.schema([SCHEMAS[mode].field(name) for name in columns])
    return pa.RecordBatch.from_arrays([makers[name]() for name in columns], schema=schema)
