"""Leases: when they are over, and what becomes of the jobs then.

A note in JOBS_LEASES says that leases of some xids are over at a deadline.  It is not touched when
the jobs are done, or their leases last longer: that is found out when it is due.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Final

from fjord.columns import Strings
from fjord.commands.layout import Command, internal
from fjord.jobs import How
from fjord.layouts import end_of, prefix_of
from fjord.ops import Op, Opcode
from fjord.tables import catalog
from fjord.tables.jobs import layout
from fjord.tables.jobs import ops as job_ops
from fjord.tables.jobs.finish import GiveBack, held_of
from fjord.tables.jobs.layout import LEASE, XID
from fjord.tables.jobs.ops import Held
from fjord.tables.state import Decision, State, Table, Tree, decides

# So many notes are looked at for the next lease of a table that ends; many may be of other tables,
# or of jobs that are done.
_NOTES_MAX: Final = 100
_ROWS_MAX: Final = 1000  # and so many jobs
# A lease that is over is given back soon: who waits for it looks again after this.
_SOON_US: Final = 100_000


@internal(frees=True)
class EndLeases(Command):
    """Gives back the jobs whose leases are over."""

    limit: int  # jobs at most


@decides(EndLeases)
def decide_end_leases(command: EndLeases, state: State, now_us: int) -> Decision:
    """Takes leases in the order in which they ended; jobs that were done are not there."""
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
        # A note that stands for one job alone goes with that job.
        if not (found and found[0].lease.is_alone):
            ended.setdefault(table_id, []).append((deadline_us, xid))
        left -= len(found)
        if not left:
            break
    ops = [unlease(table_id, notes) for table_id, notes in ended.items()]
    for table_id, held in over.items():
        if table_id in tables:
            back = GiveBack(state, tables[table_id], now_us)
            ops += back.ops(list(held.values()), How.TIMEOUT)
        else:  # it was dropped, or lost
            ops += job_ops.remove(table_id, list(held.values()), How.PURGE)
    return catalog.decision(state, ops)


def unlease(table_id: int, notes: Sequence[tuple[int, int]]) -> Op:
    """Returns the op that forgets notes of leases: deadlines and first xids."""
    deadlines, xids = zip(*notes, strict=True)
    return Op(Opcode.JOB_UNLEASE, table_id, len(notes), (deadlines, xids))


def _over(state: State, table_id: int, deadline_us: int, xid: int, rows: int) -> list[Held]:
    """Returns the jobs whose leases ended at a deadline; touched ones have got another."""
    prefix = prefix_of(table_id)
    start, stop = prefix + XID.pack(xid), prefix + XID.pack(xid + rows)
    items = state.scan(Tree.JOBS_TAKEN, start, stop, rows)
    return [
        held_of(XID.unpack_from(key, len(prefix))[0], data)
        for key, data in items
        if LEASE.unpack_from(data)[0] == deadline_us
    ]


def taken_keys(state: State, table_id: int) -> Iterator[tuple[bytes, int]]:
    """Yields the hashes of the keys of taken jobs, but for overtaken ones, and their xids."""
    start = prefix = prefix_of(table_id)
    stop = end_of(prefix)
    while items := state.scan(Tree.JOBS_TAKEN, start, stop, _ROWS_MAX):
        for key, data in items:
            image = data[LEASE.size :]
            if layout.expiry_of(image) != layout.OVERTAKEN_US:
                yield image[layout.HASH_AT], XID.unpack_from(key, len(prefix))[0]
        start = items[-1][0] + b"\0"


def taken_keys_of(op: Op, seq: int) -> Iterable[tuple[bytes, int]]:
    """Returns the same of the jobs of JOB_TAKE and JOB_TOUCH."""
    found = op.column("image")
    assert isinstance(found, Strings)
    images = found.rows()
    if op.opcode is Opcode.JOB_TAKE:
        return zip([image[layout.HASH_AT] for image in images], count(seq), strict=False)
    xids = op.column("xid")
    assert not isinstance(xids, Strings)
    return [
        (image[layout.HASH_AT], xid)
        for image, xid in zip(images, xids, strict=True)
        if layout.expiry_of(image) != layout.OVERTAKEN_US
    ]


def next_end_us(state: State, table: Table, domain: bytes, now_us: int) -> int | None:
    """Returns the wall time at which the next lease of a table, or of a domain of it, is over.

    It may be too early, where there are many notes of others, and is never too late.  None if no
    job is taken.
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
            return None  # what is taken is of other domains
    return max(now_us + deadline_us - state.lease_us, now_us + _SOON_US)
