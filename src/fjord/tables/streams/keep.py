"""What is still live of an op on a stream, written again as new ops.

The segments of a log are removed once their messages are in blocks, so appends are never rewritten.
The messages of a stream that keeps the latest move like values, see `kv.keep`.  A tombstone is
removed for good when it is old, and every subscriber of its stream has passed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fjord import limits, ops
from fjord.layouts import PREFIX_BYTES, end_of, pages, prefix_of
from fjord.ops import Op, Opcode, Place
from fjord.tables import catalog
from fjord.tables.kv import layout
from fjord.tables.kv.keep import HeldRow, holding
from fjord.tables.kv.layout import KvEntry
from fjord.tables.state import Tree, View
from fjord.tables.streams import layout as stream_entry
from fjord.tables.streams.layout import SNAPSHOT_KEY

_PIECE: Final = 1000
_NO_MARK: Final = 2**64 - 1  # every seq is smaller


def keep_messages(op: Op, place: Place, state: View, now_us: int) -> Sequence[Op]:
    rows = holding(op, place, state)
    if not rows:
        return ()
    is_there = catalog.is_there(state, op.table)
    old = [row for row in rows if not is_there or _is_old(row.entry, state)]
    least = _smallest_mark(state, op.table) if old and is_there else _NO_MARK
    gone = {row.key: row.entry for row in old if row.entry.row <= least}
    kept = [row for row in rows if row.key not in gone]
    return [*purge(op.table, gone), *_move(op.table, kept)]


def purge(table_id: int, entries: dict[bytes, KvEntry]) -> list[Op]:
    """Returns the op that purges these entries by index key."""
    rows = [
        (entry.row, entry.held, layout.row_bytes(entry, key), key[PREFIX_BYTES:])
        for key, entry in entries.items()
    ]
    return ops.of_rows(Opcode.STREAM_PURGE, table_id, rows)


def sweep_dropped(state: View, table_id: int, limit: int) -> list[Op]:
    """Returns the op that purges messages of a dropped table; none if nothing is left."""
    prefix = prefix_of(table_id)
    items = state.scan(Tree.STREAM_SEQS, prefix, end_of(prefix), limit)
    keys = [prefix + key for _, key in items]
    stored = state.get_many(Tree.KV, keys)
    entries = {key: layout.decode(data) for key, data in zip(keys, stored, strict=True) if data}
    return purge(table_id, entries)


def keep_subscriber(op: Op, place: Place, state: View, now_us: int) -> Sequence[Op]:
    return catalog.keep_named(
        op, place, state, Tree.SUBSCRIBERS, lambda data: stream_entry.decode_subscriber(data).held
    )


def _is_old(entry: KvEntry, state: View) -> bool:
    """Returns whether this is a tombstone that is old in lease time."""
    is_tombstone = entry.type == ops.TOMBSTONE
    return is_tombstone and entry.created_us + limits.TOMBSTONE_US <= state.lease_us


def _smallest_mark(state: View, table_id: int) -> int:
    prefix = prefix_of(table_id)
    found = pages(state.scan, Tree.SUBSCRIBERS, prefix, end_of(prefix), _PIECE)
    seqs = (stream_entry.decode_subscriber(data).seq for items in found for _, data in items)
    return min(seqs, default=_NO_MARK)


def _buried_or_dated(entry: KvEntry) -> int:
    """Returns when a tombstone was buried, or the date of a message that has one of its own."""
    if entry.type == ops.TOMBSTONE:
        return entry.created_us
    return entry.timestamp_us if entry.timestamp_us != entry.created_us else 0


def _move(table_id: int, rows: Sequence[HeldRow]) -> list[Op]:
    found = []
    for key, entry, value, _ in rows:
        dates = (stream_entry.moment_of(entry), _buried_or_dated(entry))
        found.append((entry.row, *dates, entry.held, entry.type, key[PREFIX_BYTES:], value))
    return ops.of_rows(Opcode.STREAM_MOVE, table_id, found)


def keep_version(op: Op, place: Place, state: View, now_us: int) -> Sequence[Op]:
    """Rewrites the versions that are still kept."""
    stored = state.get_many(Tree.VERSIONS, stream_entry.version_keys(op))
    rows = [at for at, image in enumerate(stored) if image is not None]
    return [ops.only(op, rows)] if rows else ()


def keep_snapshot(op: Op, place: Place, state: View, now_us: int) -> Sequence[Op]:
    """Rewrites a snapshot that is still open."""
    kept = []
    rows: Any = zip(*op.columns, strict=True)
    for seq, (snapshot, deadline_us, *rest) in enumerate(rows, place.seq):
        key = SNAPSHOT_KEY.pack(deadline_us, snapshot or seq)
        (data,) = state.get_many(Tree.SNAPSHOTS, [key])
        if data is not None and stream_entry.SNAPSHOT.unpack(data)[1] == seq:
            kept.append((snapshot or seq, deadline_us, *rest))
    return ops.of_rows(op.opcode, op.table, kept)
