"""The sink `fjord` of Spark: `frame.write.format("fjord")` and `frame.writeStream.format("fjord")`.

    driver, planning   `writer`, `stream_writer`   schema and table are checked, nothing is written
    tasks              `write`                     rows are staged: durable, seen by nobody
    driver, the end    `commit`                    all that was staged is seen, as one batch

It is exactly once, since the server keeps the number of the last batch of each writer of a table,
in the same commit as the rows.  A batch that is committed again changes nothing.

    a writer is     the option txnId, or the id of a streaming query, or a new name for each write
    its batches     the batch id of a streaming query, or the option txnVersion

Nobody is to lose rows that way without being told: a batch write with a txnId needs a txnVersion,
and what was there already is said in the log.

A task that fails, or that another one has overtaken, leaves stages that nobody commits; they go
by themselves.  So `abort` does nothing at all: Spark calls it also after a commit whose answer was
lost, and what is committed stays.

What Spark makes of these objects: a writer is made by a worker of the driver and pickled, for the
tasks and for the end of a batch write; at the end of each batch of a stream it is made again.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

import fjord
from fjord import commands, kinds, limits
from fjord.errors import Code, FjordError, NotFoundError, RefusedError, StaleSchemaError
from fjord.spark.writing import mapping, sink_options, staging
from fjord.spark.writing.mapping import Columns, Target
from fjord.spark.writing.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

_LOG: Final = logging.getLogger("fjord.spark")
_QUERY_ID: Final = "sql.streaming.queryId"


def writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> FjordWriter:
    """Returns the writer of `frame.write`.

    Raises:
        FjordError: if the options, the table or the columns are not what they have to be.
    """
    if overwrite:
        raise FjordError("a table is only added to: leave mode('overwrite') out, or drop it first")
    wanted = sink_options.parse(options, is_stream=False)
    # Made here, once for all tasks, and so that no two writes have the same one.
    name = wanted.txn_id or f"{commands.WRITER_ONCE}{uuid.uuid4()}"
    return FjordWriter(wanted, _columns(wanted, schema), name)


def stream_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> FjordStreamWriter:
    """Returns the writer of `frame.writeStream`.

    Raises:
        FjordError: if the options, the table or the columns are not what they have to be.
    """
    if overwrite:
        raise FjordError(
            "a table is only added to, and the output mode complete writes everything again with "
            "each batch: use outputMode('append') or outputMode('update')"
        )
    wanted = sink_options.parse(options, is_stream=True)
    return FjordStreamWriter(wanted, _columns(wanted, schema))


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged(WriterCommitMessage):
    """What a task has staged."""

    partition: int
    query: str  # the id of the streaming query, or nothing
    stages: tuple[int, ...]  # in the order of the rows
    rows: int


class FjordWriter(DataSourceArrowWriter):
    """Writes a frame as one batch."""

    def __init__(self, wanted: SinkOptions, columns: Columns, name: str) -> None:
        self._wanted = wanted
        self._columns = columns
        self._name = name

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return _write(self._wanted, self._columns, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        wanted, staged = self._wanted, _staged(messages)
        if wanted.txn_id or any(message.stages for message in staged):
            _commit(wanted, self._name, wanted.txn_version or 0, staged)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Does nothing, see the module's docstring."""


class FjordStreamWriter(DataSourceStreamArrowWriter):
    """Writes each batch of a streaming query."""

    def __init__(self, wanted: SinkOptions, columns: Columns) -> None:
        self._wanted = wanted
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return _write(self._wanted, self._columns, iterator)

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        staged = _staged(messages)
        name = writer_name(self._wanted, staged)
        if name:  # else the batch is empty, and to leave it out is the same as to commit it
            _commit(self._wanted, name, batchId, staged)

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Does nothing, see the module's docstring."""


# -- planning -------------------------------------------------------------------------------------


def _columns(wanted: SinkOptions, schema: StructType) -> Columns:
    with fjord.connect(wanted.server) as database:
        return mapping.plan(_target(database, wanted), schema)


def _target(database: fjord.Database, wanted: SinkOptions) -> Target:
    """Returns what the table wants; one that is not there is what the option kind says."""
    try:
        found = database.table(wanted.table)
    except NotFoundError as error:
        if not wanted.kind:
            raise FjordError(
                f"there is no table {wanted.table!r} in {wanted.server}; check the option table, "
                f"or say with the option kind what to make: {', '.join(mapping.KINDS)}"
            ) from error
        target = Target.of(wanted.kind)
    else:
        if wanted.kind not in ("", found.kind):
            raise FjordError(f"the table {wanted.table} is {found.kind}, not {wanted.kind}")
        target = Target.of(found.kind, found.settings)
    if wanted.ttl_us and target.kind != kinds.Kind.KV:
        raise FjordError(f"the option ttl is for kv tables; {wanted.table} is {target.kind}")
    return target


# -- tasks ----------------------------------------------------------------------------------------


def _write(wanted: SinkOptions, columns: Columns, batches: Iterator[pa.RecordBatch]) -> Staged:
    context = TaskContext.get()
    try:
        stages, rows = staging.stage(wanted, columns, batches)
    except StaleSchemaError as error:
        raise FjordError(
            f"the columns of table {wanted.table} are not those for which these rows were made "
            f"({error.text}); nothing of the batch is there. Rows of its history cannot become "
            "others by being copied: read declared columns, and write those. A frame of declared "
            "columns was checked before they were changed: write it again"
        ) from error
    return Staged(
        partition=context.partitionId() if context else 0,
        query=(context.getLocalProperty(_QUERY_ID) or "") if context else "",
        stages=stages,
        rows=rows,
    )


# -- the end --------------------------------------------------------------------------------------


def writer_name(wanted: SinkOptions, staged: Sequence[Staged]) -> str:
    """Returns the name under which a batch of a streaming query is committed.

    A batch without tasks has no messages; then the id of the query is read from where Spark keeps
    it.  Nothing is returned if that cannot be read from here, and only for an empty batch.
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


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    """Returns what all tasks have staged, in the order of their partitions."""
    found = [message for message in messages if isinstance(message, Staged)]
    if len(found) < len(messages):
        missing = len(messages) - len(found)
        raise FjordError(f"{missing} of {len(messages)} tasks do not say what they have staged")
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
            "batch %d of %s is in the table %s already, which has its batches up to %d: "
            "%d rows were not written again",
            batch,
            name,
            wanted.table,
            found.batch,
            sum(message.rows for message in staged),
        )
