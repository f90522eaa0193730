"""Bodies of COMMIT, WRITER and ADVANCE, byte by byte."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.columns import Strings
from fjord.commands import Advance, AskWriter, Command, CommitStages, Refusal
from fjord.errors import Code
from fjord.wire import Function, bodies
from fjord.wire.body import encode_head

numbers = st.integers(0, 2**64 - 2)
names = st.text("abc-_019\u00fc", min_size=1, max_size=20)
W = bytes(Strings.of([b"w"]).encode())


def there_and_back(command: Command) -> Command | Refusal:
    return bodies.decode_body(*bodies.encode_body(command))


@given(
    st.builds(
        CommitStages, table=st.just("t"), writer=names, batch=numbers, stages=st.lists(numbers)
    )
    | st.builds(AskWriter, table=st.sampled_from(["", "t", "longer_name"]), writer=names)
    | st.builds(Advance, writer=names, expected=st.just(-1) | numbers, batch=numbers)
)
def test_decode_of_encode_is_the_same_command(command: Command) -> None:
    assert there_and_back(command) == command


@pytest.mark.parametrize(("expected", "sent"), [(-1, 2**64 - 1), (0, 0), (5, 5)])
def test_an_advance_is_a_number_in_the_head_a_field_and_a_name(expected: int, sent: int) -> None:
    body = encode_head("", 1, 9) + struct.pack(">Q", sent) + W
    command = Advance(writer="w", expected=expected, batch=9)
    assert bodies.encode_body(command) == (Function.ADVANCE, 0, 0, body)
    assert bodies.decode_body(Function.ADVANCE, 0, 0, body) == command


@pytest.mark.parametrize(
    "body",
    [
        encode_head("t", 1, 9) + bytes(8) + W,
        encode_head("", 2, 9) + bytes(8) + W,
        encode_head("", 0, 9) + bytes(8),
        encode_head("", 1, 9) + bytes(8),
        encode_head("", 1, 9) + bytes(7),
        encode_head("", 1, 9) + bytes(8) + W + bytes(8),
        encode_head("", 1, 9) + bytes(8) + bytes(Strings.of([b"\xff"]).encode()),
    ],
    ids=["table", "two rows", "no rows", "no name", "short", "long", "not UTF-8"],
)
def test_a_body_that_is_none_is_refused(body: bytes) -> None:
    found = bodies.decode_body(Function.ADVANCE, 0, 0, body)
    assert isinstance(found, Refusal)
    assert found.code is Code.BAD_BATCH
