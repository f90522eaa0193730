"""Streams, subscribers, snapshots and blocks: what their ops do to the index.

A log has one entry per append, however many messages it contains; the op stays in the journal as it
came, and is served like that.  A stream that keeps the latest has the entries of a key/value table,
and in addition its keys in the order of their seqs: a new message replaces the old one in both.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any

import google_crc32c

from fjord import layouts, ops
from fjord.columns import Strings, aligned
from fjord.history import Block
from fjord.ops import Op, Place
from fjord.tables.kv import layout
from fjord.tables.kv.layout import BASE, FULL
from fjord.tables.state import Tree, Writes
from fjord.tables.streams import layout as stream_entry
from fjord.tables.streams.layout import Use, seq_key

# -- messages -------------------------------------------------------------------------------------


def apply_append(writes: Writes, op: Op, place: Place) -> None:
    data, values = bytes(place.data), op.columns[-1]
    last = place.seq + op.rows - 1
    entry = stream_entry.APPEND.pack(
        op.rows,
        place.segment,
        place.payload - len(data) + aligned(len(values.data)),
        len(data),
        google_crc32c.value(data),
        place.wall_us,
    )
    writes.put_many(Tree.STREAM_OPS, [(seq_key(layouts.prefix_of(op.table), last), entry)])
    writes.account(place.seq, len(data))


def apply_put(writes: Writes, op: Op, place: Place) -> None:
    types, _, values = op.columns[-3:]
    seqs = range(place.seq, place.seq + op.rows)
    entries = map(BASE.pack, seqs, repeat(place.wall_us), *_pointers(place, values), types)
    _put(writes, op, place, entries)


def apply_put_at(writes: Writes, op: Op, place: Place) -> None:
    """Like `apply_put`, for messages with dates of their own, beside that of the commit."""
    dates, _, _, _, types, _, values = op.columns
    seqs = range(place.seq, place.seq + op.rows)
    never = repeat(0)  # messages have no expiry and no TTL
    further = (seqs, repeat(place.wall_us), never, never, seqs)
    entries = map(FULL.pack, seqs, dates, *_pointers(place, values), types, *further)
    _put(writes, op, place, entries)


def _pointers(place: Place, values: Strings) -> tuple[Iterable[int], ...]:
    """Returns the positions of values, column by column: segments, offsets, sizes, checksums."""
    contents = values.rows()
    offsets = map(place.payload.__add__, values.offsets)
    return repeat(place.segment), offsets, map(len, contents), map(google_crc32c.value, contents)


def _put(writes: Writes, op: Op, place: Place, entries: Iterable[bytes]) -> None:
    """Stores the entries of messages, replacing those with the same keys."""
    was, previous, freed, _, keys, values = op.columns[-6:]
    prefix = layouts.prefix_of(op.table)
    index_keys = map(prefix.__add__, keys.rows())
    writes.put_many(Tree.KV, list(zip(index_keys, entries, strict=True)))
    _follow(writes, prefix, range(place.seq, place.seq + op.rows), keys.rows(), was)
    added = ops.ROW_BYTES * op.rows + len(keys.data) + len(values.data)
    writes.account(place.seq, added, previous, freed)


def apply_erase(writes: Writes, op: Op, place: Place) -> None:
    buried, was, previous, freed, keys = op.columns
    prefix, wall_us = layouts.prefix_of(op.table), place.wall_us
    seqs = range(place.seq, place.seq + op.rows)
    items = [
        (prefix + key, layout.encode_tombstone(seq, wall_us, seq, date_us))
        for seq, key, date_us in zip(seqs, keys.rows(), buried, strict=True)
    ]
    writes.put_many(Tree.KV, items)
    _follow(writes, prefix, seqs, keys.rows(), was)
    writes.account(place.seq, ops.ROW_BYTES * op.rows + len(keys.data), previous, freed)


def apply_move(writes: Writes, op: Op, place: Place) -> None:
    """Changes only where messages are stored; they keep their seqs, moments and dates."""
    rows, moments, buried, previous, types, keys, values = op.columns
    prefix, contents = layouts.prefix_of(op.table), values.rows()
    items, sizes = [], []
    for at, key in enumerate(keys.rows()):
        held, value = place.seq + at, contents[at]
        if types[at] == ops.TOMBSTONE:
            entry = layout.encode_tombstone(rows[at], moments[at], held, buried[at])
        else:
            pointer = (place.segment, place.payload + values.offsets[at], len(value))
            date_us = buried[at] or moments[at]
            entry = FULL.pack(rows[at], date_us, *pointer, google_crc32c.value(value),
                              types[at], held, moments[at], 0, 0, rows[at])  # fmt: skip
        items.append((prefix + key, entry))
        sizes.append(ops.ROW_BYTES + len(key) + len(value))
    writes.put_many(Tree.KV, items)
    _follow(writes, prefix, rows, keys.rows(), ())
    writes.account(place.seq, sum(sizes), previous, sizes)


def apply_purge(writes: Writes, op: Op, place: Place) -> None:
    rows, previous, freed, keys = op.columns
    prefix = layouts.prefix_of(op.table)
    writes.delete_many(Tree.KV, [prefix + key for key in keys.rows()])
    writes.delete_many(Tree.STREAM_SEQS, [seq_key(prefix, row) for row in rows])
    writes.account(place.seq, 0, previous, freed)


def apply_forget(writes: Writes, op: Op, place: Place) -> None:
    lasts, freed = op.columns
    prefix = layouts.prefix_of(op.table)
    writes.delete_many(Tree.STREAM_OPS, [seq_key(prefix, last) for last in lasts])
    writes.account(place.seq, 0, lasts, freed)


def _follow(writes: Writes, prefix: bytes, seqs: Any, keys: list[bytes], was: Any) -> None:
    """Stores keys at their seqs, and removes them from their earlier ones."""
    pack = stream_entry.SEQ.pack
    found = map(prefix.__add__, map(pack, seqs))
    writes.put_many(Tree.STREAM_SEQS, list(zip(found, keys, strict=True)))
    if any(was):
        gone = map(prefix.__add__, map(pack, filter(None, was)))
        writes.delete_many(Tree.STREAM_SEQS, gone)


# -- subscribers ----------------------------------------------------------------------------------


def apply_subscriber(writes: Writes, op: Op, place: Place) -> None:
    positions, epochs, moved, asleep, names = op.columns
    prefix, pack = layouts.prefix_of(op.table), stream_entry.SUBSCRIBER.pack
    items = [
        (prefix + name, pack(positions[at], epochs[at], moved[at], place.seq + at, asleep[at]))
        for at, name in enumerate(names.rows())
    ]
    writes.put_many(Tree.SUBSCRIBERS, items)


def apply_unsubscribe(writes: Writes, op: Op, place: Place) -> None:
    (names,) = op.columns
    prefix = layouts.prefix_of(op.table)
    writes.delete_many(Tree.SUBSCRIBERS, [prefix + name for name in names.rows()])


# -- snapshots ------------------------------------------------------------------------------------


def apply_snapshot(writes: Writes, op: Op, place: Place) -> None:
    key, data = stream_entry.SNAPSHOT_KEY.pack, stream_entry.SNAPSHOT.pack
    rows = zip(*op.columns, strict=True)
    items = [
        (key(deadline_us, snapshot or seq), data(wall_us, seq, largest, bool(is_pass)))
        for seq, (snapshot, deadline_us, wall_us, largest, is_pass) in enumerate(
            rows, start=place.seq
        )
    ]
    writes.put_many(Tree.SNAPSHOTS, items)


def apply_snapshot_end(writes: Writes, op: Op, place: Place) -> None:
    keys = map(stream_entry.SNAPSHOT_KEY.pack, *op.columns)
    writes.delete_many(Tree.SNAPSHOTS, list(keys))


def apply_version(writes: Writes, op: Op, place: Place) -> None:
    found, images = stream_entry.version_keys(op), op.columns[-1]
    writes.put_many(Tree.VERSIONS, list(zip(found, images.rows(), strict=True)))


def apply_version_drop(writes: Writes, op: Op, place: Place) -> None:
    writes.delete_many(Tree.VERSIONS, stream_entry.version_keys(op))


# -- blocks ---------------------------------------------------------------------------------------


def apply_history(writes: Writes, op: Op, place: Place) -> None:
    sealed, forgotten, sealing, tags = op.columns
    data = stream_entry.HISTORY.pack(sealed[0], forgotten[0], sealing[0], tags[0], place.seq)
    writes.put_many(Tree.HISTORY, [(layouts.prefix_of(op.table), data)])


def apply_block(writes: Writes, op: Op, place: Place) -> None:
    *numbers, uses, names = op.columns
    found: list[tuple[bytes, bytes]] = []
    replaced: list[tuple[bytes, bytes]] = []
    removed: list[bytes] = []
    for at, name in enumerate(names.rows()):
        values = [op.table, *(column[at] for column in numbers), name.decode()]
        block = Block._make(values)
        data = stream_entry.encode_block(block, is_retired=bool(uses[at]))
        if uses[at] == Use.REMOVED:
            removed.append(stream_entry.replaced_key(block))
        elif uses[at] == Use.REPLACED:
            replaced.append((stream_entry.replaced_key(block), data))
        else:
            found.append((stream_entry.block_key(block), data))
    writes.put_many(Tree.BLOCKS, found)
    writes.put_many(Tree.REPLACED, replaced)
    writes.delete_many(Tree.REPLACED, removed)


def apply_block_gone(writes: Writes, op: Op, place: Place) -> None:
    (lasts,) = op.columns
    prefix = layouts.prefix_of(op.table)
    writes.delete_many(Tree.BLOCKS, [seq_key(prefix, last) for last in lasts])
