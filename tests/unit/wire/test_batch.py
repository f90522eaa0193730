"""Bodies of functions above 16: laid out as said, and refused when they are broken."""

from __future__ import annotations

import struct

import pytest

from fjord import columns, limits
from fjord.columns import Strings
from fjord.commands import Command, Done, Get, Nop, Refusal, Reply, Scan
from fjord.errors import Code
from fjord.wire import Flag, Function, batch
from tests.unit.wire.streams import (
    BATCHES,
    NOW_US,
    delete_many,
    entries,
    get_many,
    plain,
    scanned,
    set_many,
)

each_batch = pytest.mark.parametrize(
    "command", BATCHES, ids=[f"{type(one).__name__}-{n}" for n, one in enumerate(BATCHES)]
)


def head(name: bytes, rows: int, argument: int = 0, *, name_bytes: int | None = None) -> bytes:
    """The head of a body: name length, rows, argument, name, padding."""
    length = len(name) if name_bytes is None else name_bytes
    fields = struct.pack(">HHIQ", length, 0, rows, argument) + name
    return fields + columns.padding(len(fields))


def text_of(found: Command | Refusal) -> str:
    assert isinstance(found, Refusal)
    assert found.code is Code.BAD_BATCH
    assert len(found.text) < 256
    return found.text


# -- requests -------------------------------------------------------------------------------------


def test_a_batch_of_values_is_laid_out_as_the_docstring_says() -> None:
    command = set_many("tab", [(b"k", 2, b"v"), (b"key", 1, b"")], expires_at_us=9, persist=False)
    function, flags, timestamp_us, body = batch.encode_body(command)
    assert (function, flags, timestamp_us) == (Function.SET_MANY, Flag.OVERWRITE, NOW_US)
    assert body == (
        b"\0\3" + b"\0\0" + b"\0\0\0\2" + b"\0\0\0\0\0\0\0\x09" + b"tab" + bytes(5)
        + b"\2\1" + bytes(6)
        + b"\0\0\0\0\1\0\0\0\4\0\0\0" + bytes(4) + b"kkey" + bytes(4)
        + b"\0\0\0\0\1\0\0\0\1\0\0\0" + bytes(4) + b"v" + bytes(7)
    )  # fmt: skip


def test_keys_stand_behind_the_head() -> None:
    keys = Strings.of([b"a", b"bc"]).encode()
    for command, function, timestamp_us in (
        (get_many("t", [b"a", b"bc"]), Function.GET_MANY, 0),
        (delete_many("t", [b"a", b"bc"]), Function.DELETE_MANY, NOW_US),
    ):
        assert batch.encode_body(command) == (function, 0, timestamp_us, head(b"t", 2) + keys)


def test_a_scan_is_its_range_and_its_bound() -> None:
    _, _, _, body = batch.encode_body(Scan(table="t", start_seq=5, end_seq=9, bytes_max=77))
    assert body == head(b"t", 0, 5) + struct.pack(">QI4x", 9, 77)


@pytest.mark.parametrize(
    ("overwrite", "persist", "flags"),
    [
        (True, True, Flag.OVERWRITE | Flag.PERSIST),
        (True, False, Flag.OVERWRITE),
        (False, True, Flag.PERSIST),
        (False, False, 0),
    ],
)
def test_flags_say_overwrite_and_persist(*, overwrite: bool, persist: bool, flags: int) -> None:
    command = set_many("t", [(b"k", 0, b"")], overwrite=overwrite, persist=persist)
    assert batch.encode_body(command)[1] == flags


@each_batch
def test_each_body_decodes_to_its_command(command: Command) -> None:
    function, flags, timestamp_us, body = batch.encode_body(command)
    assert plain(batch.decode_body(function, flags, timestamp_us, body)) == plain(command)


@each_batch
def test_every_truncation_of_a_body_is_refused(command: Command) -> None:
    function, flags, timestamp_us, body = batch.encode_body(command)
    for size in range(len(body)):
        text_of(batch.decode_body(function, flags, timestamp_us, body[:size]))


@each_batch
def test_a_body_with_more_than_its_columns_is_refused(command: Command) -> None:
    function, flags, timestamp_us, body = batch.encode_body(command)
    for more in (b"x", bytes(8)):
        found = batch.decode_body(function, flags, timestamp_us, body + more)
        assert "longer than its columns" in text_of(found)


@pytest.mark.parametrize("rows", [1, 3, 1000, limits.BATCH_ROWS_MAX])
def test_a_number_of_rows_that_is_not_that_of_the_columns_is_refused(rows: int) -> None:
    keys = Strings.of([b"a", b"bc"]).encode()
    text_of(batch.decode_body(Function.GET_MANY, 0, 0, head(b"t", rows) + keys))


@pytest.mark.parametrize("rows", [limits.BATCH_ROWS_MAX + 1, 2**31, 2**32 - 1])
def test_too_many_rows_are_refused_by_their_number(rows: int) -> None:
    for function in (Function.SET_MANY, Function.GET_MANY, Function.DELETE_MANY, Function.SCAN):
        found = batch.decode_body(function, 0, 0, head(b"t", rows) + bytes(64))
        assert str(limits.BATCH_ROWS_MAX) in text_of(found)


@pytest.mark.parametrize(
    "offsets", [(0, 2, 1), (1, 2, 3), (0, 1, 2**32 - 1), (0, 2**32 - 1, 3), (3, 2, 1)]
)
def test_wrong_offsets_are_refused(offsets: tuple[int, int, int]) -> None:
    column = struct.pack("<III4x", *offsets) + b"abc" + bytes(5)
    text_of(batch.decode_body(Function.GET_MANY, 0, 0, head(b"t", 2) + column))


def test_a_name_that_is_too_long_is_left_to_whoever_knows_names() -> None:
    keys = Strings.of([b"k"]).encode()
    for name in (b"n" * (limits.NAME_BYTES_MAX + 1), b"n" * 60_000):
        found = batch.decode_body(Function.GET_MANY, 0, 0, head(name, 1) + keys)
        assert found == Get(table=name.decode(), keys=Strings.of([b"k"]))


@pytest.mark.parametrize("name_bytes", [100, 128, 65535])
def test_a_name_that_ends_outside_the_body_is_refused(name_bytes: int) -> None:
    body = head(b"t", 1, name_bytes=name_bytes) + Strings.of([b"k"]).encode()
    text_of(batch.decode_body(Function.GET_MANY, 0, 0, body))


def test_a_name_of_other_bytes_than_ascii_is_no_good_name_but_a_body() -> None:
    body = head("na\u00efve".encode(), 1) + Strings.of([b"k"]).encode()
    found = batch.decode_body(Function.GET_MANY, 0, 0, body)
    assert not isinstance(found, Refusal | Nop)
    assert not found.table.isascii()


def test_a_batch_of_no_rows_is_a_body_and_left_to_the_table_to_refuse() -> None:
    body = head(b"t", 0) + Strings.of([]).encode()
    found = batch.decode_body(Function.GET_MANY, 0, 0, body)
    assert plain(found) == plain(get_many("t", []))


# -- replies --------------------------------------------------------------------------------------


REPLIES: list[tuple[Function, Reply]] = [
    (Function.SET_MANY, Done(master=b"m" * 16, seq=5)),
    (Function.DELETE_MANY, Done(master=b"m" * 16, seq=2**64 - 1)),
    (Function.GET_MANY, entries((2, b"text", NOW_US, 0))),
    (Function.GET_MANY, entries((1, b"", 1, 2), (255, b"", 0, 0), (3, bytes(8), 3, 2**64 - 1))),
    (Function.GET_MANY, entries()),
    (Function.SCAN, scanned([], next_seq=1, end_seq=1)),
    (Function.SCAN, scanned([b"op" * 8, b"o" * 24], next_seq=3, end_seq=2**64 - 1)),
]


@pytest.mark.parametrize(("function", "reply"), REPLIES)
def test_each_reply_decodes_to_itself(function: Function, reply: Reply) -> None:
    body = batch.encode_reply_body(reply)
    assert plain(batch.decode_reply_body(function, body)) == plain(reply)


def test_a_done_is_the_token_of_master_and_seq() -> None:
    body = batch.encode_reply_body(Done(master=bytes(range(16)), seq=0x0102))
    assert body == bytes(range(16)) + b"\0\0\0\0\0\0\1\2"


def test_a_refusal_has_no_body() -> None:
    assert batch.encode_reply_body(Refusal(code=Code.BUSY, text="later")) == b""


@pytest.mark.parametrize(("function", "reply"), REPLIES)
def test_a_reply_that_lost_data_is_refused(function: Function, reply: Reply) -> None:
    body = batch.encode_reply_body(reply).rstrip(b"\0")
    for size in range(max(len(body) - 8, 1)):
        with pytest.raises((ValueError, struct.error)):
            batch.decode_reply_body(function, body[:size])
