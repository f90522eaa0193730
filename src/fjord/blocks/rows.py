"""From ops to rows of a table's history, as Arrow: one batch for each piece of a scan.

A piece has some MiB, which is as much as Spark likes in a batch, however small its ops are.  Seqs
ascend in a batch and from batch to batch.  An op that reaches over an end of the range is cut
there, so ranges that adjoin have every row once.

Messages that a reader of a stream was given become rows too, with the columns that they have.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute

from fjord import ops
from fjord.blocks import decoding, job_columns, schema
from fjord.columns import Strings
from fjord.commands import Messages, Scanned
from fjord.errors import Code, FjordError, RefusedError
from fjord.ops import Opcode

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

# What an op is called in the column `op`.  A MOVE is a row that is said again, as it is, when the
# journal is packed: `row` tells which one; it is a tombstone if it has no type.
NAMES: Final = {opcode: opcode.shown for opcode in Opcode if opcode.shown is not None}
# Whoever walks over the journal puts the appends in its place that such an op stands for.
RESOLVED: Final = Opcode.STREAM_COMMIT

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


_KNOWN: Final = frozenset(Opcode) - {RESOLVED}


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


def to_ipc(
    scanned: Scanned,
    start_seq: int,
    end_seq: int,
    *,
    columns: Sequence[str] = (),
    key_prefix: bytes = b"",
) -> bytes:
    """Returns the rows of a piece as an Arrow IPC stream, perhaps without a row.

    Args:
        columns: the names of the wanted ones, in order; all if there are none.
        key_prefix: only rows whose keys begin with it.

    Raises:
        RefusedError: if there is no such column.
        FjordError: if the piece does not hold ops, or ops that this version does not know.
    """
    wanted = list(columns) or SCHEMA.names
    for name in wanted:
        if name not in schema.COLUMNS:
            text = f"there is no column {name[:40]!r}; there are {', '.join(schema.COLUMNS)}"
            raise RefusedError(Code.BAD_NAME, text)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([SCHEMA.field(name) for name in wanted])) as stream:
        for batch in record_batches([scanned], start_seq, end_seq):
            found = _with_prefix(batch, key_prefix) if key_prefix else batch
            if found.num_rows:
                stream.write_batch(found.select(wanted))
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _with_prefix(batch: pa.RecordBatch, prefix: bytes) -> pa.RecordBatch:
    start = compute.binary_slice(batch["key"], 0, len(prefix))
    return batch.filter(compute.equal(start, pa.scalar(prefix, pa.binary())))


# -- messages -------------------------------------------------------------------------------------

MESSAGE_SCHEMA: Final = pa.schema(
    [SCHEMA.field(name) for name in ("seq", "ts", "key", "type", "value")]
)
# Smaller ops are put together, which copies them; a step in Python for each costs more.
_WRAPPED_ROWS_MIN: Final = 512


def messages_to_arrow(messages: Messages) -> pa.Table:
    """Returns messages as rows: seq, ts, key, type, value, named and typed as in the history.

    A tombstone has neither type nor value.  Large ops are wrapped, not copied.

    Raises:
        FjordError: if these are no messages.
    """
    found = Scanned(
        first_seqs=messages.first_seqs,
        walls_us=messages.walls_us,
        last_seqs=messages.first_seqs,  # commits are not shown
        ops=messages.ops,
        next_seq=0,
        end_seq=0,
    )
    pieces = [found]
    if len(messages.ops) > 1 and messages.rows >= _WRAPPED_ROWS_MIN * len(messages.ops):
        pieces = [_piece_of_one(found, at, op) for at, op in enumerate(messages.ops.views())]
    batches = [batch for piece in pieces for batch in _message_batches(piece)]
    return pa.Table.from_batches(batches, MESSAGE_SCHEMA)


def _piece_of_one(piece: Scanned, number: int, op: memoryview) -> Scanned:
    return Scanned(
        first_seqs=array("Q", [piece.first_seqs[number]]),
        walls_us=array("Q", [piece.walls_us[number]]),
        last_seqs=array("Q", [piece.last_seqs[number]]),
        ops=Strings((0, len(op)), op),
        next_seq=0,
        end_seq=0,
    )


def _message_batches(piece: Scanned) -> list[pa.RecordBatch]:
    """Returns the messages of ops, in order, as one batch; none if there are none."""
    found = decoding.Ops.of(piece)
    opcodes = compute.unique(found.opcodes()).to_pylist()
    kinds = [kind for kind in (Opcode.STREAM_APPEND, Opcode.STREAM_MOVE) if kind in opcodes]
    if len(kinds) < len(opcodes):
        raise decoding.damaged()
    parts = [_message_part(found.only(kind), kind) for kind in kinds]
    if len(parts) < 2:
        return parts
    merged: list[pa.RecordBatch] = (
        pa.Table.from_batches(parts).sort_by("seq").combine_chunks().to_batches()
    )
    return merged


def _message_part(found: decoding.Ops, opcode: Opcode) -> pa.RecordBatch:
    spread, columns = decoding.read_columns(found, opcode)
    if opcode is Opcode.STREAM_MOVE:
        columns["seq"], columns["ts"] = columns["row"], columns["at_us"]
        _drop_values_of_marks(columns)
    else:
        columns["seq"] = spread.counted(found.first_seqs)
        columns["ts"] = spread.repeat(found.walls_us)
    arrays = [columns[field.name].cast(field.type) for field in MESSAGE_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=MESSAGE_SCHEMA)


# -- pieces ---------------------------------------------------------------------------------------


def _batches(piece: Scanned) -> list[pa.RecordBatch]:
    """Returns the rows of a piece, in order, as one batch; none if it has no rows."""
    found = decoding.Ops.of(piece)
    opcodes = set(compute.unique(found.opcodes()).to_pylist())
    if unknown := opcodes - _KNOWN:
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
    if opcode.shown == "MOVE":
        is_alias = compute.equal(columns["type"], pa.scalar(ops.ALIAS, pa.uint8()))
        _drop_values_of_marks(columns)
    arrays = [
        columns[field.name].cast(field.type)
        if field.name in columns
        else pa.nulls(spread.count, field.type)
        for field in SCHEMA
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    return batch if is_alias is None else batch.filter(compute.invert(is_alias))


def _drop_values_of_marks(columns: dict[str, Any]) -> None:
    """Ensures that what is no value, such as a tombstone, has no type and no value."""
    is_value = compute.less(columns["type"], pa.scalar(ops.ALIAS, pa.uint8()))
    if compute.all(is_value).as_py():
        return
    for name in ("type", "value"):
        columns[name] = compute.if_else(is_value, columns[name], None)


def _zero_as_null(numbers: Any) -> Any:
    return compute.if_else(compute.equal(numbers, decoding.number(0)), None, numbers)


def _cut(batch: pa.RecordBatch, start_seq: int, end_seq: int) -> pa.RecordBatch:
    seqs = batch["seq"]
    if start_seq <= seqs[0].as_py() and seqs[-1].as_py() < end_seq:
        return batch
    inside = compute.and_(compute.greater_equal(seqs, start_seq), compute.less(seqs, end_seq))
    return batch.filter(inside)
