"""The ops of Kestrel: their numbers, and what makes them."""

from __future__ import annotations

import pytest

from fjord.kestrel import codec
from fjord.kestrel.codec import Item, Op, Opcode


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("ADD", 0),
        ("REMOVE", 1),
        ("ADDX", 2),
        ("REMOVE_TENTATIVE", 3),
        ("SAVE_XID", 4),
        ("UNREMOVE", 5),
        ("CONFIRM_REMOVE", 6),
        ("ADD_XID", 7),
        ("CONTINUE", 8),
        ("STATE_DUMP", 8),
        ("REMOVE_TENTATIVE_XID", 9),
    ],
)
def test_opcodes_have_the_numbers_of_kestrel(name: str, number: int) -> None:
    assert Opcode[name].number == number


def test_the_two_meanings_of_8_are_two_opcodes() -> None:
    assert [opcode.name for opcode in Opcode if opcode.number == 8] == ["CONTINUE", "STATE_DUMP"]
    assert len(Opcode) == 11


def test_an_item_that_brings_an_xid_along_has_it_too() -> None:
    assert codec.add_xid(7, b"A", add_ms=1) == Op(Opcode.ADD_XID, 7, Item(b"A", 1, 0, 7))
    assert codec.proceed(7, b"A", add_ms=1) == Op(Opcode.CONTINUE, 7, Item(b"A", 1, 0, 0))


def test_a_reserve_without_an_xid_is_the_old_one() -> None:
    assert codec.remove_tentative().opcode is Opcode.REMOVE_TENTATIVE
    assert codec.remove_tentative(-3) == Op(Opcode.REMOVE_TENTATIVE_XID, -3)


def test_an_item_knows_its_size() -> None:
    assert Item(memoryview(b"abc")).size == 3
