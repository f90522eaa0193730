"""Values: Python objects to typed bytes and back, and what is refused from outside."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import values
from fjord.errors import Code, LocalProtocolError
from fjord.values import Type, Value

INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1


# One sample of each type: the value, its type byte, its bytes (decision 9: little-endian).
SAMPLES: list[tuple[Value, int, bytes]] = [
    (None, 0, b""),
    (b"\x00\xff", 1, b"\x00\xff"),
    ("\u00e9", 2, b"\xc3\xa9"),
    (1, 3, b"\x01\0\0\0\0\0\0\0"),
    (-2, 3, b"\xfe\xff\xff\xff\xff\xff\xff\xff"),
    (INTEGER_MIN, 3, b"\0\0\0\0\0\0\0\x80"),
    (INTEGER_MAX, 3, b"\xff\xff\xff\xff\xff\xff\xff\x7f"),
    (1.5, 4, b"\0\0\0\0\0\0\xf8\x3f"),
    (False, 5, b"\0"),
    (True, 5, b"\1"),
]


@pytest.mark.req("FJ-41")
@pytest.mark.parametrize(("value", "type_", "data"), SAMPLES)
def test_each_type_has_its_number_and_its_bytes(value: Value, type_: int, data: bytes) -> None:
    assert values.encode(value) == (type_, data)
    assert values.decode(type_, data) == value
    assert type(values.decode(type_, data)) is type(value)


@pytest.mark.req("FJ-41")
def test_the_types_are_numbered_as_the_seed_numbers_them() -> None:
    assert {type_.name: type_.value for type_ in Type} == {
        "VOID": 0,
        "BUFFER": 1,
        "STRING": 2,
        "INTEGER": 3,
        "FLOAT": 4,
        "BOOLEAN": 5,
    }


def test_a_float_keeps_its_bits() -> None:
    for number in (math.nan, math.inf, -math.inf, -0.0):
        type_, data = values.encode(number)
        found = values.decode(type_, data)
        assert isinstance(found, float)
        assert struct.pack("<d", found) == struct.pack("<d", number)


def test_all_kinds_of_bytes_are_buffers() -> None:
    kinds: list[Any] = [bytearray(b"ab"), memoryview(b"ab")]
    for value in kinds:
        assert values.encode(value) == (Type.BUFFER, b"ab")


@pytest.mark.parametrize("value", [(), [], {}, object(), 1j, {1}])
def test_a_python_type_without_a_counterpart_is_refused(value: Any) -> None:
    with pytest.raises(LocalProtocolError, match="None, bytes, str, int, float or bool") as caught:
        values.encode(value)
    assert caught.value.code is Code.BAD_TYPE


@pytest.mark.parametrize("value", [INTEGER_MIN - 1, INTEGER_MAX + 1, 10**100])
def test_an_integer_beyond_64_bits_is_refused(value: int) -> None:
    with pytest.raises(LocalProtocolError, match="at most 64 bits") as caught:
        values.encode(value)
    assert caught.value.code is Code.BAD_VALUE


def test_a_string_that_utf8_cannot_hold_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="not UTF-8") as caught:
        values.encode("\ud800")
    assert caught.value.code is Code.BAD_VALUE


def test_a_type_above_5_does_not_exist() -> None:
    for type_ in range(7, 256):
        problem = values.problem(type_, b"")
        assert problem is not None
        assert problem[0] is Code.BAD_TYPE
        assert str(type_) in problem[1]


@pytest.mark.parametrize(
    ("type_", "data", "code"),
    [
        (Type.VOID, b"x", Code.BAD_TYPE),
        (Type.STRING, b"\xff", Code.BAD_VALUE),
        (Type.STRING, b"\xed\xa0\x80", Code.BAD_VALUE),  # a surrogate
        (Type.INTEGER, b"", Code.BAD_VALUE),
        (Type.INTEGER, b"1234567", Code.BAD_VALUE),
        (Type.INTEGER, b"123456789", Code.BAD_VALUE),
        (Type.FLOAT, b"1234", Code.BAD_VALUE),
        (Type.BOOLEAN, b"", Code.BAD_VALUE),
        (Type.BOOLEAN, b"\2", Code.BAD_VALUE),
        (Type.BOOLEAN, b"\0\0", Code.BAD_VALUE),
    ],
)
def test_bytes_that_do_not_fit_their_type_are_found(type_: int, data: bytes, code: Code) -> None:
    problem = values.problem(type_, data)
    assert problem is not None
    assert problem[0] is code


@given(st.integers(0, 255), st.binary(max_size=12))
def test_bytes_without_a_problem_always_decode(type_: int, data: bytes) -> None:
    if values.problem(type_, data) is None:
        decoded_type, again = values.encode(values.decode(type_, data))
        assert decoded_type == type_
        if type_ != Type.FLOAT:  # a signalling NaN may become a quiet one
            assert again == data
