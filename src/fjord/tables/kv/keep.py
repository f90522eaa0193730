"""What of an op on a key/value table still holds, said again as new ops.

Packing takes the segments of the journal from the oldest on, so all that a row could depend on is
said before it, again or for the first time.  A row holds if the index says that it is held by this
very seq.  It is then moved with all that was noted of it since.  Marks themselves are not kept: a
mark is younger than its row, so the row was moved before the mark is looked at, or is moved with
it.  A mark that a later write has voided is removed from the index, as it goes from the journal:
the index is always exactly what the journal says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fjord import limits, ops
from fjord.columns import Strings, repeat
from fjord.layouts import PREFIX_BYTES, prefix_of
from fjord.ops import Op, Opcode, Place
from fjord.tables import catalog
from fjord.tables.kv import layout
from fjord.tables.kv.layout import Entry, Mark
from fjord.tables.kv.ops import purge, unschedule
from fjord.tables.state import State, Tree


class _Row(NamedTuple):
    """A row that still holds."""

    key: bytes  # of the index
    entry: Entry
    mark: Mark
    value: bytes  # payload, or target of an alias


def keep_rows(op: Op, place: Place, state: State, now_us: int) -> Sequence[Op]:
    """Moves the rows of an op that hold; what nobody can miss any more is purged instead."""
    rows = _holding(op, place, state)
    if not rows:
        return ()
    is_there = catalog.is_there(state, op.table)
    gone = {
        row.key: row.entry for row in rows if not is_there or _is_past(row, op.table, state, now_us)
    }
    kept = [row for row in rows if row.key not in gone]
    due = [(layout.expiry_of(row.entry, row.mark), row.key) for row in rows if row.key in gone]
    return [*unschedule(op.table, due), *purge(op.table, gone), *_move(op.table, kept)]


def keep_moved(op: Op, place: Place, state: State, now_us: int) -> Sequence[Op]:
    """A move also says what was noted of its rows."""
    return [*keep_rows(op, place, state, now_us), *keep_marks(op, place, state, now_us)]


def keep_marks(op: Op, place: Place, state: State, now_us: int) -> Sequence[Op]:
    """Removes the marks of an op that are void."""
    rows, keys = op.column("row"), op.column("key")
    assert isinstance(keys, Strings)
    index_keys = [prefix_of(op.table) + key for key in keys.rows()]
    marks = state.get_many(Tree.KV_MARKS, index_keys)
    if not any(marks):
        return ()
    void = {
        key
        for key, row, mark, data in zip(
            index_keys, rows, marks, state.get_many(Tree.KV, index_keys), strict=True
        )
        if mark is not None
        and layout.ROW.unpack_from(mark)[0] == row
        and not (data and layout.decode(data).row == row)
    }
    if not void:
        return ()
    none = repeat(0, len(void))
    gone = Strings.of([key[PREFIX_BYTES:] for key in sorted(void)])
    return [Op(Opcode.KV_MARK, op.table, len(void), (none, none, none, none, gone))]


def _holding(op: Op, place: Place, state: State) -> list[_Row]:
    keys = op.column("key")
    assert isinstance(keys, Strings)
    prefix = prefix_of(op.table)
    index_keys = [prefix + key for key in keys.rows()]
    stored = state.get_many(Tree.KV, index_keys)
    entries = [layout.decode(data) if data else None for data in stored]
    found = [
        (at, entry)
        for at, entry in enumerate(entries)
        if entry is not None and entry.held == place.seq + at
    ]
    marks = state.get_many(Tree.KV_MARKS, [index_keys[at] for at, _ in found])
    last = op.columns[-1]
    values = last if last is not keys and isinstance(last, Strings) else None
    return [
        _Row(
            index_keys[at],
            entry,
            layout.decode_mark(mark, entry.row),
            values[at] if values is not None else b"",
        )
        for (at, entry), mark in zip(found, marks, strict=True)
    ]


def _is_past(row: _Row, table_id: int, state: State, now_us: int) -> bool:
    """Says so of old tombstones, and of old aliases that no longer lead anywhere.

    A tombstone is as old as it has been here, in lease time: what clients and clocks say of
    dates must not let a late write through.
    """
    entry = row.entry
    if entry.is_value:
        return False
    if entry.type == ops.TOMBSTONE:
        return entry.created_us + limits.TOMBSTONE_US <= state.lease_us
    if entry.timestamp_us + limits.TOMBSTONE_US > now_us:
        return False
    (data,) = state.get_many(Tree.KV, [prefix_of(table_id) + row.value])
    target = layout.decode(data) if data else None
    return target is None or not target.is_value or entry.row < target.links


def _move(table_id: int, rows: Sequence[_Row]) -> list[Op]:
    if not rows:
        return []
    entries = [row.entry for row in rows]
    columns = (
        [entry.row for entry in entries],
        [entry.timestamp_us for entry in entries],
        [layout.expiry_of(row.entry, row.mark) for row in rows],
        [entry.ttl_us for entry in entries],
        [entry.created_us for entry in entries],
        [entry.links for entry in entries],
        [row.mark.accessed_us for row in rows],
        [row.mark.worked_until_us for row in rows],
        [entry.held for entry in entries],
        bytes([entry.type for entry in entries]),
        Strings.of([row.key[PREFIX_BYTES:] for row in rows]),
        Strings.of([row.value for row in rows]),
    )
    return [Op(Opcode.KV_MOVE, table_id, len(rows), columns)]
