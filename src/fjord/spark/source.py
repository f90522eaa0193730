"""The data source `fjord` of Spark: `spark.read.format("fjord")`, `readStream`, `write`.

    driver  ->  planner worker: `partitions` fixes the range and cuts it up
            ->  task workers:   `read`, one partition each, blocks or daemon -> Arrow batches

A task gets nothing from the planner but its partition, so a partition has everything that `read`
needs.  The end of the range is what was durable when the read was planned: all tasks see the same
moment, however late they run.

There is no `pushFilters`.  Spark 4.3 keeps the plan of a frame with the frame, including filters,
and uses it wherever the frame is used: a query that uses one frame twice, with two filters, would
read with the last filter in both places, and lose rows.  So options select what is read.

Importing this module opens nothing, and does not import pyarrow: Spark imports all modules named
`pyspark_*` whenever a format is requested that it does not know.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession, datasource
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StructType

from fjord.blocks import schema
from fjord.client.history import BlockInfo
from fjord.errors import Code, DirectoryError, FjordError, NotFoundError, RefusedError
from fjord.spark import options
from fjord.spark.declared import NOTHING, Declared
from fjord.spark.options import PARTITIONS_MAX, Location, SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from fjord.spark.extent import Extent

_CHANGED: Final = ". If the columns of the table were changed, create the frame again"


class FjordSource(datasource.DataSource):
    """A table's history, from a data directory or a daemon."""

    @classmethod
    def name(cls) -> str:
        return "fjord"

    def schema(self) -> str:
        return ", ".join(f"`{name}` {type_}" for name, type_ in shown_columns(self.options).items())

    def reader(self, schema: StructType) -> FjordReader:
        return FjordReader(parsed_for(self.options, schema))

    def streamReader(self, schema: StructType) -> datasource.DataSourceStreamReader:  # noqa: N802
        from fjord.spark.streaming import FjordStreamReader  # noqa: PLC0415 - see above

        return FjordStreamReader(parsed_for(self.options, schema, is_stream=True))

    def writer(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001 - as Spark calls
        from fjord.spark import sink  # noqa: PLC0415 - see above

        return sink.writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802, FBT001
        from fjord.spark import sink  # noqa: PLC0415 - see above

        return sink.stream_writer(self.options, schema, overwrite=overwrite)


class FjordReader(datasource.DataSourceReader):
    """Plans and reads a batch."""

    def __init__(self, parsed: SourceOptions) -> None:
        self._options = parsed

    def partitions(self) -> Sequence[datasource.InputPartition]:
        from fjord.spark.extent import Extent  # noqa: PLC0415 - pyarrow

        parsed = self._options
        with parsed.location.open() as database:
            extent = Extent(database, parsed)
            if parsed.view == "latest":
                return _latest_partitions(extent, parsed)
            return plan_batch(extent, parsed)

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition)


def read_partition(partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a partition; that of an empty plan, which Spark makes itself, has none."""
    from fjord.spark import tasks  # noqa: PLC0415 - pyarrow

    if isinstance(partition, ColdPartition):
        return tasks.read_cold(partition)
    if isinstance(partition, TailPartition):
        return tasks.read_tail(partition)
    if isinstance(partition, LatestPartition):
        return tasks.read_latest(partition)
    return iter(())


def shown_columns(given: Mapping[str, str]) -> dict[str, str]:
    """Returns the columns and types of a DataFrame with these options.

    A missing table has no declared columns.  Errors in options, or in the location that they name,
    are reported when rows are read.

    Raises:
        FjordError: if there is no such column, or a daemon cannot be reached.
    """
    texts = {name.lower(): text for name, text in given.items()}
    names = options.parse_columns(texts.get("columns", ""))
    if names == options.PLAIN:
        return schema.COLUMNS
    if names and all(name in schema.COLUMNS for name in names):
        return {name: schema.COLUMNS[name] for name in names}
    declared = _declared_or_nothing(given).types
    every = {**schema.COLUMNS, **declared}
    if names in ((), options.TYPED):
        return every
    options.check_columns(names, declared)
    return {name: every[name] for name in names}


def _declared_or_nothing(given: Mapping[str, str]) -> Declared:
    try:
        place, table = options.place_of(given)
    except FjordError:
        return NOTHING
    if place.path and not os.path.isdir(place.path):
        return NOTHING
    try:
        return Declared.at(place, table)
    except (NotFoundError, DirectoryError):
        return NOTHING


def parsed_for(
    given: Mapping[str, str], wanted: StructType, *, is_stream: bool = False
) -> SourceOptions:
    """Returns the options of a reader of a schema's columns."""
    parsed, declared = options.parse(given, is_stream=is_stream), NOTHING
    if any(name not in schema.COLUMNS for name in wanted.fieldNames()):
        declared = Declared.at(parsed.location, parsed.table)
    check_columns(wanted, declared)
    names = tuple(wanted.fieldNames())
    return replace(parsed, columns=names, typed=declared.typed(names))


def check_columns(wanted: StructType, declared: Declared = NOTHING) -> None:
    """Checks that a table has the columns of `.schema(...)`.

    Raises:
        FjordError: if one of them does not exist, or has another type.
    """
    advice = _CHANGED if declared.current.columns else ""
    options.check_schema(wanted, {**schema.COLUMNS, **declared.types}, advice=advice)


def wanted_rows(extent: Extent, parsed: SourceOptions) -> SourceOptions:
    """Returns the options for tasks, with the schemas that rows may have."""
    typed = parsed.typed
    if typed.columns:
        typed = typed._replace(schemas=extent.declared.schemas)
    return replace(parsed, typed=typed, has_history=extent.nature.has_history)


def plan_batch(extent: Extent, parsed: SourceOptions) -> list[datasource.InputPartition]:
    """Returns the tasks of a batch.

    Raises:
        FjordError: if there is no such range, or a part of it is lost.
    """
    from fjord.spark.extent import begins  # noqa: PLC0415 - pyarrow

    after = extent.locate(parsed.start)
    end_seq, tail_rows = _end(extent, parsed, after)
    if begins(parsed.start):
        after = extent.earliest()  # which the journal may have moved meanwhile
    start_seq = max(extent.past_loss(after), extent.earliest()) + 1
    wanted = wanted_rows(extent, parsed)
    return plan(wanted, min(start_seq, end_seq), end_seq, extent.blocks, tail_rows)


def _end(extent: Extent, parsed: SourceOptions, after: int) -> tuple[int, int]:
    """Returns the exclusive end of a batch, and the approximate number of rows of the tail."""
    place = parsed.end
    try:
        tail = extent.tail(after, before=place.at)
    except RefusedError as error:
        if error.code is not Code.BAD_RANGE:
            raise
        raise FjordError(
            f"startingSeq {after + 1} is beyond the end of {parsed.location}: {error.text}"
        ) from error
    if place.at is not None:
        end = extent.locate(place) + 1
        return max(end, after + 1), tail.rows
    end = tail.durable_seq + 1
    # An end inside a commit leaves rows that a span, which has whole commits, does not count.
    return (min(place.seq, end), max(tail.rows, 1)) if place.seq else (end, tail.rows)


def _latest_partitions(extent: Extent, parsed: SourceOptions) -> list[datasource.InputPartition]:
    if not extent.nature.is_latest:
        raise FjordError(
            f"view=latest is for key/value tables and for streams that keep the latest; "
            f"{parsed.table} is a {extent.nature.kind} table. Its latest values follow from its "
            "history, see docs/spark.md"
        )
    return [LatestPartition(wanted=wanted_rows(extent, parsed))]


# -- the whole history of a table as a frame ------------------------------------------------------
#
# Spark reads the blocks itself, which is fastest for a query of few columns or few rows: it skips
# columns, parts and pages.  Rows that are not in blocks yet come from the source `fjord`.  The
# border between the two is fixed when the frame is created, and so is the end of the tail.


def history(
    spark: SparkSession,
    where: str | os.PathLike[str] | Location,
    table: str,
    *,
    start: int = 1,
    end: int = 0,
    blocks: str = "",
) -> DataFrame:
    """Returns the history of a table, with the columns of docs/spark.md.

    Args:
        spark: a session.
        where: the address of a daemon, `fjord://host:port`, or a data directory.
        table: its name.
        start: the first seq; 1: from the beginning of the remaining history.
        end: the exclusive end; 0: everything that is durable now.
        blocks: where the machines that run Spark find blocks, if not where the node says.

    Raises:
        FjordError: if there is no such table, or it cannot be reached.
    """
    from fjord.spark.extent import extent_of  # noqa: PLC0415 - pyarrow, see `fjord.spark.source`

    location = Location.of(where)
    with extent_of(location, table, blocks) as extent:
        tail = extent.tail(start - 1)
    end = min(end or tail.durable_seq + 1, tail.durable_seq + 1)
    cold = within(extent.blocks, start, end)
    tail_start = max(start, cold_end(extent.blocks) + 1)
    if start <= 1:
        # Rows that are already gone are no loss, but rows removed before the frame is read are.
        tail_start = max(tail_start, extent.first_seq, FIRST_ROW)
    found = _cold_rows(spark, cold, start, end, blocks)
    if found is not None and (tail_start >= end or not tail.rows):
        return found
    # It may be in blocks by the time it is read.
    more = {"blocks": blocks} if blocks else {}
    rest = between(spark, location, table, min(tail_start, end), end, **more)
    return rest if found is None else found.unionByName(rest)


def between(
    spark: SparkSession, location: Location, table: str, start: int, end: int, **more: str
) -> DataFrame:
    """Returns the rows from `start` up to, but not including, `end`, from blocks or the tail.

    They have the columns of blocks; `typed` adds declared ones.
    """
    given = {**location.options, "table": table, "columns": "plain", **more}
    return spark.read.format("fjord").options(**given, startingSeq=start, endingSeq=end).load()


def _cold_rows(
    spark: SparkSession, cold: Sequence[BlockInfo], start: int, end: int, blocks: str
) -> DataFrame | None:
    """Returns the rows of blocks; None if there are no blocks."""
    from fjord.blocks.store import Store  # noqa: PLC0415 - fsspec

    if not cold:
        return None
    paths = [Store(blocks or one.location).path(one.name) for one in cold]
    found = spark.read.schema(schema.DDL).parquet(*paths)
    if cold[0].first < start:
        found = found.where(F.col("seq") >= start)
    if cold[-1].last >= end:
        found = found.where(F.col("seq") < end)
    return found


# -- how a range of seqs is cut into tasks of Spark: pure -----------------------------------------
#
#     blocks   |-- 1 --|---- 2 ----|-- 3 --|            cold: files that tasks read themselves
#     journal                          |---------->     tail: what only the daemon has
#     range         [start .......................end)
#     tasks         |  a  |  b  |  c  |   d   |   e  |
#
# Everything up to the end of the last block is read from blocks, the rest from the tail.  Tasks are
# evened out by rows: those of blocks are known, those of the tail are counted by the node.  Tail
# tasks are ranges of seqs of equal length, since no more is known about them.
#
# A cold task has some blocks, or a share of one.  A file consists of parts (row groups), and the
# task that opens it decides which belong to its share: those whose first row is in it.  So every
# part is read by one task, although planning opens no file.


# No row has a smaller seq: seq 1 is the first writer's takeover.  As a given beginning, seq 1 means
# that of the remaining history; this one means itself.
FIRST_ROW: Final = 2


class Share(NamedTuple):
    """Some rows of one block."""

    block: BlockInfo
    start_row: int  # parts that begin from here on
    end_row: int  # up to before here


def whole(block: BlockInfo) -> Share:
    return Share(block, 0, block.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdPartition(datasource.InputPartition):
    """A task that reads blocks."""

    wanted: SourceOptions
    shares: tuple[Share, ...]
    start_seq: int
    end_seq: int  # exclusive


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPartition(datasource.InputPartition):
    """A task that asks the daemon, or reads the journal of a directory."""

    wanted: SourceOptions
    start_seq: int
    end_seq: int  # exclusive


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestPartition(datasource.InputPartition):
    """The task that reads the current value of each key."""

    wanted: SourceOptions


def plan(
    wanted: SourceOptions, start_seq: int, end_seq: int, blocks: Sequence[BlockInfo], tail_rows: int
) -> list[datasource.InputPartition]:
    """Returns the tasks that read the rows from `start_seq` up to, but not including, `end_seq`.

    Assumes that `blocks` are all of the table's blocks, in order, and that about `tail_rows` rows
    follow them.
    """
    tail_start = max(start_seq, cold_end(blocks) + 1)
    cold = within(blocks, start_seq, end_seq)
    cold_rows = sum(block.rows for block in cold)
    tail_rows = tail_rows if tail_start < end_seq else 0
    rows = cold_rows + tail_rows
    count = min(wanted.partitions or -(-rows // wanted.partition_rows), PARTITIONS_MAX)
    tail_count = max(1, round(count * tail_rows / rows)) if tail_rows else 0
    cold_count = max(1, count - tail_count)
    made: list[datasource.InputPartition] = [
        ColdPartition(wanted=wanted, shares=shares, start_seq=start_seq, end_seq=end_seq)
        for shares in shared(cold, cold_count)
    ]
    bounds = edges(tail_start, end_seq, min(tail_count, end_seq - tail_start))
    made += [
        TailPartition(wanted=wanted, start_seq=start, end_seq=end)
        for start, end in pairwise(bounds)
    ]
    return made


def within(blocks: Sequence[BlockInfo], start_seq: int, end_seq: int) -> list[BlockInfo]:
    """Returns the blocks that have seqs from `start_seq` up to before `end_seq`."""
    return [block for block in blocks if block.last >= start_seq and block.first < end_seq]


def cold_end(blocks: Sequence[BlockInfo]) -> int:
    """Returns the last seq that is in a block, 0 if there are none."""
    return blocks[-1].last if blocks else 0


def shared(blocks: Sequence[BlockInfo], count: int) -> list[tuple[Share, ...]]:
    """Splits the rows of blocks into at most `count` even shares."""
    total = sum(block.rows for block in blocks)
    made: list[tuple[Share, ...]] = []
    bounds = edges(0, total, min(count, total))
    for start, end in pairwise(bounds):
        shares, position = [], 0
        for block in blocks:
            low, high = max(start - position, 0), min(end - position, block.rows)
            if low < high:
                shares.append(Share(block, low, high))
            position += block.rows
        made.append(tuple(shares))
    return made


def edges(start: int, end: int, count: int) -> list[int]:
    """Splits a range into `count` even ranges; returns their bounds."""
    if count < 1:
        return []
    length = end - start
    return [start + length * number // count for number in range(count + 1)]
