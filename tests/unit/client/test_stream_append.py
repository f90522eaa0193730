"""Appends as columns: types, sizes, and how many commits they take."""

from __future__ import annotations

from typing import Any

import pytest

from fjord import limits
from fjord.client.streams import StreamCalls, append_parts
from fjord.columns import Strings
from fjord.commands import Command


def parts(values: Any, keys: Any = None) -> list[Any]:
    return list(append_parts("t", values, keys))


def together(values: Any) -> Command:
    return StreamCalls("t").append_many(values, None).command


@pytest.mark.parametrize(
    ("values", "types", "data"),
    [
        ([b"a", b""], b"\1\1", [b"a", b""]),
        (["a", "ü"], b"\2\2", [b"a", "ü".encode()]),
        ([b"a", "b"], b"\1\2", [b"a", b"b"]),
        ([None, True, 5], b"\0\5\3", [b"", b"\1", b"\5" + bytes(7)]),
        ((b"a", bytearray(b"b")), b"\1\1", [b"a", b"b"]),
    ],
)
def test_values_are_encoded_by_their_types(values: Any, types: bytes, data: list[bytes]) -> None:
    (found,) = parts(values)
    assert (found.types, found.values.rows()) == (types, data)
    assert found.keys == Strings.of([b""] * len(data))
    assert together(values) == found


# -- splitting ------------------------------------------------------------------------------------


def test_more_messages_are_several_commits() -> None:
    found = parts([b"%d" % number for number in range(2 * limits.BATCH_ROWS_MAX + 1)])
    assert [len(one.types) for one in found] == [limits.BATCH_ROWS_MAX] * 2 + [1]
    rows = [row for one in found for row in one.values.rows()]
    assert rows == [b"%d" % number for number in range(2 * limits.BATCH_ROWS_MAX + 1)]


def test_keys_count_too() -> None:
    half = limits.BATCH_BYTES_MAX // 2
    found = parts([bytes(half - 1), bytes(half - 1)], ["k" * 2, "l"])
    assert [one.keys.rows() for one in found] == [[b"kk"], [b"l"]]
    assert len(parts([bytes(half - 1), bytes(half - 1)], ["k", "l"])) == 1


def test_a_message_that_is_too_large_goes_alone() -> None:
    found = parts([b"a", bytes(limits.BATCH_BYTES_MAX + 1), b"b"])
    assert [len(one.types) for one in found] == [1, 1, 1]
