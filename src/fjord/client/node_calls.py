"""Calls about the whole node: its tables, its numbers, its history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fjord.client.calls import Call, done
from fjord.commands import (
    DropTable,
    ListTables,
    Nop,
    Numbers,
    Reply,
    Scan,
    Scanned,
    Stats,
    TableList,
)

KINDS: Final = {1: "kv"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInfo:
    """A table as it was declared."""

    name: str
    kind: str  # "kv"
    id: int  # the number that ops carry
    settings: bytes = b""


def ping_call() -> Call[None]:
    return Call(Nop(), done)


def tables_call() -> Call[list[TableInfo]]:
    return Call(ListTables(), _tables)


def table_call(name: str) -> Call[TableInfo]:
    return Call(ListTables(name=name), lambda reply: _tables(reply)[0])


def drop_call(name: str) -> Call[None]:
    return Call(DropTable(name=name), done)


def stats_call() -> Call[dict[str, int]]:
    return Call(Stats(), _numbers)


def scan_call(table: str, start_seq: int, end_seq: int) -> Call[Scanned]:
    return Call(Scan(table=table, start_seq=start_seq, end_seq=end_seq), _scanned)


def _tables(reply: Reply) -> list[TableInfo]:
    assert isinstance(reply, TableList)
    rows = zip(reply.names.rows(), reply.kinds, reply.ids, reply.settings.rows(), strict=True)
    return [
        TableInfo(name=name.decode(), kind=KINDS.get(kind, str(kind)), id=id_, settings=settings)
        for name, kind, id_, settings in rows
    ]


def _numbers(reply: Reply) -> dict[str, int]:
    assert isinstance(reply, Numbers)
    names = (name.decode() for name in reply.names.rows())
    return dict(zip(names, reply.values, strict=True))


def _scanned(reply: Reply) -> Scanned:
    assert isinstance(reply, Scanned)
    return reply
