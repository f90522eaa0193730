"""Calls about the whole node."""

from __future__ import annotations

import pytest

from fjord.client import declared_tables
from fjord.client.declared_tables import TableInfo
from fjord.columns import Strings
from fjord.commands import ListTables, TableList
from fjord.errors import RemoteProtocolError


def tables(*names: bytes) -> TableList:
    count = len(names)
    return TableList(
        names=Strings.of(list(names)),
        ids=list(range(count)),
        kinds=b"\1" * count,
        settings=Strings.of([b""] * count),
    )


def test_tables_are_named_with_kind_and_number() -> None:
    call = declared_tables.tables_call()
    assert call.command == ListTables()
    reply = TableList(
        names=Strings.of([b"a", b"b", b"c", b"d"]),
        ids=[7, 8, 9, 10],
        kinds=b"\1\x63\2\3",
        settings=Strings.of([b"", b"<x/>", b"", b""]),
    )
    assert call.result(reply) == [
        TableInfo(name="a", kind="kv", id=7),
        TableInfo(name="b", kind="99", id=8, settings=b"<x/>"),
        TableInfo(name="c", kind="jobs", id=9),
        TableInfo(name="d", kind="stream", id=10),
    ]


def test_one_table_is_asked_for_by_its_name() -> None:
    call = declared_tables.table_call("a")
    assert call.command == ListTables(name="a")
    assert call.result(tables(b"a")) == TableInfo(name="a", kind="kv", id=0)
    for wrong in (tables(), tables(b"a", b"b")):
        with pytest.raises(RemoteProtocolError, match="rows, not 1"):
            call.result(wrong)
