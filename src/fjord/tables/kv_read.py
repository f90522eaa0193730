"""GET and TOUCH: values with all that is known of them; a touch notes something of them, too.

A touch lets values live longer, or takes them for work (FJ-46, FJ-47).  What it notes is a mark of
the row that was read: the next write to the key voids it, so a worker that failed never hides the
value that came after (FJ-32).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fjord import commands, kinds
from fjord.columns import Strings
from fjord.commands import Refusal
from fjord.layouts import PREFIX_BYTES, end_of
from fjord.ops import Op, Opcode
from fjord.tables import catalog, kv_answer, kv_rules, stream_rules
from fjord.tables.kv_entry import Mark
from fjord.tables.kv_lookup import Lookup, lock_problem
from fjord.tables.kv_ops import unschedule
from fjord.tables.state import Decision, State, Table, Tree, VolatileValue, decides

# Up to this many keys it is cheaper to look for their marks than for any mark of the table.
_FEW_KEYS: Final = 4


@decides(commands.Get)
def decide_get(command: commands.Get, state: State, now_us: int) -> Decision:
    problem = kv_rules.keys_problem(command.keys)
    if problem is not None:
        return Decision(problem)
    table = stream_rules.find_map(state, command.table)
    if isinstance(table, Refusal):
        return Decision(table)
    if table is None:
        return Decision(kv_answer.no_entries(len(command.keys)))
    prefix = table.prefix
    keys = [prefix + key for key in command.keys.rows()]
    stored = state.get_many(Tree.KV, keys)
    if _is_plain(command, keys, state):
        plain = kv_answer.plain_entries(stored, state)
        if plain is not None:
            return Decision(plain)
    lookup = Lookup(state, keys, stored, now_us, all_marks=True)
    rows = [
        row
        if lookup.is_live(row) and not (command.skip_worked and lookup.is_worked_on(row))
        else None
        for row in range(len(keys))
    ]
    return Decision(kv_answer.entries(lookup, rows, state, with_data=command.with_data))


def _is_plain(command: commands.Get, keys: Sequence[bytes], state: State) -> bool:
    """Says whether nothing but what is stored can matter to this command."""
    return (
        command.with_data
        and not state.as_of  # then a value may have another place than its entry says
        and (not state.volatile or state.volatile.keys().isdisjoint(keys))
        and (not state.locks or state.locks.keys().isdisjoint(keys))
        and not _any_mark(state, keys)
    )


def _any_mark(state: State, keys: Sequence[bytes]) -> bool:
    if len(keys) <= _FEW_KEYS:
        return any(state.get_many(Tree.KV_MARKS, keys))
    prefix = keys[0][:PREFIX_BYTES]
    return bool(state.scan(Tree.KV_MARKS, prefix, end_of(prefix), 1))


# -- touch ----------------------------------------------------------------------------------------


@decides(commands.Touch)
def decide_touch(command: commands.Touch, state: State, now_us: int) -> Decision:
    problem = kv_rules.touch_problem(command, now_us)
    if problem is not None:
        return Decision(problem)
    table = catalog.find(state, command.table, kinds.Kind.KV)
    if isinstance(table, Refusal):
        return Decision(table)
    if table is None:
        return Decision(kv_answer.no_entries(len(command.keys)))
    lookup = Lookup.of(state, table.prefix, command.keys.rows(), now_us, all_marks=True)
    problem = lock_problem(state, lookup)
    if problem is not None:
        return Decision(problem)
    touch = _Touch(command, lookup, state, now_us)
    reply = kv_answer.entries(lookup, touch.rows, state, with_data=command.with_data)
    if isinstance(reply, Refusal):
        return Decision(reply)
    return Decision(reply, touch.ops(table), touch.volatile)


class _Touch:
    """Rows that were touched; the lookup then knows them as they are from now on."""

    def __init__(self, command: commands.Touch, lookup: Lookup, state: State, now_us: int) -> None:
        self._command = command
        self._lookup = lookup
        self._now_us = now_us
        self._lease_us = state.lease_us
        self._due: list[tuple[int, bytes]] = []  # expiries that no longer hold
        self._marks: dict[bytes, Mark] = {}
        self.volatile: dict[bytes, VolatileValue | None] = {}
        self.rows = [self._touch(row) for row in range(len(lookup.keys))]

    def _touch(self, row: int) -> int | None:
        """Touches a row; None if it is missing, or somebody else works on it."""
        lookup, key = self._lookup, self._lookup.keys[row]
        is_again = key in self._marks or key in self.volatile
        if not lookup.is_live(row):
            return None
        if self._command.worked_until_us and (is_again or lookup.is_worked_on(row)):
            return None
        expires_at_us = lookup.expiries[row]
        mark = self._mark(row, expires_at_us)
        lookup.note(row, mark)
        if key in lookup.volatile:
            self.volatile[key] = lookup.volatile[key]
            return row
        if mark.expires_at_us != expires_at_us and not is_again:
            self._due.append((expires_at_us, key))
        self._marks[key] = mark
        return row

    def _mark(self, row: int, expires_at_us: int) -> Mark:
        command, lookup = self._command, self._lookup
        if command.extend and expires_at_us:
            by_ttl_us = self._now_us + lookup.ttl_us(row) if lookup.ttl_us(row) else 0
            expires_at_us = max(expires_at_us, command.expires_at_us, by_ttl_us)
        worked_until_us = lookup.worked_until_us(row)
        if command.worked_until_us:
            worked_until_us = self._lease_us + command.worked_until_us - self._now_us
        entry = lookup.entries[row]
        return Mark(entry.row if entry else 0, self._now_us, expires_at_us, worked_until_us)

    def ops(self, table: Table) -> list[Op]:
        if not self._marks:
            return []
        rows, accessed, expiries, worked = (
            list(column) for column in zip(*self._marks.values(), strict=True)
        )
        keys = Strings.of([key[PREFIX_BYTES:] for key in self._marks])
        columns = (rows, accessed, expiries, worked, keys)
        mark = Op(Opcode.KV_MARK, table.id, len(rows), columns)
        return [*unschedule(table.id, self._due), mark]
