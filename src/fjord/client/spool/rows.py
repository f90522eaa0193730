"""Rows of a record, for people who look at a spool.  Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from fjord.client.spool.record import HEAD, Kind, stamp_of, to_command
from fjord.commands import Append, Push, Refusal, Set


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One job, message, value or deletion."""

    stamp_us: int  # when it was written
    what: str  # push, append, set, delete
    table: str
    key: bytes
    type: int = 0
    value: bytes = b""
    domain: bytes = b""
    priority: int | None = None  # of a job
    due_us: int = 0  # of a job; 0 = at once
    expires_us: int = 0  # 0 = never


def rows_of(record: bytes) -> list[Row]:
    """Returns what a record holds.

    Raises:
        ValueError: if it is none that this program knows.
    """
    try:
        if record[:1] == _COMMAND:
            return list(_of_command(record))
        return [_of_one(record)]
    except struct.error as error:
        raise ValueError("a record that is cut short") from error


def _of_one(record: bytes) -> Row:
    number, type_, priority, *sizes, stamp_us, due_us, expires_us = HEAD.unpack_from(record)
    kind = Kind(number)  # ValueError, if there is no such one
    parts, at = [], HEAD.size
    for size in sizes:
        parts.append(record[at : at + size])
        at += size
    if at > len(record):
        raise ValueError("a record that is cut short")
    table, key, domain = parts
    return Row(
        stamp_us=stamp_us,
        what=kind.name.lower(),
        table=table.decode(),
        key=key,
        type=type_,
        value=record[at:],
        domain=domain,
        priority=priority if kind is Kind.PUSH else None,
        due_us=due_us if kind is Kind.PUSH else 0,
        expires_us=expires_us,
    )


def _of_command(record: bytes) -> Iterator[Row]:
    stamp_us = stamp_of(record)
    command = to_command(record)
    if isinstance(command, Refusal):
        raise ValueError(command.text)
    if isinstance(command, Push):
        yield from _of_push(command)
    elif isinstance(command, Append | Set):
        what = "append" if isinstance(command, Append) else "set"
        expires_us = command.expires_at_us if isinstance(command, Set) else 0
        for key, type_, value in _entries(command):
            yield Row(
                stamp_us=stamp_us,
                what=what,
                table=command.table,
                key=key,
                type=type_,
                value=value,
                expires_us=expires_us,
            )
    else:
        for key in command.keys.rows():
            yield Row(stamp_us=stamp_us, what="delete", table=command.table, key=key)


def _of_push(command: Push) -> Iterator[Row]:
    for at, (key, type_, value) in enumerate(_entries(command)):
        yield Row(
            stamp_us=command.timestamps_us[at],
            what="push",
            table=command.table,
            key=key,
            type=type_,
            value=value,
            domain=command.domains[at],
            priority=command.priorities[at],
            due_us=command.process_at_us[at],
            expires_us=command.expires_at_us[at],
        )


def _entries(command: Push | Append | Set) -> Iterator[tuple[bytes, int, bytes]]:
    return zip(command.keys.rows(), command.types, command.values.rows(), strict=True)


_COMMAND: Final = bytes((Kind.COMMAND,))
