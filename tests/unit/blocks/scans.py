"""Scans made by hand, for tests that need no database, and the rows that come of them."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from fjord import ops
from fjord.blocks import rows as history
from fjord.blocks import schema
from fjord.columns import Strings
from fjord.commands import Scanned
from fjord.ops import Column, Op, Opcode

TABLE = 7
WALL_US = 1_700_000_000_000_000


def kv_set(*rows: tuple[bytes, int, bytes], expires_at_us: int = 0) -> Op:
    """Returns the op that sets keys to types and values."""
    columns: dict[str, Any] = {
        "timestamp_us": [5] * len(rows),
        "expires_at_us": [expires_at_us] * len(rows),
        "type": bytes(type_ for _, type_, _ in rows),
        "key": Strings.of([key for key, _, _ in rows]),
        "value": Strings.of([value for _, _, value in rows]),
    }
    return op(Opcode.KV_SET, len(rows), columns)


def kv_delete(*keys: bytes) -> Op:
    return op(Opcode.KV_DELETE, len(keys), {"timestamp_us": [5] * len(keys), "key": keys})


def op(opcode: Opcode, rows: int, columns: Mapping[str, Sequence[int] | Sequence[bytes]]) -> Op:
    """Returns an op of the table; columns of numbers that are not given are 0."""
    found: list[Column] = []
    for name, kind in opcode.columns:
        column: Any = columns.get(name, [0] * rows)
        if kind == ops.STRINGS:
            found.append(column if isinstance(column, Strings) else Strings.of(list(column)))
        else:
            found.append(bytes(column) if kind == ops.U8 else array("Q", column))
    return Op(opcode, TABLE, rows, tuple(found))


def create_table() -> Op:
    return Op(Opcode.CREATE_TABLE, TABLE, 1, (b"\1", Strings.of([b"name"]), Strings.of([b"{}"])))


def piece(found: Sequence[Op], first_seq: int = 1) -> Scanned:
    """Returns the piece of a scan in which each op is a commit of its own, without gaps."""
    edges = list(accumulate([op.rows for op in found], initial=first_seq))
    return Scanned(
        first_seqs=array("Q", edges[:-1]),
        walls_us=array("Q", range(WALL_US, WALL_US + len(found))),
        last_seqs=array("Q", [edge - 1 for edge in edges[1:]]),
        ops=Strings.of([ops.encode(op)[0] for op in found]),
        next_seq=edges[-1],
        end_seq=edges[-1],
    )


def row(seq: int, **columns: object) -> dict[str, object]:
    """Returns a whole row, in which what is not named is null."""
    return {**dict.fromkeys(schema.COLUMNS), "seq": seq, "row": seq, **columns}


def rows(*pieces: Scanned, start_seq: int = 1, end_seq: int = 1_000) -> list[dict[str, Any]]:
    batches = list(history.record_batches(pieces, start_seq, end_seq))
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == history.SCHEMA
    found: list[dict[str, Any]] = pa.Table.from_batches(batches, history.SCHEMA).to_pylist()
    return found
