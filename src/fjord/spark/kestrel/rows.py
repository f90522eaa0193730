"""Items and ops of a queue as rows of Arrow: a column at a time, with no object for a row.

Dates.  A journal has milliseconds in 64 bits, and Spark no date behind the year 9999; nobody has
added an item before 1970.  What lies outside becomes the nearest date that every time zone has, so
what never expires in practice stays so, and what expired long ago stays expired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from fjord.kestrel.ops import Item, Opcode
from fjord.spark.kestrel.options import COLUMNS

_TYPES: Final[dict[str, Any]] = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
SCHEMAS: Final = {
    mode: pa.schema([(name, _TYPES[word]) for name, word in columns.items()])
    for mode, columns in COLUMNS.items()
}
#: 9999-12-30: a day from the last one, which some time zones have a day later.
LAST_MS: Final = 253_402_128_000_000

# Looked up, since an enum takes its time to say a name.
_NAMES: Final = {opcode: opcode.name for opcode in Opcode}
_HAS_XID: Final = frozenset(
    {
        Opcode.SAVE_XID,
        Opcode.UNREMOVE,
        Opcode.CONFIRM_REMOVE,
        Opcode.ADD_XID,
        Opcode.CONTINUE,
        Opcode.REMOVE_TENTATIVE_XID,
        Opcode.STATE_DUMP,
    }
)


class OpRow(NamedTuple):
    """An op, as far as a row has it."""

    offset: int  # in its file
    size: int  # of the whole op
    opcode: Opcode
    xid: int
    add_ms: int  # 0 = it does not say
    expiry_ms: int  # 0 = never
    data: bytes | None  # None: it has none, or nobody wants it


T = TypeVar("T", Item, OpRow)


def pieces(found: Iterable[T], *, rows_max: int, bytes_max: int) -> Iterator[list[T]]:
    """Yields the same in lists that have at most so many rows, and bytes of data, but for one."""
    piece: list[T] = []
    size = 0
    for one in found:
        piece.append(one)
        if one.data is not None:
            size += len(one.data)
        if len(piece) >= rows_max or size >= bytes_max:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def of_items(
    queue: str,
    positions: Sequence[int],
    items: Sequence[Item],
    dates_ms: Sequence[int],
    columns: Sequence[str],
) -> pa.RecordBatch:
    """Returns items of a queue as rows; an xid means that the item is open.

    Args:
        queue: the queue.
        positions: of the items in it.
        items: the items.
        dates_ms: of jobs that they become.
        columns: the names of the columns that are wanted.
    """
    data, added, expires, xids = zip(*items, strict=True)
    makers: dict[str, Callable[[], pa.Array]] = {
        "queue": lambda: pa.repeat(queue, len(items)),
        "position": lambda: pa.array(positions, pa.int64()),
        "xid": lambda: pa.array([xid or None for xid in xids], pa.int32()),
        "added": lambda: moments(added),
        "dated": lambda: moments(dates_ms),
        "expires": lambda: moments(expires),
        "data": lambda: pa.array(data, pa.binary()),
    }
    return _batch("state", columns, makers)


def of_ops(
    queue: str, file: str, first: int, ops: Sequence[OpRow], columns: Sequence[str]
) -> pa.RecordBatch:
    """Returns ops of one file as rows.

    Args:
        queue: the queue.
        file: the name of the file.
        first: the number of the first op.
        ops: the ops.
        columns: the names of the columns that are wanted.
    """
    count = len(ops)
    offsets, sizes, opcodes, xids, added, expires, data = zip(*ops, strict=True)
    makers: dict[str, Callable[[], pa.Array]] = {
        "queue": lambda: pa.repeat(queue, count),
        "file": lambda: pa.repeat(file, count),
        "position": lambda: pa.array(range(first, first + count), pa.int64()),
        "offset": lambda: pa.array(offsets, pa.int64()),
        "op": lambda: pa.array([_NAMES[opcode] for opcode in opcodes], pa.string()),
        "xid": lambda: pa.array(
            [xid if op in _HAS_XID else None for op, xid in zip(opcodes, xids, strict=True)],
            pa.int32(),
        ),
        "added": lambda: moments(added),
        "expires": lambda: moments(expires),
        "size": lambda: pa.array(sizes, pa.int64()),
        "data": lambda: pa.array(data, pa.binary()),
    }
    return _batch("ops", columns, makers)


def moments(found: Sequence[int]) -> pa.Array:
    """Returns milliseconds since 1970 as dates; 0 is none."""
    ms = pa.array(found, pa.int64())
    inside = pc.min_element_wise(pc.max_element_wise(ms, 0), LAST_MS)
    dates = pc.multiply(inside, 1000).cast(_TYPES["timestamp"])
    return pc.if_else(pc.equal(ms, 0), pa.scalar(None, _TYPES["timestamp"]), dates)


def _batch(
    mode: str, columns: Sequence[str], makers: dict[str, Callable[[], pa.Array]]
) -> pa.RecordBatch:
    schema = pa.schema([SCHEMAS[mode].field(name) for name in columns])
    return pa.RecordBatch.from_arrays([makers[name]() for name in columns], schema=schema)
