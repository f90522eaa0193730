"""Columns of many ops: the same as decoding one op after the other, and safe with any bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import ops
from fjord.blocks import rows as decoding
from fjord.blocks.rows import RESOLVED
from fjord.columns import Strings
from fjord.commands import Scanned
from fjord.errors import FjordError
from fjord.ops import Column, Op, Opcode
from tests.unit.blocks import scans

# What has a number once for all of its rows is never shown as it is.
SHOWN = [one for one in Opcode if one is not RESOLVED]


@st.composite
def any_ops(draw: st.DrawFn) -> list[Op]:
    """Ops of a few rows each, all of one opcode."""
    opcode = draw(st.sampled_from(SHOWN))
    return [draw(any_op(opcode, rows)) for rows in draw(st.lists(st.integers(1, 5), min_size=1))]


@st.composite
def any_op(draw: st.DrawFn, opcode: Opcode, rows: int) -> Op:
    strategies: dict[str, st.SearchStrategy[Column]] = {
        ops.U8: st.binary(min_size=rows, max_size=rows),
        ops.U64: st.lists(st.integers(0, 2**63 - 1), min_size=rows, max_size=rows),
        ops.STRINGS: st.lists(st.binary(max_size=12), min_size=rows, max_size=rows).map(Strings.of),
    }
    found = tuple(draw(strategies[kind]) for _, kind in opcode.columns)
    return Op(opcode, scans.TABLE, rows, found)


def read(piece: Scanned, opcode: Opcode) -> dict[str, list[object]]:
    found = decoding.Ops.of(piece).only(opcode)
    _, columns = decoding.read_columns(found, opcode)
    return {name: column.to_pylist() for name, column in columns.items()}


@given(any_ops())
def test_columns_are_those_of_each_op_in_turn(found: list[Op]) -> None:
    opcode = found[0].opcode
    expected = {
        name: [entry for op in found for entry in op.columns[position]]
        for position, (name, _) in enumerate(opcode.columns)
    }
    assert read(scans.piece(found), opcode) == expected


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_flipped_byte_is_an_error_or_other_data(place: int, bits: int) -> None:
    piece = scans.piece([scans.kv_set((b"a", 1, b"x"), (b"b", 1, b"yy")), scans.kv_delete(b"c")])
    data = bytearray(piece.ops.data)
    data[place % len(data)] ^= bits
    flipped = replace(piece, ops=Strings(piece.ops.offsets, bytes(data)))
    for opcode in Opcode:
        if opcode in decoding.Ops.of(flipped).opcodes().to_pylist():
            try:
                read(flipped, opcode)
            except FjordError:
                pass  # the point is that no memory is read that is not the piece's


@pytest.mark.parametrize(
    ("position", "number"),
    [
        pytest.param(8, 0, id="no rows"),
        pytest.param(8, 3, id="more rows than there are"),
        pytest.param(8, 2**32 - 1, id="the most rows"),
        pytest.param(84, 4, id="offsets that descend"),
        pytest.param(84, 2**31, id="offsets beyond 31 bits"),
        pytest.param(88, 9, id="strings longer than the op"),
        pytest.param(88, 2**32 - 1, id="the longest strings"),
    ],
)
@pytest.mark.parametrize("others", [0, 1], ids=["alone", "beside another"])
def test_an_op_that_contradicts_itself_is_refused(position: int, number: int, others: int) -> None:
    # Rows are at 8, the two ends of strings at 84 and 88.
    op = scans.kv_delete(b"a", b"bb")
    piece = scans.piece([op] * (1 + others))
    data = bytearray(piece.ops.data)
    data[position : position + 4] = number.to_bytes(4, "little")
    broken = replace(piece, ops=Strings(piece.ops.offsets, bytes(data)))
    with pytest.raises(FjordError, match="not ops"):
        read(broken, Opcode.KV_DELETE)
