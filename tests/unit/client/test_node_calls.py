"""Calls about the whole node."""

from __future__ import annotations

from fjord.client import declared_tables
from fjord.client.declared_tables import TableInfo
from fjord.columns import Strings
from fjord.commands import ListTables, TableList


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
