"""Directories of queues, as a Kestrel leaves them, and schemas for their rows."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import types

from fjord.kestrel import codec
from fjord.kestrel.codec import Dialect, Op
from fjord.spark.kestrel.source import COLUMNS
from tests.unit.kestrel import vectors

ADD_MS = 1_700_000_000_000

_KINDS = (
    types.StringType,
    types.IntegerType,
    types.LongType,
    types.TimestampType,
    types.BinaryType,
)
_TYPES = {kind().simpleString(): kind() for kind in _KINDS}


def item(data: bytes, *, add_ms: int = ADD_MS, expiry_ms: int = 0) -> Op:
    return vectors.addx(data, add_ms=add_ms, expiry_ms=expiry_ms)


def written(*made: Op) -> bytes:
    """Returns the bytes of ops, each in a dialect that has it."""
    return b"".join(
        codec.encode(op, next(one for one in Dialect if op.opcode in codec.WRITTEN[one]))
        for op in made
    )


def put(directory: Path, name: str, *made: Op) -> Path:
    path = directory / name
    path.write_bytes(written(*made))
    return path


def struct(columns: dict[str, str], *, nullable: bool = True) -> types.StructType:
    return types.StructType(
        [types.StructField(name, _TYPES[word], nullable) for name, word in columns.items()]
    )


ALL = {mode: struct(columns) for mode, columns in COLUMNS.items()}
