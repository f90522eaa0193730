"""Calls about the whole node: its tables and its numbers."""

from __future__ import annotations

from dataclasses import dataclass

from fjord import kinds
from fjord.client.calls import Call, expect, expect_rows
from fjord.commands import ListTables, Numbers, Reply, Stats, TableList
from fjord.errors import Code, RemoteProtocolError


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInfo:
    """A table as it was declared."""

    name: str
    kind: str  # "kv", "jobs" or "stream"
    id: int  # the number that ops carry
    settings: bytes = b""


def tables_call() -> Call[list[TableInfo]]:
    return Call(ListTables(), _tables)


def table_call(name: str) -> Call[TableInfo]:
    return Call(ListTables(name=name), _one_table)


def stats_call() -> Call[dict[str, int]]:
    return Call(Stats(), _numbers)


def _one_table(reply: Reply) -> TableInfo:
    found = _tables(reply)
    expect_rows(len(found), 1)
    return found[0]


def _tables(reply: Reply) -> list[TableInfo]:
    found = expect(reply, TableList)
    rows = zip(found.names.rows(), found.kinds, found.ids, found.settings.rows(), strict=True)
    return [
        TableInfo(name=_text(name), kind=_kind(number), id=id_, settings=settings)
        for name, number, id_, settings in rows
    ]


def _kind(number: int) -> str:
    """Returns the name of a kind, or the number of one that only later versions know."""
    return str(kinds.BY_NUMBER.get(number, number))


def _numbers(reply: Reply) -> dict[str, int]:
    found = expect(reply, Numbers)
    names = map(_text, found.names.rows())
    return dict(zip(names, found.values, strict=True))


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(Code.BAD_NAME, f"a name that is not UTF-8: {error}") from error
