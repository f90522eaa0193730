"""Spark's schemas without a session, which its own parser of DDL would need."""

from __future__ import annotations

from pyspark.sql import types

from fjord.blocks import schema

_KINDS = (
    types.LongType,
    types.ShortType,
    types.ByteType,
    types.StringType,
    types.BinaryType,
    types.TimestampType,
)
_TYPES = {kind().simpleString(): kind() for kind in _KINDS}


def struct(columns: dict[str, str], *, nullable: bool = True) -> types.StructType:
    return types.StructType(
        [types.StructField(name, _TYPES[type_], nullable) for name, type_ in columns.items()]
    )


ALL = struct(schema.COLUMNS)
