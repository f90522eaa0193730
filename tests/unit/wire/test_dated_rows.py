"""Rows that were written at different times, in one message: who passes on what others wrote."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace

import pytest

from fjord.columns import Strings, repeat
from fjord.commands import Delete, Push, Set
from fjord.wire import bodies
from fjord.wire.functions import Flag, Function

NOW_US = 1_700_000_000_000_000
ROWS = 3
PUSH = Push(
    table="pages",
    keys=Strings.of([b"a", b"b", b"c"]),
    domains=Strings.of([b""] * ROWS),
    types=b"\1" * ROWS,
    values=Strings.of([b"x", b"", b"yz"]),
    priorities=bytes((1, 2, 3)),
    process_at_us=array("Q", (0, 0, NOW_US)),
    expires_at_us=array("Q", (0, 0, 0)),
    timestamps_us=repeat(NOW_US, ROWS),
)
SET = Set(
    table="kv",
    keys=PUSH.keys,
    types=PUSH.types,
    values=PUSH.values,
    timestamps_us=repeat(NOW_US, ROWS),
    ttl_us=5,
)
DELETE = Delete(table="kv", keys=PUSH.keys, timestamp_us=NOW_US)
DATES: list[Sequence[int]] = [
    (NOW_US, NOW_US + 1, NOW_US - 1),
    [NOW_US, NOW_US, NOW_US + 1],
    array("Q", (NOW_US + 1, NOW_US, NOW_US)),
    memoryview(array("Q", (1, 2, 3))),
]


@pytest.mark.parametrize("command", [PUSH, SET], ids=["push", "set"])
@pytest.mark.parametrize("dates", DATES)
def test_each_row_keeps_its_date(command: Push | Set, dates: Sequence[int]) -> None:
    function, flags, timestamp_us, body = bodies.encode_body(replace(command, timestamps_us=dates))
    assert flags & Flag.TIMEOUT
    assert timestamp_us == 0
    found = bodies.decode_body(function, flags, timestamp_us, body)
    assert isinstance(found, Push | Set)
    assert list(found.timestamps_us) == list(dates)
    assert found.keys == command.keys
    assert found.values == command.values


@pytest.mark.parametrize("command", [PUSH, SET], ids=["push", "set"])
def test_one_date_for_all_is_that_of_the_message(command: Push | Set) -> None:
    function, flags, timestamp_us, body = bodies.encode_body(command)
    assert not flags & Flag.TIMEOUT
    assert timestamp_us == NOW_US
    found = bodies.decode_body(function, flags, timestamp_us, body)
    assert isinstance(found, Push | Set)
    assert list(found.timestamps_us) == [NOW_US] * ROWS


def test_the_dates_of_delays_are_told_too() -> None:
    delayed = replace(PUSH, relative=True, timestamps_us=[1, 2, 3])
    function, flags, _, body = bodies.encode_body(delayed)
    assert (function, flags) == (Function.PUSH_MANY, Flag.TIMEOUT | Flag.TTL)
    found = bodies.decode_body(function, flags, 0, body)
    assert isinstance(found, Push)
    assert (found.relative, list(found.timestamps_us)) == (True, [1, 2, 3])


@pytest.mark.parametrize("dates", DATES)
@pytest.mark.parametrize("is_purge", [False, True])
def test_each_deletion_keeps_its_date(dates: Sequence[int], *, is_purge: bool) -> None:
    command = replace(DELETE, timestamps_us=dates, purge=is_purge)
    function, flags, timestamp_us, body = bodies.encode_body(command)
    assert flags == Flag.TIMEOUT | (Flag.OVERWRITE if is_purge else 0)
    assert (function, timestamp_us) == (Function.DELETE_MANY, 0)
    found = bodies.decode_body(function, flags, timestamp_us, body)
    assert isinstance(found, Delete)
    assert found.timestamps_us is not None
    assert list(found.timestamps_us) == list(dates)
    assert (found.keys, found.purge) == (PUSH.keys, is_purge)


def test_deletions_of_one_date_are_those_of_the_message() -> None:
    encoded = bodies.encode_body(DELETE)
    dated = replace(DELETE, timestamp_us=1, timestamps_us=repeat(NOW_US, ROWS))
    assert bodies.encode_body(dated) == encoded
    found = bodies.decode_body(*encoded)
    assert isinstance(found, Delete)
    assert (found.timestamp_us, found.timestamps_us) == (NOW_US, None)
