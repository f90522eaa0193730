"""Fields: read as far as bytes are there, with sizes judged before they are waited for."""

from __future__ import annotations

import struct

import pytest

from fjord import limits
from fjord.errors import Code, RemoteProtocolError
from fjord.wire.buffer import ReceiveBuffer
from fjord.wire.fields import Fields, IncompleteError, encode_keys, encode_value
from fjord.wire.functions import VALUE_BITS, Flag


def fields_of(data: bytes, flags: int = 0) -> Fields:
    buffer = ReceiveBuffer()
    buffer.feed(data)
    return Fields(buffer, 0, flags)


def test_fields_follow_each_other() -> None:
    fields = fields_of(b"\0\5" + bytes(7) + b"\x09" + b"\1k" + b"xx")
    assert (fields.u16(), fields.u64(), fields.key()) == (5, 9, b"k")
    fields.skip(2)
    assert fields.offset == 14
    with pytest.raises(IncompleteError):
        fields.skip(1)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65535])
def test_keys_are_as_wide_as_they_must_be(size: int) -> None:
    key = b"k" * size
    flags, data = encode_keys(Flag.DATA, key)
    assert flags == Flag.DATA | (Flag.KEY_16 if size > 255 else 0)
    assert fields_of(data, flags).key() == key


def test_one_wide_key_makes_all_of_them_wide() -> None:
    flags, data = encode_keys(0, b"k", b"l" * 256)
    fields = fields_of(data, flags)
    assert (flags, fields.key(), fields.key()) == (Flag.KEY_16, b"k", b"l" * 256)


@pytest.mark.parametrize(
    ("size", "bits"), [(0, 2), (254, 2), (255, 4), (65534, 4), (65535, 6), (1 << 20, 6)]
)
def test_values_are_as_wide_as_they_must_be(size: int, bits: int) -> None:
    value = b"v" * size
    flags, data = encode_value(2, value)
    assert flags == bits
    assert fields_of(data, flags).value("SET") == (b"\2", value)


def test_a_missing_byte_says_how_many_are_needed() -> None:
    for data, flags, needed in (
        (b"\0", 0, 2),
        (b"\0\0", Flag.KEY_16, 2),
    ):
        fields = fields_of(data[:1], flags)
        with pytest.raises(IncompleteError):
            fields.u16()
        assert not fields.buffer.is_worth_a_look()
        fields.buffer.feed(bytes(needed - 1))
        assert fields.buffer.is_worth_a_look()


@pytest.mark.parametrize(
    ("flags", "size", "code"),
    [
        (VALUE_BITS, struct.pack(">I", limits.VALUE_BYTES_MAX + 2), Code.VALUE_TOO_LARGE),
        (VALUE_BITS, bytes(4), Code.BAD_VALUE_SIZE),
        (Flag.VALUE_8, b"\0", Code.BAD_VALUE_SIZE),
        (0, b"", Code.BAD_VALUE_SIZE),
    ],
)
def test_a_size_that_cannot_be_is_refused_without_its_value(
    flags: int, size: bytes, code: Code
) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        fields_of(size, flags).value("SET")
    assert caught.value.code is code
