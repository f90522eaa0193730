"""What is left of dropped tables is purged, bit by bit."""

from __future__ import annotations

from fjord.columns import Strings
from fjord.ops import Op, Opcode
from fjord.tables import catalog, job_upkeep, kv_expiry
from fjord.tables.state import Decision, State


def decide_sweep(command: catalog.Sweep, state: State, now_us: int) -> Decision:
    """Takes the first dropped table that has anything left to do."""
    for table_id, name in catalog.dropped(state).items():
        ops = kv_expiry.sweep(state, table_id, command.limit)
        ops = ops or job_upkeep.sweep(state, table_id, command.limit)
        if not ops and not catalog.is_last(state, table_id):
            ops = [Op(Opcode.FORGET_TABLE, table_id, 1, (Strings.of([name]),))]
        if ops:
            return catalog.decision(state, ops)
    return catalog.decision(state, ())
