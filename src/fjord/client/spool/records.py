"""Records: the bytes of one write each.  Pure.

Records of one row have fixed fields at their beginning, so that a front end makes one in a
microsecond.  All else is a command as it goes over the wire.
"""

from __future__ import annotations

import enum
import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Final

from fjord import limits
from fjord.columns import Strings
from fjord.commands import FUNCTIONS, Append, Command, Delete, Push, Refusal, Set, codec
from fjord.errors import Code
from fjord.jobs import unexpired

Write = Push | Append | Set | Delete  # what a record of many rows may hold

# kind, type, priority, sizes of table, key and domain, timestamp, due, expires.
HEAD: Final = struct.Struct("<BBBBHHQQQ")
_TABLE_SIZE_AT: Final = 3
_STAMP: Final = struct.Struct("<8xQ")


class RecordKind(enum.IntEnum):
    """What a record holds."""

    PUSH = 1  # a job
    APPEND = 2  # a message
    SET = 3  # a value; `due` is its TTL
    DELETE = 4  # of a key
    COMMAND = 5  # many rows, all or none


def of_command(command: Command, stamp_us: int) -> bytes:
    """Returns the record of a command with many rows: function, flags and body."""
    row, flags, timestamp_us, body = codec.encode(command)
    head = HEAD.pack(RecordKind.COMMAND, 0, 0, 0, row.number, flags, stamp_us, timestamp_us, 0)
    return b"".join((head, *body))


def to_command(record: bytes) -> Write | Refusal:
    """Returns the command of such a record; a refusal if a spool cannot hold it.

    Raises:
        ValueError, struct.error: if it is none.
    """
    _, _, _, _, number, flags, _, timestamp_us, _ = HEAD.unpack_from(record)
    row = FUNCTIONS.get(number)
    if row is None or not issubclass(row.record, Write):
        return Refusal(code=Code.UNKNOWN_FUNCTION, text=f"a record of function {number}")
    found = codec.decode(row, flags, timestamp_us, memoryview(record)[HEAD.size :])
    assert isinstance(found, Write | Refusal)
    return found


def target_of(record: bytes) -> tuple[type, str]:
    """Returns the type of a record's command, and its table."""
    if record[0] == RecordKind.COMMAND:
        command = to_command(record)
        return type(command), getattr(command, "table", "")
    table = record[HEAD.size : HEAD.size + record[_TABLE_SIZE_AT]]
    return _TYPES[record[0]], table.decode(errors="replace")


def stamp_of(record: bytes) -> int:
    """Returns when a record was written; 0 if it is too short."""
    if len(record) < HEAD.size:
        return 0
    stamp_us: int
    (stamp_us,) = _STAMP.unpack_from(record)
    return stamp_us


_TYPES: Final[dict[int, type]] = {
    RecordKind.PUSH: Push,
    RecordKind.APPEND: Append,
    RecordKind.SET: Set,
    RecordKind.DELETE: Delete,
}


# -- rows of a record, for `fjord spool dump`.  Pure ----------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRow:
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


def rows_of(record: bytes) -> list[RecordRow]:
    """Returns the rows of a record.

    Raises:
        ValueError: if the record is unknown.
    """
    try:
        if record[:1] == _COMMAND_BYTE:
            return list(_of_command(record))
        return [_of_one(record)]
    except struct.error as error:
        raise ValueError("a record that is cut short") from error


def _of_one(record: bytes) -> RecordRow:
    number, type_, priority, *sizes, stamp_us, due_us, expires_us = HEAD.unpack_from(record)
    kind = RecordKind(number)  # ValueError, if there is no such one
    parts, at = [], HEAD.size
    for size in sizes:
        parts.append(record[at : at + size])
        at += size
    if at > len(record):
        raise ValueError("a record that is cut short")
    table, key, domain = parts
    return RecordRow(
        stamp_us=stamp_us,
        what=kind.name.lower(),
        table=table.decode(),
        key=key,
        type=type_,
        value=record[at:],
        domain=domain,
        priority=priority if kind is RecordKind.PUSH else None,
        due_us=due_us if kind is RecordKind.PUSH else 0,
        expires_us=expires_us,
    )


def _of_command(record: bytes) -> Iterator[RecordRow]:
    command = to_command(record)
    if isinstance(command, Refusal):
        raise ValueError(command.text)
    names = type(command).row.columns
    given = {field: getattr(command, name) for field, name in _COLUMNS.items() if name in names}
    columns = {field: column for field, column in given.items() if len(column)}
    for at, key in enumerate(command.keys.rows()):
        row = RecordRow(
            stamp_us=stamp_of(record),
            what=type(command).__name__.lower(),
            table=command.table,
            key=key,
            expires_us=command.expires_at_us if isinstance(command, Set) else 0,
        )
        yield replace(row, **{name: column[at] for name, column in columns.items()})


# The fields of a row that a command may have a column for.
_COLUMNS: Final = {
    "stamp_us": "timestamps_us",
    "type": "types",
    "value": "values",
    "domain": "domains",
    "priority": "priorities",
    "due_us": "process_at_us",
    "expires_us": "expires_at_us",
}
_COMMAND_BYTE: Final = bytes((RecordKind.COMMAND,))


# -- batches: records of a spool file turned into commands with many rows.  Pure ------------------
#
# Rows of one table stay in their order; tables do not wait for each other, since a batch is applied
# as one.  For the same reason a key of a key/value table is written once, with the newest of its
# values.  Expired rows have the effect of their expiry: a job is left out, and a value
# becomes the deletion of its key.


ROWS_MAX: Final = 10_000
# Of keys and values, in one batch; a record that has more goes alone.
BYTES_MAX: Final = limits.BATCH_BYTES_MAX // 4

# Of commands, in one batch; one more says how far the file is sent, and a record may add two.
_PARTS_MAX: Final = limits.BATCH_COMMANDS_MAX - 2
_HEAD_BYTES: Final = HEAD.size
# As plain numbers, which are packed and compared faster than members of an enum.
PUSH, APPEND, SET, DELETE = map(
    int, (RecordKind.PUSH, RecordKind.APPEND, RecordKind.SET, RecordKind.DELETE)
)
_COMMAND: Final = int(RecordKind.COMMAND)
_Life = tuple[int, int]  # how long a touch lets a value live, and when it expires


class Jobs:
    """Jobs that are pushed to one table; type, key, value, date, domain, priority, two dates."""

    kinds = (PUSH,)

    def __init__(self, table: str) -> None:
        self._table = table
        self.rows: list[tuple[int, bytes, bytes, int, bytes, int, int, int]] = []

    def commands(self, now_us: int) -> Iterable[Command]:
        types, keys, values, stamps, domains, priorities, dues, expiries = zip(
            *self.rows, strict=True
        )
        command = Push(
            table=self._table,
            keys=Strings.of(keys),
            domains=Strings.of(domains),
            types=bytes(types),
            values=Strings.of(values),
            priorities=bytes(priorities),
            process_at_us=array("Q", dues),
            expires_at_us=array("Q", expiries),
            timestamps_us=array("Q", stamps),
        )
        live = _live_push(command, now_us)
        return () if live is None else (live,)


class Messages:
    """Messages that are appended to one stream; type, key, value, date."""

    kinds = (APPEND,)

    def __init__(self, table: str) -> None:
        self._table = table
        self.rows: list[tuple[int, bytes, bytes, int]] = []

    def commands(self, now_us: int) -> Iterable[Command]:
        types, keys, values, stamps = zip(*self.rows, strict=True)
        yield Append(
            table=self._table,
            types=bytes(types),
            keys=Strings.of(keys),
            values=Strings.of(values),
            timestamps_us=array("Q", stamps),
        )


class Values:
    """Values and deletions in one key/value table: the final one of each key.

    A value that follows the deletion of its key begins anew, with no further keys.  So both of them
    are sent then, and deletions go before values.
    """

    kinds = (SET, DELETE)

    def __init__(self, table: str) -> None:
        self._table = table
        self._set: dict[bytes, tuple[int, int, bytes, _Life]] = {}  # date, type, value
        self._deleted: dict[bytes, int] = {}  # date
        self.lives: set[_Life] = set()

    def set(self, key: bytes, stamp_us: int, type_: int, value: bytes, life: _Life) -> None:
        before = self._set.get(key)
        if before is not None and before[0] > stamp_us:
            return
        if self._deleted and self._deleted.get(key, 0) > stamp_us:
            return
        self._set[key] = (stamp_us, type_, value, life)

    def delete(self, key: bytes, stamp_us: int) -> None:
        if self._set:
            before = self._set.get(key)
            if before is not None:
                if before[0] > stamp_us:
                    return
                del self._set[key]
        if self._deleted.get(key, 0) <= stamp_us:
            self._deleted[key] = stamp_us

    def commands(self, now_us: int) -> Iterable[Command]:
        deleted = dict(self._deleted)
        live: dict[_Life, list[tuple[bytes, int, int, bytes]]] = {}
        for key, (stamp_us, type_, value, life) in self._set.items():
            if 0 < life[1] <= now_us:
                deleted[key] = stamp_us  # its own: what was set since then stays
            else:
                live.setdefault(life, []).append((key, stamp_us, type_, value))
        if deleted:
            stamps = array("Q", deleted.values())
            yield Delete(
                table=self._table,
                keys=Strings.of(list(deleted)),
                timestamp_us=stamps[0],
                timestamps_us=stamps,
            )
        for (ttl_us, expires_us), rows in live.items():
            keys, stamps_us, types, values = zip(*rows, strict=True)
            yield Set(
                table=self._table,
                keys=Strings.of(keys),
                types=bytes(types),
                values=Strings.of(values),
                timestamps_us=array("Q", stamps_us),
                expires_at_us=expires_us,
                ttl_us=ttl_us,
            )


Run = Jobs | Messages | Values


class Gathering:
    """Commands that are built record by record."""

    def __init__(self, now_us: int) -> None:
        self._now_us = now_us
        self._parts: list[Run | Command] = []
        self._open: dict[bytes, Run] = {}  # of each table, that to which rows are added
        self._count = 0  # of commands, at most
        self.rows = 0
        self.size = 0

    def add_all(self, records: Sequence[bytes]) -> int:
        """Adds records in order while there is room; returns how many.

        It stops before a record that this program does not know; if that is the first one, none
        is added.
        """
        heads = b"".join([record[:_HEAD_BYTES] for record in records[:ROWS_MAX]])
        if len(heads) % _HEAD_BYTES or len(heads) < _HEAD_BYTES * min(len(records), ROWS_MAX):
            records = list(takewhile(lambda record: len(record) >= _HEAD_BYTES, records))
            heads = b"".join([record[:_HEAD_BYTES] for record in records[:ROWS_MAX]])
        added = 0
        for record, head in zip(records, HEAD.iter_unpack(heads), strict=False):
            self.size += len(record)
            if added and (self.size > BYTES_MAX or self._count >= _PARTS_MAX):
                break
            kind = head[0]
            if kind == _COMMAND:
                if not self._add_command(record, is_first=not added):
                    break
            elif kind in _RUNS:
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
        run = self._open.get(table)
        if run is None or kind not in run.kinds:
            # The daemon refuses an invalid name, and then the record is set aside alone.
            run = self._open[table] = _RUNS[kind](table.decode(errors="replace"))
            self._parts.append(run)
            self._count += 1
        if isinstance(run, Values):
            if kind == DELETE:
                run.delete(key, stamp_us)
            else:
                life = due, expires_us
                run.set(key, stamp_us, type_, record[at:], life)
                if life not in run.lives:
                    run.lives.add(life)
                    self._count += 1
        elif isinstance(run, Jobs):
            end = at + domain_size
            domain = record[at:end]
            run.rows.append((type_, key, record[end:], stamp_us, domain, priority, due, expires_us))
        else:
            run.rows.append((type_, key, record[at:], stamp_us))
        self.rows += 1

    def commands(self) -> list[Command]:
        """Returns the commands; none if everything has expired."""
        found: list[Command] = []
        for part in self._parts:
            if isinstance(part, Run):
                found.extend(part.commands(self._now_us))
            else:
                found.append(part)
        return found

    def _add_command(self, record: bytes, *, is_first: bool) -> bool:
        """Adds a record of many rows; False if there is no room, or it is unknown."""
        try:
            command = to_command(record)
        except (struct.error, ValueError):
            return False
        if isinstance(command, Refusal):
            return False
        rows = len(command.keys)
        if not is_first and self.rows + rows > ROWS_MAX:
            return False
        self._open.pop(command.table.encode(), None)  # later rows follow it
        live = _live(command, self._now_us)
        if live is not None:
            self._parts.append(live)
            self._count += 1
        self.rows += rows
        return True


_RUNS: Final[dict[int, type[Run]]] = {
    kind: run for run in (Jobs, Messages, Values) for kind in run.kinds
}


def stamps_of(command: Command) -> Sequence[int]:
    """Returns the dates of the rows of a command."""
    if isinstance(command, Push | Append | Set):
        return command.timestamps_us or ()
    if not isinstance(command, Delete):
        return ()
    return (command.timestamp_us,) if command.timestamps_us is None else command.timestamps_us


# -- expiry ---------------------------------------------------------------------------------------


def _live(command: Write, now_us: int) -> Command | None:
    """Returns a command without its expired rows; None if none are left."""
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
    rows = unexpired(command.process_at_us, expiries, now_us)
    if len(rows) == len(expiries):
        return command
    return _only(command, rows) if rows else None


def _only(command: Push, rows: Sequence[int]) -> Push:
    def chosen(column: Sequence[Any] | Strings) -> list[Any]:
        return [column[at] for at in rows]

    return replace(
        command,
        keys=Strings.of(chosen(command.keys)),
        domains=Strings.of(chosen(command.domains)),
        types=bytes(chosen(command.types)),
        values=Strings.of(chosen(command.values)),
        priorities=bytes(chosen(command.priorities)),
        process_at_us=array("Q", chosen(command.process_at_us)),
        expires_at_us=array("Q", chosen(command.expires_at_us)),
        timestamps_us=array("Q", chosen(command.timestamps_us)),
    )
