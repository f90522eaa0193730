"""Packing: what the oldest segment still has to say is said again, so that the segment can go.

`Pack` is given ops as they stand in that segment, in order, a slice at a time.  The order of all
that depends on each other is kept; rows of one table that only move are said in one op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final

from fjord.columns import Strings
from fjord.commands.layout import Command, internal
from fjord.ops import Op, Opcode, Place
from fjord.tables import (
    catalog,
    clients,
    generations,
    job_upkeep,
    kv_keep,
    snapshots,
    stage,
    stream_history,
    stream_keep,
)
from fjord.tables.state import Decision, State, decides

KEEP: Final[dict[Opcode, Callable[[Op, Place, State, int], Sequence[Op]]]] = {
    Opcode.TAKEOVER: catalog.keep_always,
    Opcode.CREATE_TABLE: catalog.keep_create_table,
    Opcode.DROP_TABLE: catalog.keep_drop_table,
    Opcode.FORGET_TABLE: catalog.keep_never,
    Opcode.PACKED: catalog.keep_never,
    Opcode.LOST: catalog.keep_lost,
    Opcode.ANSWERED: clients.keep_answered,
    Opcode.FORGET_CLIENT: catalog.keep_never,
    Opcode.KV_INSERT: kv_keep.keep_rows,
    Opcode.KV_SET: kv_keep.keep_rows,
    Opcode.KV_MOVE: kv_keep.keep_moved,
    Opcode.KV_DELETE: kv_keep.keep_rows,
    Opcode.KV_EXPIRE: kv_keep.keep_rows,
    Opcode.KV_MARK: kv_keep.keep_marks,
    Opcode.KV_UNSCHEDULE: catalog.keep_never,
    Opcode.KV_PURGE: catalog.keep_never,
    Opcode.KV_LINK: kv_keep.keep_rows,
    # Jobs are moved before their segment is looked at, see `job_upkeep`; what is left of it is
    # when leases are over.
    Opcode.JOB_ADD: catalog.keep_never,
    Opcode.JOB_REPLACE: catalog.keep_never,
    Opcode.JOB_MOVE: catalog.keep_never,
    Opcode.JOB_TAKE: job_upkeep.keep_lease,
    Opcode.JOB_DONE: catalog.keep_never,
    Opcode.JOB_TOUCH: job_upkeep.keep_lease,
    Opcode.JOB_WAIT: catalog.keep_never,
    Opcode.JOB_BURY: catalog.keep_never,
    Opcode.JOB_REMOVE: catalog.keep_never,
    Opcode.JOB_LEASE: job_upkeep.keep_lease,
    Opcode.JOB_UNLEASE: catalog.keep_never,
    # Appends are in blocks before their segment may go.
    Opcode.STREAM_APPEND: catalog.keep_never,
    Opcode.STREAM_PUT: stream_keep.keep_messages,
    Opcode.STREAM_ERASE: stream_keep.keep_messages,
    Opcode.STREAM_MOVE: stream_keep.keep_messages,
    Opcode.STREAM_PURGE: catalog.keep_never,
    Opcode.STREAM_FORGET: catalog.keep_never,
    Opcode.SUBSCRIBER: stream_keep.keep_subscriber,
    Opcode.UNSUBSCRIBE: catalog.keep_never,
    Opcode.SNAPSHOT: snapshots.keep_snapshot,
    Opcode.SNAPSHOT_END: catalog.keep_never,
    Opcode.VERSION: snapshots.keep_version,
    Opcode.VERSION_DROP: catalog.keep_never,
    Opcode.HISTORY: stream_history.keep_history,
    Opcode.BLOCK: stream_history.keep_block,
    Opcode.BLOCK_GONE: catalog.keep_never,
    # A segment with a stage stays as long as the stage.
    Opcode.STAGE: catalog.keep_never,
    Opcode.STAGE_DECIDED: catalog.keep_never,
    Opcode.STAGE_GONE: catalog.keep_never,
    Opcode.STREAM_COMMIT: catalog.keep_never,
    Opcode.WRITER: stage.keep_writer,
    Opcode.WRITER_GONE: catalog.keep_never,
    Opcode.GENERATION: generations.keep_generation,
    Opcode.GENERATION_GONE: catalog.keep_never,
    Opcode.STREAM_PUT_AT: stream_keep.keep_messages,
}

# Each key is in one row of these at most, or in several that say the same: one seq holds it.  So
# their rows may be gathered.
_GATHERED: Final = frozenset(
    {
        Opcode.KV_MOVE,
        Opcode.KV_PURGE,
        Opcode.KV_UNSCHEDULE,
        Opcode.KV_MARK,
        Opcode.STREAM_MOVE,
        Opcode.STREAM_PURGE,
    }
)


@internal()
class Pack(Command):
    """Says again what of these ops still holds."""

    ops: Sequence[tuple[Op, Place]]
    is_urgent: bool = False  # it is known to fit, and frees more than it takes


@internal(frees=True)
class Begin(Command):
    """From now on the journal begins here: all that was before has been said again."""

    segment: int
    seq: int


@decides(Pack)
def decide_pack(command: Pack, state: State, now_us: int) -> Decision:
    kept = [said for op, place in command.ops for said in KEEP[op.opcode](op, place, state, now_us)]
    return catalog.decision(state, _gather(kept))


@decides(Begin)
def decide_begin(command: Begin, state: State, now_us: int) -> Decision:
    columns = ((command.segment,), (command.seq,))
    return catalog.decision(state, [Op(Opcode.PACKED, catalog.NO_TABLE, 1, columns)])


def _gather(kept: Sequence[Op]) -> list[Op]:
    """Returns the ops with rows of one opcode and table together, all others first, in order."""
    found: dict[tuple[Opcode, int], list[Op]] = {}
    for op in kept:
        if op.opcode in _GATHERED:
            found.setdefault((op.opcode, op.table), []).append(op)
    return [
        *(op for op in kept if op.opcode not in _GATHERED),
        *(_together(ops) for ops in found.values()),
    ]


def _together(ops: Sequence[Op]) -> Op:
    if len(ops) == 1:
        return ops[0]
    columns = tuple(_joined(parts) for parts in zip(*(op.columns for op in ops), strict=True))
    return Op(ops[0].opcode, ops[0].table, sum(op.rows for op in ops), columns)


def _joined(parts: Sequence[Any]) -> Any:
    rows = list(chain.from_iterable(parts))
    return Strings.of(rows) if isinstance(parts[0], Strings) else rows
