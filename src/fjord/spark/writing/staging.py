"""A task's part of a write: batches of Arrow in, numbers of stages out.

A chunk is sent while the next one is read from Spark and encoded: the thread that sends waits for
the server's disk most of the time.  Only one is under way, so that they stay in order, and a task
needs the memory of two chunks, whatever the size of its partition.

A partition without rows opens no connection.  A chunk whose answer was lost is sent again; the
number of the second one counts, and the first one is dropped by the server when its time is over.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

import fjord
from fjord import limits
from fjord.columns import Strings, repeat
from fjord.kinds import Kind
from fjord.spark.writing.mapping import Columns
from fjord.spark.writing.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from fjord.client.staging import Staging


def stage(
    wanted: SinkOptions, columns: Columns, batches: Iterable[pa.RecordBatch]
) -> tuple[tuple[int, ...], int]:
    """Stages rows; returns the numbers of the stages, in order, and how many rows they have.

    Raises:
        FjordError: if a row is refused; what was staged before it is seen by nobody.
    """
    encoded = (columns.encode(batch) for batch in batches if batch.num_rows)
    chunks = cut(encoded, rows_max=columns.target.rows_max)
    first = next(chunks, None)
    if first is None:
        return (), 0
    with fjord.connect(wanted.server) as database:
        sender = _Sender(database.staging(wanted.table), wanted, columns)
        return send_all(sender.send, chain((first,), chunks))


def send_all(
    send: Callable[[pa.RecordBatch], int], chunks: Iterator[pa.RecordBatch]
) -> tuple[tuple[int, ...], int]:
    """Sends chunks, one after the other, each while the next one is made."""
    stages: list[int] = []
    rows = 0
    with ThreadPoolExecutor(max_workers=1) as thread:
        under_way: Future[int] | None = None
        for chunk in chunks:
            if under_way is not None:
                stages.append(under_way.result())
            under_way = thread.submit(send, chunk)
            rows += chunk.num_rows
        if under_way is not None:
            stages.append(under_way.result())
    return tuple(stages), rows


class _Sender:
    """Sends chunks to one table."""

    def __init__(self, staging: Staging, wanted: SinkOptions, columns: Columns) -> None:
        self._staging = staging
        self._wanted = wanted
        self._columns = columns

    def send(self, chunk: pa.RecordBatch) -> int:
        """Stages a chunk; returns the number of the stage."""
        return _SENDERS[self._columns.target.kind](self, chunk)

    def append(self, chunk: pa.RecordBatch) -> int:
        return self._staging.append(
            types=octets(chunk["type"]),
            keys=strings(chunk["key"]),
            values=strings(chunk["value"]),
        )

    def push(self, chunk: pa.RecordBatch) -> int:
        return self._staging.push(
            keys=strings(chunk["key"]),
            domains=strings(chunk["domain"]),
            types=octets(chunk["type"]),
            values=strings(chunk["value"]),
            priorities=octets(chunk["priority"]),
            process_at_us=numbers(chunk["process_at"]),
            expires_at_us=numbers(chunk["expires_at"]),
            timestamps_us=numbers(chunk["inserted_at"]),
            relative=self._columns.is_relative,
        )

    def set(self, chunk: pa.RecordBatch) -> int:
        return self._staging.set(
            keys=strings(chunk["key"]),
            types=octets(chunk["type"]),
            values=strings(chunk["value"]),
            timestamps_us=repeat(0, chunk.num_rows),
            ttl_us=self._wanted.ttl_us,
        )


_SENDERS: Final[dict[str, Callable[[_Sender, pa.RecordBatch], int]]] = {
    Kind.STREAM: _Sender.append,
    Kind.JOBS: _Sender.push,
    Kind.KV: _Sender.set,
}


# -------------------------------------------------------------------------------------------------
#
# Encoded rows in chunks of a bounded size, and a chunk as the columns that a client stages.
#
#     batches of Spark  ->  `writing.Columns.encode`  ->  `cut`  ->  `strings`, `numbers`, `octets`
#     any types, nulls      bytes, no nulls               bounded       what the client stages
#
# The bytes of strings stay where Arrow has them: a column of strings is Arrow's own offsets and
# bytes, which are the form of `columns.Strings`, too.


def cut(
    batches: Iterable[pa.RecordBatch], *, rows_max: int, bytes_max: int = limits.BATCH_BYTES_MAX
) -> Iterator[pa.RecordBatch]:
    """Yields the same rows in the same order, in batches as large as they may be.

    What counts is the bytes of strings.  A row that is too large by itself comes alone: the server
    says what is wrong with it.
    """
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        sizes = _Sizes(batch)
        start = 0
        while start < batch.num_rows:
            end = sizes.fitting(start, rows_max - rows, bytes_max - size)
            if end == start and not pending:
                end += 1
            if end > start:
                pending.append(batch.slice(start, end - start))
                rows += end - start
                size += sizes.between(start, end)
                start = end
            if start < batch.num_rows:
                yield _joined(pending)
                pending, rows, size = [], 0, 0
    if pending:
        yield _joined(pending)


class _Sizes:
    """Where the strings of each row begin and end; looked up, never gone through."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._rows: int = batch.num_rows
        self._offsets = [
            _offsets(column) for column in batch.columns if pa.types.is_binary(column.type)
        ]

    def between(self, start: int, end: int) -> int:
        return sum(int(offsets[end] - offsets[start]) for offsets in self._offsets)

    def fitting(self, start: int, rows: int, size: int) -> int:
        """Returns the end of as many rows from `start` on as have no more rows and bytes."""
        last = min(self._rows, start + rows)
        if self.between(start, last) <= size:
            return last
        ends = range(start, last + 1)
        return start + bisect.bisect_right(ends, size, key=lambda end: self.between(start, end)) - 1


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


# -- columns --------------------------------------------------------------------------------------


def strings(column: pa.Array) -> Strings:
    """Returns a column of strings; its bytes are not copied."""
    offsets = _offsets(column)
    first, last = offsets[0], offsets[len(column)]
    data = column.buffers()[2]
    if first:
        whole = pa.Array.from_buffers(
            pa.int32(), len(offsets), [None, column.buffers()[1]], offset=column.offset
        )
        moved = pc.subtract(whole, pa.scalar(first, pa.int32()))
        offsets = _view(moved.buffers()[1], 0, 4 * len(offsets)).cast("I")
    return Strings(offsets, b"" if data is None else _view(data, first, last))


def octets(column: pa.Array) -> bytes:
    """Returns a column of small numbers, a byte each."""
    return bytes(_view(column.buffers()[1], column.offset, column.offset + len(column)))


def numbers(column: pa.Array) -> Sequence[int]:
    """Returns a column of numbers that are not negative."""
    start = 8 * column.offset
    return _view(column.buffers()[1], start, start + 8 * len(column)).cast("Q")


def _offsets(column: pa.Array) -> memoryview:
    """Returns where each string begins in the bytes of its column, and the end."""
    start = 4 * column.offset
    return _view(column.buffers()[1], start, start + 4 * (len(column) + 1)).cast("I")


def _view(buffer: Any, start: int, end: int) -> memoryview:
    return memoryview(buffer).cast("B")[start:end]
