"""Messages of one part of a block, as columns in memory, and cut out of them as one op.

What is read from a block is handed on as STREAM_MOVE: each message with its own seq and moment.
Finding where to begin and to end are searches in columns; the rest is a few copies of memory.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute

from fjord import columns as fjord_columns
from fjord import ops
from fjord.columns import Strings
from fjord.ops import Op, Opcode

# What messages are called in the column `op`.  Others say again what was said before, or are no
# messages at all.
MESSAGES: Final = frozenset({"APPEND", "SET", "DELETE"})

_COLUMNS: Final = ["seq", "ts", "type", "key", "value"]


def columns_of(op: str) -> list[str]:
    """Returns what to read of a part whose rows are all `op`, or all sorts if it is empty."""
    if not op:
        return ["op", *_COLUMNS]
    return _COLUMNS if op in MESSAGES else []


def only_messages(table: pa.Table) -> pa.Table:
    """Returns the rows that are messages, if the table says what its rows are."""
    if "op" not in table.column_names:
        return table
    wanted = compute.is_in(table["op"].cast(pa.string()), pa.array(sorted(MESSAGES)))
    return table.filter(wanted)


class MessagePart:
    """The messages of one part of a block."""

    def __init__(self, table: pa.Table | None) -> None:
        found = only_messages(table) if table is not None else None
        self.rows = found.num_rows if found is not None else 0
        self.bytes = 0
        if found is None or not self.rows:
            return
        self._arrays = {name: _one_chunk(found[name]) for name in _COLUMNS}
        # A row without a type is a tombstone.
        types = self._arrays["type"].cast(pa.uint8()).fill_null(ops.TOMBSTONE)
        self._arrays["type"] = types
        for name in ("key", "value"):
            self._arrays[name] = self._arrays[name].fill_null(b"")
        self.bytes = sum(array.nbytes for array in self._arrays.values())
        self._seqs = _numbers(self._arrays["seq"], 1, "q", self.rows)
        self._moments = _numbers(self._arrays["ts"], 1, "q", self.rows)
        self._types = _numbers(types, 1, "B", self.rows)
        self._value_ends = _numbers(self._arrays["value"], 1, "i", self.rows + 1)

    def seq(self, position: int) -> int:
        return int(self._seqs[position])

    def wall_us(self, position: int) -> int:
        return int(self._moments[position])

    def span(self, after: int, until: int, count: int, bytes_max: int) -> tuple[int, int]:
        """Returns the positions of messages behind `after`: where they begin, and their end.

        Of about `bytes_max` bytes of values at most, but at least one message if there is one.
        """
        if not self.rows:
            return 0, 0
        start = bisect_right(self._seqs, after)
        end = min(bisect_right(self._seqs, until), start + count)
        if end <= start:
            return start, start
        ends = self._value_ends
        most = bisect_right(ends, ends[start] + bytes_max, start, end + 1) - 1
        return start, max(most, start + 1)

    def encode(self, table: int, start: int, end: int) -> bytes:
        """Returns these messages as one op."""
        count = end - start
        nothing = fjord_columns.repeat(0, count)
        op = Op(
            Opcode.STREAM_MOVE,
            table,
            count,
            (
                self._seqs[start:end],
                self._moments[start:end],
                nothing,
                nothing,
                self._types[start:end],
                self._strings("key", start, end),
                self._strings("value", start, end),
            ),
        )
        return ops.encode(op)[0]

    def _strings(self, name: str, start: int, end: int) -> Strings:
        array = self._arrays[name]
        _, offsets, data = array.buffers()
        edges = pa.Array.from_buffers(pa.int32(), self.rows + 1, [None, offsets])
        edges = edges.slice(start, end - start + 1)
        base, size = edges[0].as_py(), edges[-1].as_py() - edges[0].as_py()
        moved = compute.subtract(edges, pa.scalar(base, pa.int32()))
        view = memoryview(data)[base : base + size] if size else b""
        return Strings(_numbers(moved, 1, "I", len(moved)), view)


def _one_chunk(column: Any) -> Any:
    """Returns a column as one array whose buffers begin with its first entry."""
    found = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return found if found.offset == 0 else pa.concat_arrays([found])


def _numbers(array: Any, buffer: int, kind: Any, count: int) -> memoryview:
    data = memoryview(array.buffers()[buffer]).cast("B")
    size = count * {"B": 1, "i": 4, "I": 4, "q": 8}[kind]
    return data[:size].cast(kind)
