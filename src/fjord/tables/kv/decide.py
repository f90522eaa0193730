"""Commands that write values: SET, DELETE, ADD, NOT, TRUNCATE and RENAME.

The largest client timestamp wins (FJ-42), for all of a batch or none.  A write that is older than
the stored value succeeds and changes nothing; ties go to the later write.  Most writes are plain,
and decided column by column.  All others are decided row by row, with a `Lookup`.
"""

from __future__ import annotations

import functools
import math
import operator
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fjord import commands, kinds, limits, ops
from fjord.columns import Strings, repeat
from fjord.commands import Change
from fjord.errors import Code, RefusedError
from fjord.layouts import PREFIX_BYTES, end_of, pages, prefix_of
from fjord.ops import Op, Opcode
from fjord.tables import catalog, rules
from fjord.tables.kv import layout, read
from fjord.tables.kv.layout import KvEntry
from fjord.tables.kv.lookup import Lookup, check_lock, purge, unschedule
from fjord.tables.state import Decision, Table, Tree, View, VolatileValue, decides, volatile_bytes
from fjord.values import Type

_Volatile = dict[bytes, VolatileValue | None]


@decides(commands.Set)
def decide_set(command: commands.Set, state: View, now_us: int) -> Decision:
    _check_set(command, now_us)
    table, creation = catalog.find_or_create(state, command.table, kinds.Kind.KV)
    if command.ttl_us and not command.expires_at_us:
        command = replace(command, expires_at_us=now_us + command.ttl_us)
    prefix = table.prefix
    keys = [prefix + key for key in command.keys.rows()]
    stored = state.get_many(Tree.KV, keys)
    if is_plain(command, keys, state):
        if any(stored):
            op = plain_replace(command, table, keys, stored)
        else:
            op = plain_insert(command, table)
        if op is not None:
            return catalog.decision(state, [*creation, op])
    lookup = Lookup(state, keys, stored, now_us)
    write = _Write(table, creation, lookup, command.timestamps_us, state)
    check_lock(state, lookup)
    if not command.overwrite and any(map(lookup.is_live, range(len(keys)))):
        raise RefusedError(Code.EXISTS, "a key exists and overwrite is off")
    if not command.persist:
        return _decide_volatile(command, write, now_us)
    return _decide_stored(command, write, now_us)


@decides(commands.Delete)
def decide_delete(command: commands.Delete, state: View, now_us: int) -> Decision:
    _check_delete(command, now_us)
    if command.purge and command.table not in state.tables:
        return catalog.decision(state, ())
    table, creation = catalog.find_or_create(state, command.table, kinds.Kind.KV)
    lookup = Lookup.of(state, table.prefix, command.keys.rows(), now_us)
    check_lock(state, lookup)
    timestamps_us = command.timestamps_us
    if timestamps_us is None:
        timestamps_us = repeat(command.timestamp_us, len(command.keys))
    write = _Write(table, creation, lookup, timestamps_us, state)
    rows = write.winners
    removal = write.purge(rows) if command.purge else write.delete(rows)
    return write.decision([*write.unschedule(rows), *removal], write.gone(rows))


def _check_set(command: commands.Set, now_us: int) -> None:
    rules.check_keys(command.keys)
    stamps, rows = command.timestamps_us, len(command.types)
    offsets = command.values.offsets
    if not (len(command.keys.offsets) == len(offsets) == rows + 1 == len(stamps) + 1):
        raise RefusedError(Code.BAD_BATCH, "keys, types and values differ in length")
    rules.check_sizes(command.keys, command.values)
    if command.expires_at_us or command.ttl_us:
        read.check_moment(command.expires_at_us, now_us)
        if not 0 <= command.ttl_us <= limits.EXPIRY_AHEAD_US_MAX:
            raise RefusedError(Code.BAD_TIMEOUT, "a TTL is at most 30 days")
    rules.check_timestamps(stamps, now_us)
    rules.check_plain_values(command.types, command.values)
    if command.also is not None:
        _check_also(command, command.also)


def _check_also(command: commands.Set, also: Strings) -> None:
    if len(command.types) != 1:
        raise RefusedError(Code.BAD_BATCH, "only a SET of one key can have further keys")
    if not command.persist and also:
        raise RefusedError(Code.BAD_BATCH, "with persist=0 a value has one key")
    if len(also) > limits.ALSO_MAX:
        raise RefusedError(Code.BAD_COUNT, f"a value has at most {limits.ALSO_MAX} more keys")
    if also:
        rules.check_keys(also)


def _check_delete(command: commands.Delete, now_us: int) -> None:
    rules.check_keys(command.keys)
    stamps = command.timestamps_us
    if stamps is not None and len(stamps) != len(command.keys):
        raise RefusedError(Code.BAD_BATCH, "keys and dates differ in length")
    rules.check_timestamps((command.timestamp_us,) if stamps is None else stamps, now_us)


@dataclass
class _Write:
    """A write of keys that were looked up, and which of its rows win."""

    table: Table
    creation: Sequence[Op]
    lookup: Lookup
    timestamps_us: Sequence[int]
    state: View

    def __post_init__(self) -> None:
        self.keys = self.lookup.keys

    @functools.cached_property
    def winners(self) -> Sequence[int]:
        """The rows to write: newer than what is stored, and the last one of each key."""
        keys, timestamps_us = self.keys, self.timestamps_us
        rows = [
            row
            for row, timestamp_us in enumerate(timestamps_us)
            if self.lookup.timestamp_us(row) <= timestamp_us
        ]
        if len(set(keys)) < len(keys):
            # Ascending by timestamp and, since sorting is stable, by row: the last one wins.
            last = {keys[row]: row for row in sorted(rows, key=timestamps_us.__getitem__)}
            rows = sorted(last.values())
        return rows

    def unschedule(self, rows: Iterable[int], expires_at_us: int = 0) -> list[Op]:
        """Returns the op that removes expiries from the schedule, except unchanged ones."""
        found = [(self.lookup.stored_expiry(row), self.keys[row]) for row in rows]
        return unschedule(self.table.id, [item for item in found if item[0] != expires_at_us])

    def delete(self, rows: Sequence[int]) -> list[Op]:
        """Returns the op that writes a tombstone for each of these rows."""
        stamps, lease_us = self.timestamps_us, self.state.lease_us
        found = [
            (stamps[row], lease_us, *self.lookup.previous(row), self.keys[row][PREFIX_BYTES:])
            for row in rows
        ]
        return ops.of_rows(Opcode.KV_DELETE, self.table.id, found)

    def purge(self, rows: Sequence[int]) -> list[Op]:
        """Returns the op that purges these rows and the aliases through which they were found."""
        lookup = self.lookup
        gone = [(self.keys[row], entry) for row in rows if (entry := lookup.entries[row])]
        purged = {key for key, _ in gone}
        gone += [
            (lookup.given[row], alias)
            for row, alias in lookup.aliases.items()
            if self.keys[row] in purged
        ]
        return purge(self.table.id, dict(gone))

    def gone(self, rows: Iterable[int]) -> _Volatile:
        """Returns the change that drops the values in memory which these rows replace."""
        return {self.keys[row]: None for row in rows if self.keys[row] in self.lookup.volatile}

    def decision(self, decided: Sequence[Op], volatile: _Volatile) -> Decision:
        return catalog.decision(self.state, [*self.creation, *decided], volatile)


def _decide_stored(command: commands.Set, write: _Write, now_us: int) -> Decision:
    rows = write.winners
    if not rows:
        return write.decision((), {})
    links, unlinked = link(command, write.table, write.keys[0], write.state, now_us)
    op = _set_op(command, write)
    unscheduled = write.unschedule(rows, command.expires_at_us)
    return write.decision([*unscheduled, op, *links], write.gone(rows) | unlinked)


def _set_op(command: commands.Set, write: _Write) -> Op:
    """Returns the op that writes the winning rows."""
    rows, lookup = write.winners, write.lookup
    stamps = [command.timestamps_us[row] for row in rows]
    created = list(map(lookup.created_us, rows, stamps))
    previous, freed = zip(*map(lookup.previous, rows), strict=True)
    payload = (
        bytes([command.types[row] for row in rows]),
        Strings.of([write.keys[row][PREFIX_BYTES:] for row in rows]),
        Strings.of([command.values[row] for row in rows]),
    )
    is_plain = command.also is None and not command.expires_at_us
    if is_plain and created == stamps and not any(previous):
        return Op(Opcode.KV_INSERT, write.table.id, len(rows), (stamps, *payload))
    columns = (
        stamps,
        repeat(command.expires_at_us, len(rows)),
        repeat(command.ttl_us, len(rows)),
        created,
        [lookup.links(row) if command.also is None else 0 for row in rows],
        previous,
        freed,
        *payload,
    )
    return Op(Opcode.KV_SET, write.table.id, len(rows), columns)


def _decide_volatile(command: commands.Set, write: _Write, now_us: int) -> Decision:
    """persist=0: memory only; a stored value under the key is first deleted durably."""
    rows, lookup = write.winners, write.lookup
    if lookup.aliases:
        text = "this is a further key of another value; with persist=0 a value has only one key"
        raise RefusedError(Code.EXISTS, text)
    kept: _Volatile = {
        write.keys[row]: VolatileValue(
            command.types[row],
            command.values[row],
            command.timestamps_us[row],
            command.expires_at_us,
            command.ttl_us,
            lookup.created_us(row, command.timestamps_us[row]),
        )
        for row in rows
    }
    changes = within_quota(kept, write.state, now_us)
    if changes is None:
        text = f"values with persist=0 may take {limits.VOLATILE_BYTES_MAX} bytes in all"
        raise RefusedError(Code.QUOTA, text)
    stored = [row for row in rows if (entry := lookup.entries[row]) and entry.is_value]
    return write.decision([*write.unschedule(stored), *write.delete(stored)], changes)


# -- the memory quota of values with persist=0 ----------------------------------------------------


def within_quota(kept: _Volatile, state: View, now_us: int) -> _Volatile | None:
    """Returns the changes within the quota, dropping expired values if need be, else None."""
    added = sum(volatile_bytes(key, value) for key, value in kept.items() if value)
    if state.volatile_bytes + added <= limits.VOLATILE_BYTES_MAX:
        return kept
    gone: _Volatile = {
        key: None for key, value in state.volatile.items() if 0 < value.expires_at_us <= now_us
    }
    replaced = [key for key in gone.keys() | kept.keys() if key in state.volatile]
    freed = sum(volatile_bytes(key, state.volatile[key]) for key in replaced)
    if state.volatile_bytes - freed + added > limits.VOLATILE_BYTES_MAX:
        return None
    return gone | kept


# -------------------------------------------------------------------------------------------------
#
# Plain writes, column by column: values that never expire, and have no marks or aliases.
#
# Most writes are plain, and no object is created for their rows.  Writes that are not plain, or not
# entirely, are left to `_Write`, which gives the same result row by row.


def is_plain(command: commands.Set, keys: list[bytes], state: View) -> bool:
    """Returns whether only stored entries matter to this command."""
    return (
        command.persist
        and command.also is None
        and (len(keys) == 1 or len(set(keys)) == len(keys))
        and (not state.locks or state.locks.keys().isdisjoint(keys))
        and (not state.volatile or state.volatile.keys().isdisjoint(keys))
    )


def plain_insert(command: commands.Set, table: Table) -> Op:
    """Returns the op for keys that have no entry at all."""
    rows, stamps = len(command.types), command.timestamps_us
    payload = (command.types, command.keys, command.values)
    if not command.expires_at_us:
        return Op(Opcode.KV_INSERT, table.id, rows, (stamps, *payload))
    none, expiries, ttls = (
        repeat(number, rows) for number in (0, command.expires_at_us, command.ttl_us)
    )
    columns = (stamps, expiries, ttls, stamps, none, none, none, *payload)
    return Op(Opcode.KV_SET, table.id, rows, columns)


def plain_replace(
    command: commands.Set, table: Table, keys: Sequence[bytes], stored: Sequence[bytes | None]
) -> Op | None:
    """Returns the op that replaces values which never expire; None if it is not that simple."""
    if not command.overwrite or command.expires_at_us:
        return None
    stamps = command.timestamps_us
    found = _replaced_one(stored[0]) if len(stored) == 1 else _replaced_many(stored, stamps)
    if found is None or not all(map(operator.le, found[0], stamps)):
        return None
    _, sizes, held, created, links = found
    none, row_bytes = repeat(0, len(keys)), ops.ROW_BYTES - PREFIX_BYTES
    columns = (
        stamps,
        none,
        none,
        created,
        links,
        held,
        [
            row_bytes + len(key) + size if seq else 0
            for key, size, seq in zip(keys, sizes, held, strict=True)
        ],
        command.types,
        command.keys,
        command.values,
    )
    return Op(Opcode.KV_SET, table.id, len(keys), columns)


# Of entries that never expire, column by column: timestamp, size, held, created, links.
_Replaced = tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int], Sequence[int]]


def _replaced_one(data: bytes | None) -> _Replaced | None:
    """Unpacks the entry of a value; None for anything else."""
    entry = layout.decode(data) if data else _NO_ENTRY
    if entry.type > layout.VALUE_TYPE_MAX or entry.expires_at_us:
        return None
    return (entry.timestamp_us,), (entry.size,), (entry.held,), (entry.created_us,), (entry.links,)


def _replaced_many(
    stored: Sequence[bytes | None], timestamps_us: Sequence[int]
) -> _Replaced | None:
    """Unpacks entries: values, tombstones or none at all; None if there is anything else."""
    shapes = {len(data) if data else 0 for data in stored}
    if shapes == {layout.BASE.size}:
        rows = zip(*layout.BASE_REPLACED.iter_unpack(_joined(stored)), strict=True)
        held, stamps, sizes, types = rows
        if max(types) <= layout.VALUE_TYPE_MAX:
            return stamps, sizes, held, stamps, held
    elif shapes == {layout.FULL.size}:
        rows = zip(*layout.FULL_REPLACED.iter_unpack(_joined(stored)), strict=True)
        stamps, sizes, types, held, created, expiries, links = rows
        if max(types) <= layout.VALUE_TYPE_MAX:
            return (stamps, sizes, held, created, links) if not any(expiries) else None
    return _replaced_mixed(stored, timestamps_us)


def _replaced_mixed(
    stored: Sequence[bytes | None], timestamps_us: Sequence[int]
) -> _Replaced | None:
    entries = [layout.decode(data) if data else _NO_ENTRY for data in stored]
    _, stamps, _, _, sizes, _, types, held, created, expiries, _, links = zip(*entries, strict=True)
    if any(expiries) or ops.ALIAS in types:
        return None
    # Missing and deleted entries are created now, and have no links.
    is_value = [type_ <= layout.VALUE_TYPE_MAX for type_ in types]
    born = [
        date if known else stamp
        for known, date, stamp in zip(is_value, created, timestamps_us, strict=True)
    ]
    return stamps, sizes, held, born, list(map(operator.mul, is_value, links))


def _joined(stored: Sequence[bytes | None]) -> bytes:
    return b"".join([data for data in stored if data])


# Stands for a missing entry: a tombstone that no row holds.
_NO_ENTRY: Final = layout.KvEntry(0, 0, 0, 0, 0, 0, ops.TOMBSTONE, 0, 0, 0, 0, 0)


# -- ADD, NOT, TRUNCATE: only the value changes ---------------------------------------------------
#
# The new value is computed here, so that what is stored is a plain SET.  Its timestamp is never
# smaller than that of the old value.


_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**63 - 1


@decides(commands.Modify)
def decide_modify(command: commands.Modify, state: View, now_us: int) -> Decision:
    _check_modify(command, now_us)
    table, lookup = _existing(state, command.table, [command.key], now_us)
    type_, data = lookup.value(0)
    changed = _CHANGES[command.change](type_, data, command)
    # Later than the old value: repeating an earlier SET must not undo this.
    stamp_us = max(lookup.timestamp_us(0) + 1, command.timestamp_us)
    row = _written(lookup.known(0), changed, stamp_us)
    key, entry = lookup.keys[0], lookup.entries[0]
    reply = read.one_entry(row, is_locked=not state.locks.keys().isdisjoint(lookup.keys))
    if key in lookup.volatile:
        return Decision(reply, (), {key: row})
    assert entry is not None
    return Decision(reply, _set_one(table, key, row, entry, links=entry.links))


def _check_modify(command: commands.Modify, now_us: int) -> None:
    read.check_key(command.key)
    rules.check_timestamps((command.timestamp_us,), now_us)
    if command.change == Change.NOT:
        return
    if len(command.operand) != 8:
        raise RefusedError(Code.BAD_VALUE, "an operand has exactly 8 bytes")
    if command.operand_type == Type.INTEGER:
        return
    if command.operand_type != Type.FLOAT or command.change == Change.TRUNCATE:
        raise RefusedError(Code.BAD_TYPE, "only a number can be added, and a size is an integer")
    if not math.isfinite(_FLOAT.unpack(command.operand)[0]):
        raise RefusedError(Code.BAD_VALUE, "infinity and NaN cannot be added")


def _add(type_: int, data: bytes, command: commands.Modify) -> bytes:
    if type_ not in (Type.INTEGER, Type.FLOAT) or (
        type_ == Type.INTEGER and command.operand_type == Type.FLOAT
    ):
        raise _mismatch("a number can only be added to a number, and a float to a float")
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
        raise _mismatch("only a buffer or a string can be truncated")
    size = _NUMBER[Type.INTEGER](command.operand)
    if not 0 <= size <= len(data):
        text = f"the value has {len(data)} bytes; it cannot be made longer"
        raise RefusedError(Code.BAD_SIZE, text)
    if type_ == Type.STRING and size < len(data) and data[int(size)] & 0xC0 == 0x80:
        raise RefusedError(Code.BAD_VALUE, "that would split a character")
    return data[: int(size)]


def _existing(state: View, name: str, keys: Sequence[bytes], now_us: int) -> tuple[Table, Lookup]:
    """Looks keys up; refuses if there is nothing under the first one, or one is locked."""
    table = catalog.find(state, name, kinds.Kind.KV)
    if table is not None:
        lookup = Lookup.of(state, table.prefix, keys, now_us)
        check_lock(state, lookup)
        if lookup.is_live(0):
            return table, lookup
    raise RefusedError(Code.NOT_FOUND, "the key does not exist")


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
def decide_rename(command: commands.Rename, state: View, now_us: int) -> Decision:
    read.check_key(command.key)
    read.check_key(command.to)
    rules.check_timestamps((command.timestamp_us,), now_us)
    table, lookup = _existing(state, command.table, [command.key, command.to], now_us)
    if command.key == command.to:
        return catalog.decision(state, ())
    if lookup.is_live(_NEW) and not command.overwrite:
        raise RefusedError(Code.EXISTS, "the new key exists and overwrite is off")
    made, volatile = _rename(command, table, lookup, state, now_us)
    return catalog.decision(state, made, volatile)


# The rows of the lookup.
_OLD, _NEW = 0, 1


def _rename(
    command: commands.Rename, table: Table, lookup: Lookup, state: View, now_us: int
) -> tuple[list[Op], _Volatile]:
    """Moves a value to another key; whatever that key had is deleted."""
    (old_key, new_key), old, new = lookup.given, lookup.own(_OLD), lookup.own(_NEW)
    replaces_alias = _NEW in lookup.aliases
    # A rename overrides all earlier writes of both keys, and repeating an earlier SET must not
    # undo it.
    stamp_us = max(
        command.timestamp_us,
        lookup.timestamp_us(_OLD) + 1,
        0 if replaces_alias else lookup.timestamp_us(_NEW) + 1,
        new.timestamp_us + 1 if new else 0,
    )

    def delete(key: bytes, entry: KvEntry | None) -> list[Op]:
        row = (stamp_us, state.lease_us, *layout.replaced(key, entry), key[PREFIX_BYTES:])
        return ops.of_rows(Opcode.KV_DELETE, table.id, [row])

    due = [(0 if replaces_alias else lookup.stored_expiry(_NEW), new_key)]
    gone: _Volatile = {new_key: None} if new_key in lookup.volatile else {}
    if _OLD in lookup.aliases:  # only the alias moves; onto the key of its own target, it just goes
        target = lookup.keys[_OLD]
        if target == new_key:
            return delete(old_key, old), {}
        linked = _link_op(table, {new_key: new}, target, stamp_us)
        return [*unschedule(table.id, due), *linked, *delete(old_key, old)], gone
    row = _written(lookup.known(_OLD), lookup.value(_OLD)[1], stamp_us)
    if old_key in lookup.volatile:  # what is stored under the new key is first deleted durably
        changes: _Volatile = {old_key: None, new_key: row}
        if new is None or not (new.is_value or replaces_alias):
            return [], changes
        return [*unschedule(table.id, due), *delete(new_key, new)], changes
    # The further keys of a value still lead to it (FJ-31).
    further = further_keys(state, table, command.key, now_us)
    others = {key: entry for key, entry in further.items() if key != new_key}
    made = [
        *unschedule(table.id, [(row.expires_at_us, old_key), *due]),
        *_set_one(table, new_key, row, new, links=0),
        *delete(old_key, old),
        *_link_op(table, others, new_key, stamp_us),
    ]
    return made, gone


def _written(known: VolatileValue, value: bytes, stamp_us: int) -> VolatileValue:
    """Returns the properties of a value after another write."""
    return known._replace(value=value, timestamp_us=stamp_us, accessed_us=0, worked_until_us=0)


def _set_one(
    table: Table, key: bytes, row: VolatileValue, replaced: KvEntry | None, *, links: int
) -> list[Op]:
    dates = (row.timestamp_us, row.expires_at_us, row.ttl_us, row.created_us)
    numbers = (*dates, links, *layout.replaced(key, replaced))
    payload = (row.type, key[PREFIX_BYTES:], row.value)
    return ops.of_rows(Opcode.KV_SET, table.id, [(*numbers, *payload)])


# -- one value under several keys (FJ-31) ---------------------------------------------------------
#
# A key that has a value of its own, or belongs to another value, is refused.  `lookup` finds what
# the keys lead to.  A list that replaces another one needs no unlinking, since aliases from before
# the new row no longer count.


_PIECE: Final = 10_000  # entries are examined in pieces


def link(
    command: commands.Set, table: Table, target: bytes, state: View, now_us: int
) -> tuple[list[Op], _Volatile]:
    """Returns the ops that link further keys to the single value of a command, at an index key.

    Expired values under such a key are removed, in the index or in memory.
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
            raise RefusedError(Code.EXISTS, "a further key already belongs to another value")
        if row in also.aliases or also.timestamp_us(row) <= stamp:
            rows.append(row)
    if not rows:
        return [], {}
    due = [(also.stored_expiry(row), also.keys[row]) for row in rows if row not in also.aliases]
    taken_over = {also.given[row]: also.own(row) for row in rows}
    linked = _link_op(table, taken_over, target, stamp)
    gone: _Volatile = {also.given[row]: None for row in rows if also.given[row] in also.volatile}
    return [*unschedule(table.id, due), *linked], gone


def _link_op(
    table: Table, replaced: Mapping[bytes, KvEntry | None], target: bytes, timestamp_us: int
) -> list[Op]:
    """Returns the op that makes index keys lead to a value, replacing their entries."""
    rows = [
        (timestamp_us, *layout.replaced(key, entry), key[PREFIX_BYTES:], target[PREFIX_BYTES:])
        for key, entry in replaced.items()
    ]
    return ops.of_rows(Opcode.KV_LINK, table.id, rows)


def linked(state: View, table_id: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields the further keys of a table, each after the key that it leads to."""
    prefix = prefix_of(table_id)
    for items in pages(state.scan, Tree.KV, prefix, end_of(prefix), _PIECE):
        for key, data in items:
            if data[layout.TYPE_AT] == ops.ALIAS:
                yield layout.decode_target(data), key[PREFIX_BYTES:]


def linked_of(op: Op) -> Iterable[tuple[bytes, bytes]]:
    """Like `linked`, for one KV_LINK."""
    keys, targets = op.column("key"), op.column("target")
    return zip(targets.rows(), keys.rows(), strict=True)


def further_keys(state: View, table: Table, key: bytes, now_us: int) -> dict[bytes, KvEntry]:
    """Returns the index keys that lead to the value of a key, and their entries."""
    known = dict.fromkeys(state.linked_keys(table.id).get(key, ()))
    found, target = Lookup.of(state, table.prefix, list(known), now_us), table.prefix + key
    return {
        found.given[at]: alias for at, alias in found.aliases.items() if found.keys[at] == target
    }
