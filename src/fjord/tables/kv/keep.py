"""Packing and upkeep of key/value tables: what is still live of an op, written again as new ops.

Packing removes the segments of the journal from the oldest on, so everything that a row could
depend on is written before it.  A row is live if the index says that this very seq holds it.  It is
then moved with its mark.  Marks themselves are not kept: a mark is younger than its row, so the row
was moved before the mark is reached, or is moved with it.  A mark that a later write has voided is
removed from the index when it leaves the journal: the index is always exactly what the journal
says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from fjord import limits, ops
from fjord.columns import Strings
from fjord.commands.layout import Command, internal
from fjord.layouts import PREFIX_BYTES, end_of, prefix_of, table_of
from fjord.ops import Op, Opcode, Place
from fjord.tables import catalog
from fjord.tables.kv import layout
from fjord.tables.kv.layout import EXPIRY_BYTES, KvEntry, Mark
from fjord.tables.kv.lookup import purge, unschedule
from fjord.tables.state import Decision, Tree, View, decides


class HeldRow(NamedTuple):
    """A row that is still live."""

    key: bytes  # of the index
    entry: KvEntry
    value: bytes  # payload, or target of an alias
    mark: Mark = layout.NO_MARK


def keep_rows(op: Op, place: Place, state: View, now_us: int) -> Sequence[Op]:
    """Moves the live rows of an op; rows that can no longer matter are purged instead."""
    rows = _marked(holding(op, place, state), state)
    if not rows:
        return ()
    is_there = catalog.is_there(state, op.table)
    gone = {
        row.key: row.entry for row in rows if not is_there or _is_past(row, op.table, state, now_us)
    }
    kept = [row for row in rows if row.key not in gone]
    due = [(layout.expiry_of(row.entry, row.mark), row.key) for row in rows if row.key in gone]
    return [*unschedule(op.table, due), *purge(op.table, gone), *_move(op.table, kept)]


def keep_moved(op: Op, place: Place, state: View, now_us: int) -> Sequence[Op]:
    """Like `keep_rows`; the move also contains the marks of its rows."""
    return [*keep_rows(op, place, state, now_us), *keep_marks(op, place, state, now_us)]


def keep_marks(op: Op, place: Place, state: View, now_us: int) -> Sequence[Op]:
    """Removes the void marks of an op."""
    rows, keys = op.column("row"), op.column("key")
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
    rows = [(0, 0, 0, 0, key[PREFIX_BYTES:]) for key in sorted(void)]
    return ops.of_rows(Opcode.KV_MARK, op.table, rows)


def _marked(rows: Sequence[HeldRow], state: View) -> list[HeldRow]:
    marks = state.get_many(Tree.KV_MARKS, [row.key for row in rows])
    return [
        row._replace(mark=layout.decode_mark(mark, row.entry.row))
        for row, mark in zip(rows, marks, strict=True)
    ]


def holding(op: Op, place: Place, state: View) -> list[HeldRow]:
    """Returns the live rows of an op, without their marks."""
    keys = op.column("key")
    prefix = prefix_of(op.table)
    index_keys = [prefix + key for key in keys.rows()]
    last = op.columns[-1]
    values = last if last is not keys and isinstance(last, Strings) else None
    found = []
    for at, data in enumerate(state.get_many(Tree.KV, index_keys)):
        entry = layout.decode(data) if data else None
        if entry is not None and entry.held == place.seq + at:
            value = values[at] if values is not None else b""
            found.append(HeldRow(index_keys[at], entry, value))
    return found


def _is_past(row: HeldRow, table_id: int, state: View, now_us: int) -> bool:
    """Returns whether this is an old tombstone, or an old alias that no longer leads anywhere.

    The age of a tombstone is counted here, in lease time: dates of clients and clocks must not let
    a late write through.
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


def _move(table_id: int, rows: Sequence[HeldRow]) -> list[Op]:
    found = []
    for key, entry, value, mark in rows:
        identity = (entry.row, entry.timestamp_us)
        dates = (layout.expiry_of(entry, mark), entry.ttl_us, entry.created_us, entry.links)
        noted = (mark.accessed_us, mark.worked_until_us)
        payload = (entry.held, entry.type, key[PREFIX_BYTES:], value)
        found.append((*identity, *dates, *noted, *payload))
    return ops.of_rows(Opcode.KV_MOVE, table_id, found)


# -------------------------------------------------------------------------------------------------
#
# Upkeep of key/value tables, bit by bit: expired values, and the rest of a dropped table.
#
# An expired value counts as missing from its expiry on, even before upkeep has handled it.  Upkeep
# leaves a tombstone, as if the value had been deleted right after the write that gave it its
# expiry.


_Due = tuple[int, bytes]  # expiry, index key


@internal(frees=True)
class Expire(Command):
    """Turns expired values into tombstones."""

    limit: int  # rows at most


@decides(Expire)
def decide_expire(command: Expire, state: View, now_us: int) -> Decision:
    stop = (now_us + 1).to_bytes(EXPIRY_BYTES, "big")
    items = state.scan(Tree.KV_EXPIRY, b"", stop, command.limit)
    due = [layout.decode_schedule(key) for key, _ in items]
    rows = [layout.ROW.unpack(data)[0] for _, data in items]
    found = _find(state, [key for _, key in due])
    over: dict[int, list[tuple[_Due, KvEntry]]] = defaultdict(list)
    stale: dict[int, list[_Due]] = defaultdict(list)
    for (expires_at_us, key), row, (entry, mark) in zip(due, rows, found, strict=True):
        table_id = table_of(key)
        if entry and entry.row == row and layout.expiry_of(entry, mark) == expires_at_us:
            over[table_id].append(((expires_at_us, key), entry))
        else:
            # No row here has this expiry, so this item is out of date.
            stale[table_id].append((expires_at_us, key))
    made = [op for table_id, gone in over.items() for op in _expire(table_id, gone, state.lease_us)]
    made += [op for table_id, gone in stale.items() for op in unschedule(table_id, gone)]
    return catalog.decision(state, made)


def _expire(table_id: int, gone: Sequence[tuple[_Due, KvEntry]], lease_us: int) -> list[Op]:
    # A microsecond later than the value, so that repeating its SET changes nothing.
    rows = [
        (entry.timestamp_us + 1, lease_us, due, *layout.replaced(key, entry), key[PREFIX_BYTES:])
        for (due, key), entry in gone
    ]
    return ops.of_rows(Opcode.KV_EXPIRE, table_id, rows)


def sweep(state: View, table_id: int, limit: int) -> list[Op]:
    """Returns the ops that purge rows of a dropped table; none if nothing is left."""
    prefix = prefix_of(table_id)
    keys = [key for key, _ in state.scan(Tree.KV, prefix, end_of(prefix), limit)]
    found = [(key, *one) for key, one in zip(keys, _find(state, keys), strict=True)]
    due = [(layout.expiry_of(entry, mark), key) for key, entry, mark in found if entry]
    entries = {key: entry for key, entry, _ in found if entry}
    return [*unschedule(table_id, due), *purge(table_id, entries)]


def _find(state: View, keys: Sequence[bytes]) -> list[tuple[KvEntry | None, Mark]]:
    """Returns the entry and the mark of each index key, from any tables."""
    entries = [layout.decode(data) if data else None for data in state.get_many(Tree.KV, keys)]
    marks = state.get_many(Tree.KV_MARKS, keys)
    return [
        (entry, layout.decode_mark(mark, entry.row) if entry else layout.NO_MARK)
        for entry, mark in zip(entries, marks, strict=True)
    ]
