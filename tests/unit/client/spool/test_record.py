"""Records: one write each, as bytes."""

from __future__ import annotations

import struct
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.client.spool import records
from fjord.client.spool.records import HEAD, RecordKind
from fjord.columns import Strings, repeat
from fjord.commands import Append, Command, Delete, Push, Refusal, Set
from tests.unit.client.spool.spool_samples import NOW, appended, pushed

COMMANDS: list[Command] = [
    Push(
        table="jobs",
        keys=Strings.of([b"a", b"b"]),
        domains=Strings.of([b"", b"d"]),
        types=b"\x01\x02",
        values=Strings.of([b"1", b"22"]),
        priorities=b"\x80\x01",
        process_at_us=array("Q", [0, NOW + 5]),
        expires_at_us=array("Q", [0, NOW + 10]),
        timestamps_us=repeat(NOW, 2),
    ),
    Append(
        table="events",
        types=b"\x01\x01",
        keys=Strings.of([b"", b"k"]),
        values=Strings.of([b"1", b""]),
        timestamps_us=repeat(NOW, 2),
    ),
    Set(
        table="kv",
        keys=Strings.of([b"a"]),
        types=b"\x01",
        values=Strings.of([b"1"]),
        timestamps_us=[NOW],
        expires_at_us=NOW + 7,
        ttl_us=7,
        also=Strings.of([b"b", b"c"]),
    ),
    Delete(table="kv", keys=Strings.of([b"a", b"b"]), timestamp_us=NOW),
]


def test_a_record_of_one_row_is_as_the_page_says() -> None:
    # docs/spool.md: kind, type, priority, sizes of table, key, domain; three dates; the bytes.
    data = pushed(b"key", b"value", table=b"pages", domain=b"dom", due=7, expires=9)
    assert data == (
        bytes([1, 1, 128, 5])
        + struct.pack("<HH", 3, 3)
        + struct.pack("<QQQ", NOW, 7, 9)
        + b"pageskeydomvalue"
    )
    assert HEAD.size == 32
    assert {kind.name: kind.value for kind in RecordKind} == {
        "PUSH": 1, "APPEND": 2, "SET": 3, "DELETE": 4, "COMMAND": 5,
    }  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_a_command_comes_back(command: Command) -> None:
    data = records.of_command(command, NOW + 3)
    assert data[0] == RecordKind.COMMAND
    found = records.to_command(data)
    assert not isinstance(found, Refusal)
    assert type(found) is type(command)
    # Columns are read where they are; encoded once more, they are the same.
    assert records.of_command(found, NOW + 3) == data
    assert records.stamp_of(data) == NOW + 3


def test_a_record_that_is_too_short_says_nothing() -> None:
    whole = appended(b"")
    for size in range(HEAD.size):
        assert records.stamp_of(whole[:size]) == 0


@given(st.sampled_from(COMMANDS), st.data())
def test_no_bytes_give_anything_but_a_command_or_an_error(
    command: Command, data: st.DataObject
) -> None:
    encoded = bytearray(records.of_command(command, NOW))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(encoded[: data.draw(st.integers(0, len(encoded)))])
    try:
        found = records.to_command(cut)
    except (ValueError, struct.error):
        return
    assert found is not None
