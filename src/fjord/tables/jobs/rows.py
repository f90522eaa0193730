"""Ops on jobs, made of the rows that they are about."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from fjord import ops
from fjord.jobs import How
from fjord.jobs import State as JobState
from fjord.layouts import PREFIX_BYTES, end_of
from fjord.ops import Op, Opcode
from fjord.tables.jobs import layout
from fjord.tables.jobs.layout import COLLIDED, NO_PROBE, OVERTAKEN_US, XID, JobRow, Lease
from fjord.tables.state import State, Tree

_NO_LEASE = Lease(0, 0, 0, 0)


class Held(NamedTuple):
    """A job, and where it is."""

    state: JobState
    at: int  # xid of a taken one, row of a dead one, else 0
    row: JobRow
    lease: Lease = _NO_LEASE

    @property
    def note(self) -> int:
        """The deadline whose note goes with this job, 0 if there is none."""
        return self.lease.deadline_us if self.lease.is_alone else 0


def held_in(tree: Tree, key: bytes, data: bytes) -> Held:
    """Reads an item of one of the trees of jobs."""
    if tree is Tree.JOBS_READY:
        return waiting(layout.decode_ready(key, data))
    number = XID.unpack_from(key, PREFIX_BYTES)[0]
    if tree is Tree.JOBS_TAKEN:
        return taken(number, data)
    return Held(JobState.DEAD, number, layout.decode_dead(data)[1])


def taken(xid: int, data: bytes) -> Held:
    lease, row = layout.decode_taken(data)
    return Held(JobState.TAKEN, xid, row, lease)


def waiting(row: JobRow) -> Held:
    return Held(JobState.WAITING, 0, row)


def remove_waiting(table: int, rows: Iterable[JobRow], how: How) -> list[Op]:
    return remove(table, list(map(waiting, rows)), how)


def remove(table: int, gone: Sequence[Held], how: How) -> list[Op]:
    """Returns the op that takes jobs away, whatever their state."""
    rows = []
    for one in gone:
        waits, row = one.state is JobState.WAITING, one.row
        expiry, slot = (row.expires_at_us, row.slot) if waits else (0, b"")
        numbers = (one.at, one.note, row.row, expiry, row.held, row.live_bytes)
        rows.append((*numbers, one.state, how, row.place, slot))
    return ops.of_rows(Opcode.JOB_REMOVE, table, rows)


def wait(table: int, back: Sequence[tuple[Held, JobRow]], how: How) -> list[Op]:
    """Returns the op after which jobs wait, as their second row says."""
    rows = []
    for one, row in back:
        numbers = (one.at, one.note, row.row, row.process_at_us, one.state, how)
        place = one.row.place if one.state is JobState.WAITING else b""
        rows.append((*numbers, row.priority, row.timeouts, place, row.image))
    return ops.of_rows(Opcode.JOB_WAIT, table, rows)


def overtake(table: int, older: Sequence[Held], newer: Sequence[Held]) -> list[Op]:
    """Returns the op after which older jobs that are taken end with their leases (FJ-32).

    The newer ones of their keys are said again behind them where they were taken before them.
    Leases stay as long as they are, but for a microsecond where the note of one stands for several
    jobs: from now on each has its own.
    """
    if not older:
        return []
    marked = [one._replace(row=one.row._replace(expires_at_us=OVERTAKEN_US)) for one in older]
    rows = []
    for at, note, row, lease in (
        (one.at, one.note, one.row, one.lease) for one in (*marked, *newer)
    ):
        deadline_us = lease.deadline_us + 1 - lease.is_alone
        rows.append((at, note, deadline_us, lease.lease_us, lease.started_us, row.image))
    return ops.of_rows(Opcode.JOB_TOUCH, table, rows)


def bury(
    table: int, dead: Sequence[Held], reasons: Sequence[bytes], *, died_us: int, how: How
) -> list[Op]:
    """Returns the op that sends jobs to the dead letters."""
    rows = []
    for one, reason in zip(dead, reasons, strict=True):
        row = one.row
        numbers = (one.at, one.note, row.row, died_us, one.state, how, row.timeouts)
        rows.append((*numbers, row.image, reason))
    return ops.of_rows(Opcode.JOB_BURY, table, rows)


# -- finding waiting jobs by key, and a free slot for a key that does not wait --------------------


def find(
    state: State, prefix: bytes, keys: Sequence[bytes], hashes: Sequence[bytes]
) -> list[JobRow | None]:
    """Returns the job that waits under each key, expired ones too; None where there is none."""
    places = state.get_many(Tree.JOBS_KEYS, [prefix + hash_ + b"\0" for hash_ in hashes])
    return resolve(state, prefix, keys, hashes, places)


def resolve(
    state: State,
    prefix: bytes,
    keys: Sequence[bytes],
    hashes: Sequence[bytes],
    places: Sequence[bytes | None],
) -> list[JobRow | None]:
    """The same, where it is known already what the first slot of each key holds."""
    found = [prefix + place for place in places if place]
    rests = iter(state.get_many(Tree.JOBS_READY, found))
    rows: list[JobRow | None] = [
        layout.decode_ready(prefix + place, _there(next(rests))) if place else None
        for place in places
    ]
    for at, (key, row) in enumerate(zip(keys, rows, strict=True)):
        if row is not None and row.key != key:
            rows[at] = None
    if has_collisions(state, prefix):
        for at, row in enumerate(rows):
            if row is None:
                rows[at] = _find_collided(state, prefix, keys[at], hashes[at])
    return rows


def has_collisions(state: State, prefix: bytes) -> bool:
    """Says whether two keys of the table may have the same hash."""
    stop = end_of(prefix)
    return bool(state.scan(Tree.JOBS_KEYS, prefix + COLLIDED, stop, 1))


class FreeSlots:
    """Finds a probe for each key that begins to wait; no two of them get the same."""

    def __init__(
        self,
        state: State,
        prefix: bytes,
        hashes: Sequence[bytes],
        *,
        without: Collection[bytes] = (),
    ) -> None:
        self._state = state
        self._prefix = prefix
        self._is_simple = len(set(hashes)) == len(hashes)  # no two of them want the same slot
        self._without = without  # slots that count as free
        self._given: set[bytes] = set()

    def probe(self, hash_: bytes, first: bytes | None) -> int | None:
        """Returns a free probe, None if there is none; `first` is what the first slot holds."""
        if first is None and self._is_simple:
            return 0
        for probe in range(NO_PROBE):
            slot = layout.slot(hash_, probe)
            if slot not in self._given and (slot in self._without or self._is_free(slot)):
                self._given.add(slot)
                return probe
        return None

    def _is_free(self, slot: bytes) -> bool:
        return self._state.get_many(Tree.JOBS_KEYS, [self._prefix + slot])[0] is None


def _find_collided(state: State, prefix: bytes, key: bytes, hash_: bytes) -> JobRow | None:
    start = prefix + COLLIDED + hash_
    items = state.scan(Tree.JOBS_KEYS, start, start + b"\xff", NO_PROBE)
    places = [prefix + place for _, place in items]
    for place, rest in zip(places, state.get_many(Tree.JOBS_READY, places), strict=True):
        row = layout.decode_ready(place, _there(rest))
        if row.key == key:
            return row
    return None


def _there(rest: bytes | None) -> bytes:
    """What a slot leads to is there, since both go together."""
    assert rest is not None
    return rest
