"""ADD, NOT, TRUNCATE and RENAME: a value changes where it is, and all else of it stays."""

from __future__ import annotations

import math
import struct
from dataclasses import replace

import pytest

from fjord import values
from fjord.columns import Strings
from fjord.commands import Change, Entries, Lock, Modify, Rename, Reply
from fjord.errors import Code
from fjord.ops import Opcode
from fjord.values import Value
from tests.unit.tables.world import LEASE_US, MISSING, NOW_US, World, code_of, decoded, entry_of

BOTH = pytest.mark.parametrize("persist", [True, False], ids=["stored", "in-memory"])
DAY_US = 86_400_000_000


@pytest.fixture
def world() -> World:
    return World()


def modify(
    world: World, change: Change, operand: Value = None, *, key: bytes = b"a", at: int = 0
) -> Reply:
    type_, data = values.encode(operand)
    command = Modify(
        table="t",
        key=key,
        change=change,
        operand=data,
        operand_type=type_,
        timestamp_us=NOW_US + at,
    )
    return world.run(command)


def result(reply: Reply) -> object:
    """Returns the new value, or the code of a refusal."""
    return code_of(reply) or decoded(reply)[0]


# -- ADD ------------------------------------------------------------------------------------------


@pytest.mark.req("FJ-35")
@BOTH
@pytest.mark.parametrize(
    ("value", "operand", "expected"),
    [
        (5, 2, 7),
        (5, -7, -2),
        (2**63 - 2, 1, 2**63 - 1),
        (-(2**63) + 1, -1, -(2**63)),
        (1.5, 2.25, 3.75),
        (1.5, 2, 3.5),
        (0.0, -(2**63), -(2.0**63)),
        (math.inf, 1, math.inf),  # it may be set, so it may also be added to
    ],
)
def test_add_adds(
    world: World, persist: bool, value: Value, operand: Value, expected: Value
) -> None:
    world.set({b"a": value}, persist=persist)
    assert result(modify(world, Change.ADD, operand)) == expected
    assert world.get(b"a") == [expected]
    assert type(world.get(b"a")[0]) is type(expected)
    world.check()


@pytest.mark.parametrize(
    ("value", "operand", "code"),
    [
        (2**63 - 1, 1, Code.OVERFLOW),
        (-(2**63), -1, Code.OVERFLOW),
        (2**62, 2**62, Code.OVERFLOW),
        (1.7e308, 1.7e308, Code.OVERFLOW),
        (1, 0.5, Code.TYPE_MISMATCH),
        ("text", 1, Code.TYPE_MISMATCH),
        (b"bytes678", 1, Code.TYPE_MISMATCH),
        (True, 1, Code.TYPE_MISMATCH),
        (None, 1, Code.TYPE_MISMATCH),
        (1.5, math.nan, Code.BAD_VALUE),
        (1.5, math.inf, Code.BAD_VALUE),
        (1.5, -math.inf, Code.BAD_VALUE),
        (1, True, Code.BAD_VALUE),
        (1, b"12345678", Code.BAD_TYPE),
        (1, None, Code.BAD_VALUE),
    ],
)
def test_what_cannot_be_added_is_refused_and_changes_nothing(
    world: World, value: Value, operand: Value, code: Code
) -> None:
    world.set({b"a": value})
    before = world.journal
    assert result(modify(world, Change.ADD, operand)) is code
    assert world.journal == before


@BOTH
def test_all_else_of_a_value_stays(world: World, persist: bool) -> None:
    world.set({b"a": 1}, at=0, persist=persist)
    world.set({b"a": 2}, at=5, expires=100, ttl=50, persist=persist)
    world.touch(b"a", expires=700, worked=9)
    entry = entry_of(modify(world, Change.ADD, 1, at=8))
    assert entry == world.entry(b"a")
    assert entry.timestamp_us == NOW_US + 8
    assert (entry.created_us, entry.expires_at_us, entry.ttl_us) == (NOW_US, NOW_US + 700, 50)
    assert (entry.state, entry.accessed_us) == (0, 0)  # a new row: nobody works on it (FJ-32)


# -- NOT ------------------------------------------------------------------------------------------


@pytest.mark.req("FJ-35")
@BOTH
def test_not_flips_a_boolean(world: World, persist: bool) -> None:
    world.set({b"a": True}, persist=persist)
    assert result(modify(world, Change.NOT)) is False
    assert result(modify(world, Change.NOT)) is True
    assert world.get(b"a") == [True]


@pytest.mark.parametrize("value", [1, 0.5, "text", b"\1", None])
def test_only_a_boolean_is_flipped(world: World, value: Value) -> None:
    world.set({b"a": value})
    assert result(modify(world, Change.NOT)) is Code.TYPE_MISMATCH


# -- TRUNCATE -------------------------------------------------------------------------------------


@pytest.mark.req("FJ-35")
@BOTH
@pytest.mark.parametrize(
    ("value", "size", "expected"),
    [
        (b"abcdef", 3, b"abc"),
        (b"abcdef", 6, b"abcdef"),
        (b"abcdef", 0, b""),
        (b"\xc3\xa9", 1, b"\xc3"),
        ("abcdef", 3, "abc"),
        ("a\u00e9b", 1, "a"),
        ("a\u00e9b", 3, "a\u00e9"),
        ("\u00e9", 0, ""),
        ("", 0, ""),
    ],
)
def test_truncate_keeps_the_first_bytes(
    world: World, persist: bool, value: Value, size: int, expected: Value
) -> None:
    world.set({b"a": value}, persist=persist)
    assert result(modify(world, Change.TRUNCATE, size)) == expected
    assert world.get(b"a") == [expected]
    world.check()


@pytest.mark.parametrize(
    ("value", "size", "code"),
    [
        (b"abc", 4, Code.BAD_SIZE),
        (b"abc", -1, Code.BAD_SIZE),
        (b"abc", 2**62, Code.BAD_SIZE),
        ("\u00e9", 1, Code.BAD_VALUE),
        ("\U0001f600", 3, Code.BAD_VALUE),
        (5, 1, Code.TYPE_MISMATCH),
        (True, 0, Code.TYPE_MISMATCH),
        (None, 0, Code.TYPE_MISMATCH),
        (b"abc", 1.0, Code.BAD_TYPE),
    ],
)
def test_what_cannot_be_cut_is_refused(world: World, value: Value, size: Value, code: Code) -> None:
    world.set({b"a": value})
    assert result(modify(world, Change.TRUNCATE, size)) is code
    assert world.get(b"a") == [value]


# -- all of them ----------------------------------------------------------------------------------


@pytest.mark.req("FJ-42")
@BOTH
def test_a_set_that_is_sent_again_does_not_undo_a_change(world: World, persist: bool) -> None:
    """Its first answer was lost; a client whose clock is behind has added in between."""
    world.set({b"a": 1}, at=10, persist=persist)
    modify(world, Change.ADD, 1, at=-500)
    modify(world, Change.ADD, 1, at=-400)
    assert code_of(world.set({b"a": 1}, at=10, persist=persist)) is None
    assert world.get(b"a") == [3]
    assert world.entry(b"a").timestamp_us == NOW_US + 12
    world.check()
    world.set({b"a": 9}, at=12, persist=persist)
    assert world.get(b"a") == [9]


@pytest.mark.parametrize("change", list(Change))
def test_a_missing_key_cannot_be_changed(world: World, change: Change) -> None:
    assert result(modify(world, change, 1)) is Code.NOT_FOUND
    assert world.tables == {}
    world.set({b"a": 1}, expires=10)
    world.now_us += 10
    assert result(modify(world, change, 1)) is Code.NOT_FOUND
    world.delete(b"a", at=20)
    assert result(modify(world, change, 1)) is Code.NOT_FOUND


def test_a_key_that_another_client_has_locked_cannot_be_changed(world: World) -> None:
    world.set({b"a": 1})
    world.run(Lock(table="t", keys=Strings.of([b"a"])), client=2)
    assert result(modify(world, Change.ADD, 1)) is Code.LOCKED


@pytest.mark.parametrize("stamp", [0, NOW_US + DAY_US, 2**64 - 1])
def test_a_timestamp_that_is_wrong_is_refused(world: World, stamp: int) -> None:
    good = Modify(table="t", key=b"a", change=Change.NOT, timestamp_us=stamp)
    assert code_of(world.run(good)) is Code.BAD_TIMESTAMP
    rename_ = Rename(table="t", key=b"a", to=b"b", timestamp_us=stamp)
    assert code_of(world.run(rename_)) is Code.BAD_TIMESTAMP


def test_keys_have_their_bounds(world: World) -> None:
    good = Modify(table="t", key=b"a", change=Change.NOT, timestamp_us=NOW_US)
    assert code_of(world.run(replace(good, key=b""))) is Code.EMPTY_KEY
    assert code_of(world.run(replace(good, key=b"k" * 481))) is Code.KEY_TOO_LONG
    rename_ = Rename(table="t", key=b"a", to=b"b", timestamp_us=NOW_US)
    assert code_of(world.run(replace(rename_, key=b""))) is Code.EMPTY_KEY
    assert code_of(world.run(replace(rename_, to=b""))) is Code.EMPTY_KEY
    assert code_of(world.run(replace(rename_, to=b"k" * 481))) is Code.KEY_TOO_LONG


@pytest.mark.parametrize("size", [0, 1, 7, 9])
def test_an_operand_has_8_bytes(world: World, size: int) -> None:
    world.set({b"a": 1})
    command = Modify(
        table="t", key=b"a", change=Change.ADD, operand=bytes(size), timestamp_us=NOW_US
    )
    assert code_of(world.run(command)) is Code.BAD_VALUE


@pytest.mark.parametrize("type_", [0, 1, 2, 5, 6, 255])
def test_an_operand_is_a_number(world: World, type_: int) -> None:
    world.set({b"a": 1})
    command = Modify(
        table="t",
        key=b"a",
        change=Change.ADD,
        operand=struct.pack("<q", 1),
        operand_type=type_,
        timestamp_us=NOW_US,
    )
    assert code_of(world.run(command)) is Code.BAD_TYPE


# -- RENAME ---------------------------------------------------------------------------------------


def rename(
    world: World, key: bytes = b"a", to: bytes = b"b", *, at: int = 1, overwrite: bool = False
) -> Reply:
    stamp = NOW_US + at
    return world.run(Rename(table="t", key=key, to=to, timestamp_us=stamp, overwrite=overwrite))


@pytest.mark.req("FJ-35")
@BOTH
def test_a_renamed_value_keeps_all_but_its_key(world: World, persist: bool) -> None:
    world.set({b"a": "one"}, at=0, persist=persist)
    world.set({b"a": "two"}, at=1, expires=100, ttl=50, persist=persist)
    world.touch(b"a", expires=300)
    assert code_of(rename(world, at=5)) is None
    assert world.get(b"a", b"b") == [MISSING, "two"]
    entry = world.entry(b"b")
    assert (entry.timestamp_us, entry.created_us) == (NOW_US + 5, NOW_US)
    assert (entry.expires_at_us, entry.ttl_us) == (NOW_US + 300, 50)
    world.check()
    assert world.replayed().trees() == world.trees()


@pytest.mark.req("FJ-42")
@BOTH
def test_a_set_of_the_new_key_that_is_sent_again_does_not_undo_a_rename(
    world: World, persist: bool
) -> None:
    world.set({b"a": "a"}, at=2, persist=persist)
    world.set({b"b": "b"}, at=10, persist=persist)
    assert code_of(rename(world, at=-500, overwrite=True)) is None
    world.set({b"b": "b"}, at=10, persist=persist)
    assert world.get(b"a", b"b") == [MISSING, "a"]
    assert world.entry(b"b").timestamp_us == NOW_US + 11
    world.check()


@pytest.mark.req("FJ-42")
def test_a_set_of_the_old_key_that_is_sent_again_does_not_undo_a_rename(world: World) -> None:
    world.set({b"a": 1}, at=10)
    assert code_of(rename(world, at=-500)) is None
    world.set({b"a": 1}, at=10)
    assert world.get(b"a", b"b") == [MISSING, 1]
    op = world.ops()[-1]
    assert op.opcode is Opcode.KV_DELETE
    assert list(op.column("timestamp_us")) == [NOW_US + 11]
    assert list(op.column("buried_us")) == [LEASE_US]


def test_both_keys_must_be_free_of_locks_of_others(world: World) -> None:
    world.set({b"a": 1})
    for key in (b"a", b"b"):
        world.locks = {b"\0\0\0\1" + key: 2}
        assert code_of(rename(world)) is Code.LOCKED
    world.locks = {b"\0\0\0\1a": 1, b"\0\0\0\1b": 1}
    assert code_of(rename(world)) is None


def test_an_answer_says_that_the_value_is_locked(world: World) -> None:
    world.set({b"a": True})
    world.run(Lock(table="t", keys=Strings.of([b"a"])))
    assert entry_of(modify(world, Change.NOT)).state == Entries.LOCKED


def test_a_missing_key_cannot_be_renamed(world: World) -> None:
    assert code_of(rename(world)) is Code.NOT_FOUND
    assert code_of(rename(world, to=b"a")) is Code.NOT_FOUND
    assert world.tables == {}
    world.set({b"a": 1}, expires=10)
    world.now_us += 10
    assert code_of(rename(world)) is Code.NOT_FOUND


@BOTH
def test_a_key_renamed_to_itself_changes_nothing(world: World, persist: bool) -> None:
    world.set({b"a": 1}, persist=persist)
    before = world.journal, dict(world.volatile)
    assert code_of(rename(world, to=b"a")) is None
    assert (world.journal, world.volatile) == before


@BOTH
@pytest.mark.parametrize("there", [True, False], ids=["onto-stored", "onto-memory"])
def test_a_key_that_is_there_is_replaced_only_when_asked(
    world: World, persist: bool, there: bool
) -> None:
    world.set({b"a": "new"}, persist=persist)
    world.set({b"b": "old"}, persist=there, expires=10)
    before = world.journal
    assert code_of(rename(world)) is Code.EXISTS
    assert world.journal == before
    assert code_of(rename(world, overwrite=True)) is None
    assert world.get(b"a", b"b") == [MISSING, "new"]
    world.check()
    expected = "new" if persist else MISSING
    assert world.replayed().get(b"a", b"b") == [MISSING, expected]
