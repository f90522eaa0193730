"""Changes by hand: waiting jobs by key, dead ones by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fjord import commands, kinds
from fjord.columns import Strings
from fjord.commands import Acted, Refusal
from fjord.jobs import How
from fjord.jobs import State as JobState
from fjord.ops import Op, Opcode
from fjord.tables import catalog
from fjord.tables.jobs import layout, lookup, rules
from fjord.tables.jobs import ops as job_ops
from fjord.tables.jobs.finish import GiveBack, acted
from fjord.tables.jobs.layout import XID, Row
from fjord.tables.jobs.ops import Held
from fjord.tables.state import Decision, State, Table, Tree, decides


@decides(commands.Cancel)
def decide_cancel(command: commands.Cancel, state: State, now_us: int) -> Decision:
    problem = rules.keys_problem(command.keys)
    if problem is not None:
        return Decision(problem)
    return _on_waiting(
        command.table,
        command.keys,
        state,
        now_us,
        lambda table, rows: job_ops.remove_waiting(table.id, rows, How.CANCEL),
    )


@decides(commands.Reschedule)
def decide_reschedule(command: commands.Reschedule, state: State, now_us: int) -> Decision:
    problem = rules.reschedule_problem(command, now_us)
    if problem is not None:
        return Decision(problem)

    def change(table: Table, rows: Sequence[Row]) -> list[Op]:
        changed = [(job_ops.waiting(row), _rescheduled(row, command, now_us)) for row in rows]
        return job_ops.wait(table.id, changed, How.RESCHEDULE)

    return _on_waiting(command.table, command.keys, state, now_us, change)


@decides(commands.Bury)
def decide_bury(command: commands.Bury, state: State, now_us: int) -> Decision:
    problem = rules.keys_problem(command.keys) or rules.reason_problem(command.reason)
    if problem is not None:
        return Decision(problem)

    def bury(table: Table, rows: Sequence[Row]) -> list[Op]:
        held = list(map(job_ops.waiting, rows))
        reasons = [command.reason] * len(held)
        return job_ops.bury(table.id, held, reasons, died_us=now_us, how=How.FAIL)

    return _on_waiting(command.table, command.keys, state, now_us, bury)


@decides(commands.Revive)
def decide_revive(command: commands.Revive, state: State, now_us: int) -> Decision:
    problem = rules.rows_problem(len(command.rows)) or rules.delay_problem(command.delay_us)
    if problem is not None:
        return Decision(problem)

    def revive(table: Table, held: Sequence[Held]) -> list[Op]:
        back = GiveBack(state, table, now_us)
        return back.ops(held, How.REVIVE, date_us=now_us + command.delay_us)

    decision = _on_dead(command.table, command.rows, state, revive)
    if not isinstance(decision.reply, Acted):
        return decision
    gone = {row for op in decision.ops for row in _removed(op)}
    missing = set(decision.reply.missing)
    dropped = [at for at, row in enumerate(command.rows) if row in gone and at not in missing]
    return decision._replace(reply=replace(decision.reply, dropped=dropped))


def _removed(op: Op) -> Sequence[int]:
    """Returns the rows that an op takes away."""
    rows = op.column("row") if op.opcode is Opcode.JOB_REMOVE else ()
    assert not isinstance(rows, Strings)
    return rows


@decides(commands.Discard)
def decide_discard(command: commands.Discard, state: State, now_us: int) -> Decision:
    problem = rules.rows_problem(len(command.rows))
    if problem is not None:
        return Decision(problem)
    return _on_dead(
        command.table,
        command.rows,
        state,
        lambda table, held: job_ops.remove(table.id, held, How.DISCARD),
    )


def _rescheduled(row: Row, command: commands.Reschedule, now_us: int) -> Row:
    priority = row.priority if command.priority is None else command.priority
    date_us = row.process_at_us
    if command.process_at_us is not None:
        date_us = command.process_at_us
        date_us = now_us + date_us if command.relative else date_us or now_us
    return row._replace(priority=priority, process_at_us=date_us)


def _on_waiting(
    name: str,
    keys: Strings,
    state: State,
    now_us: int,
    change: Callable[[Table, Sequence[Row]], Sequence[Op]],
) -> Decision:
    """Changes the jobs that wait under keys; a key that comes twice counts once."""
    table = catalog.find(state, name, kinds.Kind.JOBS)
    if isinstance(table, Refusal):
        return Decision(table)
    wanted = keys.rows()
    if table is None:
        return acted(state, (), range(len(wanted)))
    problem = rules.by_key_problem(table)
    if problem is not None:
        return Decision(problem)
    hashes = list(map(layout.digest, wanted))
    rows = lookup.find(state, table.prefix, wanted, hashes)
    found: dict[bytes, Row] = {}
    missing = []
    for at, row in enumerate(rows):
        if row is None or row.key in found or row.is_expired(now_us):
            missing.append(at)
        else:
            found[row.key] = row
    ops = change(table, list(found.values())) if found else ()
    return acted(state, ops, missing)


def _on_dead(
    name: str,
    rows: Sequence[int],
    state: State,
    change: Callable[[Table, Sequence[Held]], Sequence[Op]],
) -> Decision:
    """Changes dead jobs; a row that comes twice counts once."""
    table = catalog.find(state, name, kinds.Kind.JOBS)
    if isinstance(table, Refusal):
        return Decision(table)
    if table is None:
        return acted(state, (), range(len(rows)))
    data = state.get_many(Tree.JOBS_DEAD, [table.prefix + XID.pack(row) for row in rows])
    found: dict[int, Held] = {}
    missing = []
    for at, (row, one) in enumerate(zip(rows, data, strict=True)):
        if one is None or row in found:
            missing.append(at)
        else:
            found[row] = Held(JobState.DEAD, row, layout.decode_dead(one)[1])
    ops = change(table, list(found.values())) if found else ()
    return acted(state, ops, missing)
