"""A task's part of a write: batches of Arrow in, numbers of stages out.

A chunk is sent while the next one is read from Spark and encoded: the thread that sends waits for
the server's disk most of the time.  Only one is under way, so that they stay in order, and a task
needs the memory of two chunks, whatever the size of its partition.

A partition without rows opens no connection.  A chunk whose answer was lost is sent again; the
number of the second one counts, and the first one is dropped by the server when its time is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Final

import fjord
from fjord.columns import repeat
from fjord.kinds import Kind
from fjord.spark.writing import chunking
from fjord.spark.writing.chunking import numbers, octets, strings
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
    chunks = chunking.chunks(encoded, rows_max=columns.target.rows_max)
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
