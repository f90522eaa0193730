"""Bodies of functions 32 to 47, byte by byte."""

from __future__ import annotations

import struct

import pytest

from fjord import limits
from fjord.columns import Strings
from fjord.commands import Change, Get, Modify, Range, Refusal, Touch
from fjord.errors import Code
from fjord.wire import Flag, Function, bodies
from tests.unit.wire.samples import modify, rename
from tests.unit.wire.streams import NOW_US, delete_many, get_many, plain, set_many
from tests.unit.wire.test_body import head

KEYS = bytes(Strings.of([b"a", b"bc"]).encode())
ONE_KEY = bytes(Strings.of([b"k"]).encode())


def test_a_batch_of_values_is_laid_out_column_by_column() -> None:
    command = set_many("tab", [(b"k", 2, b"v"), (b"key", 1, b"")], expires_at_us=9, persist=False)
    function, flags, timestamp_us, body = bodies.encode_body(command)
    assert (function, flags, timestamp_us) == (Function.SET_MANY, Flag.OVERWRITE, NOW_US)
    assert body == (
        b"\0\3" + b"\0\0" + b"\0\0\0\2" + b"\0\0\0\0\0\0\0\x09" + b"tab" + bytes(5)
        + b"\2\1" + bytes(6)
        + b"\0\0\0\0\1\0\0\0\4\0\0\0" + bytes(4) + b"kkey" + bytes(4)
        + b"\0\0\0\0\1\0\0\0\1\0\0\0" + bytes(4) + b"v" + bytes(7)
    )  # fmt: skip


@pytest.mark.req("FJ-30", "FJ-31")
def test_a_ttl_stands_before_the_columns_and_further_keys_behind_them() -> None:
    command = set_many("t", [(b"k", 2, b"v")], ttl_us=7, also=Strings.of([b"a", b"bc"]))
    _, flags, _, body = bodies.encode_body(command)
    assert flags == Flag.OVERWRITE | Flag.PERSIST | Flag.TTL | Flag.COUNT
    value = bytes(Strings.of([b"v"]).encode())
    expected = head(b"t", 1) + bytes(7) + b"\7" + b"\2" + bytes(7) + ONE_KEY + value
    assert body == expected + b"\0\0\0\2\0\0\0\0" + KEYS


def test_no_further_keys_at_all_are_another_thing_than_none_named() -> None:
    for also in (None, Strings.of([])):
        command = set_many("t", [(b"k", 2, b"v")], also=also)
        function, flags, timestamp_us, body = bodies.encode_body(command)
        assert bool(flags & Flag.COUNT) is (also is not None)
        assert plain(bodies.decode_body(function, flags, timestamp_us, body)) == plain(command)


def test_a_ttl_of_0_is_refused() -> None:
    _, flags, _, body = bodies.encode_body(set_many("t", [(b"k", 2, b"v")], ttl_us=1))
    changed = body.replace(bytes(7) + b"\1", bytes(8), 1)
    found = bodies.decode_body(Function.SET_MANY, flags, NOW_US, changed)
    assert isinstance(found, Refusal)
    assert found.code is Code.BAD_TIMEOUT


def test_keys_stand_behind_the_head() -> None:
    for command, function, flags, timestamp_us in (
        (get_many("t", [b"a", b"bc"]), Function.GET_MANY, Flag.DATA, 0),
        (delete_many("t", [b"a", b"bc"]), Function.DELETE_MANY, 0, NOW_US),
    ):
        assert bodies.encode_body(command) == (function, flags, timestamp_us, head(b"t", 2) + KEYS)


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        (set_many("t", [(b"k", 0, b"")]), Flag.OVERWRITE | Flag.PERSIST),
        (set_many("t", [(b"k", 0, b"")], persist=False), Flag.OVERWRITE),
        (set_many("t", [(b"k", 0, b"")], overwrite=False), Flag.PERSIST),
        (set_many("t", [(b"k", 0, b"")], overwrite=False, persist=False), 0),
        (get_many("t", [b"k"], with_data=False), 0),
        (get_many("t", [b"k"], skip_worked=True), Flag.DATA | Flag.WORKED_ON),
        (delete_many("t", [b"k"], purge=True), Flag.OVERWRITE),
        (rename(b"k", b"l", overwrite=True), Flag.OVERWRITE),
        (Range(table="t", skip_worked=True), Flag.DATA | Flag.WORKED_ON),
        (Range(table="t", with_data=False), 0),
        (Touch(table="t", keys=Strings.of([b"k"]), extend=True), Flag.DATA | Flag.UPDATE_TIMEOUT),
    ],
)
def test_flags_say_the_options(command: Get, flags: int) -> None:
    assert bodies.encode_body(command)[1] == flags


@pytest.mark.req("FJ-46", "FJ-47")
def test_a_touch_has_two_dates() -> None:
    keys = Strings.of([b"a", b"bc"])
    command = Touch(table="t", keys=keys, extend=True, expires_at_us=5, worked_until_us=6)
    body = bodies.encode_body(command)[3]
    assert body == head(b"t", 2, 5) + struct.pack(">Q", 6) + KEYS


def test_a_change_names_itself_in_the_argument() -> None:
    for change in Change:
        operand = b"" if change is Change.NOT else bytes(8)
        function, flags, timestamp_us, body = bodies.encode_body(modify(change, operand))
        assert (function, flags, timestamp_us) == (Function.MODIFY, 0, NOW_US)
        operands = bytes(Strings.of([operand]).encode())
        assert body == head(b"t", 1, change) + b"\3" + bytes(7) + ONE_KEY + operands


def test_an_operand_of_fewer_bytes_is_made_wider() -> None:
    body = head(b"t", 1, 5) + b"\3" + bytes(7) + ONE_KEY + bytes(Strings.of([b"\xff"]).encode())
    found = bodies.decode_body(Function.MODIFY, 0, NOW_US, body)
    assert isinstance(found, Modify)
    assert found.operand == b"\xff" * 8


def test_an_operand_that_is_none_is_refused() -> None:
    body = head(b"t", 1, 5) + b"\2" + bytes(7) + ONE_KEY + ONE_KEY
    found = bodies.decode_body(Function.MODIFY, 0, NOW_US, body)
    assert isinstance(found, Refusal)
    assert found.code is Code.BAD_TYPE


@pytest.mark.parametrize("change", [0, 4, 8, 255])
def test_a_change_that_does_not_exist_is_refused(change: int) -> None:
    body = head(b"t", 1, change) + b"\3" + bytes(7) + ONE_KEY + ONE_KEY
    found = bodies.decode_body(Function.MODIFY, 0, NOW_US, body)
    assert isinstance(found, Refusal)
    assert "5 (ADD), 6 (NOT) or 7 (TRUNCATE)" in found.text


def test_a_range_is_three_strings_and_a_count() -> None:
    body = bodies.encode_body(Range(table="t", start=b"a", stop=b"m", count=9, regex=b"^a"))[3]
    parts = b"".join(bytes(Strings.of([one]).encode()) for one in (b"a", b"m", b"^a"))
    assert body == head(b"t", 1, 9) + parts


def test_a_rename_is_two_keys() -> None:
    body = bodies.encode_body(rename(b"k", b"to"))[3]
    assert body == head(b"t", 1) + ONE_KEY + bytes(Strings.of([b"to"]).encode())


@pytest.mark.parametrize(
    "offsets", [(0, 2, 1), (1, 2, 3), (0, 1, 2**32 - 1), (0, 2**32 - 1, 3), (3, 2, 1)]
)
def test_wrong_offsets_are_refused(offsets: tuple[int, int, int]) -> None:
    column = struct.pack("<III4x", *offsets) + b"abc" + bytes(5)
    found = bodies.decode_body(Function.GET_MANY, 0, 0, head(b"t", 2) + column)
    assert isinstance(found, Refusal)


def test_a_name_that_is_too_long_is_left_to_whoever_knows_names() -> None:
    for name in (b"n" * (limits.NAME_BYTES_MAX + 1), b"n" * 60_000):
        found = bodies.decode_body(Function.GET_MANY, Flag.DATA, 0, head(name, 1) + ONE_KEY)
        assert found == Get(table=name.decode(), keys=Strings.of([b"k"]))


def test_a_batch_of_no_rows_is_a_body_and_left_to_the_table_to_refuse() -> None:
    body = head(b"t", 0) + bytes(Strings.of([]).encode())
    found = bodies.decode_body(Function.GET_MANY, Flag.DATA, 0, body)
    assert plain(found) == plain(get_many("t", []))
