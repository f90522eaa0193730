"""The whole history of a table as a frame: blocks as Parquet, and behind them the tail.

Spark reads the blocks by itself, which is the fastest way where a query wants few columns or few
rows: it leaves out columns, parts and pages.  What is not in blocks yet comes from the source
`fjord`.  The edge between the two is fixed when the frame is made, and so is the end of the tail.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from fjord.blocks import schema
from fjord.client.stream_calls import BlockInfo
from fjord.spark.options import Location, Options
from fjord.spark.reading.planning import FIRST_ROW, cold_end


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
    from fjord.spark.reading.extent import Extent  # noqa: PLC0415 - pyarrow, see `fjord.spark.source`

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
