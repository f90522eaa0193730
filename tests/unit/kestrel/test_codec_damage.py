"""Bytes that are no journal: never a crash, never a large allocation, always a place."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import limits
from fjord.kestrel import codec
from tests.unit.kestrel.vectors import ADD_MS, VECTORS, decode, encoded


@given(st.binary(max_size=200), st.integers(1, 50))
def test_garbage_is_ops_up_to_some_byte(garbage: bytes, step: int) -> None:
    found, broken = decode(garbage)
    assert decode(garbage, step=step) == (found, broken)
    end = broken.offset if broken else len(garbage)
    assert sum(length for _, _, length in found) == end
    assert [offset for _, offset, _ in found] == [
        sum(length for _, _, length in found[:count]) for count in range(len(found))
    ]


@given(st.lists(st.sampled_from(sorted(VECTORS)), max_size=6), st.data())
def test_a_flipped_byte_leaves_all_before_it_as_it_was(
    chosen: list[str], data: st.DataObject
) -> None:
    whole = b"\x01" + b"".join(bytes.fromhex(VECTORS[name][2]) for name in chosen)
    at = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytearray(whole)
    flipped[at] ^= data.draw(st.integers(1, 255))
    # Up to the last op before it: whether an 8 is a STATE_DUMP is said by the byte that follows.
    before = [placed for placed in decode(whole)[0] if sum(placed[1:]) <= at][:-1]
    found, broken = decode(bytes(flipped))
    assert found[: len(before)] == before
    assert broken is None or broken.offset >= sum(placed[2] for placed in before)


@given(st.lists(st.sampled_from(sorted(VECTORS)), max_size=6), st.data())
def test_a_cut_at_any_byte_is_torn_or_whole(chosen: list[str], data: st.DataObject) -> None:
    whole = b"".join(bytes.fromhex(VECTORS[name][2]) for name in chosen if name != "STATE_DUMP")
    size = data.draw(st.integers(0, len(whole)))
    all_ops = decode(whole)[0]
    found, broken = decode(whole[:size])
    assert found == [placed for placed in all_ops if sum(placed[1:]) <= size]
    end = sum(placed[2] for placed in found)
    assert (broken is None) == (end == size)
    assert broken is None or (broken.is_torn and broken.offset == end)


@pytest.mark.parametrize("number", [10, 11, 0x42, 0xFF])
def test_a_byte_that_is_no_opcode_is_damage(number: int) -> None:
    found, broken = decode(b"\x01\x01" + bytes([number]) + b"\x01\x01")
    assert len(found) == 2
    assert broken == codec.Broken(2, f"{number} is no opcode", is_torn=False)


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 3])
def test_an_add_that_is_smaller_than_its_fields_is_damage(size: int) -> None:
    broken = decode(b"\x00" + size.to_bytes(4, "little", signed=True) + bytes(100))[1]
    assert broken is not None
    assert (broken.offset, broken.is_torn) == (0, False)
    assert str(size) in broken.reason


@pytest.mark.parametrize("head", ["02", "0701000000", "0801000000"])
@pytest.mark.parametrize("size", [-(2**31), -16, 15])
def test_an_item_that_is_smaller_than_its_fields_is_damage(head: str, size: int) -> None:
    data = bytes.fromhex(head) + size.to_bytes(4, "little", signed=True) + bytes(100)
    broken = decode(data)[1]
    assert broken is not None
    assert (broken.offset, broken.is_torn) == (0, False)


def test_the_largest_item_is_read_and_a_larger_one_is_damage() -> None:
    data = encoded(codec.addx(bytes(1000), add_ms=ADD_MS))
    assert decode(data, item_bytes_max=1000)[1] is None
    assert decode(data, item_bytes_max=1000, step=100)[1] is None
    for step in (0, 1):
        found, broken = decode(data, item_bytes_max=999, step=step)
        assert found == []
        assert broken == codec.Broken(0, "the size 1016 is more than an item may have", False)


def test_a_size_without_bytes_allocates_nothing() -> None:
    size = 60 * limits.MIB
    one = codec.Decoder()
    one.feed(b"\x02" + size.to_bytes(4, "little"))
    tracemalloc.start()
    try:
        assert list(one.ops()) == []
        assert one.wanted_end == size + 5
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_an_item_that_comes_in_many_pieces_is_put_together_once() -> None:
    size = 4 * limits.MIB
    data = encoded(codec.addx(bytes(size), add_ms=ADD_MS))
    one = codec.Decoder()
    tracemalloc.start()
    try:
        for at in range(0, len(data), 4096):
            one.feed(memoryview(data)[at : at + 4096])
            found = list(one.ops())
            assert bool(found) == (at + 4096 >= len(data))
        assert tracemalloc.get_traced_memory()[1] < 2 * size
    finally:
        tracemalloc.stop()


def test_nothing_is_read_behind_damage() -> None:
    one = codec.Decoder()
    one.feed(b"\x63")
    assert list(one.ops()) == []
    broken = one.broken
    one.feed(b"\x01\x01")
    one.end()
    assert list(one.ops()) == []
    assert one.broken == broken


@pytest.mark.parametrize(
    "op",
    [
        codec.addx(b"item", add_ms=ADD_MS),
        codec.add_xid(3, b"item", add_ms=ADD_MS),
        codec.proceed(3, b"item", add_ms=ADD_MS),
    ],
)
def test_an_item_is_found_between_other_bytes(op: codec.Op) -> None:
    noise = random.Random(8).randbytes(300)
    item = encoded(op)
    assert codec.find_item(noise) is None
    assert codec.find_item(noise + item + noise) == 300
    assert codec.find_item(noise + item + noise, 301) is None
    assert codec.find_item(noise + item) == 300
    assert codec.find_item(noise + item[:-1]) is None
