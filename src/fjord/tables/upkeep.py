"""Commands of the engine to tables: sweeping, packing, beginning a new generation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from fjord import jobs
from fjord.columns import Strings
from fjord.commands.layout import Command, internal
from fjord.ops import Op, Opcode, Place
from fjord.tables import catalog, generations, snapshots, staging
from fjord.tables.jobs import keep as upkeep
from fjord.tables.kv import keep as expiry
from fjord.tables.meaning import MEANING
from fjord.tables.state import Decision, Table, View, decides
from fjord.tables.streams import history, keep

# The sweeps of a dropped table, one after the other.
_SWEEPS: Final = (
    keep.sweep_dropped,
    staging.sweep_dropped,
    history.sweep_dropped,
    expiry.sweep,
    upkeep.sweep,
)


@decides(catalog.Sweep)
def decide_sweep(command: catalog.Sweep, state: View, now_us: int) -> Decision:
    """Sweeps rows that are in blocks, or were kept for closed snapshots; then dropped tables."""
    made = history.sweep(state, command.limit) or snapshots.sweep(state, command.limit)
    if made:
        return catalog.decision(state, made)
    for table_id, name in catalog.dropped(state).items():
        found = (sweep(state, table_id, command.limit) for sweep in _SWEEPS)
        ops = next(filter(None, found), [])
        is_gone = not ops and not history.has_blocks(state, table_id)
        if is_gone and not catalog.is_last(state, table_id):
            ops = [Op(Opcode.FORGET_TABLE, table_id, 1, (Strings.of([name]),))]
        if ops:
            return catalog.decision(state, ops)
    return catalog.decision(state, ())


# -------------------------------------------------------------------------------------------------
#
# Packing: the live rows of the oldest segment are rewritten, so that the segment can be removed.
#
# `Pack` gets the ops of that segment in order, a slice at a time.  Ops that depend on each other
# stay in order; rows of one table that are only moved are combined into one op.


@internal()
class Pack(Command):
    """Rewrites the live rows of these ops."""

    ops: Sequence[tuple[Op, Place]]
    is_measured: bool = False  # it is known to fit into the space reserved for packing


@internal(frees=True)
class Begin(Command):
    """The journal begins here from now on: everything before has been rewritten."""

    segment: int
    seq: int


@decides(Pack)
def decide_pack(command: Pack, state: View, now_us: int) -> Decision:
    kept = [
        said
        for op, place in command.ops
        for said in MEANING[op.opcode].keep(op, place, state, now_us)
    ]
    return catalog.decision(state, _gather(kept))


@decides(Begin)
def decide_begin(command: Begin, state: View, now_us: int) -> Decision:
    columns = ((command.segment,), (command.seq,))
    return catalog.decision(state, [Op(Opcode.PACKED, catalog.NO_TABLE, 1, columns)])


def _gather(kept: Sequence[Op]) -> list[Op]:
    """Combines rows of one opcode and table after all other ops, which stay in order."""
    found: dict[tuple[Opcode, int], list[Op]] = {}
    for op in kept:
        if MEANING[op.opcode].gathers:
            found.setdefault((op.opcode, op.table), []).append(op)
    return [
        *(op for op in kept if not MEANING[op.opcode].gathers),
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


# -- generations ----------------------------------------------------------------------------------


@decides(generations.Turn)
def decide_turn(command: generations.Turn, state: View, now_us: int) -> Decision:
    """Turns one table, if one is due; each takes an id that the next one must know of."""
    wanted = generations.periods(state.tables)
    for table in state.tables.values():
        made = _turned(state, table, now_us) if table.id in wanted else ()
        if made:
            return catalog.decision(state, made)
    return catalog.decision(state, ())


def _turned(state: View, table: Table, now_us: int) -> list[Op]:
    settings = jobs.decode_settings(table.settings)
    listed = state.generations.get(table.id, ())
    if not listed:  # they were lost to damage
        return [catalog.next_generation(state, table, now_us, ops_before=0)]
    drained = generations.drained(listed, state.job_counts)
    made = [generations.end(table.id, drained)] if drained else []
    is_over = generations.is_over(settings.period, listed[-1].began_us, now_us)
    if is_over and generations.may_turn(listed, state.job_counts):
        made.append(catalog.next_generation(state, table, now_us, ops_before=len(drained)))
    return made
