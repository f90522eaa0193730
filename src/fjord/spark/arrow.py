"""From scanned ops to Arrow record batches: one batch for each piece of a scan.

A piece has some MiB, which is as much as Spark likes in a batch, however small its ops are.  Seqs
ascend in a batch and from batch to batch.  An op that reaches over an end of the range is cut
there, so ranges that adjoin have every row once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute

from fjord import ops
from fjord.commands import Scanned
from fjord.errors import FjordError
from fjord.ops import Opcode
from fjord.spark import decoding, job_columns, schema

_MOMENT: Final = pa.timestamp("us", tz="UTC")
_TYPES: Final[dict[str, Any]] = {
    "bigint": pa.int64(),
    "smallint": pa.int16(),
    "tinyint": pa.int8(),
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamp": _MOMENT,
}
SCHEMA: Final = pa.schema([(name, _TYPES[type_]) for name, type_ in schema.COLUMNS.items()])

# What an op is called in the column `op`.
NAMES: Final[dict[Opcode, str]] = {
    Opcode.KV_INSERT: "SET",
    Opcode.KV_SET: "SET",
    Opcode.KV_DELETE: "DELETE",
    Opcode.KV_EXPIRE: "EXPIRE",
    # A row that is said again, as it is, when the journal is packed: `row` tells which one.  It
    # is a tombstone if it has no type.
    Opcode.KV_MOVE: "MOVE",
    Opcode.KV_PURGE: "PURGE",
    Opcode.JOB_ADD: "ADD",
    Opcode.JOB_REPLACE: "REPLACE",
    Opcode.JOB_TAKE: "TAKE",
    Opcode.JOB_DONE: "DONE",
    Opcode.JOB_BURY: "DEAD",
    # What these are called depends on what they say.
    Opcode.JOB_MOVE: "",
    Opcode.JOB_WAIT: "",
    Opcode.JOB_REMOVE: "",
}
# Ops that are about no row of a table, or about no value.
SKIPPED: Final = frozenset(
    {
        Opcode.TAKEOVER,
        Opcode.CREATE_TABLE,
        Opcode.DROP_TABLE,
        Opcode.FORGET_TABLE,
        Opcode.PACKED,
        Opcode.LOST,
        Opcode.ANSWERED,
        Opcode.FORGET_CLIENT,
        Opcode.KV_MARK,
        Opcode.KV_UNSCHEDULE,
        Opcode.KV_LINK,
        Opcode.JOB_TOUCH,
        Opcode.JOB_LEASE,
        Opcode.JOB_UNLEASE,
    }
)

# Which column of an op is which column of a row; the others are not shown.
_SHOWN: Final[dict[str, str]] = {
    "op": "op",
    "row": "row",
    "xid": "xid",
    "domain": "domain",
    "priority": "priority",
    "process_at_us": "process_at",
    "timeouts": "timeouts",
    "expires_at_us": "expires_at",
    "type": "type",
    "key": "key",
    "value": "value",
}


def record_batches(
    pieces: Iterable[Scanned], start_seq: int, end_seq: int
) -> Iterator[pa.RecordBatch]:
    """Yields the rows from `start_seq` up to before `end_seq`.

    Assumes that `pieces` are those of a scan of this range.

    Raises:
        FjordError: if they do not hold ops, or ops that this version does not know.
    """
    for piece in pieces:
        for batch in _batches(piece):
            yield _cut(batch, start_seq, end_seq)


def _batches(piece: Scanned) -> list[pa.RecordBatch]:
    """Returns the rows of a piece, in order, as one batch; none if it has no rows."""
    found = decoding.Ops.of(piece)
    opcodes = set(compute.unique(found.opcodes()).to_pylist())
    if unknown := opcodes - NAMES.keys() - SKIPPED:
        raise FjordError(
            f"ops of the kinds {sorted(unknown)} are unknown to this version of Fjord; "
            "use the version that wrote them"
        )
    parts = [_part(found.only(opcode), opcode) for opcode in NAMES if opcode in opcodes]
    parts = [part for part in parts if part.num_rows]
    if len(parts) < 2:
        return parts
    merged: list[pa.RecordBatch] = (
        pa.Table.from_batches(parts).sort_by("seq").combine_chunks().to_batches()
    )
    return merged


def _part(found: decoding.Ops, opcode: Opcode) -> pa.RecordBatch:
    """Returns the rows of ops that all have this opcode."""
    spread, stored = decoding.read_columns(found, opcode)
    seqs = spread.counted(found.first_seqs)
    if opcode in job_columns.OPCODES:
        stored = job_columns.complete(opcode, stored, seqs)
    columns = {
        "seq": seqs,
        "ts": spread.repeat(found.walls_us),
        "txn": spread.repeat(found.last_seqs),
        "op": pa.repeat(NAMES[opcode], spread.count),
        "row": seqs,
        **{_SHOWN[name]: column for name, column in stored.items() if name in _SHOWN},
    }
    if "expires_at" in columns:
        columns["expires_at"] = _zero_as_null(columns["expires_at"])
    is_alias = None
    if opcode == Opcode.KV_MOVE:
        is_alias = compute.equal(columns["type"], pa.scalar(ops.ALIAS, pa.uint8()))
        is_value = compute.less(columns["type"], pa.scalar(ops.ALIAS, pa.uint8()))
        for name in ("type", "value"):
            columns[name] = compute.if_else(is_value, columns[name], None)
    arrays = [
        columns[field.name].cast(field.type)
        if field.name in columns
        else pa.nulls(spread.count, field.type)
        for field in SCHEMA
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    return batch if is_alias is None else batch.filter(compute.invert(is_alias))


def _zero_as_null(numbers: Any) -> Any:
    return compute.if_else(compute.equal(numbers, decoding.number(0)), None, numbers)


def _cut(batch: pa.RecordBatch, start_seq: int, end_seq: int) -> pa.RecordBatch:
    seqs = batch["seq"]
    if start_seq <= seqs[0].as_py() and seqs[-1].as_py() < end_seq:
        return batch
    inside = compute.and_(compute.greater_equal(seqs, start_seq), compute.less(seqs, end_seq))
    return batch.filter(inside)
