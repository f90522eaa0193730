"""Calls about the whole node."""

from __future__ import annotations

from array import array

from fjord.client import node_calls
from fjord.client.node_calls import TableInfo
from fjord.columns import Strings
from fjord.commands import DropTable, ListTables, Nop, Numbers, Scan, Scanned, Stats, TableList
from fjord.tables.state import Kind
from tests.unit.client.scripted import TOKEN


def test_tables_are_named_with_kind_and_number() -> None:
    call = node_calls.tables_call()
    assert call.command == ListTables()
    reply = TableList(
        names=Strings.of([b"a", b"b"]),
        ids=[7, 8],
        kinds=b"\1\x63",
        settings=Strings.of([b"", b"<x/>"]),
    )
    assert call.result(reply) == [
        TableInfo(name="a", kind="kv", id=7),
        TableInfo(name="b", kind="99", id=8, settings=b"<x/>"),
    ]
    one = node_calls.table_call("a")
    assert one.command == ListTables(name="a")
    assert one.result(reply) == TableInfo(name="a", kind="kv", id=7)


def test_every_kind_has_a_name() -> None:
    assert {kind.value: kind.name.lower() for kind in Kind} == node_calls.KINDS


def test_stats_are_numbers_by_name() -> None:
    call = node_calls.stats_call()
    assert call.command == Stats()
    reply = Numbers(names=Strings.of([b"a", b"b"]), values=[1, 2])
    assert call.result(reply) == {"a": 1, "b": 2}


def test_dropping_and_asking_for_an_answer() -> None:
    assert node_calls.drop_call("t").command == DropTable(name="t")
    assert node_calls.ping_call().command == Nop()
    node_calls.ping_call().result(TOKEN)


def test_a_scan_call_asks_for_a_piece() -> None:
    call = node_calls.scan_call("t", 5, 9)
    assert call.command == Scan(table="t", start_seq=5, end_seq=9)
    numbers = array("Q", [5])
    piece = Scanned(
        first_seqs=numbers,
        walls_us=numbers,
        last_seqs=numbers,
        ops=Strings.of([b"op"]),
        next_seq=6,
        end_seq=9,
    )
    assert call.result(piece) is piece
