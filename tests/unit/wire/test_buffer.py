"""The receive buffer: bytes in any pieces, messages at the front."""

from __future__ import annotations

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
