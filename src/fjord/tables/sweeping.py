"""What is left of dropped tables is purged, bit by bit, and what nobody needs any more."""

from __future__ import annotations

from fjord.columns import Strings
from fjord.ops import Op, Opcode
from fjord.tables import catalog, snapshots
from fjord.tables.jobs import upkeep
from fjord.tables.kv import expiry
from fjord.tables.stages import stage
from fjord.tables.state import Decision, State, decides
from fjord.tables.streams import history, keep


@decides(catalog.Sweep)
def decide_sweep(command: catalog.Sweep, state: State, now_us: int) -> Decision:
    """Takes what is in blocks, or kept for snapshots that are gone; then dropped tables."""
    made = history.sweep(state, command.limit) or snapshots.sweep(state, command.limit)
    if made:
        return catalog.decision(state, made)
    for table_id, name in catalog.dropped(state).items():
        ops = keep.sweep_dropped(state, table_id, command.limit)
        ops = ops or stage.sweep_dropped(state, table_id, command.limit)
        ops = ops or history.sweep_dropped(state, table_id, command.limit)
        ops = ops or expiry.sweep(state, table_id, command.limit)
        ops = ops or upkeep.sweep(state, table_id, command.limit)
        is_gone = not ops and not history.has_blocks(state, table_id)
        if is_gone and not catalog.is_last(state, table_id):
            ops = [Op(Opcode.FORGET_TABLE, table_id, 1, (Strings.of([name]),))]
        if ops:
            return catalog.decision(state, ops)
    return catalog.decision(state, ())
