"""Keys, dates and what is known of values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.client import entries
from fjord.columns import Strings
from fjord.commands import Entries
from fjord.errors import Code, LocalProtocolError, RemoteProtocolError
from fjord.values import Type
from tests.unit.client.scripted import NOW_US
from tests.unit.client.shell_calls import FIVE, HOUR, NOW


@given(st.binary())
def test_any_key_can_be_read_and_used_as_text(key: bytes) -> None:
    assert entries.encode_key(entries.decode_key(key)) == key


def test_keys_are_text_or_bytes() -> None:
    class Name(str):
        __slots__ = ()

    keys: list[Any] = ["caf\u00e9", b"\xff", bytearray(b"a"), memoryview(b"b"), Name("c")]
    assert entries.encode_keys(keys) == ["caf\u00e9".encode(), b"\xff", b"a", b"b", b"c"]
    wrong: Any = 5
    with pytest.raises(LocalProtocolError, match="not int"):
        entries.encode_key(wrong)


@pytest.mark.req("FJ-30")
def test_an_entry_tells_all_that_is_known() -> None:
    found = Entries(
        types=b"\3\2",
        values=Strings.of([FIVE, b"text"]),
        timestamps_us=[NOW_US, NOW_US],
        expires_at_us=[0, NOW_US + 3_600_000_000],
        states=bytes([Entries.LOCKED, Entries.WORKED_ON]),
        created_us=[NOW_US, NOW_US - 3_600_000_000],
        accessed_us=[0, NOW_US],
        ttls_us=[0, 1_500_000],
    )
    assert entries.read_entry(found, 1) == entries.Entry(
        value="text",
        type=Type.STRING,
        written_at=NOW,
        created_at=NOW - HOUR,
        accessed_at=NOW,
        expires_at=NOW + HOUR,
        ttl=1.5,
        locked=False,
        worked_on=True,
    )
    first = entries.read_entry(found, 0)
    assert (first.locked, first.worked_on, first.ttl, first.accessed_at) == (
        True,
        False,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("type_", "data", "code"),
    [
        *((Type.STRING, b"\xff", Code.BAD_VALUE), (Type.FLOAT, b"\0" * 7, Code.BAD_VALUE)),
        *((6, b"", Code.BAD_TYPE), (Entries.MISSING, b"", Code.BAD_TYPE)),
    ],
)
def test_a_value_that_is_none_is_the_peers_mistake(type_: int, data: bytes, code: Code) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        entries.decode_value(type_, data)
    assert caught.value.code is code


def test_a_date_that_no_calendar_has_is_the_peers_mistake() -> None:
    with pytest.raises(RemoteProtocolError, match="18446744073709551615"):
        entries.date(2**64 - 1)
