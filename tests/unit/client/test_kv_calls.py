"""Calls of a key/value table: what is refused before it is sent, and times."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fjord.commands import Delete, Set
from fjord.errors import Code, FjordError, LocalProtocolError
from tests.unit.client.scripted import NOW_US
from tests.unit.client.shell_calls import make_calls


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


@pytest.mark.parametrize("key", ["abc", b"abc"])
def test_a_single_key_is_not_taken_for_many(key: Any) -> None:
    calls = make_calls()
    for many in (calls.get_many, calls.delete_many, calls.lock, calls.listen, calls.touch_many):
        with pytest.raises(LocalProtocolError, match="a list"):
            many(key)
    with pytest.raises(LocalProtocolError, match="a list"):
        calls.set("k", 1, also=key)


def test_locking_and_listening_need_a_key() -> None:
    for call in (make_calls().lock, make_calls().unlock, make_calls().listen):
        with pytest.raises(LocalProtocolError) as caught:
            call([])
        assert caught.value.code is Code.EMPTY_KEY


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
