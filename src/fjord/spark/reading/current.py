"""The current value of each key as rows: `view=latest`, of key/value tables and latest streams.

All of it is one moment: a daemon keeps a snapshot open meanwhile; a directory is read as it was
when it was opened.  Rows have the columns of the history.  What is not known of a current value is
null: of key/value tables seq, txn and row are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute

import fjord
from fjord import kinds, values
from fjord.blocks import rows
from fjord.client.snapshots import SnapshotKv, SnapshotStream
from fjord.spark.reading import declared
from fjord.spark.reading.planning import LatestPartition, Wanted

_ROWS: Final = 10_000


def read_latest(partition: LatestPartition) -> Iterator[pa.RecordBatch]:
    """Yields the current value of each key."""
    wanted = partition.wanted
    with wanted.location.open() as database:
        # A directory is only read, and a snapshot is a write.
        opening: AbstractContextManager[fjord.Snapshot | fjord.Database]
        opening = database.snapshot() if wanted.location.server else nullcontext(database)
        with opening as moment:
            if database.table(wanted.table).kind == kinds.Kind.KV:
                yield from _entries(moment.kv(wanted.table), wanted)
            else:
                yield from _messages(moment.stream(wanted.table), wanted)


def _entries(table: fjord.Kv | SnapshotKv, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    found = iter(table.entries(fjord.Span(prefix=wanted.key_prefix)))
    while page := list(islice(found, _ROWS)):
        encoded = [values.encode(entry.value) for _, entry in page]
        columns = {
            "ts": [entry.written_at for _, entry in page],
            "op": ["SET"] * len(page),
            "key": [key for key, _ in page],
            "expires_at": [entry.expires_at for _, entry in page],
            "type": [type_ for type_, _ in encoded],
            "value": [data for _, data in encoded],
        }
        yield _batch(columns, len(page), wanted)


def _messages(table: fjord.Stream | SnapshotStream, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    for batch in _message_batches(table):
        found = batch.to_arrow()
        # A tombstone has no type: its key has no value.
        found = found.filter(compute.is_valid(found["type"]))
        if wanted.key_prefix:
            start = compute.binary_slice(found["key"], 0, len(wanted.key_prefix))
            found = found.filter(compute.equal(start, pa.scalar(wanted.key_prefix, pa.binary())))
        for part in found.to_batches():
            columns: dict[str, Any] = dict(zip(part.schema.names, part.columns, strict=True))
            columns |= {"op": pa.repeat("SET", part.num_rows), "row": part["seq"]}
            if part.num_rows:
                yield _batch(columns, part.num_rows, wanted)


def _message_batches(table: fjord.Stream | SnapshotStream) -> Iterable[fjord.MessageBatch]:
    if isinstance(table, SnapshotStream):
        return table.batches(_ROWS)
    return table.reader().batches(_ROWS)


def _batch(columns: dict[str, Any], count: int, wanted: Wanted) -> pa.RecordBatch:
    arrays = [
        pa.array(columns[one.name], one.type) if one.name in columns else pa.nulls(count, one.type)
        for one in rows.SCHEMA
    ]
    return declared.shown(pa.RecordBatch.from_arrays(arrays, schema=rows.SCHEMA), wanted)
