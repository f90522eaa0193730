"""Declared columns of tables as Spark columns.

    boolean                         boolean
    int8, int16, int32, int64       tinyint, smallint, int, bigint
    uint8, uint16, uint32           smallint, int, bigint
    uint64, oid                     decimal(20,0)
    int128 ... uint512              string: its digits
    float32, float64                float, double
    string, binary                  string, binary
    time_seconds ...                timestamp

A table with a period may have rows of several schemas.  A frame has the names and types of the
schema that is current when the frame is made; rows of other schemas are converted to it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, types

from fjord import kinds
from fjord.client.declared_tables import TableInfo
from fjord.declared.schema import Schema
from fjord.errors import FjordError
from fjord.spark.options import Location, Typed

if TYPE_CHECKING:
    import pyarrow as pa

# Whole numbers that are text in Spark: their digits.
LARGE: Final = tuple(f"{sign}int{bits}" for bits in (128, 256, 512) for sign in ("", "u"))
TIME_UNITS_US: Final = {
    "time_seconds": 1_000_000,
    "time_milliseconds": 1000,
    "time_microseconds": 1,
}
# The Spark type of each declared type.
SPARK_TYPES: Final[dict[str, types.DataType]] = {
    "boolean": types.BooleanType(),
    "int8": types.ByteType(),
    "int16": types.ShortType(),
    "int32": types.IntegerType(),
    "int64": types.LongType(),
    "uint8": types.ShortType(),
    "uint16": types.IntegerType(),
    "uint32": types.LongType(),
    "uint64": types.DecimalType(20, 0),
    "oid": types.DecimalType(20, 0),
    **dict.fromkeys(LARGE, types.StringType()),
    "float32": types.FloatType(),
    "float64": types.DoubleType(),
    "string": types.StringType(),
    "binary": types.BinaryType(),
    **dict.fromkeys(TIME_UNITS_US, types.TimestampType()),
}


NO_COLUMNS: Final = Schema()


@dataclass(frozen=True, slots=True)
class Declared:
    """The declared columns of a table, if any."""

    current: Schema = NO_COLUMNS
    earlier: tuple[Schema, ...] = ()  # that rows of earlier generations have

    @classmethod
    def of(cls, info: TableInfo) -> Declared:
        found = kinds.settings_of(info.kind, info.settings)
        return cls(found.declared, tuple(found.earlier_declared)) if found else cls()

    @classmethod
    def at(cls, place: Location, table: str) -> Declared:
        """Returns the declaration of a table.

        Raises:
            FjordError: if it does not exist, or cannot be reached.
        """
        with place.open() as database:
            return cls.of(database.table(table))

    @property
    def types(self) -> dict[str, str]:
        """The columns, each with the name of its Spark type."""
        return {one.name: SPARK_TYPES[one.type].simpleString() for one in self.current.columns}

    @property
    def schemas(self) -> tuple[Schema, ...]:
        """All that rows may have."""
        return (*self.earlier, self.current)

    def typed(self, names: Collection[str]) -> Typed:
        """Returns those columns that are among some names."""
        columns = tuple(one for one in self.current.columns if one.name in names)
        return Typed(columns, self.schemas if columns else ())


NOTHING: Final = Declared()


def typed(frame: DataFrame, where: str | os.PathLike[str] | Location, table: str) -> DataFrame:
    """Returns a DataFrame of a table's history with the declared columns after the others.

    They are the table's current columns.  Without any, the frame is returned unchanged.

    Args:
        frame: has the columns `type` and `value`, like `history` and warehouses; may be a stream.
        where: the address of a daemon, `fjord://host:port`, or a data directory, where the
            declaration is read.
        table: its name.

    Raises:
        FjordError: if there is no such table, it cannot be reached, or the frame has not these
            columns, or has the others already.
    """
    declared = Declared.at(Location.of(where), table)
    if not declared.current.columns:
        return frame
    _check(frame, declared, table)
    wanted = declared.typed(declared.current.names)

    def decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # In tasks, see `fjord.spark.source`.
        from fjord.spark.declared_rows import with_declared  # noqa: PLC0415

        for batch in batches:
            yield with_declared(batch, wanted, table)

    more = [types.StructField(one.name, SPARK_TYPES[one.type]) for one in declared.current.columns]
    return frame.mapInArrow(decoded, types.StructType([*frame.schema.fields, *more]))


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
