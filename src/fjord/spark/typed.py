"""Declared columns for frames that were not read with the source: blocks, and warehouses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from fjord.errors import FjordError
from fjord.spark import declared as spark_declared
from fjord.spark.declared import Declared
from fjord.spark.options import Location

if TYPE_CHECKING:
    import pyarrow as pa


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
        import pyarrow as pa  # noqa: PLC0415 - in tasks, see `fjord.spark.source`

        from fjord.spark.reading import declared as decoding  # noqa: PLC0415 - the same

        for batch in batches:
            schema = pa.schema([*batch.schema, *decoding.fields(wanted)])
            arrays = [*batch.columns, *decoding.decode(batch, wanted, table)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    more = [
        StructField(one.name, spark_declared.SPARK_TYPES[one.type])
        for one in declared.current.columns
    ]
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
