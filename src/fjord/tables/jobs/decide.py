"""What happens to taken jobs, and manual changes.

Every answer of a worker carries the xid of its lease (decision 6).  Once that lease is over and the
job waits again, or is done, the xid is stale, and nothing is changed.

A job that is given back waits again, unless it has expired, or failed too often, or a newer job
with its key waits or was taken meanwhile: then the old one is dropped (FJ-32).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fjord import commands, jobs, kinds, layouts, limits
from fjord.columns import Strings, repeat
from fjord.errors import Code, RefusedError
from fjord.jobs import How, State
from fjord.ops import Op, Opcode
from fjord.tables import catalog, rules
from fjord.tables.catalog import acted
from fjord.tables.jobs import layout, push
from fjord.tables.jobs import rows as job_rows
from fjord.tables.jobs.layout import LEASE, XID, JobRow
from fjord.tables.jobs.rows import Held
from fjord.tables.state import Decision, Table, Tree, View, decides


@decides(commands.Finish)
def decide_finish(command: commands.Finish, state: View, now_us: int) -> Decision:
    table, found, missing = _taken(command, state)
    if missing and command.strict:
        text = f"{len(missing)} of {len(command.xids)} leases are over; nothing was done"
        raise RefusedError(Code.STALE_XID, text)
    if table is None or not found:
        return acted(state, (), missing)
    xids, data = zip(*found, strict=True)
    columns = (xids, *layout.done_parts(data))
    return acted(state, [Op(Opcode.JOB_DONE, table.id, len(xids), columns)], missing)


@decides(commands.Extend)
def decide_extend(command: commands.Extend, state: View, now_us: int) -> Decision:
    job_rows.check_lease(command.lease_us)
    table, found, missing = _taken(command, state)
    if table is None or not found:
        return acted(state, (), missing)
    held = [job_rows.taken(xid, data) for xid, data in found]
    lengths = [command.lease_us or one.lease.lease_us for one in held]
    columns = (
        [one.at for one in held],
        [one.note for one in held],
        _deadlines(state, table, held, lengths),
        lengths,
        repeat(now_us, len(held)),
        Strings.of([data[LEASE.size :] for _, data in found]),
    )
    return acted(state, [Op(Opcode.JOB_TOUCH, table.id, len(held), columns)], missing)


def _deadlines(
    state: View, table: Table, held: Sequence[Held], lengths: Sequence[int]
) -> list[int]:
    """Returns the new deadlines.

    If the note of a deadline already covers several jobs, this lease gets a later deadline.
    """
    found = [state.lease_us + length for length in lengths]
    keys = [
        layout.LEASE_KEY.pack(deadline, table.id, one.at)
        for deadline, one in zip(found, held, strict=True)
    ]
    notes = state.get_many(Tree.JOBS_LEASES, keys)
    return [
        deadline + (note is not None and note != layout.COUNT.pack(1))
        for deadline, note in zip(found, notes, strict=True)
    ]


@decides(commands.Fail)
def decide_fail(command: commands.Fail, state: View, now_us: int) -> Decision:
    _check_delay(command.delay_us)
    _check_reason(command.reason)
    table, found, missing = _taken(command, state)
    if table is None or not found:
        return acted(state, (), missing)
    held = [job_rows.taken(xid, data) for xid, data in found]
    if command.buries:
        reasons = [command.reason] * len(held)
        made = job_rows.bury(table.id, held, reasons, died_us=now_us, how=How.FAIL)
    else:
        how = How.FAIL if command.counts else How.GIVEN_BACK
        date_us = now_us + command.delay_us if command.delay_us else None
        why = GiveBack(how, date_us, command.reason)
        made = give_back(state, table, held, why, now_us)
    return acted(state, made, missing)


def _taken(
    command: commands.Finish | commands.Extend | commands.Fail, state: View
) -> tuple[Table | None, Sequence[tuple[int, bytes]], list[int]]:
    """Returns the index entries of taken jobs, and the positions of those that are gone."""
    rules.check_rows(len(command.xids))
    wanted = list(command.xids)
    table = catalog.find(state, command.table, kinds.Kind.JOBS)
    if table is None:
        return None, [], list(range(len(wanted)))
    prefix = table.prefix
    if len(wanted) > 1 and wanted == list(range(wanted[0], wanted[0] + len(wanted))):
        # Jobs that were taken together are adjacent.
        start = prefix + XID.pack(wanted[0])
        items = state.scan(Tree.JOBS_TAKEN, start, layouts.end_of(prefix), len(wanted))
        if len(items) == len(wanted) and items[-1][0] == prefix + XID.pack(wanted[-1]):
            return table, list(zip(wanted, (data for _, data in items), strict=True)), []
    data = state.get_many(Tree.JOBS_TAKEN, [prefix + xid for xid in map(XID.pack, wanted)])
    found, missing = catalog.once(wanted, data)
    return table, list(found.items()), missing


# -- giving back ----------------------------------------------------------------------------------


class GiveBack(NamedTuple):
    """Why jobs are given back, and until when they wait."""

    how: How
    date_us: int | None = None  # the new process date; None: unchanged
    reason: bytes = b""


def give_back(
    state: View, table: Table, held: Sequence[Held], why: GiveBack, now_us: int
) -> list[Op]:
    """Returns the ops for jobs that nobody works on any more, or for revived ones."""
    how, date_us, reason = why
    settings = jobs.decode_settings(table.settings)
    wanted = [one for one in held if not one.row.is_expired(now_us)]
    over = [one for one in held if one.row.is_expired(now_us)]
    expired = [one for one in over if not one.row.is_overtaken]
    superseded = [one for one in over if one.row.is_overtaken]
    if settings.merge:
        wanted = _still_wanted(state, table, wanted, now_us, expired, superseded)
    counted = [one._replace(row=one.row._replace(timeouts=_timeouts(one, how))) for one in wanted]
    dead = [one for one in counted if one.row.timeouts > settings.timeouts_max]
    alive = [one for one in counted if one.row.timeouts <= settings.timeouts_max]
    rows = [one.row for one in alive]
    if date_us is not None:
        rows = [row._replace(process_at_us=date_us) for row in rows]
    if settings.merge:
        left = (one for one in (*expired, *superseded) if one.state is State.WAITING)
        rows = _with_slots(state, table.prefix, rows, {one.row.slot for one in left})
    word = "timed out" if how is How.TIMEOUT else "failed"
    tail = b": " + reason if reason else b""
    reasons = [_cut_reason(f"{word} {one.row.timeouts} times".encode() + tail) for one in dead]
    return [
        *job_rows.remove(table.id, expired, How.EXPIRE),
        *job_rows.remove(table.id, superseded, How.SUPERSEDED),
        *job_rows.bury(table.id, dead, reasons, died_us=now_us, how=how),
        *job_rows.wait(table.id, list(zip(alive, rows, strict=True)), how),
    ]


def _still_wanted(
    state: View,
    table: Table,
    held: Sequence[Held],
    now_us: int,
    expired: list[Held],
    superseded: list[Held],
) -> list[Held]:
    """Returns the jobs that no newer job of their key replaces; adds the others to the lists.

    If a key occurs twice here, or an older job waits under it, the newer job stays.
    """
    newest = {one.row.key: one for one in sorted(held, key=lambda one: one.row.row)}
    for row in push.find(state, table, list(newest)):
        if row is None:
            continue
        if row.is_expired(now_us):
            expired.append(job_rows.waiting(row))
        elif row.age < newest[row.key].row.age:
            superseded.append(job_rows.waiting(row))
        else:
            del newest[row.key]
    superseded += [one for one in held if newest.get(one.row.key) is not one]
    return [one for one in held if newest.get(one.row.key) is one]


def _with_slots(
    state: View, prefix: bytes, rows: Sequence[JobRow], free: set[bytes]
) -> list[JobRow]:
    """Returns jobs with slots; one that finds no free slot is kept, but has no key."""
    hashes = [row.hash for row in rows]
    firsts = state.get_many(Tree.JOBS_KEYS, [prefix + hash_ + b"\0" for hash_ in hashes])
    probes = push.free_probes(state, prefix, hashes, firsts, without=free)
    return [
        row._replace(probe=layout.NO_PROBE if probe is None else probe)
        for row, probe in zip(rows, probes, strict=True)
    ]


def _cut_reason(reason: bytes) -> bytes:
    """Cuts a reason to the stored length, in whole characters."""
    return reason[: limits.REASON_BYTES_MAX].decode(errors="ignore").encode()


def _timeouts(one: Held, how: How) -> int:
    return 0 if how is How.REVIVE else one.row.timeouts + (how is not How.GIVEN_BACK)


# -- manual changes: waiting jobs by key, dead ones by row ----------------------------------------


@decides(commands.Cancel)
def decide_cancel(command: commands.Cancel, state: View, now_us: int) -> Decision:
    table_id, rows, missing = _waiting(command, state, now_us)
    return acted(state, job_rows.remove_waiting(table_id, rows, How.CANCEL), missing)


@decides(commands.Reschedule)
def decide_reschedule(command: commands.Reschedule, state: View, now_us: int) -> Decision:
    if command.priority is not None and not 0 <= command.priority <= jobs.PRIORITY_MAX:
        raise RefusedError(Code.BAD_VALUE, f"a priority is from 0 to {jobs.PRIORITY_MAX}")
    date_us = command.process_at_us or 0
    _check_delay(date_us if command.relative else max(0, date_us - now_us))
    table_id, rows, missing = _waiting(command, state, now_us)
    changed = [(job_rows.waiting(row), _rescheduled(row, command, now_us)) for row in rows]
    return acted(state, job_rows.wait(table_id, changed, How.RESCHEDULE), missing)


@decides(commands.Bury)
def decide_bury(command: commands.Bury, state: View, now_us: int) -> Decision:
    _check_reason(command.reason)
    table_id, rows, missing = _waiting(command, state, now_us)
    held, reasons = list(map(job_rows.waiting, rows)), [command.reason] * len(rows)
    made = job_rows.bury(table_id, held, reasons, died_us=now_us, how=How.FAIL)
    return acted(state, made, missing)


def _waiting(
    command: commands.Cancel | commands.Reschedule | commands.Bury, state: View, now_us: int
) -> tuple[int, list[JobRow], list[int]]:
    """Returns the jobs that wait under keys, the id of their table, and what is missing.

    A repeated key counts once.
    """
    rules.check_keys(command.keys, limits.JOB_KEY_BYTES_MAX)
    keys = command.keys.rows()
    table = catalog.find(state, command.table, kinds.Kind.JOBS)
    if table is None:
        return catalog.NO_TABLE, [], list(range(len(keys)))
    rows = push.find(state, table, keys)
    live = [None if row is None or row.is_expired(now_us) else row for row in rows]
    found, missing = catalog.once(keys, live)
    return table.id, list(found.values()), missing


def _rescheduled(row: JobRow, command: commands.Reschedule, now_us: int) -> JobRow:
    priority = row.priority if command.priority is None else command.priority
    date_us = row.process_at_us
    if command.process_at_us is not None:
        date_us = command.process_at_us
        date_us = now_us + date_us if command.relative else date_us or now_us
    return row._replace(priority=priority, process_at_us=date_us)


@decides(commands.Revive)
def decide_revive(command: commands.Revive, state: View, now_us: int) -> Decision:
    _check_delay(command.delay_us)
    table, held, missing = _dead(command, state)
    if table is None:
        return acted(state, (), missing)
    why = GiveBack(How.REVIVE, now_us + command.delay_us)
    made = give_back(state, table, held, why, now_us)
    gone = {row for op in made if op.opcode is Opcode.JOB_REMOVE for row in op.column("row")}
    stale = set(missing)
    dropped = [at for at, row in enumerate(command.rows) if row in gone and at not in stale]
    return acted(state, made, missing, dropped)


@decides(commands.Discard)
def decide_discard(command: commands.Discard, state: View, now_us: int) -> Decision:
    table, held, missing = _dead(command, state)
    made = job_rows.remove(table.id, held, How.DISCARD) if table else ()
    return acted(state, made, missing)


def _dead(
    command: commands.Revive | commands.Discard, state: View
) -> tuple[Table | None, list[Held], list[int]]:
    """Returns dead jobs, and what is missing; a repeated row counts once."""
    rows = command.rows
    rules.check_rows(len(rows))
    table = catalog.find(state, command.table, kinds.Kind.JOBS)
    if table is None:
        return None, [], list(range(len(rows)))
    data = state.get_many(Tree.JOBS_DEAD, [table.prefix + XID.pack(row) for row in rows])
    found, missing = catalog.once(rows, data)
    return table, [job_rows.dead(row, one) for row, one in found.items()], missing


def _check_delay(delay_us: int) -> None:
    if not 0 <= delay_us <= limits.PROCESS_AHEAD_US_MAX:
        raise RefusedError(Code.BAD_TIMEOUT, "a delay is at most 366 days")


def _check_reason(reason: bytes) -> None:
    if len(reason) > limits.REASON_BYTES_MAX:
        text = f"a reason has at most {limits.REASON_BYTES_MAX} bytes"
        raise RefusedError(Code.BAD_VALUE, text)
    try:
        reason.decode()
    except UnicodeDecodeError:
        raise RefusedError(Code.BAD_VALUE, "a reason must be UTF-8") from None
