"""A task of the source `kestrel`: one queue, from its files to batches of Arrow.

`state` reads the whole journal before it gives the first row, and then hands out what is left of
it; `ops` gives each op as it comes.  Memory is bounded in both: by a batch, and by what is open.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from fjord import disk as disks
from fjord import limits
from fjord.clock import Clock, SystemClock
from fjord.errors import DirectoryError
from fjord.kestrel import contents, importing, reading
from fjord.kestrel.contents import Contents
from fjord.kestrel.ops import Item
from fjord.kestrel.reading import JournalFile
from fjord.spark.kestrel import rows
from fjord.spark.kestrel.options import Options
from fjord.spark.kestrel.rows import OpRow

if TYPE_CHECKING:
    import pyarrow as pa

# Of the data in a batch; one item more may be in it.
BATCH_BYTES: Final = 8 * limits.MIB
_NO_ITEM: Final = Item(b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePartition(InputPartition):
    """A task that reads a queue."""

    options: Options
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
    disk = disks.LocalDisk()
    found = contents.read(disk, options.directory, queue, reading.Options())
    with contextlib.closing(found):
        _check(found, options)
        first, date_ms = 0, importing.DATE_MS_MIN
        now_ms, has_dates = clock.wall_us() // 1000, "dated" in partition.columns
        for piece in rows.pieces(found.items(), rows_max=options.batch_rows, bytes_max=BATCH_BYTES):
            positions = _alive(piece, first, options.alive_seconds, clock)
            alive = piece
            if len(positions) < len(piece):
                alive = [piece[at - first] for at in positions]
            if alive:
                dates_ms = importing.dates(alive, date_ms, now_ms) if has_dates else [date_ms]
                date_ms = dates_ms[-1]
                yield rows.of_items(queue, positions, alive, dates_ms, partition.columns)
            first += len(piece)


def _check(found: Contents, options: Options) -> None:
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


def _alive(items: list[Item], first: int, seconds: int | None, clock: Clock) -> list[int]:
    """Returns the positions of the items that live long enough from now on."""
    if seconds is None:
        return list(range(first, first + len(items)))
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
        for piece in rows.pieces(found, rows_max=options.batch_rows, bytes_max=BATCH_BYTES):
            yield rows.of_ops(queue, file.name, first, piece, partition.columns)
            first += len(piece)
        if options.fails_on_damage:
            file.check()


def _rows(file: JournalFile, *, has_data: bool) -> Iterator[OpRow]:
    for op, offset, size in file.ops():
        item = op.item or _NO_ITEM
        data = bytes(item.data) if has_data and op.item else None
        yield OpRow(offset, size, op.opcode, op.xid, item.add_ms, item.expiry_ms, data)
