"""ADD, NOT, TRUNCATE and RENAME: a value is changed where it is, and all else of it stays.

Whoever decides works out the new value, so that what is stored is a plain SET.  Its timestamp is
never smaller than that of what it came from.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from fjord import commands, kinds, ops
from fjord.columns import Strings, repeat
from fjord.commands import Change
from fjord.errors import Code, RefusedError
from fjord.layouts import PREFIX_BYTES, end_of, prefix_of
from fjord.ops import Op, Opcode
from fjord.tables import catalog
from fjord.tables.kv import layout, read, rules
from fjord.tables.kv.layout import Entry
from fjord.tables.kv.lookup import Lookup, check_lock, unschedule
from fjord.tables.state import Decision, State, Table, Tree, VolatileValue, decides
from fjord.values import Type

_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**63 - 1
_Volatile = dict[bytes, VolatileValue | None]


# -- ADD, NOT, TRUNCATE ---------------------------------------------------------------------------


@decides(commands.Modify)
def decide_modify(command: commands.Modify, state: State, now_us: int) -> Decision:
    rules.check_modify(command, now_us)
    table = catalog.find(state, command.table, kinds.Kind.KV)
    if table is None:
        raise _not_found()
    lookup = Lookup.of(state, table.prefix, [command.key], now_us)
    check_lock(state, lookup)
    if not lookup.is_live(0):
        raise _not_found()
    type_, data = lookup.value(0)
    changed = _CHANGES[command.change](type_, data, command)
    row = VolatileValue(
        type_,
        changed,
        # Later than what it changes: a SET that is sent again must not undo it.
        max(lookup.timestamp_us(0) + 1, command.timestamp_us),
        lookup.expiries[0],
        lookup.ttl_us(0),
        lookup.created_us(0),
    )
    key, entry = lookup.keys[0], lookup.entries[0]
    reply = read.one_entry(row, is_locked=not state.locks.keys().isdisjoint(lookup.keys))
    if key in lookup.volatile:
        return Decision(reply, (), {key: row})
    assert entry is not None
    return Decision(reply, [_set_op(table, key, row, entry, links=entry.links)])


def _add(type_: int, data: bytes, command: commands.Modify) -> bytes:
    if type_ not in (Type.INTEGER, Type.FLOAT) or (
        type_ == Type.INTEGER and command.operand_type == Type.FLOAT
    ):
        raise _mismatch("a number is added to a number, and a float to a float only")
    value, operand = _NUMBER[type_](data), _NUMBER[command.operand_type](command.operand)
    if type_ == Type.INTEGER:
        total = value + operand
        if not _INTEGER_MIN <= total <= _INTEGER_MAX:
            raise RefusedError(Code.OVERFLOW, "an integer has 64 bits")
        return int(total).to_bytes(8, "little", signed=True)
    result = value + float(operand)
    if math.isfinite(value) and not math.isfinite(result):
        raise RefusedError(Code.OVERFLOW, "the sum is beyond the range of a float")
    return _FLOAT.pack(result)


def _not(type_: int, data: bytes, command: commands.Modify) -> bytes:
    if type_ != Type.BOOLEAN:
        raise _mismatch("only a boolean can be flipped")
    return b"\0" if data == b"\1" else b"\1"


def _truncate(type_: int, data: bytes, command: commands.Modify) -> bytes:
    if type_ not in (Type.BUFFER, Type.STRING):
        raise _mismatch("only a buffer or a string can be made shorter")
    size = _NUMBER[Type.INTEGER](command.operand)
    if not 0 <= size <= len(data):
        text = f"the value has {len(data)} bytes; a value is only ever made shorter"
        raise RefusedError(Code.BAD_SIZE, text)
    if type_ == Type.STRING and size < len(data) and data[int(size)] & 0xC0 == 0x80:
        raise RefusedError(Code.BAD_VALUE, "that would cut a character in two")
    return data[: int(size)]


def _not_found() -> RefusedError:
    return RefusedError(Code.NOT_FOUND, "the key does not exist")


def _mismatch(text: str) -> RefusedError:
    return RefusedError(Code.TYPE_MISMATCH, text)


_FLOAT: Final = struct.Struct("<d")
_NUMBER: Final[dict[int, Callable[[bytes], int | float]]] = {
    Type.INTEGER: lambda data: int.from_bytes(data, "little", signed=True),
    Type.FLOAT: lambda data: float(_FLOAT.unpack(data)[0]),
}
_CHANGES: Final[dict[Change, Callable[[int, bytes, commands.Modify], bytes]]] = {
    Change.ADD: _add,
    Change.NOT: _not,
    Change.TRUNCATE: _truncate,
}


# -- RENAME ---------------------------------------------------------------------------------------


@decides(commands.Rename)
def decide_rename(command: commands.Rename, state: State, now_us: int) -> Decision:
    rules.check_rename(command, now_us)
    table = catalog.find(state, command.table, kinds.Kind.KV)
    if table is None:
        raise _not_found()
    lookup = Lookup.of(state, table.prefix, [command.key, command.to], now_us)
    check_lock(state, lookup)
    if not lookup.is_live(_OLD):
        raise _not_found()
    if command.key == command.to:
        return catalog.decision(state, ())
    if lookup.is_live(_NEW) and not command.overwrite:
        raise RefusedError(Code.EXISTS, "the new key is there, overwrite is off")
    renaming = _Renaming(table, lookup, command.timestamp_us, state.lease_us)
    if _OLD in lookup.aliases:
        decided, volatile = renaming.of_alias()
    elif lookup.in_memory(_OLD) is not None:
        decided, volatile = renaming.in_memory()
    else:
        further = further_keys(state, table, command.key, now_us)
        decided, volatile = renaming.of_value(further)
    return catalog.decision(state, decided, volatile)


# The rows of the lookup.
_OLD, _NEW = 0, 1


class _Renaming:
    """A value that gets another key; what stands under that key goes."""

    def __init__(self, table: Table, lookup: Lookup, timestamp_us: int, lease_us: int) -> None:
        self._table = table
        self._lookup = lookup
        self._old_key, self._new_key = lookup.given
        self._old, self._new = lookup.own(_OLD), lookup.own(_NEW)
        # Whoever renames wants it done, whatever was said of either key before, and a SET of
        # before that is sent again must not undo it.
        self._timestamp_us = max(
            timestamp_us,
            lookup.timestamp_us(_OLD) + 1,
            lookup.timestamp_us(_NEW) + 1 if _NEW not in lookup.aliases else 0,
            self._new.timestamp_us + 1 if self._new else 0,
        )
        self._lease_us = lease_us

    def of_value(self, further: Mapping[bytes, Entry]) -> tuple[list[Op], _Volatile]:
        """Moves the value; its further keys lead to it as before (FJ-31)."""
        row, table_id = self._row(), self._table.id
        written = _set_op(self._table, self._new_key, row, self._new, links=0)
        due = [(row.expires_at_us, self._old_key), self._due()]
        deleted = self._delete(self._old_key, self._old)
        others = {key: entry for key, entry in further.items() if key != self._new_key}
        linked = self._link(others, self._new_key)
        return [*unschedule(table_id, due), written, deleted, *linked], self._gone()

    def of_alias(self) -> tuple[list[Op], _Volatile]:
        """Moves the alias only; onto the key of its own target, it just goes."""
        delete, target = self._delete(self._old_key, self._old), self._lookup.keys[_OLD]
        if target == self._new_key:
            return [delete], {}
        link = self._link({self._new_key: self._new}, target)
        return [*unschedule(self._table.id, [self._due()]), *link, delete], self._gone()

    def _link(self, replaced: Mapping[bytes, Entry | None], target: bytes) -> list[Op]:
        """Lets keys lead to a value, in the place of what stands there."""
        if not replaced:
            return []
        columns = (
            repeat(self._timestamp_us, len(replaced)),
            [entry.held if entry else 0 for entry in replaced.values()],
            [layout.row_bytes(entry, key) if entry else 0 for key, entry in replaced.items()],
            Strings.of([key[PREFIX_BYTES:] for key in replaced]),
            Strings.of([target[PREFIX_BYTES:]] * len(replaced)),
        )
        return [Op(Opcode.KV_LINK, self._table.id, len(replaced), columns)]

    def in_memory(self) -> tuple[list[Op], _Volatile]:
        """A stored value under the new key is first deleted durably, and so is an alias."""
        changes: _Volatile = {self._old_key: None, self._new_key: self._row()}
        if self._new is None or not (self._new.is_value or _NEW in self._lookup.aliases):
            return [], changes
        delete = self._delete(self._new_key, self._new)
        return [*unschedule(self._table.id, [self._due()]), delete], changes

    def _row(self) -> VolatileValue:
        lookup = self._lookup
        type_, value = lookup.value(_OLD)
        dates = (lookup.expiries[_OLD], lookup.ttl_us(_OLD), lookup.created_us(_OLD))
        return VolatileValue(type_, value, self._timestamp_us, *dates)

    def _due(self) -> tuple[int, bytes]:
        """Returns the expiry of what stands under the new key itself, 0 for none."""
        is_alias = _NEW in self._lookup.aliases
        return 0 if is_alias else self._lookup.stored_expiry(_NEW), self._new_key

    def _gone(self) -> _Volatile:
        return {self._new_key: None} if self._new_key in self._lookup.volatile else {}

    def _delete(self, key: bytes, entry: Entry | None) -> Op:
        dates = ((self._timestamp_us,), (self._lease_us,))
        columns = (*dates, *_replaced(key, entry), _user_keys(key))
        return Op(Opcode.KV_DELETE, self._table.id, 1, columns)


def _set_op(
    table: Table, key: bytes, row: VolatileValue, replaced: Entry | None, *, links: int
) -> Op:
    """Returns the op that writes one row under an index key."""
    columns = (
        (row.timestamp_us,),
        (row.expires_at_us,),
        (row.ttl_us,),
        (row.created_us,),
        (links,),
        *_replaced(key, replaced),
        bytes([row.type]),
        _user_keys(key),
        Strings.of([row.value]),
    )
    return Op(Opcode.KV_SET, table.id, 1, columns)


def _replaced(key: bytes, entry: Entry | None) -> tuple[tuple[int], tuple[int]]:
    """Returns the columns `previous` and `freed` of one row."""
    return ((entry.held,), (layout.row_bytes(entry, key),)) if entry else ((0,), (0,))


def _user_keys(key: bytes) -> Strings:
    return Strings.of([key[PREFIX_BYTES:]])


# -- one value under several keys (FJ-31): linking further keys to the key of a value -------------
#
# A key that has a value of its own, or belongs to another one, is refused.  What the keys lead to
# is found by `lookup`; a list that replaces another one needs no unlinking, since aliases of
# before the new row no longer count.


_PIECE: Final = 10_000  # entries are looked at in pieces


def link(
    command: commands.Set, table: Table, target: bytes, state: State, now_us: int
) -> tuple[list[Op], _Volatile]:
    """Returns the ops that give the one value of a command, at an index key, its further keys.

    What has expired under such a key goes, be it in the index or in memory.
    """
    if not command.also:
        return [], {}
    stamp, prefix = command.timestamps_us[0], table.prefix
    wanted = [key for key in dict.fromkeys(command.also.rows()) if prefix + key != target]
    also = Lookup.of(state, prefix, wanted, now_us)
    check_lock(state, also)
    rows = []
    for row in range(len(wanted)):
        if also.is_live(row) and also.keys[row] != target:
            raise RefusedError(Code.EXISTS, "a further key belongs to another value")
        if row in also.aliases or also.timestamp_us(row) <= stamp:
            rows.append(row)
    if not rows:
        return [], {}
    taken_over = list(map(also.own, rows))
    due = [(also.stored_expiry(row), also.keys[row]) for row in rows if row not in also.aliases]
    columns = (
        repeat(stamp, len(rows)),
        [entry.held if entry else 0 for entry in taken_over],
        [
            layout.row_bytes(entry, also.given[row]) if entry else 0
            for row, entry in zip(rows, taken_over, strict=True)
        ],
        Strings.of([wanted[row] for row in rows]),
        Strings.of([target[PREFIX_BYTES:]] * len(rows)),
    )
    linked = Op(Opcode.KV_LINK, table.id, len(rows), columns)
    gone: _Volatile = {also.given[row]: None for row in rows if also.given[row] in also.volatile}
    return [*unschedule(table.id, due), linked], gone


def linked(state: State, table_id: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields the further keys of a table, each behind the key that it leads to."""
    start = prefix = prefix_of(table_id)
    stop = end_of(prefix)
    while items := state.scan(Tree.KV, start, stop, _PIECE):
        for key, data in items:
            if data[layout.TYPE_AT] == ops.ALIAS:
                yield layout.decode_target(data), key[PREFIX_BYTES:]
        start = items[-1][0] + b"\0"


def linked_of(op: Op) -> Iterable[tuple[bytes, bytes]]:
    """Returns the same of KV_LINK."""
    keys, targets = op.column("key"), op.column("target")
    return zip(targets.rows(), keys.rows(), strict=True)


def further_keys(state: State, table: Table, key: bytes, now_us: int) -> dict[bytes, Entry]:
    """Returns the index keys that lead to the value of a key, and what stands there."""
    known = dict.fromkeys(state.linked_keys(table.id).get(key, ()))
    found, target = Lookup.of(state, table.prefix, list(known), now_us), table.prefix + key
    return {
        found.given[at]: alias for at, alias in found.aliases.items() if found.keys[at] == target
    }
