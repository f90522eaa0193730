"""Bodies of the functions of sessions and tables, 17 to 31, and of SCAN, 64."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from fjord import commands
from fjord.columns import Buffer, Strings
from fjord.commands import Command, Refusal
from fjord.errors import Code
from fjord.wire.body import COUNT, Body, Decoders, Encoded, Encoders, encode_head
from fjord.wire.functions import Flag, Function

SCAN = struct.Struct(">QI4x")
CLIENT_BYTES: Final = 16


def encode_use(table: str) -> Encoded:
    """Returns what chooses the table of the seed functions for the rest of the connection."""
    return Function.USE, 0, 0, encode_head(table, 0)


def decode_use(body: bytes | memoryview) -> str | Refusal:
    """Returns the table that is chosen, or what is wrong with it."""
    try:
        table = _decode_name(Body(body, 0, 0))
    except (ValueError, struct.error) as error:
        return Refusal(code=Code.BAD_BATCH, text=str(error))
    return commands.name_problem(table) or table


def _encode_hello(command: commands.Hello) -> Encoded:
    if len(command.client) != CLIENT_BYTES:
        raise ValueError(f"a client is named by {CLIENT_BYTES} bytes")
    return Function.HELLO, 0, 0, encode_head("", 0) + command.client


def _decode_hello(body: Body) -> Command:
    body.has_no_table()
    body.has_rows(0)
    client = bytes(body.view[body.position : body.position + CLIENT_BYTES])
    body.position += CLIENT_BYTES
    body.end_plain()
    return commands.Hello(client=client)


def _decode_name(body: Body) -> str:
    body.has_rows(0)
    body.end_plain()
    return body.table


def _encode_tables(command: commands.ListTables) -> Encoded:
    return Function.TABLES, 0, 0, encode_head(command.name, 0)


def _decode_tables(body: Body) -> Command:
    return commands.ListTables(name=_decode_name(body))


def _encode_create(command: commands.CreateTable) -> Encoded:
    head = encode_head(command.name, 1, command.kind)
    flags = Flag.OVERWRITE if command.changes else 0
    body = b"".join((head, Strings.of([command.settings]).encode()))
    return Function.CREATE_TABLE, flags, 0, body


def _decode_create(body: Body) -> Command:
    body.has_rows(1)
    settings = body.strings()[0]
    body.end()
    if body.argument > 0xFF:
        raise ValueError("the argument is a kind of 8 bits")
    return commands.CreateTable(
        name=body.table,
        kind=body.argument,
        settings=settings,
        changes=bool(body.flags & Flag.OVERWRITE),
    )


def _encode_drop(command: commands.DropTable) -> Encoded:
    return Function.DROP_TABLE, 0, 0, encode_head(command.name, 0)


def _decode_drop(body: Body) -> Command:
    return commands.DropTable(name=_decode_name(body))


def _encode_stats(command: commands.Stats) -> Encoded:
    return Function.STATS, 0, 0, encode_head("", 0)


def _decode_stats(body: Body) -> Command:
    body.has_no_table()
    _decode_name(body)
    return commands.Stats()


def _encode_scan(command: commands.Scan) -> Encoded:
    has_options = bool(command.opcodes or command.key_prefix or command.columns)
    flags = (Flag.DATA if command.arrow else 0) | (Flag.COUNT if has_options else 0)
    head = encode_head(command.table, int(has_options), command.start_seq)
    parts: list[Buffer] = [head, SCAN.pack(command.end_seq, command.bytes_max)]
    if has_options:
        names = [name.encode() for name in command.columns]
        parts += Strings.of([command.opcodes]).parts()
        parts += Strings.of([command.key_prefix]).parts()
        parts += (COUNT.pack(len(names)), *Strings.of(names).parts())
    return Function.SCAN, flags, 0, b"".join(parts)


def _decode_scan(body: Body) -> Command:
    has_options = bool(body.flags & Flag.COUNT)
    body.has_rows(int(has_options))
    end_seq, bytes_max = body.field(SCAN)
    opcodes = key_prefix = b""
    names: Sequence[str] = ()
    if has_options:
        opcodes, key_prefix = body.strings()[0], body.strings()[0]
        names = [name.decode("ascii", "replace") for name in body.further_strings()]
    body.end()
    arrow = bool(body.flags & Flag.DATA)
    if names and not arrow:
        raise ValueError("ops have all their columns: set bit 10 to choose some")
    if len(set(names)) != len(names):
        raise ValueError("a column is named more than once")
    return commands.Scan(
        table=body.table,
        start_seq=body.argument,
        end_seq=end_seq,
        bytes_max=bytes_max,
        opcodes=opcodes,
        key_prefix=key_prefix,
        arrow=arrow,
        columns=names,
    )


ENCODERS: Final[Encoders] = {
    commands.CreateTable: _encode_create,
    commands.DropTable: _encode_drop,
    commands.ListTables: _encode_tables,
    commands.Stats: _encode_stats,
    commands.Hello: _encode_hello,
    commands.Scan: _encode_scan,
}

DECODERS: Final[Decoders] = {
    Function.CREATE_TABLE: _decode_create,
    Function.DROP_TABLE: _decode_drop,
    Function.TABLES: _decode_tables,
    Function.STATS: _decode_stats,
    Function.HELLO: _decode_hello,
    Function.SCAN: _decode_scan,
}
