"""SET and DELETE: the largest client timestamp wins (FJ-42), all of a batch or none.

A write that is older than what is there succeeds and changes nothing; ties go to the later write.
Most writes are plain, and decided by `plain`, column by column.  All others are decided here,
row by row, by what `lookup` says of each.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from fjord import commands, kinds, limits, ops
from fjord.columns import Strings, repeat
from fjord.errors import Code, RefusedError
from fjord.layouts import PREFIX_BYTES
from fjord.ops import Op, Opcode
from fjord.tables import catalog
from fjord.tables.kv import change as kv_links
from fjord.tables.kv import layout, rules
from fjord.tables.kv.lookup import Lookup, check_lock, purge, unschedule
from fjord.tables.state import Decision, State, Table, Tree, VolatileValue, decides, volatile_bytes

_PREFIX = PREFIX_BYTES
_Volatile = dict[bytes, VolatileValue | None]


@decides(commands.Set)
def decide_set(command: commands.Set, state: State, now_us: int) -> Decision:
    rules.check_set(command, now_us)
    found = catalog.find_or_create(state, command.table, kinds.Kind.KV)
    if command.ttl_us and not command.expires_at_us:
        command = replace(command, expires_at_us=now_us + command.ttl_us)
    table, creation = found
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
        raise RefusedError(Code.EXISTS, "a key is there and overwrite is off")
    if not command.persist:
        return _decide_volatile(command, write, now_us)
    return _decide_stored(command, write, now_us)


@decides(commands.Delete)
def decide_delete(command: commands.Delete, state: State, now_us: int) -> Decision:
    rules.check_delete(command, now_us)
    if command.purge and command.table not in state.tables:
        return catalog.decision(state, ())
    found = catalog.find_or_create(state, command.table, kinds.Kind.KV)
    table, creation = found
    lookup = Lookup.of(state, table.prefix, command.keys.rows(), now_us)
    check_lock(state, lookup)
    timestamps_us = command.timestamps_us
    if timestamps_us is None:
        timestamps_us = repeat(command.timestamp_us, len(command.keys))
    write = _Write(table, creation, lookup, timestamps_us, state)
    rows = write.winners
    removal = write.purge(rows) if command.purge else write.delete(rows)
    return write.decision([*write.unschedule(rows), *removal], write.gone(rows))


class _Write:
    """A write of keys that were looked up, and which of its rows win."""

    def __init__(
        self,
        table: Table,
        creation: Sequence[Op],
        lookup: Lookup,
        timestamps_us: Sequence[int],
        state: State,
    ) -> None:
        self.table = table
        self.state = state
        self.lookup = lookup
        self.keys = lookup.keys
        self._creation = creation
        self._timestamps_us = timestamps_us
        self.winners = self._find_winners()

    def _find_winners(self) -> Sequence[int]:
        """Returns the rows to write: newer than what is there, the last one of each key."""
        keys, timestamps_us = self.keys, self._timestamps_us
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
        """Returns the op that takes expiries back, but for those that stay as they are."""
        found = [(self.lookup.stored_expiry(row), self.keys[row]) for row in rows]
        return unschedule(self.table.id, [item for item in found if item[0] != expires_at_us])

    def delete(self, rows: Sequence[int]) -> list[Op]:
        """Returns the op that leaves a tombstone in each of these rows."""
        if not rows:
            return []
        previous, freed = self.previous(rows)
        stamps = [self._timestamps_us[row] for row in rows]
        buried = repeat(self.state.lease_us, len(rows))
        columns = (stamps, buried, previous, freed, self.user_keys(rows))
        return [Op(Opcode.KV_DELETE, self.table.id, len(rows), columns)]

    def purge(self, rows: Sequence[int]) -> list[Op]:
        """Returns the op that leaves nothing, also of the aliases that these rows came through."""
        lookup = self.lookup
        gone = [(self.keys[row], entry) for row in rows if (entry := lookup.entries[row])]
        purged = {key for key, _ in gone}
        gone += [
            (lookup.given[row], alias)
            for row, alias in lookup.aliases.items()
            if self.keys[row] in purged
        ]
        return purge(self.table.id, dict(gone))

    def previous(self, rows: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        """Returns the columns `previous` and `freed`."""
        found = list(map(self.lookup.previous, rows))
        return [held for held, _ in found], [freed for _, freed in found]

    def user_keys(self, rows: Sequence[int]) -> Strings:
        return Strings.of([self.keys[row][_PREFIX:] for row in rows])

    def gone(self, rows: Iterable[int]) -> _Volatile:
        """Returns the change that drops the values in memory which these rows replace."""
        return {self.keys[row]: None for row in rows if self.keys[row] in self.lookup.volatile}

    def decision(self, decided: Sequence[Op], volatile: _Volatile) -> Decision:
        return catalog.decision(self.state, [*self._creation, *decided], volatile)


def _decide_stored(command: commands.Set, write: _Write, now_us: int) -> Decision:
    rows = write.winners
    if not rows:
        return write.decision((), {})
    linked = kv_links.link(command, write.table, write.keys[0], write.state, now_us)
    links, unlinked = linked
    op = _set_op(command, write)
    unscheduled = write.unschedule(rows, command.expires_at_us)
    return write.decision([*unscheduled, op, *links], write.gone(rows) | unlinked)


def _set_op(command: commands.Set, write: _Write) -> Op:
    """Returns the op that writes the rows that win."""
    rows, lookup = write.winners, write.lookup
    stamps = [command.timestamps_us[row] for row in rows]
    created = [
        lookup.created_us(row) if lookup.is_live(row) else stamp
        for row, stamp in zip(rows, stamps, strict=True)
    ]
    previous, freed = write.previous(rows)
    payload = (
        bytes([command.types[row] for row in rows]),
        write.user_keys(rows),
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
        text = "the key is a further key of another value; with persist=0 a value has one key"
        raise RefusedError(Code.EXISTS, text)
    kept: _Volatile = {
        write.keys[row]: VolatileValue(
            command.types[row],
            command.values[row],
            command.timestamps_us[row],
            command.expires_at_us,
            command.ttl_us,
            lookup.created_us(row) if lookup.is_live(row) else command.timestamps_us[row],
        )
        for row in rows
    }
    changes = within_quota(kept, write.state, now_us)
    if changes is None:
        text = f"values with persist=0 may take {limits.VOLATILE_BYTES_MAX} bytes in all"
        raise RefusedError(Code.QUOTA, text)
    stored = [row for row in rows if (entry := lookup.entries[row]) and entry.is_value]
    return write.decision([*write.unschedule(stored), *write.delete(stored)], changes)


# -- values with persist=0: how much of them may be in memory -------------------------------------


_Memory = dict[bytes, VolatileValue | None]


def within_quota(kept: _Memory, state: State, now_us: int) -> _Memory | None:
    """Returns the changes that keep the quota, without expired values if need be; else None."""
    added = sum(volatile_bytes(key, value) for key, value in kept.items() if value)
    if state.volatile_bytes + added <= limits.VOLATILE_BYTES_MAX:
        return kept
    gone: _Memory = {
        key: None for key, value in state.volatile.items() if 0 < value.expires_at_us <= now_us
    }
    replaced = [key for key in gone.keys() | kept.keys() if key in state.volatile]
    freed = sum(volatile_bytes(key, state.volatile[key]) for key in replaced)
    if state.volatile_bytes - freed + added > limits.VOLATILE_BYTES_MAX:
        return None
    return gone | kept


# -------------------------------------------------------------------------------------------------
#
# Plain writes, column by column: values that never expire, of which nothing special is known.
#
# Most writes are plain, and no object is made for a row of them.  What is not plain, or not only,
# is left to `write`, which comes to the same row by row.


def is_plain(command: commands.Set, keys: list[bytes], state: State) -> bool:
    """Says whether nothing but what is stored can matter to this command."""
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


# Of what never expires, column by column: timestamp, size, held, created, links.
_Replaced = tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int], Sequence[int]]


def _replaced_one(data: bytes | None) -> _Replaced | None:
    """Takes the entry of a value apart; None for anything else."""
    entry = layout.decode(data) if data else _NO_ENTRY
    if entry.type > layout.VALUE_TYPE_MAX or entry.expires_at_us:
        return None
    return (entry.timestamp_us,), (entry.size,), (entry.held,), (entry.created_us,), (entry.links,)


def _replaced_many(
    stored: Sequence[bytes | None], timestamps_us: Sequence[int]
) -> _Replaced | None:
    """Takes entries apart: values, tombstones and none at all; None if there is anything else."""
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
    # What is not there, or not any more, is created now, and has no links.
    is_value = [type_ <= layout.VALUE_TYPE_MAX for type_ in types]
    born = [
        date if known else stamp
        for known, date, stamp in zip(is_value, created, timestamps_us, strict=True)
    ]
    return stamps, sizes, held, born, list(map(operator.mul, is_value, links))


def _joined(stored: Sequence[bytes | None]) -> bytes:
    return b"".join([data for data in stored if data])


# Where no entry is, as a tombstone that nobody holds.
_NO_ENTRY: Final = layout.Entry(0, 0, 0, 0, 0, 0, ops.TOMBSTONE, 0, 0, 0, 0, 0)
