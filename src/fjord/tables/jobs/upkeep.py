"""Upkeep of jobs tables: what has expired, what a dropped table left, and what packing moves.

Where a job is (waiting, taken or dead, and under what) the row that holds its value does not say.
So packing does not look for the jobs of a segment: it goes through all jobs, and moves those that
are held by a segment that is to go.  One pass serves all segments up to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fjord.columns import Strings
from fjord.commands.layout import Command, internal
from fjord.jobs import How
from fjord.jobs import State as JobState
from fjord.layouts import PREFIX_BYTES, end_of, prefix_of, table_of
from fjord.ops import Op, Opcode, Place
from fjord.tables import catalog
from fjord.tables.jobs import layout
from fjord.tables.jobs import ops as job_ops
from fjord.tables.jobs.layout import LEASE, XID
from fjord.tables.jobs.ops import Held
from fjord.tables.state import Decision, State, Tree, decides

# The trees in which jobs are, and the state that they have there.
STATES: Final = {
    Tree.JOBS_READY: JobState.WAITING,
    Tree.JOBS_TAKEN: JobState.TAKEN,
    Tree.JOBS_DEAD: JobState.DEAD,
}
_TABLE_AT: Final = layout.EXPIRY_KEY.span("table")


@internal(frees=True)
class ExpireJobs(Command):
    """Removes waiting jobs whose time is over."""

    limit: int  # jobs at most


@internal()
class MoveJobs(Command):
    """Says jobs again that are held by rows before a seq, so that the segments of these can go."""

    tree: Tree
    keys: Sequence[bytes]  # of the index; what is not there any more is passed over
    before_seq: int
    is_measured: bool = False  # it is known to fit into what is reserved for packing


@decides(ExpireJobs)
def decide_expire_jobs(command: ExpireJobs, state: State, now_us: int) -> Decision:
    stop = (now_us + 1).to_bytes(8, "big")
    items = state.scan(Tree.JOBS_EXPIRY, b"", stop, command.limit)
    prefixes = [key[_TABLE_AT] for key, _ in items]
    places = [prefix + place for prefix, (_, place) in zip(prefixes, items, strict=True)]
    over: dict[int, list[Held]] = {}
    for key, rest in zip(places, state.get_many(Tree.JOBS_READY, places), strict=True):
        assert rest is not None  # both go together
        table_id = table_of(key)
        over.setdefault(table_id, []).append(job_ops.waiting(layout.decode_ready(key, rest)))
    ops = [op for table, gone in over.items() for op in job_ops.remove(table, gone, How.EXPIRE)]
    return catalog.decision(state, ops)


def sweep(state: State, table_id: int, limit: int) -> list[Op]:
    """Returns the ops that remove jobs of a dropped table, none if there are none left."""
    prefix = prefix_of(table_id)
    for tree in STATES:
        items = state.scan(tree, prefix, end_of(prefix), limit)
        if items:
            held = [_held(tree, key, data) for key, data in items]
            return job_ops.remove(table_id, held, How.PURGE)
    return []


@decides(MoveJobs)
def decide_move_jobs(command: MoveJobs, state: State, now_us: int) -> Decision:
    found: dict[int, list[tuple[bytes, bytes, bytes]]] = {}
    data = state.get_many(command.tree, command.keys)
    for key, one in zip(command.keys, data, strict=True):
        if one is None:
            continue
        head, image = parts(command.tree, key, one)
        if layout.held_of(image) < command.before_seq:
            found.setdefault(table_of(key), []).append((key, head, image))
    kind = STATES[command.tree]
    return catalog.decision(
        state, [_move(state, table_id, kind, rows) for table_id, rows in found.items()]
    )


def parts(tree: int, key: bytes, data: bytes) -> tuple[bytes, bytes]:
    """Takes an item of a tree of jobs apart: what is before the image, and the image."""
    if tree == Tree.JOBS_READY:
        return b"", key[PREFIX_BYTES:] + data
    if tree == Tree.JOBS_TAKEN:
        return data[: LEASE.size], data[LEASE.size :]
    _, _, size = layout.DEATH.unpack_from(data)
    end = layout.DEATH.size + size
    return data[:end], data[end:]


def keep_lease(op: Op, place: Place, state: State, now_us: int) -> Sequence[Op]:
    """Says the note of a lease again that is still there."""
    deadlines = op.column("deadline_us")
    assert not isinstance(deadlines, Strings)
    if op.opcode is Opcode.JOB_TAKE:
        found = [(deadlines[0], place.seq)]
    else:
        xids = op.column("xid")
        assert not isinstance(xids, Strings)
        found = list(zip(deadlines, xids, strict=True))
    keys = [layout.LEASE_KEY.pack(deadline, op.table, xid) for deadline, xid in found]
    counts = state.get_many(Tree.JOBS_LEASES, keys)
    kept = [
        (deadline, xid, layout.COUNT.unpack(count)[0])
        for (deadline, xid), count in zip(found, counts, strict=True)
        if count is not None
    ]
    if not kept:
        return ()
    return [Op(Opcode.JOB_LEASE, op.table, len(kept), tuple(zip(*kept, strict=True)))]


def _move(
    state: State, table_id: int, kind: JobState, rows: Sequence[tuple[bytes, bytes, bytes]]
) -> Op:
    images = [image for _, _, image in rows]
    pointers = [layout.decode(image).pointer for image in images]
    at = (
        [0] * len(rows)
        if kind is JobState.WAITING
        else [XID.unpack_from(key, PREFIX_BYTES)[0] for key, _, _ in rows]
    )
    columns = (
        at,
        [layout.held_of(image) for image in images],
        bytes([kind]) * len(rows),
        Strings.of([head for _, head, _ in rows]),
        Strings.of(images),
        Strings.of(state.payloads(pointers)),
    )
    return Op(Opcode.JOB_MOVE, table_id, len(rows), columns)


def _held(tree: Tree, key: bytes, data: bytes) -> Held:
    if tree is Tree.JOBS_READY:
        return job_ops.waiting(layout.decode_ready(key, data))
    number = XID.unpack_from(key, PREFIX_BYTES)[0]
    if tree is Tree.JOBS_TAKEN:
        lease, row = layout.decode_taken(data)
        return Held(JobState.TAKEN, number, row, lease)
    return Held(JobState.DEAD, number, layout.decode_dead(data)[1])
