"""Ops: every opcode round trips, and nothing else is an op."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import ops
from fjord.columns import Strings
from fjord.ops import Column, Op, Opcode


def sample(opcode: Opcode, rows: int = 2) -> Op:
    """An op of an opcode, in whose columns no two rows are alike."""
    kinds: dict[str, Column] = {
        ops.U8: bytes(row % 256 for row in range(rows)),
        ops.U64: array("Q", range(2**64 - rows, 2**64)),
        ops.ONCE: array("Q", [rows]),
        ops.STRINGS: Strings.of([b"%d" % row * row for row in range(rows)]),
    }
    return Op(opcode, 9, rows, tuple(kinds[kind] for _, kind in opcode.columns))


SAMPLES = [sample(opcode, rows) for opcode in Opcode for rows in (1, 2, 3)]
SAMPLES += [
    Op(Opcode.LOST, 0, 100_000, ()),
    Op(Opcode.STREAM_COMMIT, 9, 100_000, (array("Q", [1]),) * 6),
]


@st.composite
def any_op(draw: st.DrawFn) -> Op:
    opcode = draw(st.sampled_from(Opcode))
    rows = draw(st.integers(1, 5))
    strategies: dict[str, st.SearchStrategy[Column]] = {
        ops.U8: st.binary(min_size=rows, max_size=rows),
        ops.U64: st.lists(st.integers(0, 2**64 - 1), min_size=rows, max_size=rows),
        ops.ONCE: st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=1),
        ops.STRINGS: st.lists(st.binary(max_size=12), min_size=rows, max_size=rows).map(Strings.of),
    }
    found = tuple(draw(strategies[kind]) for _, kind in opcode.columns)
    return Op(opcode, draw(st.integers(0, 2**32 - 1)), rows, found)


def plain(op: Op) -> tuple[Opcode, int, int, list[list[int] | list[bytes]]]:
    """An op in types that compare by content."""
    return op.opcode, op.table, op.rows, [list(column) for column in op.columns]


def test_every_opcode_has_columns_and_none_is_0() -> None:
    assert 0 not in set(Opcode)
    for layout in (opcode.columns for opcode in Opcode):
        assert {kind for _, kind in layout} <= {ops.U8, ops.U64, ops.STRINGS, ops.ONCE}


def test_an_op_is_laid_out_as_its_docstring_says() -> None:
    op = Op(Opcode.TAKEOVER, 0x01020304, 1, ((5,), Strings.of([b"uuid"])))
    data, payload = ops.encode(op)
    assert data == (
        b"\x01\0\0\0"  # opcode, flags, reserved
        b"\x04\x03\x02\x01"  # table
        b"\x01\0\0\0"  # rows
        b"\x28\0\0\0"  # length
        b"\x05\0\0\0\0\0\0\0"  # seq
        b"\0\0\0\0\x04\0\0\0"  # offsets
        b"uuid\0\0\0\0"
    )
    assert payload == 32


@pytest.mark.parametrize("op", SAMPLES, ids=lambda op: f"{op.opcode.name}-{op.rows}")
def test_each_sample_round_trips_and_is_a_multiple_of_8(op: Op) -> None:
    data, payload = ops.encode(op)
    assert len(data) % 8 == 0
    for before, after in ((b"", b""), (b"\xee" * 8, b"\xdd" * 8)):
        view = memoryview(before + data + after)
        decoded, found_payload, end = ops.decode(view, len(before))
        assert plain(decoded) == plain(op)
        assert found_payload == len(before) + payload
        assert end == len(before) + len(data)


@given(any_op())
def test_decode_of_encode_is_the_same_op(op: Op) -> None:
    data, payload = ops.encode(op)
    decoded, found_payload, end = ops.decode(memoryview(data), 0)
    assert plain(decoded) == plain(op)
    assert (found_payload, end) == (payload, len(data))
    assert ops.encode(decoded) == (data, payload)


def test_a_column_is_found_by_its_name() -> None:
    op = sample(Opcode.KV_SET, 1)
    assert op.column("key") == Strings.of([b""])
    assert op.column("type") == b"\0"
    with pytest.raises(KeyError, match="colour"):
        op.column("colour")


def test_an_op_with_a_column_too_few_cannot_be_encoded() -> None:
    with pytest.raises(ValueError, match="KV_DELETE has 5 columns"):
        ops.encode(sample(Opcode.KV_DELETE)._replace(columns=()))


@pytest.mark.parametrize("op", SAMPLES, ids=lambda op: f"{op.opcode.name}-{op.rows}")
def test_an_op_that_is_cut_anywhere_is_refused(op: Op) -> None:
    data, _ = ops.encode(op)
    for size in range(len(data)):
        with pytest.raises(ValueError, match=r"op is cut short|header of an op is wrong"):
            ops.decode(memoryview(data)[:size], 0)


@pytest.mark.parametrize(
    ("offset", "byte", "reason"),
    [
        (0, 0, "0 is not a valid Opcode"),
        (0, 255, "255 is not a valid Opcode"),
        (1, 1, "header of an op is wrong"),  # flags
        (2, 1, "header of an op is wrong"),  # reserved
        (3, 1, "header of an op is wrong"),
        (8, 0, "header of an op is wrong"),  # no rows
        (8, 2, "cut short|ascend"),  # more rows than columns hold
        (11, 255, "cut short"),  # 4 billion rows
        (12, 8, "header of an op is wrong"),  # shorter than its own header
        (12, 255, "header of an op is wrong"),  # longer than the bytes
    ],
)
def test_a_header_that_is_wrong_is_refused(offset: int, byte: int, reason: str) -> None:
    data = bytearray(ops.encode(SAMPLES[0])[0])
    data[offset] = byte
    with pytest.raises(ValueError, match=reason):
        ops.decode(memoryview(bytes(data)), 0)


def test_an_op_longer_than_its_columns_is_refused() -> None:
    data, _ = ops.encode(SAMPLES[0])
    longer = bytearray(data + bytes(8))
    longer[12] += 8
    with pytest.raises(ValueError, match="longer than its columns"):
        ops.decode(memoryview(bytes(longer)), 0)


@given(st.binary(max_size=80))
def test_random_bytes_are_refused_with_a_value_error_or_are_an_op(data: bytes) -> None:
    try:
        op, _, end = ops.decode(memoryview(data), 0)
    except ValueError:
        return
    again, _ = ops.encode(op)
    assert len(again) == end
