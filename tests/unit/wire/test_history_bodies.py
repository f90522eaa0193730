"""Bodies of SPAN and REPLACE_BLOCKS, byte by byte."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import columns
from fjord.columns import Strings
from fjord.commands import Command, Refusal, ReplaceBlocks, Span
from fjord.errors import Code
from fjord.wire import Function, bodies
from fjord.wire.body import encode_head
from tests.unit.wire.history_samples import replacing
from tests.unit.wire.streams import MASTER

numbers = st.integers(0, 2**64 - 1)
names = st.text("abc-_019", min_size=1, max_size=20)


def there_and_back(command: Command) -> Command | Refusal:
    return bodies.decode_body(*bodies.encode_body(command))


@given(
    st.builds(
        Span,
        table=names,
        after=numbers,
        until=numbers,
        rows_max=numbers,
        bytes_max=numbers,
        before_us=numbers,
        epoch=st.one_of(st.just(b""), st.binary(min_size=16, max_size=16).filter(any)),
    )
    | st.builds(
        ReplaceBlocks,
        table=names,
        names=st.lists(names, max_size=5),
        name=names,
        rows=numbers,
        size=numbers,
        min_us=numbers,
        max_us=numbers,
        crc=numbers,
    )
)
def test_decode_of_encode_is_the_same_command(command: Command) -> None:
    assert there_and_back(command) == command


def test_a_span_is_fields_behind_the_head() -> None:
    command = Span(table="t", after=5, until=9, rows_max=2, bytes_max=3, before_us=4, epoch=MASTER)
    body = encode_head("t", 0, 5) + struct.pack(">QQQQ", 9, 2, 3, 4) + MASTER
    assert bodies.encode_body(command) == (Function.SPAN, 0, 0, body)


def test_no_epoch_is_zeros() -> None:
    _, _, _, body = bodies.encode_body(Span(table="t", after=0))
    assert body.endswith(bytes(16))
    with pytest.raises(ValueError, match="16 bytes"):
        bodies.encode_body(Span(table="t", after=0, epoch=b"short"))


def test_the_new_block_is_named_before_the_old_ones() -> None:
    column = bytes(Strings.of([b"t-7/a-c", b"old", b"older"]).encode())
    body = encode_head("t", 3) + struct.pack(">QQQQQ", 7, 900, 5, 6, 77) + column
    command = replacing("old", "older", max_us=6)
    assert bodies.encode_body(command) == (Function.REPLACE_BLOCKS, 0, 0, body)


@pytest.mark.parametrize(
    ("function", "body"),
    [
        (Function.SPAN, encode_head("t", 1) + bytes(48)),
        (Function.SPAN, encode_head("t", 0) + bytes(40)),
        (Function.SPAN, encode_head("t", 0) + bytes(56)),
        (Function.REPLACE_BLOCKS, encode_head("t", 0) + bytes(40) + bytes(8)),
        (Function.REPLACE_BLOCKS, encode_head("t", 1) + bytes(40)),
        (
            Function.REPLACE_BLOCKS,
            encode_head("t", 1) + bytes(40) + bytes(Strings.of([b"\xff\xfe"]).encode()),
        ),
    ],
)
def test_what_is_no_body_is_refused(function: Function, body: bytes) -> None:
    found: Any = bodies.decode_body(function, 0, 0, body)
    assert isinstance(found, Refusal)
    assert found.code is Code.BAD_BATCH
    assert columns.aligned(len(body)) == len(body)
