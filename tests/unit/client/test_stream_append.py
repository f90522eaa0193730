"""Appends as columns: types, sizes, and how many commits they take."""

from __future__ import annotations

from typing import Any

import pytest

from fjord import limits
from fjord.client.streams import StreamCalls, append_one, append_parts
from fjord.columns import Strings
from fjord.commands import Append, Command, Nop
from fjord.errors import Code, LocalProtocolError
from tests.unit.client.stream_samples import append_of


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


def test_one_message_is_a_batch_of_one() -> None:
    assert append_one("t", b"v", "") == append_of(b"v") == parts([b"v"])[0]
    assert append_one("t", b"v", b"k") == append_of(b"v", keys=[b"k"])
    assert append_one("t", "v", "k") == append_of(b"v", keys=[b"k"], types=b"\2")


def test_keys_are_text_or_bytes() -> None:
    (found,) = parts([b"1", b"2", b"3"], ["k", b"\xff", "\udcff"])
    assert found.keys.rows() == [b"k", b"\xff", b"\xff"]
    (found,) = parts(iter([b"1", b"2"]), ("k", "l"))
    assert found.keys.rows() == [b"k", b"l"]


def test_of_nothing_nothing_is_made() -> None:
    assert parts([]) == parts(iter(())) == []
    assert together([]) == Nop()


def test_there_is_a_key_for_each_value() -> None:
    with pytest.raises(ValueError, match="keys: 1 for 2 values"):
        parts([b"a", b"b"], ["k"])


@pytest.mark.parametrize("values", [b"abc", "abc", bytearray(b"a"), 5])
def test_one_value_is_no_list(values: Any) -> None:
    with pytest.raises(TypeError, match="values must be a list"):
        parts(values)


def test_one_key_is_no_list() -> None:
    with pytest.raises(TypeError, match="keys must be a list"):
        parts([b"a"], "k")


@pytest.mark.parametrize(
    ("values", "keys", "code"),
    [
        ([{}], None, Code.BAD_TYPE),
        (["\ud800"], None, Code.BAD_VALUE),
        ([b"a"], [5], Code.BAD_TYPE),
    ],
)
def test_what_cannot_be_sent_is_found_before_anything_is(
    values: list[Any], keys: Any, code: Code
) -> None:
    with pytest.raises(LocalProtocolError) as error:
        append_parts("t", values, keys)
    assert error.value.code is code


# -- splitting ------------------------------------------------------------------------------------


def test_as_many_as_one_commit_has_are_one() -> None:
    (found,) = parts([b""] * limits.BATCH_ROWS_MAX)
    assert len(found.types) == limits.BATCH_ROWS_MAX
    size = limits.BATCH_BYTES_MAX // 4
    (found,) = parts([bytes(size)] * 4)
    assert len(found.values.data) == limits.BATCH_BYTES_MAX


def test_more_messages_are_several_commits() -> None:
    found = parts([b"%d" % number for number in range(2 * limits.BATCH_ROWS_MAX + 1)])
    assert [len(one.types) for one in found] == [limits.BATCH_ROWS_MAX] * 2 + [1]
    rows = [row for one in found for row in one.values.rows()]
    assert rows == [b"%d" % number for number in range(2 * limits.BATCH_ROWS_MAX + 1)]


def test_more_bytes_are_several_commits() -> None:
    values = [bytes([number]) * (3 * limits.MIB) for number in range(5)]
    found = parts(values)
    assert [len(one.types) for one in found] == [2, 2, 1]
    assert [row for one in found for row in one.values.rows()] == values


def test_keys_count_too() -> None:
    half = limits.BATCH_BYTES_MAX // 2
    found = parts([bytes(half - 1), bytes(half - 1)], ["k" * 2, "l"])
    assert [one.keys.rows() for one in found] == [[b"kk"], [b"l"]]
    assert len(parts([bytes(half - 1), bytes(half - 1)], ["k", "l"])) == 1


def test_a_message_that_is_too_large_goes_alone() -> None:
    found = parts([b"a", bytes(limits.BATCH_BYTES_MAX + 1), b"b"])
    assert [len(one.types) for one in found] == [1, 1, 1]


def test_for_a_transaction_nothing_is_split() -> None:
    found = together([b""] * (limits.BATCH_ROWS_MAX + 1))
    assert isinstance(found, Append)
    assert len(found.types) == limits.BATCH_ROWS_MAX + 1
