"""SET and DELETE: the largest client timestamp wins (FJ-42), all of a batch or none.

A write that is older than what is there succeeds and changes nothing; ties go to the later write.
Most writes are plain, and decided by `plain`, column by column.  All others are decided here,
row by row, by what `lookup` says of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fjord import commands, kinds, limits
from fjord.columns import Strings, repeat
from fjord.commands import Refusal
from fjord.errors import Code
from fjord.layouts import PREFIX_BYTES
from fjord.ops import Op, Opcode
from fjord.tables import catalog
from fjord.tables.kv import links as kv_links
from fjord.tables.kv import plain, rules
from fjord.tables.kv.lookup import Lookup, lock_problem
from fjord.tables.kv.ops import purge, unschedule
from fjord.tables.state import Decision, State, Table, Tree, VolatileValue, decides, volatile_bytes

_PREFIX = PREFIX_BYTES
_Volatile = dict[bytes, VolatileValue | None]


@decides(commands.Set)
def decide_set(command: commands.Set, state: State, now_us: int) -> Decision:
    problem = rules.set_problem(command, now_us)
    if problem is not None:
        return Decision(problem)
    found = catalog.find_or_create(state, command.table, kinds.Kind.KV)
    if isinstance(found, Refusal):
        return Decision(found)
    if command.ttl_us and not command.expires_at_us:
        command = replace(command, expires_at_us=now_us + command.ttl_us)
    table, creation = found
    prefix = table.prefix
    keys = [prefix + key for key in command.keys.rows()]
    stored = state.get_many(Tree.KV, keys)
    if plain.is_plain(command, keys, state):
        if any(stored):
            op = plain.replace(command, table, keys, stored)
        else:
            op = plain.insert(command, table)
        if op is not None:
            return catalog.decision(state, [*creation, op])
    lookup = Lookup(state, keys, stored, now_us)
    write = _Write(table, creation, lookup, command.timestamps_us, state)
    problem = lock_problem(state, lookup)
    if problem is not None:
        return Decision(problem)
    if not command.overwrite and any(map(lookup.is_live, range(len(keys)))):
        return Decision(Refusal(code=Code.EXISTS, text="a key is there and overwrite is off"))
    if not command.persist:
        return _decide_volatile(command, write, now_us)
    return _decide_stored(command, write, now_us)


@decides(commands.Delete)
def decide_delete(command: commands.Delete, state: State, now_us: int) -> Decision:
    problem = rules.delete_problem(command, now_us)
    if problem is not None:
        return Decision(problem)
    if command.purge and command.table not in state.tables:
        return catalog.decision(state, ())
    found = catalog.find_or_create(state, command.table, kinds.Kind.KV)
    if isinstance(found, Refusal):
        return Decision(found)
    table, creation = found
    lookup = Lookup.of(state, table.prefix, command.keys.rows(), now_us)
    problem = lock_problem(state, lookup)
    if problem is not None:
        return Decision(problem)
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
    if isinstance(linked, Refusal):
        return Decision(linked)
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
        return Decision(Refusal(code=Code.EXISTS, text=text))
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
        return Decision(Refusal(code=Code.QUOTA, text=text))
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
