"""The data source `fjord` of Spark: `spark.read.format("fjord")`.

    driver  ->  planner worker: `partitions` fixes the range and cuts it up
            ->  task workers:   `read`, one partition each, directory or daemon -> Arrow batches

A task sees nothing of the planner but its partition, so a partition carries all that `read` needs.
The end of the range is what was durable when the read was planned: all tasks see one moment,
however late they run.  A directory is opened, read and closed by each task, since LMDB lets a
process have it open only once, and Spark uses a worker process again.

Importing this module opens nothing, and does not import pyarrow: Spark imports all modules named
`pyspark_*` as soon as anyone asks for a format that it does not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from fjord.blocks import schema
from fjord.errors import Code, FjordError, NotFoundError, RefusedError
from fjord.spark import options

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class SeqRange(InputPartition):
    """One partition: a range of seqs of one table."""

    location: options.Location
    table: str
    start_seq: int
    end_seq: int  # exclusive
    columns: tuple[str, ...]  # the names of the wanted ones, in order


class FjordSource(DataSource):
    """A table's history, from a data directory or a daemon."""

    @classmethod
    def name(cls) -> str:
        return "fjord"

    def schema(self) -> str:
        return schema.DDL

    def reader(self, schema: StructType) -> FjordReader:
        return FjordReader(options.parse(self.options), wanted_columns(schema))


class FjordReader(DataSourceReader):
    """Plans and reads."""

    def __init__(self, wanted: options.Options, columns: tuple[str, ...]) -> None:
        self._wanted = wanted
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        wanted = self._wanted
        start_seq, end_seq = wanted.starting_seq, durable_end(wanted)
        count = options.partition_count(wanted.partitions, end_seq - start_seq)
        return [
            SeqRange(
                location=wanted.location,
                table=wanted.table,
                start_seq=start,
                end_seq=end,
                columns=self._columns,
            )
            for start, end in pairwise(edges(start_seq, end_seq, count))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from fjord.blocks import rows  # noqa: PLC0415 - see the module's docstring

        wanted = cast(SeqRange, partition)
        columns = list(wanted.columns)
        with wanted.location.open() as database:
            pieces = database.scan(wanted.table, wanted.start_seq, wanted.end_seq)
            for batch in rows.record_batches(pieces, wanted.start_seq, wanted.end_seq):
                yield batch.select(columns)


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


def durable_end(wanted: options.Options) -> int:
    """Returns the end of the range to read: the wanted one, if all before it is durable now.

    Raises:
        FjordError: if there is no such table, directory or daemon, or no such range.
    """
    try:
        with wanted.location.open() as database:
            pieces = database.scan(wanted.table, wanted.starting_seq, wanted.ending_seq)
            return next(pieces).end_seq
    except NotFoundError as error:
        raise FjordError(
            f"there is no table {wanted.table!r} in {wanted.location}; check the option table. "
            "A table comes into being with its first write"
        ) from error
    except RefusedError as error:
        if error.code != Code.BAD_RANGE:
            raise
        raise FjordError(
            f"startingSeq {wanted.starting_seq} lies behind the end of {wanted.location}: "
            f"{error.text}"
        ) from error


def edges(start_seq: int, end_seq: int, count: int) -> list[int]:
    """Returns the bounds of `count` ranges, as even as can be, that together are the range."""
    length = end_seq - start_seq
    return [start_seq + length * number // count for number in range(count + 1)]
