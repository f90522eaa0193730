"""Bodies of functions 17 to 31 and of SCAN, 64, byte by byte."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.columns import Strings
from fjord.commands import CreateTable, Hello, ListTables, Refusal, Scan
from fjord.errors import Code
from fjord.wire import Flag, Function, bodies, session_bodies
from tests.unit.wire.streams import MASTER, plain
from tests.unit.wire.test_body import head


def test_a_scan_is_its_range_and_its_bound() -> None:
    _, _, _, body = bodies.encode_body(Scan(table="t", start_seq=5, end_seq=9, bytes_max=77))
    assert body == head(b"t", 0, 5) + struct.pack(">QI4x", 9, 77)


def test_the_options_of_a_scan_are_announced_by_a_bit_of_their_own() -> None:
    command = Scan(table="t", start_seq=5, end_seq=9, bytes_max=77, opcodes=b"\x30\x31")
    fields = struct.pack(">QI4x", 9, 77)
    options = bytes(Strings.of([b"\x30\x31"]).encode()) + bytes(8)
    body = head(b"t", 1, 5) + fields + options + struct.pack(">I4x", 0) + bytes(8)
    assert bodies.encode_body(command) == (Function.SCAN, Flag.COUNT, 0, body)
    some = Scan(table="t", start_seq=5, end_seq=9, bytes_max=77, arrow=True, columns=("seq", "ts"))
    names = struct.pack(">I4x", 2) + bytes(Strings.of([b"seq", b"ts"]).encode())
    body = head(b"t", 1, 5) + fields + bytes(16) + names
    assert bodies.encode_body(some) == (Function.SCAN, Flag.COUNT | Flag.DATA, 0, body)


def test_an_arrow_stream_of_everything_needs_no_options() -> None:
    command = Scan(table="t", start_seq=5, end_seq=9, bytes_max=77, arrow=True)
    ops = bodies.encode_body(Scan(table="t", start_seq=5, end_seq=9, bytes_max=77))[3]
    assert bodies.encode_body(command) == (Function.SCAN, Flag.DATA, 0, ops)


@given(
    st.binary(max_size=9),
    st.binary(max_size=9),
    st.lists(st.from_regex(r"[a-z_]{0,9}", fullmatch=True), max_size=15, unique=True),
    st.booleans(),
)
def test_decode_of_encode_is_the_same_scan(
    opcodes: bytes, key_prefix: bytes, names: list[str], arrow: bool
) -> None:
    command = Scan(
        table="t",
        start_seq=1,
        end_seq=0,
        opcodes=opcodes,
        key_prefix=key_prefix,
        arrow=arrow or bool(names),
        columns=names,
    )
    found = bodies.decode_body(*bodies.encode_body(command))
    assert plain(found) == plain(command)


@pytest.mark.parametrize(
    ("columns", "arrow", "text"),
    [(["seq"], False, "set bit 10"), (["seq", "ts", "seq"], True, "more than once")],
)
def test_columns_are_chosen_of_an_arrow_stream_and_once(
    columns: list[str], arrow: bool, text: str
) -> None:
    command = Scan(table="t", start_seq=1, end_seq=0, arrow=arrow, columns=columns)
    found = bodies.decode_body(*bodies.encode_body(command))
    assert isinstance(found, Refusal)
    assert found.code is Code.BAD_BATCH
    assert text in found.text


@pytest.mark.parametrize("flags", [0, Flag.COUNT])
def test_options_that_are_not_announced_are_refused(flags: int) -> None:
    command = Scan(table="t", start_seq=1, end_seq=0, opcodes=b"\x30")
    if not flags:
        body = bodies.encode_body(command)[3]
    else:
        body = bodies.encode_body(Scan(table="t", start_seq=1, end_seq=0))[3]
    found = bodies.decode_body(Function.SCAN, flags, 0, body)
    assert isinstance(found, Refusal)
    assert found.code is Code.BAD_BATCH


def test_a_hello_is_the_clients_name() -> None:
    assert bodies.encode_body(Hello(client=MASTER))[3] == head(b"", 0) + MASTER
    for wrong in (b"", bytes(15), bytes(17)):
        with pytest.raises(ValueError, match="16 bytes"):
            bodies.encode_body(Hello(client=wrong))


def test_a_new_table_has_a_kind_and_settings() -> None:
    body = bodies.encode_body(CreateTable(name="t", kind=1, settings=b"x"))[3]
    assert body == head(b"t", 1, 1) + bytes(Strings.of([b"x"]).encode())


def test_a_name_alone_is_a_head() -> None:
    assert bodies.encode_body(ListTables(name="t"))[3] == head(b"t", 0)
    assert session_bodies.encode_use("t") == (Function.USE, 0, 0, head(b"t", 0))


def test_use_gives_the_table() -> None:
    assert session_bodies.decode_use(head(b"other-table", 0)) == "other-table"


@pytest.mark.parametrize(
    "name",
    [b"", b"-t", b"a/b", b"..", b"x.pack", b"a b", b"n" * 129, b"\xc3\xa9", b"a\n", b"%2e%2e"],
)
def test_use_refuses_what_is_no_name(name: bytes) -> None:
    found = session_bodies.decode_use(head(name, 0))
    assert isinstance(found, Refusal)
    assert found.code is Code.BAD_NAME


@pytest.mark.parametrize("body", [b"", head(b"t", 1), head(b"t", 0, 1), head(b"t", 0) + bytes(8)])
def test_use_refuses_a_broken_body(body: bytes) -> None:
    found = session_bodies.decode_use(body)
    assert isinstance(found, Refusal)
    assert found.code is Code.BAD_BATCH
