"""The data source `fjord` of Spark: `spark.read.format("fjord")`, `readStream`, `write`.

    driver  ->  planner worker: `partitions` fixes the range and cuts it up
            ->  task workers:   `read`, one partition each, blocks or daemon -> Arrow batches

A task sees nothing of the planner but its partition, so a partition carries all that `read` needs.
The end of the range is what was durable when the read was planned: all tasks see one moment,
however late they run.

There is no `pushFilters`.  Spark 4.3 keeps the plan of a frame with the frame, filters and all, and
uses it wherever the frame is used: a query that has one frame twice, with two filters, would read
with the last filter in both places, and lose rows.  What is to be read is said by options.

Importing this module opens nothing, and does not import pyarrow: Spark imports all modules named
`pyspark_*` as soon as anyone asks for a format that it does not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from fjord.blocks import schema
from fjord.errors import Code, FjordError, RefusedError
from fjord.spark import options
from fjord.spark.options import Options
from fjord.spark.reading import planning
from fjord.spark.reading.planning import (
    ColdPartition,
    LatestPartition,
    Sizes,
    TailPartition,
    Wanted,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from fjord.spark.reading.extent import Extent


class FjordSource(DataSource):
    """A table's history, from a data directory or a daemon."""

    @classmethod
    def name(cls) -> str:
        return "fjord"

    def schema(self) -> str:
        given = {name.lower(): text for name, text in self.options.items()}
        names = options.parse_columns(given.get("columns", "")) or schema.COLUMNS
        return ", ".join(f"`{name}` {schema.COLUMNS[name]}" for name in names)

    def reader(self, schema: StructType) -> FjordReader:
        parsed, columns = options.parse(self.options), wanted_columns(schema)
        return FjordReader(parsed, columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from fjord.spark.reading.streaming import FjordStreamReader  # noqa: PLC0415 - see above

        parsed = options.parse(self.options, is_stream=True)
        return FjordStreamReader(parsed, wanted_columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001 - as Spark calls
        from fjord.spark.writing import sink  # noqa: PLC0415 - see above

        return sink.writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802, FBT001
        from fjord.spark.writing import sink  # noqa: PLC0415 - see above

        return sink.stream_writer(self.options, schema, overwrite=overwrite)


class FjordReader(DataSourceReader):
    """Plans and reads a batch."""

    def __init__(self, parsed: Options, columns: tuple[str, ...]) -> None:
        self._options = parsed
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        from fjord.spark.reading.extent import Extent  # noqa: PLC0415 - pyarrow

        parsed = self._options
        with parsed.location.open() as database:
            extent = Extent(database, parsed)
            if parsed.view == "latest":
                return _latest_partitions(extent, parsed, self._columns)
            return plan_batch(extent, parsed, self._columns)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition)


def read_partition(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a partition; that of an empty plan, which Spark makes itself, has none."""
    from fjord.spark.reading import current, tasks  # noqa: PLC0415 - pyarrow

    if isinstance(partition, ColdPartition):
        return tasks.read_cold(partition)
    if isinstance(partition, TailPartition):
        return tasks.read_tail(partition)
    if isinstance(partition, LatestPartition):
        return current.read_latest(partition)
    return iter(())


def wanted_columns(wanted: StructType) -> tuple[str, ...]:
    """Returns the names of the columns that `.schema(...)` asks for; all if it was not called.

    Raises:
        FjordError: if one of them does not exist, or not with this type.
    """
    for field in wanted.fields:
        stored = schema.COLUMNS.get(field.name)
        if stored != field.dataType.simpleString() or not field.nullable:
            raise FjordError(
                f"there is no column `{field.name}` {field.dataType.simpleString()}"
                f"{'' if field.nullable else ' NOT NULL'}; a schema is some of: {schema.DDL}"
            )
    return tuple(wanted.fieldNames())


def wanted_rows(extent: Extent, parsed: Options, columns: tuple[str, ...]) -> Wanted:
    """Returns what tasks have to know beside their range."""
    return Wanted(
        location=parsed.location,
        table=parsed.table,
        columns=columns,
        blocks=parsed.blocks,
        has_history=extent.nature.has_history,
        ops=parsed.ops,
        key_prefix=parsed.key_prefix,
        fails_on_loss=parsed.fails_on_loss,
    )


def plan_batch(extent: Extent, parsed: Options, columns: tuple[str, ...]) -> list[InputPartition]:
    """Returns the tasks of a batch.

    Raises:
        FjordError: if there is no such range, or a part of it is gone.
    """
    from fjord.spark.reading.extent import begins  # noqa: PLC0415 - pyarrow

    after = extent.locate(parsed.start)
    end_seq, tail_rows = _end(extent, parsed, after)
    if begins(parsed.start):
        after = extent.earliest()  # which the journal may have moved meanwhile
    start_seq = max(extent.past_loss(after), extent.earliest()) + 1
    wanted = wanted_rows(extent, parsed, columns)
    sizes = Sizes(tail_rows, parsed.partitions, parsed.partition_rows)
    return planning.plan(wanted, min(start_seq, end_seq), end_seq, extent.blocks, sizes)


def _end(extent: Extent, parsed: Options, after: int) -> tuple[int, int]:
    """Returns the end of a batch, which is not read, and how many rows the tail has about."""
    place = parsed.end
    try:
        tail = extent.tail(after, before=place.at)
    except RefusedError as error:
        if error.code is not Code.BAD_RANGE:
            raise
        raise FjordError(
            f"startingSeq {after + 1} lies behind the end of {parsed.location}: {error.text}"
        ) from error
    if place.at is not None:
        end = extent.locate(place) + 1
        return max(end, after + 1), tail.rows
    end = tail.durable_seq + 1
    # An end inside of a commit leaves rows that a span, which has commits, does not count.
    return (min(place.seq, end), max(tail.rows, 1)) if place.seq else (end, tail.rows)


def _latest_partitions(
    extent: Extent, parsed: Options, columns: tuple[str, ...]
) -> list[InputPartition]:
    if not extent.nature.is_latest:
        raise FjordError(
            f"view=latest is for key/value tables and for streams that keep the latest; "
            f"{parsed.table} is a {extent.nature.kind} table. What was last follows from its "
            "history, see docs/spark.md"
        )
    return [LatestPartition(wanted=wanted_rows(extent, parsed, columns))]
