"""Batches: records of a spool file turned into commands with many rows.  Pure.

Rows of one table stay in their order; tables do not wait for each other, since a batch is applied
as one.  What has expired on its way has the effect of its end: a job is left out, and a value
becomes the deletion of its key.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, Final

from fjord import limits
from fjord.client.spool.record import HEAD, Kind, to_command
from fjord.columns import Strings
from fjord.commands import Append, Command, Delete, Push, Set

ROWS_MAX: Final = 10_000
# Of keys and values, in one batch; a record that has more goes alone.
BYTES_MAX: Final = limits.BATCH_BYTES_MAX // 4

# Of commands, in one batch; one more says how far the file is sent.
_PARTS_MAX: Final = limits.BATCH_COMMANDS_MAX - 1
_HEAD_BYTES: Final = HEAD.size
# What is in a run, row by row: type, key, value, timestamp; and for a job domain, priority,
# process date and expiry.
Row = tuple[Any, ...]


class Run:
    """Rows of one table that are one command."""

    __slots__ = ("kind", "options", "rows", "table")

    def __init__(self, kind: int, table: str, options: Hashable) -> None:
        self.kind = kind
        self.table = table
        self.options = options
        self.rows: list[Row] = []


class Batch:
    """Commands that are put together record by record."""

    def __init__(self, now_us: int) -> None:
        self._now_us = now_us
        self._parts: list[Run | Command] = []
        self._open: dict[bytes, Run] = {}  # of each table, that to which rows are added
        self.rows = 0
        self.size = 0

    def add_all(self, records: Sequence[bytes]) -> int:
        """Adds records in their order, as long as there is room; returns how many.

        It stops before a record that this program does not know; if that is the first one, none
        is added.
        """
        heads = b"".join([record[:_HEAD_BYTES] for record in records[:ROWS_MAX]])
        if len(heads) % _HEAD_BYTES or len(heads) < _HEAD_BYTES * min(len(records), ROWS_MAX):
            records = list(takewhile(_has_head, records))
            heads = b"".join([record[:_HEAD_BYTES] for record in records[:ROWS_MAX]])
        added = 0
        for record, head in zip(records, HEAD.iter_unpack(heads), strict=False):
            self.size += len(record)
            if added and (self.size > BYTES_MAX or len(self._parts) >= _PARTS_MAX):
                break
            kind = head[0]
            if kind == Kind.COMMAND:
                if not self._add_command(record, is_first=not added):
                    break
            elif kind in _BUILDERS:
                self._add_row(record, head)
            else:
                break
            added += 1
        return added

    def _add_row(self, record: bytes, head: tuple[int, ...]) -> None:
        kind, type_, priority, table_size, key_size, domain_size, stamp_us, due, expires_us = head
        at = _HEAD_BYTES + table_size
        table, key = record[_HEAD_BYTES:at], record[at : at + key_size]
        at += key_size
        row: Row
        options: Hashable = None
        if kind == Kind.PUSH:
            end = at + domain_size
            row = (type_, key, record[end:], stamp_us, record[at:end], priority, due, expires_us)
        elif kind == Kind.DELETE:
            row, options = (key,), stamp_us
        else:
            row = (type_, key, record[at:], stamp_us)
        run = self._open.get(table)
        if run is None or run.kind != kind or run.options != options:
            # What is no name is for the daemon to refuse, and then it is set aside alone.
            run = self._open[table] = Run(kind, table.decode(errors="replace"), options)
            self._parts.append(run)
        run.rows.append(row)
        self.rows += 1

    def commands(self) -> list[Command]:
        """Returns the commands; none if nothing of the batch has an effect any more."""
        found: list[Command] = []
        for part in self._parts:
            if isinstance(part, Run):
                command = _BUILDERS[part.kind](part, self._now_us)
                if command is not None:
                    found.append(command)
            else:
                found.append(part)
        return found

    def _add_command(self, record: bytes, *, is_first: bool) -> bool:
        """Adds a record of many rows; False if there is no room, or it is not known."""
        try:
            command = to_command(record)
        except (struct.error, ValueError):
            return False
        if not isinstance(command, Push | Append | Set | Delete):
            return False
        rows = len(command.keys)
        if not is_first and self.rows + rows > ROWS_MAX:
            return False
        self._open.pop(command.table.encode(), None)  # later rows follow it
        live = _live(command, self._now_us)
        if live is not None:
            self._parts.append(live)
        self.rows += rows
        return True


def stamps_of(command: Command) -> Sequence[int]:
    """Returns the dates of the rows of a command."""
    if isinstance(command, Push | Append | Set):
        return command.timestamps_us or ()
    return [command.timestamp_us] if isinstance(command, Delete) else []


def _has_head(record: bytes) -> bool:
    return len(record) >= _HEAD_BYTES


# -- rows to columns ------------------------------------------------------------------------------


def _push(run: Run, now_us: int) -> Push | None:
    rows = run.rows
    types, keys, values, stamps, domains, priorities, dues, expiries = zip(*rows, strict=True)
    command = Push(
        table=run.table,
        keys=Strings.of(keys),
        domains=Strings.of(domains),
        types=bytes(types),
        values=Strings.of(values),
        priorities=bytes(priorities),
        process_at_us=array("Q", dues),
        expires_at_us=array("Q", expiries),
        timestamps_us=array("Q", stamps),
    )
    return _live_push(command, now_us)


def _append(run: Run, now_us: int) -> Append:
    types, keys, values, stamps = zip(*run.rows, strict=True)
    return Append(
        table=run.table,
        types=bytes(types),
        keys=Strings.of(keys),
        values=Strings.of(values),
        timestamps_us=array("Q", stamps),
    )


def _set(run: Run, now_us: int) -> Set:
    newest: dict[bytes, Row] = {}  # a command writes a key once
    for row in run.rows:
        before = newest.get(row[1])
        if before is None or before[3] <= row[3]:
            newest[row[1]] = row
    types, keys, values, stamps = zip(*newest.values(), strict=True)
    return Set(
        table=run.table,
        keys=Strings.of(keys),
        types=bytes(types),
        values=Strings.of(values),
        timestamps_us=array("Q", stamps),
    )


def _delete(run: Run, now_us: int) -> Delete:
    keys = [key for (key,) in run.rows]
    stamp_us = run.options
    assert isinstance(stamp_us, int)
    return Delete(table=run.table, keys=Strings.of(keys), timestamp_us=stamp_us)


_BUILDERS: Final[dict[int, Callable[[Run, int], Command | None]]] = {
    Kind.PUSH: _push,
    Kind.APPEND: _append,
    Kind.SET: _set,
    Kind.DELETE: _delete,
}


# -- what has expired -----------------------------------------------------------------------------


def _live(command: Push | Append | Set | Delete, now_us: int) -> Command | None:
    """Returns what is left of a command of many rows."""
    if isinstance(command, Push):
        return _live_push(command, now_us)
    if isinstance(command, Set) and 0 < command.expires_at_us <= now_us:
        stamp_us = command.timestamps_us[0]
        return Delete(table=command.table, keys=command.keys, timestamp_us=stamp_us)
    return command


def _live_push(command: Push, now_us: int) -> Push | None:
    expiries = command.expires_at_us
    if not any(expiries):
        return command
    rows = [
        at
        for at, (date_us, expires_us) in enumerate(
            zip(command.process_at_us, expiries, strict=True)
        )
        if not expires_us or expires_us > max(date_us, now_us)
    ]
    if len(rows) == len(expiries):
        return command
    return _only(command, rows) if rows else None


def _only(command: Push, rows: Sequence[int]) -> Push:
    def strings(column: Strings) -> Strings:
        return Strings.of([column[at] for at in rows])

    def numbers(column: Sequence[int]) -> Sequence[int]:
        return array("Q", [column[at] for at in rows])

    return replace(
        command,
        keys=strings(command.keys),
        domains=strings(command.domains),
        types=bytes([command.types[at] for at in rows]),
        values=strings(command.values),
        priorities=bytes([command.priorities[at] for at in rows]),
        process_at_us=numbers(command.process_at_us),
        expires_at_us=numbers(command.expires_at_us),
        timestamps_us=numbers(command.timestamps_us),
    )
