"""Encoded rows in chunks of a bounded size, and a chunk as the columns that a client stages.

    batches of Spark  ->  `writing.Columns.encode`  ->  `chunks`  ->  `strings`, `numbers`, `octets`
    any types, nulls      bytes, no nulls               bounded       what the client stages

The bytes of strings stay where Arrow has them: a column of strings is Arrow's own offsets and
bytes, which are the form of `columns.Strings`, too.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fjord import limits
from fjord.columns import Strings


def chunks(
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
