"""Calls of a key/value table: what is refused before it is sent, and times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from fjord import limits
from fjord.client.entries import Key
from fjord.commands import Delete, Get, Set
from fjord.errors import Code, FjordError, LocalProtocolError
from fjord.values import Type, Value
from tests.unit.client.scripted import NOW_US, TOKEN
from tests.unit.client.shell_calls import make_calls


def test_set_many_is_one_command_with_one_timestamp() -> None:
    items: dict[Key, Value] = {"a": 1, b"b": "two"}
    call = make_calls().set_many(items)
    command = call.command
    assert isinstance(command, Set)
    assert command.keys.rows() == [b"a", b"b"]
    assert command.types == bytes([Type.INTEGER, Type.STRING])
    assert command.values.rows() == [b"\1" + bytes(7), b"two"]
    assert list(command.timestamps_us) == [NOW_US] * 2
    assert (command.expires_at_us, command.overwrite, command.persist) == (0, True, True)
    assert command.also is None
    call.result(TOKEN)


def test_no_further_keys_are_other_than_none_given() -> None:
    command = make_calls().set("a", 1, also=[]).command
    assert isinstance(command, Set)
    assert command.also is not None
    assert command.also.rows() == []


def test_each_write_is_later_than_the_one_before() -> None:
    calls = make_calls()
    stamps = []
    for _ in range(3):
        for call in (calls.set_many({"a": 1}), calls.delete_many(["a"])):
            command = call.command
            assert isinstance(command, Set | Delete)
            stamps.append(
                command.timestamps_us[0] if isinstance(command, Set) else command.timestamp_us
            )
    assert stamps == list(range(NOW_US, NOW_US + 6))


def test_keys_may_come_from_any_iterable() -> None:
    command = make_calls().get_many(key for key in ("a", "b")).command
    assert isinstance(command, Get)
    assert command.keys.rows() == [b"a", b"b"]


@pytest.mark.parametrize("key", ["abc", b"abc"])
def test_a_single_key_is_not_taken_for_many(key: Any) -> None:
    calls = make_calls()
    for many in (calls.get_many, calls.delete_many, calls.lock, calls.listen, calls.touch_many):
        with pytest.raises(LocalProtocolError, match="a list"):
            many(key)
    with pytest.raises(LocalProtocolError, match="a list"):
        calls.set("k", 1, also=key)


def test_more_keys_than_a_batch_holds_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="split it"):
        make_calls().get_many(map(str, range(limits.BATCH_ROWS_MAX + 1)))


def test_locking_and_listening_need_a_key() -> None:
    for call in (make_calls().lock, make_calls().unlock, make_calls().listen):
        with pytest.raises(LocalProtocolError) as caught:
            call([])
        assert caught.value.code is Code.EMPTY_KEY


def test_an_option_that_does_not_exist_is_an_error() -> None:
    unknown: Any = {"tll": 5}
    with pytest.raises(TypeError, match="tll"):
        make_calls().set("a", 1, **unknown)
    also: Any = {"also": ["b"]}
    with pytest.raises(TypeError, match="also"):
        make_calls().set_many({"a": 1}, **also)


def test_a_key_that_utf8_cannot_hold_is_refused_as_a_value_is() -> None:
    calls = make_calls()
    for refused in (
        lambda: calls.get_many(["\ud800"]),
        lambda: calls.set_many({"\ud800": 1}),
        lambda: calls.delete_many(["\ud800"]),
        lambda: calls.rename("a", "\ud800"),
    ):
        with pytest.raises(FjordError):
            refused()


def test_a_value_without_a_type_is_refused_before_it_is_sent() -> None:
    unknown: Any = {"a": object()}
    with pytest.raises(LocalProtocolError):
        make_calls().set_many(unknown)


@pytest.mark.parametrize("amount", [True, "5", None, 2**63])
def test_only_numbers_of_64_bits_are_added(amount: Any) -> None:
    with pytest.raises(LocalProtocolError):
        make_calls().add("a", amount)


@pytest.mark.parametrize("ttl", [0, -1, 0.0000001, float("inf"), float("nan"), timedelta(0)])
def test_a_duration_is_more_than_nothing(ttl: Any) -> None:
    for refused in (
        lambda: make_calls().set("a", 1, ttl=ttl),
        lambda: make_calls().touch_many(["a"], ttl=ttl),
        lambda: make_calls().take_many(["a"], seconds=ttl),
    ):
        with pytest.raises(LocalProtocolError) as caught:
            refused()
        assert caught.value.code is Code.BAD_TIMEOUT


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2030, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC),
        datetime(2030, 1, 2, 5, 4, 5, 678_901, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_an_expiry_is_exact_to_the_microsecond(moment: datetime) -> None:
    command = make_calls().set_many({"a": 1}, expires_at=moment).command
    assert isinstance(command, Set)
    assert command.expires_at_us == 1_893_553_445_678_901


def test_an_expiry_before_1970_is_refused() -> None:
    with pytest.raises(LocalProtocolError):
        make_calls().set("a", 1, expires_at=datetime(1969, 1, 1, tzinfo=UTC))
