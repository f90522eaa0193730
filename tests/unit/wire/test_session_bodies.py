"""Bodies of functions 17 to 31 and from 64 on, byte by byte."""

from __future__ import annotations

import struct

import pytest

from fjord.columns import Strings
from fjord.commands import CreateTable, Hello, ListTables, Refusal, Scan
from fjord.errors import Code
from fjord.wire import Function, bodies, session_bodies
from tests.unit.wire.streams import MASTER
from tests.unit.wire.test_body import head


def test_a_scan_is_its_range_and_its_bound() -> None:
    _, _, _, body = bodies.encode_body(Scan(table="t", start_seq=5, end_seq=9, bytes_max=77))
    assert body == head(b"t", 0, 5) + struct.pack(">QI4x", 9, 77)


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
