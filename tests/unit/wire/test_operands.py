"""Operands: integers of any of four widths, floats of one."""

from __future__ import annotations

import struct

import pytest

from fjord.commands import Change, Refusal
from fjord.errors import Code
from fjord.wire import operands

INTEGER, FLOAT = 3, 4


@pytest.mark.req("FJ-35")
@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("change", [Change.ADD, Change.TRUNCATE])
def test_an_integer_of_any_width_is_made_8_bytes_wide(change: Change, size: int) -> None:
    for number in (0, 1, -1, 2 ** (8 * size - 1) - 1, -(2 ** (8 * size - 1))):
        data = number.to_bytes(size, "little", signed=True)
        assert operands.widen(change, INTEGER, data) == struct.pack("<q", number)


def test_a_float_stays_as_it_is() -> None:
    data = struct.pack("<d", 1.5)
    assert operands.widen(Change.ADD, FLOAT, data) == data


def test_not_has_no_operand() -> None:
    assert operands.widen(Change.NOT, INTEGER, b"") == b""
    found = operands.widen(Change.NOT, INTEGER, bytes(8))
    assert found == Refusal(code=Code.BAD_VALUE, text="NOT has no operand")


@pytest.mark.parametrize(
    ("change", "type_", "size", "code"),
    [
        (Change.ADD, INTEGER, 0, Code.BAD_VALUE),
        (Change.ADD, INTEGER, 3, Code.BAD_VALUE),
        (Change.ADD, INTEGER, 9, Code.BAD_VALUE),
        (Change.ADD, INTEGER, 16, Code.BAD_VALUE),
        (Change.ADD, FLOAT, 0, Code.BAD_VALUE),
        (Change.ADD, FLOAT, 4, Code.BAD_VALUE),
        (Change.ADD, 0, 0, Code.BAD_TYPE),
        (Change.ADD, 1, 8, Code.BAD_TYPE),
        (Change.ADD, 2, 8, Code.BAD_TYPE),
        (Change.ADD, 5, 1, Code.BAD_TYPE),
        (Change.ADD, 6, 8, Code.BAD_TYPE),
        (Change.ADD, 255, 8, Code.BAD_TYPE),
        (Change.TRUNCATE, FLOAT, 8, Code.BAD_TYPE),
        (Change.TRUNCATE, INTEGER, 7, Code.BAD_VALUE),
    ],
)
def test_anything_else_is_refused(change: Change, type_: int, size: int, code: Code) -> None:
    found = operands.widen(change, type_, bytes(size))
    assert isinstance(found, Refusal)
    assert found.code is code
