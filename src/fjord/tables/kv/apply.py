"""Key/value tables: what their ops do to the index.

The index has one entry per key.  A value is stored in the journal, and the entry points to it.  A
deleted key keeps an entry without a value, the tombstone, so that an older SET that arrives late
does not bring it back.  A value may have further keys: their entries, the aliases, lead to its
own key, and count if they were linked after the row that the value's entry calls `links`.

What is recorded about a row without rewriting it (touched, or worked on) is its mark.  A mark names
its row, so the next write to the key voids it.

Every row with an expiry is in the schedule, at its current expiry.  An op that changes the expiry
is preceded by one that removes the old item (KV_UNSCHEDULE); the row itself adds the new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import google_crc32c

from fjord import ops
from fjord.columns import Strings
from fjord.layouts import PREFIX_BYTES, prefix_of
from fjord.ops import Op, Place
from fjord.tables.kv import layout
from fjord.tables.kv.layout import BASE, FULL, ROW, schedule_key
from fjord.tables.state import Tree, Writes


def apply_insert(writes: Writes, op: Op, place: Place) -> None:
    timestamps, types, keys, values = op.columns
    pack, crc, segment, payload = BASE.pack, google_crc32c.value, place.segment, place.payload
    prefix = prefix_of(op.table)
    rows = zip(
        range(place.seq, place.seq + op.rows),
        timestamps,
        types,
        keys.rows(),
        values.offsets,
        values.rows(),
        strict=False,  # one more offset than rows
    )
    items = [
        (prefix + key, pack(seq, ts, segment, payload + at, len(value), crc(value), type_))
        for seq, ts, type_, key, at, value in rows
    ]
    writes.put_many(Tree.KV, items)
    writes.account(place.seq, _live_bytes(op.rows, keys, values))


def apply_set(writes: Writes, op: Op, place: Place) -> None:
    stamps, expiries, ttls, created, links, previous, freed, types, keys, values = op.columns
    full, base, crc = FULL.pack, BASE.pack, google_crc32c.value
    segment, payload, prefix = place.segment, place.payload, prefix_of(op.table)
    index_keys = [prefix + key for key in keys.rows()]
    seqs = range(place.seq, place.seq + op.rows)
    # fmt: off
    entries = [
        full(seq, ts, segment, payload + at, len(value), crc(value), type_,
             seq, born, expiry, ttl, link or seq)
        if link or born != ts or expiry or ttl else
        base(seq, ts, segment, payload + at, len(value), crc(value), type_)
        for seq, ts, at, value, type_, born, expiry, ttl, link in zip(
            seqs, stamps, values.offsets, values.rows(), types,
            created, expiries, ttls, links, strict=False,  # one more offset than rows
        )
    ]
    # fmt: on
    writes.put_many(Tree.KV, list(zip(index_keys, entries, strict=True)))
    _schedule(writes, expiries, index_keys, seqs)
    writes.account(place.seq, _live_bytes(op.rows, keys, values), previous, freed)


def apply_move(writes: Writes, op: Op, place: Place) -> None:
    """Changes only where rows are stored; they keep their identity and their marks."""
    (rows, stamps, expiries, ttls, created, links, accessed, worked, previous, types, keys,
     values) = op.columns  # fmt: skip
    prefix = prefix_of(op.table)
    index_keys = [prefix + key for key in keys.rows()]
    contents, items, sizes = values.rows(), [], []
    moved = zip(index_keys, rows, stamps, types, contents, strict=True)
    for at, (key, row, stamp, type_, value) in enumerate(moved):
        held = place.seq + at
        if type_ == ops.TOMBSTONE:
            entry = layout.encode_tombstone(row, stamp, held, created[at])
        elif type_ == ops.ALIAS:
            entry = layout.encode_alias(row, stamp, held, value)
        else:
            pointer = (place.segment, place.payload + values.offsets[at], len(value))
            entry = FULL.pack(row, stamp, *pointer, google_crc32c.value(value), type_,
                              held, created[at], expiries[at], ttls[at], links[at])  # fmt: skip
        items.append((key, entry))
        sizes.append(ops.ROW_BYTES + len(key) - PREFIX_BYTES + len(value))
    writes.put_many(Tree.KV, items)
    _schedule(writes, expiries, index_keys, rows)
    _note(writes, index_keys, zip(rows, accessed, expiries, worked, strict=True))
    writes.account(place.seq, sum(sizes), previous, sizes)


def apply_delete(writes: Writes, op: Op, place: Place) -> None:
    stamps, buried, *_, previous, freed, keys = op.columns
    seqs = range(place.seq, place.seq + op.rows)
    entries = map(layout.encode_tombstone, seqs, stamps, seqs, buried)
    writes.put_many(Tree.KV, list(zip(_index_keys(op, keys), entries, strict=True)))
    writes.account(place.seq, _live_bytes(op.rows, keys), previous, freed)


def apply_expire(writes: Writes, op: Op, place: Place) -> None:
    """Deletes values, and removes them from the schedule."""
    apply_delete(writes, op, place)
    _, _, expiries, _, _, keys = op.columns
    writes.delete_many(Tree.KV_EXPIRY, map(schedule_key, expiries, _index_keys(op, keys)))


def apply_purge(writes: Writes, op: Op, place: Place) -> None:
    previous, freed, keys = op.columns
    index_keys = _index_keys(op, keys)
    writes.delete_many(Tree.KV, index_keys)
    writes.delete_many(Tree.KV_MARKS, index_keys)
    writes.account(place.seq, 0, previous, freed)


def apply_mark(writes: Writes, op: Op, place: Place) -> None:
    rows, accessed, expiries, worked, keys = op.columns
    index_keys = _index_keys(op, keys)
    _note(writes, index_keys, zip(rows, accessed, expiries, worked, strict=True))
    gone = [key for key, date_us in zip(index_keys, accessed, strict=True) if not date_us]
    if gone:
        writes.delete_many(Tree.KV_MARKS, gone)
    _schedule(writes, expiries, index_keys, rows)


def apply_unschedule(writes: Writes, op: Op, place: Place) -> None:
    expiries, keys = op.columns
    writes.delete_many(Tree.KV_EXPIRY, map(schedule_key, expiries, _index_keys(op, keys)))


def apply_link(writes: Writes, op: Op, place: Place) -> None:
    stamps, previous, freed, keys, targets = op.columns
    seqs = range(place.seq, place.seq + op.rows)
    entries = map(layout.encode_alias, seqs, stamps, seqs, targets.rows())
    writes.put_many(Tree.KV, list(zip(_index_keys(op, keys), entries, strict=True)))
    writes.account(place.seq, _live_bytes(op.rows, keys, targets), previous, freed)


def _note(
    writes: Writes, index_keys: Sequence[bytes], marks: Iterable[tuple[int, int, int, int]]
) -> None:
    """Stores those marks that have a date."""
    noted = [
        (key, layout.encode_mark(*mark))
        for key, mark in zip(index_keys, marks, strict=True)
        if mark[1]
    ]
    if noted:
        writes.put_many(Tree.KV_MARKS, noted)


def _schedule(
    writes: Writes, expiries: Iterable[int], index_keys: Sequence[bytes], rows: Iterable[int]
) -> None:
    if any(expiries):
        items = [
            (schedule_key(expiry, key), ROW.pack(row))
            for expiry, key, row in zip(expiries, index_keys, rows, strict=True)
            if expiry
        ]
        writes.put_many(Tree.KV_EXPIRY, items)


def _index_keys(op: Op, keys: Strings) -> list[bytes]:
    prefix = prefix_of(op.table)
    return [prefix + key for key in keys.rows()]


def _live_bytes(rows: int, keys: Strings, values: Strings | None = None) -> int:
    return ops.ROW_BYTES * rows + len(keys.data) + (0 if values is None else len(values.data))
