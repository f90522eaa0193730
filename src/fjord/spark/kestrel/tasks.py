"""A task of the source `kestrel`: one queue, from its files to batches of Arrow.

`state` reads the whole journal before it gives the first row, and then hands out what is left of
it; `ops` gives each op as it comes.  Memory is bounded in both: by a batch, and by what is open.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from fjord import disk as disks
from fjord import limits
from fjord.errors import DirectoryError
from fjord.kestrel import reader
from fjord.kestrel.codec import Item, Opcode, Placed
from fjord.kestrel.inspect import Contents
from fjord.kestrel.reader import QueueSurvey
from fjord.spark.kestrel.source import COLUMNS, KestrelOptions

if TYPE_CHECKING:
    import pyarrow as pa

# More rows in a batch do not pay, see docs/spark.md; one with large items ends before.
BATCH_ROWS: Final = 10_000
# Of the data in a batch; one more item may be in it.
BATCH_BYTES: Final = 8 * limits.MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePartition(InputPartition):
    """A task that reads a queue."""

    options: KestrelOptions
    queue: str
    columns: tuple[str, ...]  # in order


def read(partition: QueuePartition) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a queue.

    Raises:
        DirectoryError: if its files change meanwhile, or cannot be read.
        CorruptionError: if one of them is damaged, unless that is to be skipped.
    """
    options = partition.options
    survey = reader.survey(disks.LocalDisk(), options.directory, partition.queue)
    if not survey.files:
        raise DirectoryError(
            f"the files of {partition.queue} in {options.directory} have changed since they were "
            "looked at, so somebody writes to this directory; read it again, or stop the writer"
        )
    return (_read_ops if options.mode == "ops" else _read_state)(partition, survey)


def _read_state(partition: QueuePartition, survey: QueueSurvey) -> Iterator[pa.RecordBatch]:
    options, first = partition.options, 0
    with contextlib.closing(Contents(survey)) as found:
        if options.fails_on_damage:
            found.check()
        for piece in pieces(found.items(), lambda item: item.size):
            yield of_items(partition.queue, first, piece, partition.columns)
            first += len(piece)


def _read_ops(partition: QueuePartition, survey: QueueSurvey) -> Iterator[pa.RecordBatch]:
    options, queue = partition.options, partition.queue
    if options.fails_on_damage:
        for lost in survey.missing:
            lost.report().check()
    first = 0
    for file in survey.files:
        for piece in pieces(file.ops(), lambda placed: placed[2]):
            yield of_ops(queue, file.name, first, piece, partition.columns)
            first += len(piece)
        if options.fails_on_damage:
            file.report().check()


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


T = TypeVar("T")


def pieces(found: Iterable[T], bytes_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Yields the same in lists that are batches."""
    piece: list[T] = []
    size = 0
    for one in found:
        piece.append(one)
        size += bytes_of(one)
        if len(piece) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def of_items(
    queue: str, first: int, items: Sequence[Item], columns: Sequence[str]
) -> pa.RecordBatch:
    """Returns items of a queue as rows; an xid means that the item is open.

    Args:
        queue: the queue.
        first: the position of the first item in it.
        items: the items.
        columns: the names of the columns that are wanted.
    """
    count = len(items)
    data, added, expires, xids = zip(*items, strict=True)
    makers: dict[str, Callable[[], pa.Array]] = {
        "queue": lambda: pa.repeat(queue, count),
        "position": lambda: pa.array(range(first, first + count), pa.int64()),
        "xid": lambda: pa.array([xid or None for xid in xids], pa.int32()),
        "added": lambda: moments(added),
        "expires": lambda: moments(expires),
        "data": lambda: pa.array(data, pa.binary()),
    }
    return _batch("state", columns, makers)


def of_ops(
    queue: str, file: str, first: int, placed: Sequence[Placed], columns: Sequence[str]
) -> pa.RecordBatch:
    """Returns ops of one file as rows.

    Args:
        queue: the queue.
        file: the name of the file.
        first: the number of the first op.
        placed: the ops.
        columns: the names of the columns that are wanted.
    """
    count = len(placed)
    ops, offsets, sizes = zip(*placed, strict=True)
    none = Item(b"")
    makers: dict[str, Callable[[], pa.Array]] = {
        "queue": lambda: pa.repeat(queue, count),
        "file": lambda: pa.repeat(file, count),
        "position": lambda: pa.array(range(first, first + count), pa.int64()),
        "offset": lambda: pa.array(offsets, pa.int64()),
        "op": lambda: pa.array([_NAMES[op.opcode] for op in ops], pa.string()),
        "xid": lambda: pa.array(
            [op.xid if op.opcode in _HAS_XID else None for op in ops], pa.int32()
        ),
        "added": lambda: moments([(op.item or none).add_ms for op in ops]),
        "expires": lambda: moments([(op.item or none).expiry_ms for op in ops]),
        "size": lambda: pa.array(sizes, pa.int64()),
        "data": lambda: pa.array([op.item and bytes(op.item.data) for op in ops], pa.binary()),
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
