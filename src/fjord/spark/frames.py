"""Frames of a table: its whole history, and declared columns behind the columns of a history.

History is blocks as Parquet, and behind them the tail.

Spark reads the blocks by itself, which is the fastest way where a query wants few columns or few
rows: it leaves out columns, parts and pages.  What is not in blocks yet comes from the source
`fjord`.  The edge between the two is fixed when the frame is made, and so is the end of the tail.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StructField, StructType

from fjord.blocks import schema
from fjord.client.history import BlockInfo
from fjord.errors import FjordError
from fjord.spark.declared import SPARK_TYPES, Declared
from fjord.spark.options import Location, Options
from fjord.spark.source import FIRST_ROW, cold_end

if TYPE_CHECKING:
    import pyarrow as pa


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
        start: the first seq; 1: from the beginning of what is left.
        end: the first seq that does not belong to it; 0: everything that is durable now.
        blocks: where blocks are for the machines that run Spark, if not where the node says.

    Raises:
        FjordError: if there is no such table, or it cannot be reached.
    """
    from fjord.spark.extent import Extent  # noqa: PLC0415 - pyarrow, see `fjord.spark.source`

    location = Location.of(where)
    with location.open() as database:
        extent = Extent(database, Options(location=location, table=table, blocks=blocks))
        tail = extent.tail(start - 1)
    end = min(end or tail.durable_seq + 1, tail.durable_seq + 1)
    cold = [one for one in extent.blocks if one.last >= start and one.first < end]
    tail_start = max(start, cold_end(extent.blocks) + 1)
    if start <= 1:
        # What is gone by now does not count, but what goes before the frame is read is missed.
        tail_start = max(tail_start, extent.first_seq, FIRST_ROW)
    found = _cold(spark, cold, start, end, blocks)
    if found is not None and (tail_start >= end or not tail.rows):
        return found
    given = {**location.options, "table": table, "startingSeq": str(min(tail_start, end))}
    given["columns"] = "plain"  # as blocks have them; `typed` makes others of them
    if blocks:
        given["blocks"] = blocks  # it may be in blocks by the time when it is read
    rest = spark.read.format("fjord").options(**given, endingSeq=str(end)).load()
    return rest if found is None else found.unionByName(rest)


def _cold(
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


def typed(frame: DataFrame, where: str | os.PathLike[str] | Location, table: str) -> DataFrame:
    """Returns a frame of a table's history with the declared columns behind the others.

    They are those that the table has now.  A table without any gives the frame as it is.

    Args:
        frame: has the columns `type` and `value`, as `history` and warehouses do; a stream is fine.
        where: the address of a daemon, `fjord://host:port`, or a data directory: where the table
            is, which says what is declared.
        table: its name.

    Raises:
        FjordError: if there is no such table, it cannot be reached, or the frame has not these
            columns, or has the others already.
    """
    with Location.of(where).open() as database:
        declared = Declared.of(database.table(table))
    if not declared.current.columns:
        return frame
    _check(frame, declared, table)
    wanted = declared.typed(declared.current.names)

    def decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # In tasks, see `fjord.spark.source`.
        from fjord.spark.declared_rows import with_declared  # noqa: PLC0415

        for batch in batches:
            yield with_declared(batch, wanted, table)

    more = [StructField(one.name, SPARK_TYPES[one.type]) for one in declared.current.columns]
    return frame.mapInArrow(decoded, StructType([*frame.schema.fields, *more]))


def _check(frame: DataFrame, declared: Declared, table: str) -> None:
    missing = [name for name in ("type", "value") if name not in frame.columns]
    if missing:
        raise FjordError(
            f"the frame has no column {' and no column '.join(missing)}, of which the declared "
            f"columns of {table} are made"
        )
    there = {name.lower() for name in frame.columns}
    twice = [name for name in declared.current.names if name.lower() in there]
    if twice:
        raise FjordError(f"the frame has a column {twice[0]} already; drop it first")
