"""Upkeep of jobs tables: expired jobs, the rest of a dropped table, and jobs that packing moves.

The row that holds a job's value does not say where the job is (waiting, taken or dead, and under
which key).  So packing does not look for the jobs of a segment: it goes through all jobs, and moves
those that are held by a segment to be removed.  One pass serves all segments up to one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Final

from fjord import ops
from fjord.columns import Strings
from fjord.commands.layout import Command, internal
from fjord.jobs import How, State
from fjord.layouts import PREFIX_BYTES, end_of, pages, prefix_of, table_of
from fjord.ops import Op, Opcode, Place
from fjord.tables import catalog
from fjord.tables.jobs import layout
from fjord.tables.jobs import rows as job_ops
from fjord.tables.jobs.decide import GiveBack, give_back
from fjord.tables.jobs.layout import LEASE, XID
from fjord.tables.jobs.rows import Held
from fjord.tables.state import Decision, Table, Tree, View, decides

_TABLE_AT: Final = layout.EXPIRY_KEY.span("table")


@internal(frees=True)
class ExpireJobs(Command):
    """Removes waiting jobs that have expired."""

    limit: int  # jobs at most


@internal()
class MoveJobs(Command):
    """Rewrites jobs that are held by rows before a seq, so that the segments of these can go."""

    tree: Tree
    keys: Sequence[bytes]  # of the index; missing ones are skipped
    before_seq: int
    is_measured: bool = False  # it is known to fit into the space reserved for packing


@decides(ExpireJobs)
def decide_expire_jobs(command: ExpireJobs, state: View, now_us: int) -> Decision:
    stop = (now_us + 1).to_bytes(8, "big")
    items = state.scan(Tree.JOBS_EXPIRY, b"", stop, command.limit)
    places = [key[_TABLE_AT] + place for key, place in items]
    over: dict[int, list[Held]] = {}
    for key, rest in zip(places, state.get_many(Tree.JOBS_READY, places), strict=True):
        assert rest is not None  # one implies the other
        table_id = table_of(key)
        over.setdefault(table_id, []).append(job_ops.waiting(layout.decode_ready(key, rest)))
    made = [op for table, gone in over.items() for op in job_ops.remove(table, gone, How.EXPIRE)]
    return catalog.decision(state, made)


def sweep(state: View, table_id: int, limit: int) -> list[Op]:
    """Returns the ops that remove jobs of a dropped table; none if nothing is left."""
    prefix = prefix_of(table_id)
    for tree in layout.STATES:
        items = state.scan(tree, prefix, end_of(prefix), limit)
        if items:
            held = [job_ops.held_in(tree, *item) for item in items]
            return job_ops.remove(table_id, held, How.PURGE)
    return []


@decides(MoveJobs)
def decide_move_jobs(command: MoveJobs, state: View, now_us: int) -> Decision:
    found: dict[int, list[tuple[bytes, bytes, bytes]]] = {}
    data = state.get_many(command.tree, command.keys)
    for key, one in zip(command.keys, data, strict=True):
        if one is None:
            continue
        head, image = parts(command.tree, key, one)
        if layout.held_of(image) < command.before_seq:
            found.setdefault(table_of(key), []).append((key, head, image))
    kind = layout.STATES[command.tree]
    made = [_move(state, table_id, kind, rows) for table_id, rows in found.items()]
    return catalog.decision(state, made)


def parts(tree: int, key: bytes, data: bytes) -> tuple[bytes, bytes]:
    """Splits an item of a jobs tree into what precedes the image, and the image."""
    if tree == Tree.JOBS_READY:
        return b"", key[PREFIX_BYTES:] + data
    if tree == Tree.JOBS_TAKEN:
        return data[: LEASE.size], data[LEASE.size :]
    _, _, size = layout.DEATH.unpack_from(data)
    end = layout.DEATH.size + size
    return data[:end], data[end:]


def keep_lease(op: Op, place: Place, state: View, now_us: int) -> Sequence[Op]:
    """Rewrites the note of a lease if it still exists."""
    deadlines = op.column("deadline_us")
    if op.opcode is Opcode.JOB_TAKE:
        found = [(deadlines[0], place.seq)]
    else:
        xids = op.column("xid")
        found = list(zip(deadlines, xids, strict=True))
    keys = [layout.LEASE_KEY.pack(deadline, op.table, xid) for deadline, xid in found]
    counts = state.get_many(Tree.JOBS_LEASES, keys)
    kept = [
        (deadline, xid, layout.COUNT.unpack(count)[0])
        for (deadline, xid), count in zip(found, counts, strict=True)
        if count is not None
    ]
    return ops.of_rows(Opcode.JOB_LEASE, op.table, kept)


def _move(
    state: View, table_id: int, kind: State, rows: Sequence[tuple[bytes, bytes, bytes]]
) -> Op:
    images = [image for _, _, image in rows]
    pointers = [layout.decode(image).pointer for image in images]
    waits = kind is State.WAITING
    columns = (
        [0 if waits else XID.unpack_from(key, PREFIX_BYTES)[0] for key, _, _ in rows],
        [layout.held_of(image) for image in images],
        bytes([kind]) * len(rows),
        Strings.of([head for _, head, _ in rows]),
        Strings.of(images),
        Strings.of(state.payloads(pointers)),
    )
    return Op(Opcode.JOB_MOVE, table_id, len(rows), columns)


# -- the end of leases ----------------------------------------------------------------------------
#
# A note in JOBS_LEASES says that the leases of some xids end at a deadline.  It is not touched when
# jobs are done or their leases extended: that is found out when it is due.


# How many notes are examined for the next lease of a table that ends; many may belong to other
# tables, or to jobs that are done.
_NOTES_MAX: Final = 100
_ROWS_MAX: Final = 1000  # and how many jobs
# An expired lease is given back soon: check again after this time.
_SOON_US: Final = 100_000


@internal(frees=True)
class EndLeases(Command):
    """Gives back the jobs whose leases are over."""

    limit: int  # jobs at most


@decides(EndLeases)
def decide_end_leases(command: EndLeases, state: View, now_us: int) -> Decision:
    """Handles leases in the order of their ends; finished jobs are not found."""
    stop = layout.LEASE_KEY.pack(state.lease_us + 1, 0, 0)
    notes = state.scan(Tree.JOBS_LEASES, b"", stop, command.limit)
    tables = {table.id: table for table in state.tables.values()}
    over: dict[int, dict[int, Held]] = {}  # by table and xid: two notes may lead to one job
    ended: dict[int, list[tuple[int, int]]] = {}
    left = command.limit
    for key, jobs in notes:
        deadline_us, table_id, xid = layout.LEASE_KEY.unpack(key)
        found = _over(state, table_id, deadline_us, xid, layout.COUNT.unpack(jobs)[0])
        over.setdefault(table_id, {}).update({one.at: one for one in found[:left]})
        if len(found) > left:
            break
        # A note for a single job is deleted with that job.
        if not (found and found[0].lease.is_alone):
            ended.setdefault(table_id, []).append((deadline_us, xid))
        left -= len(found)
        if not left:
            break
    made: list[Op] = []
    for table_id, gone in ended.items():
        made += ops.of_rows(Opcode.JOB_UNLEASE, table_id, gone)
    for table_id, held in over.items():
        if table_id in tables:
            why = GiveBack(How.TIMEOUT)
            made += give_back(state, tables[table_id], list(held.values()), why, now_us)
        else:  # the table was dropped, or is lost
            made += job_ops.remove(table_id, list(held.values()), How.PURGE)
    return catalog.decision(state, made)


def _over(state: View, table_id: int, deadline_us: int, xid: int, rows: int) -> list[Held]:
    """Returns the jobs whose leases ended at a deadline, without extended ones."""
    prefix = prefix_of(table_id)
    start, stop = prefix + XID.pack(xid), prefix + XID.pack(xid + rows)
    items = state.scan(Tree.JOBS_TAKEN, start, stop, rows)
    return [
        job_ops.held_in(Tree.JOBS_TAKEN, key, data)
        for key, data in items
        if LEASE.unpack_from(data)[0] == deadline_us
    ]


def taken_keys(state: View, table_id: int) -> Iterator[tuple[bytes, int]]:
    """Yields the key hashes of taken jobs that are not overtaken, and their xids."""
    prefix = prefix_of(table_id)
    for items in pages(state.scan, Tree.JOBS_TAKEN, prefix, end_of(prefix), _ROWS_MAX):
        for key, data in items:
            image = data[LEASE.size :]
            if layout.expiry_of(image) != layout.OVERTAKEN_US:
                yield image[layout.HASH_AT], XID.unpack_from(key, PREFIX_BYTES)[0]


def taken_keys_of(op: Op, seq: int) -> Iterable[tuple[bytes, int]]:
    """Like `taken_keys`, for the jobs of a JOB_TAKE or JOB_TOUCH."""
    found = op.column("image")
    images = found.rows()
    if op.opcode is Opcode.JOB_TAKE:
        return zip([image[layout.HASH_AT] for image in images], count(seq), strict=False)
    xids = op.column("xid")
    return [
        (image[layout.HASH_AT], xid)
        for image, xid in zip(images, xids, strict=True)
        if layout.expiry_of(image) != layout.OVERTAKEN_US
    ]


def next_end_us(state: View, table: Table, domain: bytes, now_us: int) -> int | None:
    """Returns the wall time at which the next lease of a table, or of one domain, ends.

    May be too early if there are many notes of other tables, but never too late.  None if no job is
    taken.
    """
    if not state.job_counts(table.id).taken:
        return None
    lane = layout.lane_of(domain) if domain else None
    notes = state.scan(Tree.JOBS_LEASES, b"", None, _NOTES_MAX)
    deadline_us, left = 0, _ROWS_MAX
    for key, jobs in notes:
        deadline_us, table_id, xid = layout.LEASE_KEY.unpack(key)
        if table_id == table.id:
            rows = min(layout.COUNT.unpack(jobs)[0], left)
            left -= rows
            found = _over(state, table_id, deadline_us, xid, rows)
            if not left or any(lane in (None, one.row.lane) for one in found):
                break
    else:
        if len(notes) < _NOTES_MAX:
            return None  # only jobs of other domains are taken
    return max(now_us + deadline_us - state.lease_us, now_us + _SOON_US)
