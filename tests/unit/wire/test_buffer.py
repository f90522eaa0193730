"""The receive buffer: bytes in any pieces, messages at the front."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.wire.buffer import ReceiveBuffer


def test_bytes_are_taken_without_being_used_up() -> None:
    buffer = ReceiveBuffer()
    buffer.feed(b"abc")
    buffer.feed(b"def")
    assert buffer.take(0, 6) == b"abcdef"
    assert buffer.take(2, 2) == b"cd"
    assert len(buffer) == 6


def test_what_was_taken_stays_when_more_bytes_come() -> None:
    buffer = ReceiveBuffer()
    for data in (b"abc", b"def"):
        buffer.feed(data)
    taken = buffer.take(1, 4)
    buffer.consume(4)
    buffer.feed(b"g" * 1000)
    assert taken == b"bcde"
    assert isinstance(taken, bytes)


@pytest.mark.parametrize("pieces", [1, 2, 7])
@pytest.mark.parametrize("more", [b"", b"the next"])
def test_a_large_body_is_passed_on_without_a_copy_and_stays(pieces: int, more: bytes) -> None:
    body = bytes(range(256)) * 1024
    data = b"head" + body + more
    step = -(-len(data) // pieces)
    buffer = ReceiveBuffer()
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


def test_a_small_body_is_a_copy() -> None:
    buffer = ReceiveBuffer()
    buffer.feed(b"head")
    buffer.feed(b"body")
    assert buffer.body(4, 4) == b"body"
    assert isinstance(buffer.body(4, 4), bytes)


def test_consumed_bytes_are_gone() -> None:
    buffer = ReceiveBuffer()
    buffer.feed(b"abcdef")
    buffer.consume(2)
    assert len(buffer) == 4
    assert buffer.take(0, 2) == b"cd"
    buffer.feed(b"gh")
    assert buffer.take(0, 6) == b"cdefgh"


def test_consumed_bytes_are_given_back_to_memory() -> None:
    buffer = ReceiveBuffer()
    for _ in range(100):
        buffer.feed(b"x" * 1000)
        buffer.consume(1000)
    assert len(buffer.data) <= 1000


def test_an_empty_buffer_is_not_worth_a_look() -> None:
    buffer = ReceiveBuffer()
    assert not buffer.is_worth_a_look()
    buffer.feed(b"a")
    assert buffer.is_worth_a_look()
    buffer.consume(1)
    assert not buffer.is_worth_a_look()


def test_nothing_is_tried_before_the_missing_bytes_are_there() -> None:
    buffer = ReceiveBuffer()
    buffer.feed(b"abc")
    assert buffer.has(3)
    assert not buffer.has(5)
    assert not buffer.is_worth_a_look()
    buffer.feed(b"d")
    assert not buffer.is_worth_a_look()
    buffer.feed(b"e")
    assert buffer.is_worth_a_look()
    assert buffer.has(5)


def test_a_message_that_has_begun_says_what_it_lacks() -> None:
    buffer = ReceiveBuffer()
    assert buffer.missing == 0
    buffer.feed(b"..abc")
    buffer.consume(2)
    assert buffer.missing == 0
    assert not buffer.has(10)
    assert buffer.missing == 7


def test_the_beginning_of_a_message_is_taken_out_and_fed_again() -> None:
    buffer = ReceiveBuffer()
    buffer.feed(b"..abc")
    buffer.consume(2)
    assert not buffer.has(10)
    begun = buffer.take_all()
    assert bytes(begun) == b"abc"
    assert (len(buffer), buffer.missing) == (0, 0)
    buffer.feed(bytearray(begun) + b"defghij")
    assert buffer.is_worth_a_look()
    assert buffer.take(0, 10) == b"abcdefghij"


def test_the_next_message_is_looked_at_again() -> None:
    buffer = ReceiveBuffer()
    buffer.feed(b"abc")
    assert not buffer.has(5)
    buffer.feed(b"def")
    buffer.consume(5)
    assert buffer.is_worth_a_look()


@given(st.lists(st.tuples(st.binary(max_size=9), st.integers(0, 9))))
def test_a_buffer_is_a_queue_of_bytes(steps: list[tuple[bytes, int]]) -> None:
    buffer, model = ReceiveBuffer(), b""
    for data, size in steps:
        buffer.feed(data)
        model += data
        used = min(size, len(model))
        buffer.consume(used)
        model = model[used:]
        assert len(buffer) == len(model)
        assert buffer.take(0, len(model)) == model
