"""Jobs tables: what their ops do to the index.

    JOB_ADD ------------> waiting ---JOB_TAKE---> taken ---JOB_DONE---> gone
    JOB_REPLACE ----------^  ^  |                  |  ^
                             |  +----JOB_BURY---+  |  +-- JOB_TOUCH: the lease is extended
                             |                  v  v
                             +--JOB_WAIT------ dead         JOB_WAIT: from taken and waiting, too
                                                            JOB_REMOVE: from any of them

Every op carries all that is needed to apply it: nothing is read here.  The index entry of a row is
carried from op to op as its image.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Final

import google_crc32c

from fjord import layouts, ops
from fjord.jobs import State
from fjord.ops import Op, Place
from fjord.tables.jobs import layout
from fjord.tables.jobs.layout import COUNT, LEASE, NO_PROBE, PLACE, PLACE_BYTES, REST, XID
from fjord.tables.state import Pointer, Tree, Writes

_ROW_BYTES: Final = ops.ROW_BYTES
_WAITING, _TAKEN, _DEAD = State
_ONE: Final = COUNT.pack(1)


def apply_add(writes: Writes, op: Op, place: Place) -> None:
    inserted, updated, dates, expiries, lanes, priorities, probes, types, *_ = op.columns
    rows = range(place.seq, place.seq + op.rows)
    places = list(map(PLACE.pack, lanes, priorities, dates, rows))
    _put_new(writes, op, place, places, (inserted, updated, expiries, probes, types))
    writes.tally(op.table, 0, _WAITING, holds=op.rows)
    writes.tally_rows(op.table, rows, 1)


def apply_replace(writes: Writes, op: Op, place: Place) -> None:
    (rows, inserted, updated, dates, expiries, lanes, expired, previous, freed, priorities, probes,
     types, was, *_) = op.columns  # fmt: skip
    prefix = layouts.prefix_of(op.table)
    places = list(map(PLACE.pack, lanes, priorities, dates, rows))
    old_places = was.rows()
    if places != old_places:
        gone = [prefix + old for old, new in zip(old_places, places, strict=True) if old != new]
        writes.delete_many(Tree.JOBS_READY, gone)
    _unschedule(writes, op.table, expired, old_places)
    dated = (inserted, updated, expiries, probes, types)
    _put_new(writes, op, place, places, dated, previous, freed)
    writes.tally(op.table, _WAITING, _WAITING, previous, holds=op.rows)


def _put_new(
    writes: Writes,
    op: Op,
    place: Place,
    places: list[bytes],
    dated: tuple[Sequence[Any], ...],
    *replaced: Sequence[int],
) -> None:
    """Adds waiting rows whose values are in this op; they may replace seqs and their bytes."""
    inserted, updated, expiries, probes, types = dated
    keys, domains, values = op.columns[-3:]
    prefix, contents, sizes = layouts.prefix_of(op.table), values.rows(), domains.lengths()
    tails = keys.rows()
    hashes, seqs = list(map(layout.digest, tails)), range(place.seq, place.seq + op.rows)
    offsets = [place.payload + offset for offset in values.offsets[: op.rows]]
    rests = map(
        REST.pack, inserted, updated, expiries, seqs, hashes, probes, repeat(0), types,
        sizes, repeat(place.segment), offsets, map(len, contents),
        map(google_crc32c.value, contents),
    )  # fmt: skip
    if len(domains.data):
        tails = [domain + key for domain, key in zip(domains.rows(), tails, strict=True)]
    writes.put_many(
        Tree.JOBS_READY,
        [(prefix + at, rest + tail) for at, rest, tail in zip(places, rests, tails, strict=True)],
    )
    slots = [
        (prefix + (hash_ + b"\0" if probe == 0 else layout.slot(hash_, probe)), at)
        for hash_, probe, at in zip(hashes, probes, places, strict=True)
        if probe != NO_PROBE
    ]
    if slots:
        writes.put_many(Tree.JOBS_KEYS, slots)
    if any(expiries):
        _schedule(writes, op.table, expiries, places)
    live_bytes = op.rows * _ROW_BYTES + len(keys.data) + len(domains.data) + len(values.data)
    writes.account(place.seq, live_bytes, *replaced)


def apply_move(writes: Writes, op: Op, place: Place) -> None:
    """Changes only where the values of jobs are stored."""
    at, previous, states, heads, images, values = op.columns
    prefix, contents = layouts.prefix_of(op.table), values.rows()
    seqs = range(place.seq, place.seq + op.rows)
    pointers = map(
        Pointer,
        repeat(place.segment),
        [place.payload + offset for offset in values.offsets[: op.rows]],
        map(len, contents),
        map(google_crc32c.value, contents),
    )
    moved = list(map(layout.moved, images.rows(), seqs, pointers))
    waiting = [image for state, image in zip(states, moved, strict=True) if state == _WAITING]
    _put_waiting(writes, op.table, waiting)
    for state in (_TAKEN, _DEAD):
        rows = zip(states, at, heads.rows(), moved, strict=True)
        items = [
            (prefix + XID.pack(number), head + image)
            for found, number, head, image in rows
            if found == state
        ]
        writes.put_many(layout.TREES[state], items)
    sizes = [layout.bytes_of(image) for image in moved]
    writes.account(place.seq, sum(sizes), previous, sizes)
    for kind, held in _by_state(states, previous):
        writes.tally(op.table, kind, kind, held, holds=len(held))


def apply_take(writes: Writes, op: Op, place: Place) -> None:
    deadlines, lengths, started, _, images = op.columns
    prefix, rows = layouts.prefix_of(op.table), images.rows()
    is_alone = int(op.rows == 1)
    held = _take_from_waiting(writes, op.table, rows)
    lease = LEASE.pack(deadlines[0], lengths[0], started[0], is_alone)  # the same for all
    xids = map(XID.pack, range(place.seq, place.seq + op.rows))
    writes.put_many(
        Tree.JOBS_TAKEN, [(prefix + xid, lease + row) for xid, row in zip(xids, rows, strict=True)]
    )
    note = layout.LEASE_KEY.pack(deadlines[0], op.table, place.seq)
    writes.put_many(Tree.JOBS_LEASES, [(note, COUNT.pack(op.rows))])
    writes.tally(op.table, _WAITING, _TAKEN, held)


def apply_done(writes: Writes, op: Op, place: Place) -> None:
    xids, leases, rows, previous, freed = op.columns
    prefix = layouts.prefix_of(op.table)
    writes.delete_many(Tree.JOBS_TAKEN, [prefix + xid for xid in map(XID.pack, xids)])
    _forget_notes(writes, op.table, xids, leases)
    writes.account(place.seq, 0, previous, freed)
    writes.tally(op.table, _TAKEN, 0, previous)
    writes.tally_rows(op.table, rows, -1)


def apply_touch(writes: Writes, op: Op, place: Place) -> None:
    xids, leases, deadlines, lengths, started, images = op.columns
    prefix = layouts.prefix_of(op.table)
    _forget_notes(writes, op.table, xids, leases)
    heads = map(LEASE.pack, deadlines, lengths, started, repeat(1))
    items = [
        (prefix + XID.pack(xid), head + image)
        for xid, head, image in zip(xids, heads, images.rows(), strict=True)
    ]
    writes.put_many(Tree.JOBS_TAKEN, items)
    notes = map(layout.LEASE_KEY.pack, deadlines, repeat(op.table), xids)
    writes.put_many(Tree.JOBS_LEASES, [(note, _ONE) for note in notes])


def apply_wait(writes: Writes, op: Op, place: Place) -> None:
    at, leases, _, _, states, _, _, _, was, images = op.columns
    prefix, rows = layouts.prefix_of(op.table), images.rows()
    _forget_notes(writes, op.table, at, leases)
    _delete(writes, prefix, zip(states, at, was.rows(), strict=True))
    _put_waiting(writes, op.table, rows)
    for state, held in _by_state(states, map(layout.held_of, rows)):
        writes.tally(op.table, state, _WAITING, held)


def apply_bury(writes: Writes, op: Op, place: Place) -> None:
    at, leases, _, died, states, hows, _, images, reasons = op.columns
    prefix, rows = layouts.prefix_of(op.table), images.rows()
    _forget_notes(writes, op.table, at, leases)
    waited = [image for state, image in zip(states, rows, strict=True) if state == _WAITING]
    _take_from_waiting(writes, op.table, waited)
    taken = [number for state, number in zip(states, at, strict=True) if state == _TAKEN]
    writes.delete_many(Tree.JOBS_TAKEN, [prefix + XID.pack(number) for number in taken])
    deaths = map(layout.Death, died, hows, reasons.rows())
    items = [
        (prefix + image[layout.ROW_AT], layout.encode_death(death) + image)
        for death, image in zip(deaths, rows, strict=True)
    ]
    writes.put_many(Tree.JOBS_DEAD, items)
    for state, held in _by_state(states, map(layout.held_of, rows)):
        writes.tally(op.table, state, _DEAD, held)


def apply_remove(writes: Writes, op: Op, place: Place) -> None:
    at, leases, rows, expiries, previous, freed, states, _, places, slots = op.columns
    prefix = layouts.prefix_of(op.table)
    _forget_notes(writes, op.table, at, leases)
    _unschedule(writes, op.table, expiries, places.rows())
    _delete(writes, prefix, zip(states, at, places.rows(), strict=True))
    writes.delete_many(Tree.JOBS_KEYS, [prefix + slot for slot in slots.rows() if slot])
    writes.account(place.seq, 0, previous, freed)
    for state, held in _by_state(states, previous):
        writes.tally(op.table, state, 0, held)
    writes.tally_rows(op.table, rows, -1)


def apply_lease(writes: Writes, op: Op, place: Place) -> None:
    deadlines, xids, counts = op.columns
    notes = map(layout.LEASE_KEY.pack, deadlines, repeat(op.table), xids)
    writes.put_many(Tree.JOBS_LEASES, list(zip(notes, map(COUNT.pack, counts), strict=True)))


def apply_unlease(writes: Writes, op: Op, place: Place) -> None:
    deadlines, xids = op.columns
    notes = map(layout.LEASE_KEY.pack, deadlines, repeat(op.table), xids)
    writes.delete_many(Tree.JOBS_LEASES, notes)


# -- small steps ----------------------------------------------------------------------------------


def _by_state(states: Iterable[int], held: Iterable[int]) -> Iterable[tuple[int, list[int]]]:
    """Groups the seqs that hold the rows by the state of the rows."""
    found: dict[int, list[int]] = {}
    for state, seq in zip(states, held, strict=True):
        found.setdefault(state, []).append(seq)
    return found.items()


def _delete(writes: Writes, prefix: bytes, rows: Iterable[tuple[int, int, bytes]]) -> None:
    """Deletes rows from their trees: state, xid or row, place."""
    gone: dict[int, list[bytes]] = {}
    for state, number, at in rows:
        key = prefix + (at if state == _WAITING else XID.pack(number))
        gone.setdefault(state, []).append(key)
    for state, keys in gone.items():
        writes.delete_many(layout.TREES[state], keys)


def _put_waiting(writes: Writes, table: int, images: Sequence[bytes]) -> None:
    if not images:
        return
    prefix = layouts.prefix_of(table)
    ready = [(prefix + image[:PLACE_BYTES], image[PLACE_BYTES:]) for image in images]
    writes.put_many(Tree.JOBS_READY, ready)
    slots = [(layout.slot_of(image), image[:PLACE_BYTES]) for image in images]
    found = [(prefix + slot, at) for slot, at in slots if slot]
    if found:
        writes.put_many(Tree.JOBS_KEYS, found)
    expiries = list(map(layout.expiry_of, images))
    _schedule(writes, table, expiries, [at for _, at in slots])


def _take_from_waiting(writes: Writes, table: int, images: Sequence[bytes]) -> Sequence[int]:
    """Removes waiting jobs; returns the seqs that hold them."""
    prefix = layouts.prefix_of(table)
    expiries, held, slots = layout.taken_parts(images)
    places = [image[:PLACE_BYTES] for image in images]
    writes.delete_many(Tree.JOBS_READY, [prefix + at for at in places])
    writes.delete_many(Tree.JOBS_KEYS, [prefix + slot for slot in slots if slot])
    _unschedule(writes, table, expiries, places)
    return held


def _forget_notes(writes: Writes, table: int, xids: Iterable[int], leases: Sequence[int]) -> None:
    if any(leases):
        notes = [
            layout.LEASE_KEY.pack(deadline, table, xid)
            for xid, deadline in zip(xids, leases, strict=True)
            if deadline
        ]
        writes.delete_many(Tree.JOBS_LEASES, notes)


def _schedule(writes: Writes, table: int, expiries: Sequence[int], places: Sequence[bytes]) -> None:
    if any(expiries):
        writes.put_many(Tree.JOBS_EXPIRY, _expiries(table, expiries, places))


def _unschedule(
    writes: Writes, table: int, expiries: Sequence[int], places: Sequence[bytes]
) -> None:
    if any(expiries):
        gone = [key for key, _ in _expiries(table, expiries, places)]
        writes.delete_many(Tree.JOBS_EXPIRY, gone)


def _expiries(
    table: int, expiries: Sequence[int], places: Sequence[bytes]
) -> list[tuple[bytes, bytes]]:
    return [
        (layout.expiry_key(expiry, table, at), at)
        for expiry, at in zip(expiries, places, strict=True)
        if expiry
    ]
