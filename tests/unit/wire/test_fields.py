"""Headers, flags, fields and errors, and the buffer that they are read from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.commands import Flag, Refusal
from fjord.errors import Code
from fjord.wire import Function, fields

# -- headers and flags ----------------------------------------------------------------------------

FUNCTIONS = """
NOP QUIT SET GET DELETE ADD NOT TRUNCATE LOCK UNLOCK RENAME NEXT DONE TOUCH PING LISTEN CHANGE
"""
FLAGS = """
KEY_16 VALUE_8 VALUE_16 TIMEOUT UPDATE_TIMEOUT OVERWRITE WORKED_ON QUERY_RANGE QUERY_REGEX PERSIST
DATA LISTEN PERSIST_SYNONYM COUNT TTL BODY
"""


@pytest.mark.req("FJ-34", "FJ-35")
def test_the_seeds_functions_have_the_seeds_numbers() -> None:
    assert [function.name for function in Function] == FUNCTIONS.split()
    assert list(Function) == list(range(17))


@pytest.mark.req("FJ-37")
def test_the_flags_have_the_seeds_bits() -> None:
    assert [getattr(Flag, name) for name in FLAGS.split()] == [1 << bit for bit in range(16)]
    assert fields.VALUE_BITS == 0b110


@pytest.mark.req("FJ-36")
def test_a_request_header_has_18_big_endian_bytes() -> None:
    assert (fields.MAGIC_REQUEST, fields.VERSION) == (b"FJ", 1)
    header = fields.REQUEST.pack(
        fields.MAGIC_REQUEST, fields.VERSION, 2, 0x0304, 0x0506, 0x0708090A0B0C0D0E
    )
    assert header == bytes.fromhex("464a 0001 0002 0304 0506 0708090a0b0c0d0e")


# -- fields ---------------------------------------------------------------------------------------


def fields_of(data: bytes, flags: int = 0) -> fields.Fields:
    buffer = fields.ReceiveBuffer()
    buffer.feed(data)
    return fields.Fields(buffer, 0, flags)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65535])
def test_keys_are_as_wide_as_they_must_be(size: int) -> None:
    key = b"k" * size
    flags, data = fields.encode_keys(Flag.DATA, key)
    assert flags == Flag.DATA | (Flag.KEY_16 if size > 255 else 0)
    assert fields_of(data, flags).key() == key


@pytest.mark.parametrize(
    ("size", "bits"), [(0, 2), (254, 2), (255, 4), (65534, 4), (65535, 6), (1 << 20, 6)]
)
def test_values_are_as_wide_as_they_must_be(size: int, bits: int) -> None:
    value = b"v" * size
    flags, data = fields.encode_value(2, value)
    assert flags == bits
    assert fields_of(data, flags).value("SET") == (b"\2", value)


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", Code)
def test_every_code_comes_back(code: Code) -> None:
    for text in ("", "why: because", "\u00e9"):
        refusal = Refusal(code=code, text=text)
        assert fields.decode_error(fields.encode_error(refusal)) == refusal


@pytest.mark.parametrize("text", [b"SOMETHING_NEW: text", b"no code at all", b"\xff\xfe", b""])
def test_an_unknown_code_is_a_failure_with_its_text(text: bytes) -> None:
    expected = Refusal(code=Code.FAILED, text=text.decode(errors="replace"))
    assert fields.decode_error(text) == expected


# -- the buffer -----------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [1, 2, 7])
@pytest.mark.parametrize("more", [b"", b"the next"])
def test_a_large_body_is_passed_on_without_a_copy_and_stays(pieces: int, more: bytes) -> None:
    body = bytes(range(256)) * 1024
    data = b"head" + body + more
    step = -(-len(data) // pieces)
    buffer = fields.ReceiveBuffer()
    for at in range(0, len(data), step):
        buffer.feed(data[at : at + step])
    found = buffer.body(4, len(body))
    assert isinstance(found, memoryview)
    assert found.readonly
    assert found.obj is buffer.data
    buffer.consume(4 + len(body))
    for _ in range(9):
        buffer.feed(b"x" * 100_000)
    assert buffer.take(0, len(more) + 1) == more + b"x"
    assert found == body


def test_the_beginning_of_a_message_is_taken_out_and_fed_again() -> None:
    buffer = fields.ReceiveBuffer()
    buffer.feed(b"..abc")
    buffer.consume(2)
    assert not buffer.has(10)
    begun = buffer.take_all()
    assert bytes(begun) == b"abc"
    assert (buffer.pending_bytes, buffer.missing) == (0, 0)
    buffer.feed(bytearray(begun) + b"defghij")
    assert buffer.pending_bytes >= buffer.needed
    assert buffer.take(0, 10) == b"abcdefghij"


@given(st.lists(st.tuples(st.binary(max_size=9), st.integers(0, 9))))
def test_a_buffer_is_a_queue_of_bytes(steps: list[tuple[bytes, int]]) -> None:
    buffer, model = fields.ReceiveBuffer(), b""
    for data, size in steps:
        buffer.feed(data)
        model += data
        used = min(size, len(model))
        buffer.consume(used)
        model = model[used:]
        assert buffer.pending_bytes == len(model)
        assert buffer.take(0, len(model)) == model
