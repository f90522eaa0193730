"""The sink `fjord` of Spark: `frame.write.format("fjord")` and `frame.writeStream.format("fjord")`.

    driver, planning   `writer`, `stream_writer`   schema and table are checked, nothing is written
    tasks              `write`                     rows are staged: durable, but invisible
    driver, the end    `commit`                    all staged rows become visible, as one batch

Writes are exactly once, since the server keeps the number of the last batch of each writer of a
table, in the same commit as the rows.  A batch that is committed again changes nothing.

    a writer is     the option txnId, or the id of a streaming query, or a new name for each write
    its batches     the batch id of a streaming query, or the option txnVersion

Rows must not be dropped silently that way: a batch write with a txnId needs a txnVersion, and a
batch that is already in the table is logged.

A task that fails, or that another one has overtaken, leaves uncommitted stages, which the server
removes.  So `abort` does nothing at all: Spark also calls it after a commit whose answer was lost,
and committed rows stay.

Lifetime: a writer is created by a worker of the driver and pickled, for the tasks and for the end
of a batch write; for the end of each batch of a stream it is created again.
"""

from __future__ import annotations

import bisect
import json
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.types import StructType

import fjord
from fjord import commands, limits
from fjord.blocks.rows import numbers_of, offsets_of, strings_of
from fjord.columns import repeat
from fjord.errors import Code, FjordError, NotFoundError, RefusedError, StaleSchemaError
from fjord.kinds import Kind
from fjord.spark import mapping
from fjord.spark.mapping import Columns, Target
from fjord.spark.options import KINDS, SinkOptions, parse_sink

if TYPE_CHECKING:
    from fjord.client.blocking.staging import Staging


_LOG: Final = logging.getLogger("fjord.spark")
_QUERY_ID: Final = "sql.streaming.queryId"


def writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> FjordWriter:
    """Returns the writer of `frame.write`.

    Raises:
        FjordError: if the options, the table or the columns are invalid.
    """
    if overwrite:
        raise FjordError("rows can only be appended: omit mode('overwrite'), or drop the table")
    wanted = parse_sink(options, is_stream=False)
    # Created here, once for all tasks, and different for each write.
    name = wanted.txn_id or f"{commands.WRITER_ONCE}{uuid.uuid4()}"
    return FjordWriter(wanted, _columns(wanted, schema), name)


def stream_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> FjordStreamWriter:
    """Returns the writer of `frame.writeStream`.

    Raises:
        FjordError: if the options, the table or the columns are invalid.
    """
    if overwrite:
        raise FjordError(
            "rows can only be appended to a table, and the output mode complete rewrites "
            "everything with each batch: use outputMode('append') or outputMode('update')"
        )
    wanted = parse_sink(options, is_stream=True)
    return FjordStreamWriter(wanted, _columns(wanted, schema))


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged(datasource.WriterCommitMessage):
    """The stages of a task."""

    partition: int
    query: str  # the id of the streaming query, or nothing
    stages: tuple[int, ...]  # in the order of the rows
    rows: int


class _TaskWriter:
    """The common part of both writers in a task."""

    def __init__(self, wanted: SinkOptions, columns: Columns, name: str = "") -> None:
        self._wanted = wanted
        self._columns = columns
        self._name = name  # of a writer of one batch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stages the rows of a task."""
        wanted, context = self._wanted, TaskContext.get()
        try:
            stages, rows = stage(wanted, self._columns, iterator)
        except StaleSchemaError as error:
            raise FjordError(
                f"the columns of table {wanted.table} are not those for which these rows were made "
                f"({error.text}); nothing of the batch is there. Rows of its history cannot become "
                "others by being copied: read declared columns, and write those. A frame of "
                "declared columns was checked before they were changed: write it again"
            ) from error
        return Staged(
            partition=context.partitionId() if context else 0,
            query=(context.getLocalProperty(_QUERY_ID) or "") if context else "",
            stages=stages,
            rows=rows,
        )


class FjordWriter(_TaskWriter, datasource.DataSourceArrowWriter):
    """Writes a DataFrame as one batch."""

    def commit(self, messages: Sequence[datasource.WriterCommitMessage | None]) -> None:
        wanted, staged = self._wanted, _staged(messages)
        if wanted.txn_id or any(message.stages for message in staged):
            _commit(wanted, self._name, wanted.txn_version or 0, staged)

    def abort(self, messages: Sequence[datasource.WriterCommitMessage | None]) -> None:
        """Does nothing, see the module's docstring."""


class FjordStreamWriter(_TaskWriter, datasource.DataSourceStreamArrowWriter):
    """Writes each batch of a streaming query."""

    def commit(
        self,
        messages: Sequence[datasource.WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        staged = _staged(messages)
        name = writer_name(self._wanted, staged)
        if name:  # else the batch is empty, and to leave it out is the same as to commit it
            _commit(self._wanted, name, batchId, staged)

    def abort(
        self,
        messages: Sequence[datasource.WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Does nothing, see the module's docstring."""


# -- planning -------------------------------------------------------------------------------------


def _columns(wanted: SinkOptions, schema: StructType) -> Columns:
    with fjord.connect(wanted.server) as database:
        return mapping.plan(_target(database, wanted), schema)


def _target(database: fjord.Database, wanted: SinkOptions) -> Target:
    """Returns the table's requirements; a missing table gets its kind from the option."""
    try:
        found = database.table(wanted.table)
    except NotFoundError as error:
        if not wanted.kind:
            raise FjordError(
                f"there is no table {wanted.table!r} in {wanted.server}; check the option table, "
                f"or create one with the option kind: {', '.join(KINDS)}"
            ) from error
        target = Target.of(wanted.kind)
    else:
        if wanted.kind not in ("", found.kind):
            raise FjordError(f"the table {wanted.table} is {found.kind}, not {wanted.kind}")
        target = Target.of(found.kind, found.settings)
    if wanted.ttl_us and target.kind != Kind.KV:
        raise FjordError(f"the option ttl is for kv tables; {wanted.table} is {target.kind}")
    return target


# -- the end --------------------------------------------------------------------------------------


def writer_name(wanted: SinkOptions, staged: Sequence[Staged]) -> str:
    """Returns the name under which a batch of a streaming query is committed.

    A batch without tasks has no messages; then the id of the query is read from the checkpoint.
    The result is empty if that cannot be read here, and only for an empty batch.
    """
    if wanted.txn_id:
        return wanted.txn_id
    queries = {message.query for message in staged}
    if len(queries) > 1 or "" in queries:
        raise FjordError(
            f"tasks of one batch belong to the streaming queries {sorted(queries)}; "
            "give the option txnId, a name for this query"
        )
    return queries.pop() if queries else _query_of(wanted.checkpoint)


def _query_of(checkpoint: str) -> str:
    """Returns the id of the query that has a checkpoint, if it can be read here."""
    place = urlsplit(checkpoint)
    if not checkpoint or place.scheme not in ("", "file"):
        return ""
    path = Path(unquote(place.path) if place.scheme else checkpoint)
    try:
        return str(json.loads((path / "metadata").read_text())["id"])
    except FileNotFoundError:
        return ""


def _staged(messages: Sequence[datasource.WriterCommitMessage | None]) -> list[Staged]:
    """Returns the stages of all tasks, in the order of their partitions."""
    found = [message for message in messages if isinstance(message, Staged)]
    if len(found) < len(messages):
        missing = len(messages) - len(found)
        raise FjordError(f"{missing} of {len(messages)} tasks did not report what they have staged")
    return sorted(found, key=lambda message: message.partition)


def _commit(wanted: SinkOptions, name: str, batch: int, staged: Sequence[Staged]) -> None:
    stages = [stage for message in staged for stage in message.stages]
    with fjord.connect(wanted.server) as database:
        try:
            found = database.staging(wanted.table).commit(name, batch, stages)
        except RefusedError as error:
            if error.code != Code.STAGE_GONE:
                raise
            hours = limits.STAGE_US_MAX // 3_600_000_000
            raise FjordError(
                f"batch {batch} took longer than the {hours} hours for which rows wait to be "
                f"committed, and nothing was written: make batches smaller ({error.text})"
            ) from error
    if not found.is_new:
        _LOG.warning(
            "batch %d of %s is already in the table %s, which has its batches up to %d: "
            "%d rows were not written again",
            batch,
            name,
            wanted.table,
            found.batch,
            sum(message.rows for message in staged),
        )


# -- a task's part of a write: batches of Arrow in, numbers of stages out -------------------------
#
# A chunk is sent while the next one is read from Spark and encoded: the sending thread waits for
# the server's disk most of the time.  Only one is in flight, so that they stay in order, and a task
# needs the memory of two chunks, whatever the size of its partition.
#
# A partition without rows opens no connection.  A chunk whose answer was lost is sent again; the
# number of the second one is used, and the server drops the first one after some hours.


def stage(
    wanted: SinkOptions, columns: Columns, batches: Iterable[pa.RecordBatch]
) -> tuple[tuple[int, ...], int]:
    """Stages rows; returns the numbers of the stages, in order, and how many rows they have.

    Raises:
        FjordError: if a row is refused; earlier stages stay invisible.
    """
    encoded = (columns.encode(batch) for batch in batches if batch.num_rows)
    chunks = cut(encoded, rows_max=columns.target.rows_max)
    first = next(chunks, None)
    if first is None:
        return (), 0
    with fjord.connect(wanted.server) as database:
        send = partial(_send, database.staging(wanted.table), wanted, columns)
        return send_all(send, chain((first,), chunks))


def send_all(
    send: Callable[[pa.RecordBatch], int], chunks: Iterator[pa.RecordBatch]
) -> tuple[tuple[int, ...], int]:
    """Sends chunks one after another, each while the next one is built."""
    stages: list[int] = []
    rows = 0
    with ThreadPoolExecutor(max_workers=1) as thread:
        under_way: list[Future[int]] = []  # one at most
        for chunk in chunks:
            stages += [one.result() for one in under_way]
            under_way = [thread.submit(send, chunk)]
            rows += chunk.num_rows
        stages += [one.result() for one in under_way]
    return tuple(stages), rows


def _send(staging: Staging, wanted: SinkOptions, columns: Columns, chunk: pa.RecordBatch) -> int:
    """Stages a chunk; returns the number of the stage."""
    types = bytes(numbers_of(chunk["type"], "B"))
    keys, values = strings_of(chunk["key"]), strings_of(chunk["value"])
    if columns.target.kind == Kind.STREAM:
        return staging.append(types=types, keys=keys, values=values)
    if columns.target.kind == Kind.KV:
        return staging.set(
            keys=keys,
            types=types,
            values=values,
            timestamps_us=repeat(0, chunk.num_rows),
            ttl_us=wanted.ttl_us,
        )
    return staging.push(
        keys=keys,
        domains=strings_of(chunk["domain"]),
        types=types,
        values=values,
        priorities=bytes(numbers_of(chunk["priority"], "B")),
        process_at_us=numbers_of(chunk["process_at"], "Q"),
        expires_at_us=numbers_of(chunk["expires_at"], "Q"),
        timestamps_us=numbers_of(chunk["inserted_at"], "Q"),
        relative=columns.is_relative,
    )


# -------------------------------------------------------------------------------------------------
#
# Encoded rows in chunks of a bounded size, and a chunk as the columns that a client stages.
#
#     batches of Spark  ->  `mapping.Columns.encode`  ->  `cut`  ->  `rows.strings_of`, ...
#     any types, nulls      bytes, no nulls               bounded       what the client stages
#
# The bytes of strings stay where Arrow has them: a column of strings is Arrow's own offsets and
# bytes, which are the form of `columns.Strings`, too.


def cut(
    batches: Iterable[pa.RecordBatch], *, rows_max: int, bytes_max: int = limits.BATCH_BYTES_MAX
) -> Iterator[pa.RecordBatch]:
    """Yields the same rows in the same order, in batches as large as they may be.

    The size is that of the strings.  A row that is too large makes its own chunk, and the server
    refuses it with the reason.
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
    """The offsets of each row's strings, for look-ups."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._rows: int = batch.num_rows
        self._offsets = [
            offsets_of(column) for column in batch.columns if pa.types.is_binary(column.type)
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
