"""Messages of a part: found by seq, cut by count and bytes, encoded as one op."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import ops
from fjord.blocks import rows
from fjord.blocks.reader import MessagePart
from fjord.ops import Opcode

SIXTEEN_MIB = 16 * 1024 * 1024


def part_of(*found: tuple[int, str, bytes, bytes | None], with_op: bool = True) -> MessagePart:
    """Returns a part with rows of seq, op, key and value; tombstones have no value."""
    columns: dict[str, Any] = {
        "seq": [seq for seq, _, _, _ in found],
        "ts": [1000 + seq for seq, _, _, _ in found],
        "op": [op for _, op, _, _ in found],
        "key": [key for _, _, key, _ in found],
        "type": [None if value is None else 1 for _, _, _, value in found],
        "value": [value for _, _, _, value in found],
    }
    names = ["op"] * with_op + ["seq", "ts", "type", "key", "value"]
    arrays = [pa.array(columns[name], rows.SCHEMA.field(name).type) for name in names]
    return MessagePart(pa.table(arrays, names=names))


def encoded(part: MessagePart, start: int, end: int) -> list[tuple[object, ...]]:
    op, _, stop = ops.decode(memoryview(part.encode(7, start, end)), 0)
    assert (op.opcode, op.table, op.rows) == (Opcode.STREAM_MOVE, 7, end - start)
    assert stop == len(part.encode(7, start, end))
    return list(zip(*op.columns, strict=True))


def test_an_op_has_seqs_moments_types_keys_and_values() -> None:
    part = part_of((5, "APPEND", b"k", b"one"), (7, "APPEND", b"", b""), (8, "SET", b"l", b"three"))
    assert encoded(part, 0, 3) == [
        (5, 1005, 0, 0, 1, b"k", b"one"),
        (7, 1007, 0, 0, 1, b"", b""),
        (8, 1008, 0, 0, 1, b"l", b"three"),
    ]
    assert encoded(part, 2, 3) == [(8, 1008, 0, 0, 1, b"l", b"three")]
    assert encoded(part, 1, 3)[0] == (7, 1007, 0, 0, 1, b"", b"")


def test_a_part_without_messages_is_empty() -> None:
    for part in (part_of((5, "MOVE", b"k", b"v")), MessagePart(None)):
        assert part.rows == part.bytes == 0
        assert part.span(0, 100, 10, 10) == (0, 0)


@pytest.mark.parametrize(
    ("after", "until", "count", "bytes_max", "expected"),
    [
        (0, 100, 100, SIXTEEN_MIB, (0, 4)),
        (10, 100, 100, SIXTEEN_MIB, (1, 4)),
        (15, 100, 100, SIXTEEN_MIB, (1, 4)),
        (40, 100, 100, SIXTEEN_MIB, (4, 4)),
        (0, 30, 100, SIXTEEN_MIB, (0, 3)),
        (0, 29, 100, SIXTEEN_MIB, (0, 2)),
        (30, 30, 100, SIXTEEN_MIB, (3, 3)),
        (0, 100, 2, SIXTEEN_MIB, (0, 2)),
        (0, 100, 100, 250, (0, 2)),
        (0, 100, 100, 1, (0, 1)),
        (10, 100, 100, 200, (1, 3)),
    ],
)
def test_a_span_ends_at_seq_count_or_bytes(
    after: int, until: int, count: int, bytes_max: int, expected: tuple[int, int]
) -> None:
    found = [(seq, "APPEND", b"", b"x" * 100) for seq in (10, 20, 30, 40)]
    assert part_of(*found, with_op=False).span(after, until, count, bytes_max) == expected


@given(
    st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=40)), min_size=1, max_size=20),
    st.data(),
)
def test_any_part_is_encoded_as_it_is(
    found: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    part = part_of(*[(seq, "APPEND", key, value) for seq, (key, value) in enumerate(found)])
    start = data.draw(st.integers(0, len(found) - 1))
    end = data.draw(st.integers(start + 1, len(found)))
    assert [row[-2:] for row in encoded(part, start, end)] == found[start:end]
