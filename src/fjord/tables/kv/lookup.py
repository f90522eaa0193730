"""Looking up keys: where each leads, what it contains, and its mark.

A key leads to its own entry or, if it is an alias that counts, to the entry of its target.  Reading
or writing an alias reads or writes the target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fjord import commands, kinds, limits, ops
from fjord.errors import Code, RefusedError
from fjord.layouts import PREFIX_BYTES
from fjord.ops import Op, Opcode
from fjord.tables import catalog
from fjord.tables.kv import layout
from fjord.tables.kv.layout import NO_MARK, KvEntry, Mark
from fjord.tables.rules import check_keys
from fjord.tables.state import Decision, Tree, View, VolatileValue, decides


class Lookup:
    """Keys of one table, looked up once; a row is the position of a key."""

    def __init__(
        self,
        state: View,
        given: list[bytes],
        stored: Sequence[bytes | None],
        now_us: int,
        *,
        all_marks: bool = False,  # else only those of entries that expire
    ) -> None:
        self.given = given  # the requested index keys
        self.keys = given  # the index keys that they lead to
        self.stored = stored  # the entry of each requested key, as found
        self.entries = [layout.decode(data) if data else None for data in stored]
        self.marks: dict[int, Mark] = {}  # the valid ones
        self.expiries: list[int] = []  # when each row expires, marks included; 0 = never
        self.volatile = _volatile(state, given)
        self.aliases: dict[int, KvEntry] = {}  # rows that were found through a valid alias
        self._now_us = now_us
        self._state = state
        self._follow_aliases()
        self._find_marks(all_marks=all_marks)
        self._find_expiries()
        self._drop_expired_targets()

    @classmethod
    def of(
        cls,
        state: View,
        prefix: bytes,
        keys: Sequence[bytes],
        now_us: int,
        *,
        all_marks: bool = False,
    ) -> Lookup:
        given = [prefix + key for key in keys]
        return cls(state, given, state.get_many(Tree.KV, given), now_us, all_marks=all_marks)

    # -- one row ----------------------------------------------------------------------------------

    def in_memory(self, row: int) -> VolatileValue | None:
        return self.volatile.get(self.keys[row])

    def is_live(self, row: int) -> bool:
        if 0 < self.expiries[row] <= self._now_us:
            return False
        entry = self.entries[row]
        if entry is not None and entry.type <= layout.VALUE_TYPE_MAX:
            return True
        return bool(self.volatile) and self.keys[row] in self.volatile

    def stored_expiry(self, row: int) -> int:
        """Returns the expiry of the row in the schedule, 0 = it is not there."""
        return 0 if self.keys[row] in self.volatile else self.expiries[row]

    def timestamp_us(self, row: int) -> int:
        """Returns the timestamp that a write must reach, 0 = any."""
        entry = self.entries[row]
        stored = entry.timestamp_us if entry is not None else 0
        if not self.volatile:
            return stored
        found = self.in_memory(row)
        return stored if found is None else max(stored, found.timestamp_us)

    def created_us(self, row: int, otherwise_us: int) -> int:
        """Returns when a live row was created, or another date if it is not live."""
        if not self.is_live(row):
            return otherwise_us
        found, entry = self.in_memory(row), self.entries[row]
        if found is not None:
            return found.created_us or found.timestamp_us
        return entry.created_us if entry is not None else otherwise_us

    def known(self, row: int) -> VolatileValue:
        """Returns all properties of a live row, without a value that is in the journal."""
        found, entry = self.in_memory(row), self.entries[row]
        if found is not None:
            return found._replace(created_us=found.created_us or found.timestamp_us)
        assert entry is not None
        _, timestamp_us, _, _, _, _, type_, _, created_us, _, ttl_us, _ = entry
        _, accessed_us, _, worked_until_us = self.marks.get(row, NO_MARK)
        dates = (self.expiries[row], ttl_us, created_us, accessed_us, worked_until_us)
        return VolatileValue(type_, b"", timestamp_us, *dates)

    def size(self, row: int) -> int:
        found, entry = self.in_memory(row), self.entries[row]
        if found is not None:
            return len(found.value)
        return entry.size if entry is not None else 0

    def is_worked_on(self, row: int) -> bool:
        found = self.in_memory(row)
        mark = self.marks.get(row, NO_MARK) if found is None else found
        return mark.worked_until_us > self._state.lease_us

    def value(self, row: int) -> tuple[int, bytes]:
        """Returns type and bytes of a live row."""
        found, entry = self.in_memory(row), self.entries[row]
        if found is not None:
            return found.type, found.value
        assert entry is not None
        return entry.type, self._state.payloads([entry.pointer])[0] if entry.size else b""

    def previous(self, row: int) -> tuple[int, int]:
        """Returns the seq that holds the row now, and its live bytes; 0 for nothing."""
        return layout.replaced(self.keys[row], self.entries[row])

    def links(self, row: int) -> int:
        """Returns from which row on aliases count after a write that keeps them; 0 = none."""
        entry = self.entries[row]
        return entry.links if entry is not None and entry.is_value and self.is_live(row) else 0

    def own(self, row: int) -> KvEntry | None:
        """Returns the entry of the requested key itself, wherever it leads."""
        return self.aliases.get(row) or self.entries[row]

    def note(self, row: int, mark: Mark) -> None:
        """Sets the mark that a row is about to get."""
        found = self.in_memory(row)
        self.expiries[row] = mark.expires_at_us
        if found is None:
            self.marks[row] = mark
        else:
            self.volatile[self.keys[row]] = found._replace(
                expires_at_us=mark.expires_at_us,
                accessed_us=mark.accessed_us,
                worked_until_us=mark.worked_until_us,
            )

    # -- all rows ---------------------------------------------------------------------------------

    def _follow_aliases(self) -> None:
        """Points rows to their targets, except aliases linked before `links`."""
        rows = [
            row
            for row, entry in enumerate(self.entries)
            if entry is not None
            and entry.type == ops.ALIAS
            and self.given[row] not in self.volatile
        ]
        if not rows:
            return
        prefix = self.given[0][:PREFIX_BYTES]
        targets = [prefix + layout.decode_target(self.stored[row] or b"") for row in rows]
        self.keys = list(self.given)
        for row, key, data in zip(
            rows, targets, self._state.get_many(Tree.KV, targets), strict=True
        ):
            alias, target = self.entries[row], layout.decode(data) if data else None
            assert alias is not None
            if target is not None and target.is_value and alias.row >= target.links:
                self.keys[row], self.entries[row], self.aliases[row] = key, target, alias

    def _find_marks(self, *, all_marks: bool) -> None:
        rows = [
            row
            for row, entry in enumerate(self.entries)
            if entry is not None
            and (entry.expires_at_us or all_marks)
            and entry.type <= layout.VALUE_TYPE_MAX
        ]
        if not rows:
            return
        found = self._state.get_many(Tree.KV_MARKS, [self.keys[row] for row in rows])
        for row, data in zip(rows, found, strict=True):
            entry = self.entries[row]
            if (
                data is not None
                and entry is not None
                and layout.ROW.unpack_from(data)[0] == entry.row
            ):
                self.marks[row] = layout.decode_mark(data, entry.row)

    def _find_expiries(self) -> None:
        self.expiries = [entry.expires_at_us if entry is not None else 0 for entry in self.entries]
        for row, mark in self.marks.items():
            if self.expiries[row]:
                self.expiries[row] = max(self.expiries[row], mark.expires_at_us)
        if self.volatile:
            for row, key in enumerate(self.keys):
                if key in self.volatile:
                    self.expiries[row] = self.volatile[key].expires_at_us

    def _drop_expired_targets(self) -> None:
        dead = [row for row in self.aliases if not self.is_live(row)]
        for row in dead:
            self.keys[row] = self.given[row]
            self.entries[row] = self.aliases.pop(row)
            self.expiries[row] = 0
            self.marks.pop(row, None)


def check_lock(state: View, lookup: Lookup) -> None:
    """Refuses if another client has locked one of the keys, or its target."""
    locks, client = state.locks, state.client
    if locks and any(locks.get(key, client) != client for key in (*lookup.given, *lookup.keys)):
        raise RefusedError(Code.LOCKED, "another client has locked a key")


def _volatile(state: View, keys: Sequence[bytes]) -> dict[bytes, VolatileValue]:
    """Returns the values of these keys that are in memory."""
    found = state.volatile
    if not found or found.keys().isdisjoint(keys):
        return {}
    return {key: found[key] for key in keys if key in found}


# -- ops that several commands need ---------------------------------------------------------------


def unschedule(table_id: int, items: Sequence[tuple[int, bytes]]) -> list[Op]:
    """Returns the op that removes index keys from the schedule; 0 stands for no expiry."""
    due = [(expires_at_us, key[PREFIX_BYTES:]) for expires_at_us, key in items if expires_at_us]
    return ops.of_rows(Opcode.KV_UNSCHEDULE, table_id, due)


def purge(table_id: int, entries: Mapping[bytes, KvEntry]) -> list[Op]:
    """Returns the op that purges these entries by index key."""
    rows = [
        (entry.held, layout.row_bytes(entry, key), key[PREFIX_BYTES:])
        for key, entry in entries.items()
    ]
    return ops.of_rows(Opcode.KV_PURGE, table_id, rows)


# -- LOCK and UNLOCK: nobody else may write a key while its holder is connected -------------------
#
# Locks live in memory, with the connections that hold them.  What is locked is the key that a key
# leads to, whether or not it has a value.


@decides(commands.Lock)
def decide_lock(command: commands.Lock, state: View, now_us: int) -> Decision:
    check_keys(command.keys)
    table, creation = catalog.find_or_create(state, command.table, kinds.Kind.KV)
    lookup = Lookup.of(state, table.prefix, command.keys.rows(), now_us)
    if state.locks and not state.locks.keys().isdisjoint([*lookup.given, *lookup.keys]):
        raise RefusedError(Code.LOCKED, "a key is locked already")
    wanted = dict.fromkeys(lookup.keys, state.client)
    if len(state.locks) + len(wanted) > limits.LOCKS_MAX:
        raise RefusedError(Code.QUOTA, f"{limits.LOCKS_MAX} keys may be locked")
    return catalog.decision(state, creation, locks=wanted)


@decides(commands.Unlock)
def decide_unlock(command: commands.Unlock, state: View, now_us: int) -> Decision:
    check_keys(command.keys)
    table = catalog.find(state, command.table, kinds.Kind.KV)
    if table is None:
        raise _not_owner()
    lookup = Lookup.of(state, table.prefix, command.keys.rows(), now_us)
    freed: dict[bytes, None] = {}
    for given, key in zip(lookup.given, lookup.keys, strict=True):
        # A key may have become an alias since it was locked.
        own = given if state.locks.get(given) == state.client else key
        if state.locks.get(own) != state.client:
            raise _not_owner()
        freed[own] = None
    return catalog.decision(state, (), locks=freed)


def _not_owner() -> RefusedError:
    return RefusedError(Code.NOT_OWNER, "a key is not locked by this client")
