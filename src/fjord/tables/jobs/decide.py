"""What changes jobs: PUSH, what becomes of those that were taken, and changes by hand.

A job that is pushed waits; one whose key waits already is merged with it (SJ-16):

    insertion date   stays
    updated          the newest client date; an older push succeeds and changes nothing
    expiry           the largest, and never is the largest of all
    priority         the smallest
    process date     the largest, but no later than insertion date + debounce, or than it was
    timeouts         0
    value, domain    the new ones

A job that is taken is not touched: its key gets a new row beside it.  Every answer of a worker
carries the xid of its lease (decision 6): once that lease is over and the job waits again, or is
done, the xid is stale, and nothing is changed.

A job that is given back waits again, unless its expiry has come, or it failed too often, or a newer
job with its key waits, or was taken meanwhile: then the old one is dropped (FJ-32).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from fjord import commands, jobs, kinds, layouts, limits
from fjord.columns import Strings, repeat
from fjord.commands import Acted
from fjord.errors import Code, RefusedError
from fjord.jobs import How
from fjord.jobs import State as JobState
from fjord.ops import Op, Opcode
from fjord.tables import catalog
from fjord.tables.jobs import layout, rules
from fjord.tables.jobs import rows as job_rows
from fjord.tables.jobs.layout import LEASE, NO_PROBE, XID, JobRow
from fjord.tables.jobs.rows import Held
from fjord.tables.rules import check_rows
from fjord.tables.state import Decision, State, Table, Tree, decides


def decide_staged(command: commands.Push, state: State, now_us: int) -> Decision:
    """Pushes jobs that were staged, even if the table has got other columns since."""
    return decide_push(command, state, now_us, is_staged=True)


@decides(commands.Push)
def decide_push(
    command: commands.Push, state: State, now_us: int, *, is_staged: bool = False
) -> Decision:
    rules.check_push(command, now_us)
    table, creation = catalog.find_or_create(state, command.table, kinds.Kind.JOBS)
    inserted = _inserted(command.timestamps_us, now_us)
    dates = _dates(command, inserted, now_us)
    rules.check_dates(dates, command.expires_at_us, now_us)
    settings = rules.settings_of(table)
    if not is_staged:
        rules.check_values(command, settings)
    push = _Push(command, table, settings, inserted, dates, command.keys.rows())
    made = push.merged(state, now_us) if settings.merge else push.plain(NO_PROBE)
    if settings.fairness is not jobs.Fairness.NONE:
        _check_lanes(state, table)
    return catalog.decision(state, [*creation, *made])


def _inserted(stamps_us: Sequence[int], now_us: int) -> Sequence[int]:
    """Returns insertion dates: the client's, but none to come, where its clock is ahead."""
    if max(stamps_us) <= now_us:
        return stamps_us
    return [min(stamp, now_us) for stamp in stamps_us]


def _dates(command: commands.Push, inserted: Sequence[int], now_us: int) -> Sequence[int]:
    """Returns process dates: no earlier than the insertion, and now where none is given."""
    dates = command.process_at_us
    if not any(dates):
        return repeat(now_us, len(dates))
    if command.relative:
        return [now_us + delay for delay in dates]
    return [max(date or now_us, first) for date, first in zip(dates, inserted, strict=True)]


def _check_lanes(state: State, table: Table) -> None:
    if state.lanes.lanes(table.id) >= limits.LANES_MAX:
        text = f"jobs of {limits.LANES_MAX} domains wait already; work on some of them first"
        raise RefusedError(Code.QUOTA, text)


class _Merged(NamedTuple):
    """What a waiting job comes to after all pushes of its key in a batch."""

    row: JobRow | None  # None: it is new
    pushed: int  # position of the push whose value it has; -1: none was accepted
    inserted: int
    updated: int
    date: int
    expires: int
    priority: int


@dataclass(slots=True)
class _Push:
    """A push whose dates are known."""

    command: commands.Push
    table: Table
    settings: jobs.Settings
    inserted: Sequence[int]
    dates: Sequence[int]
    keys: list[bytes]

    def plain(self, probe: int) -> list[Op]:
        """Returns the op for jobs that are merged with nothing."""
        command, count = self.command, len(self.keys)
        columns = (
            self.inserted,
            command.timestamps_us,
            self.dates,
            command.expires_at_us,
            self._lanes(range(count)),
            command.priorities,
            bytes((probe,)) * count,
            command.types,
            command.keys,
            command.domains,
            command.values,
        )
        return [Op(Opcode.JOB_ADD, self.table.id, count, columns)]

    def merged(self, state: State, now_us: int) -> list[Op]:
        if not all(self.keys):
            text = "a key has at least one byte, unless the table was made with merge off"
            raise RefusedError(Code.EMPTY_KEY, text)
        prefix = self.table.prefix
        hashes = list(map(layout.digest, self.keys))
        places = state.get_many(Tree.JOBS_KEYS, [prefix + hash_ + b"\0" for hash_ in hashes])
        is_new = not any(places) and len(set(hashes)) == len(hashes)
        if is_new and not job_rows.has_collisions(state, prefix):
            return self.plain(0)
        rows = job_rows.resolve(state, prefix, self.keys, hashes, places)
        gone = {row.key: row for row in rows if row is not None and row.is_expired(now_us)}
        waiting = [None if row is None or row.key in gone else row for row in rows]
        merged = self._fold(waiting)
        moved = self._moved(state, merged)
        new = [one for one in merged if one.row is None or one.row in moved]
        free = {row.slot for row in (*gone.values(), *moved)}
        wanted = [hashes[one.pushed] for one in new]
        slots = job_rows.FreeSlots(state, prefix, wanted, without=free)
        probes = [slots.probe(hashes[one.pushed], places[one.pushed]) for one in new]
        added = self._add(new, probes)
        replaced = [
            one
            for one in merged
            if one.row is not None and one.pushed >= 0 and one.row not in moved
        ]
        expired = job_rows.remove_waiting(self.table.id, gone.values(), jobs.How.EXPIRE)
        left = job_rows.remove_waiting(self.table.id, moved, jobs.How.SUPERSEDED)
        return [*expired, *left, *added, *self._replace(replaced)]

    def _moved(self, state: State, merged: Sequence[_Merged]) -> dict[JobRow, None]:
        """Returns the jobs of earlier generations that move to the current one."""
        listed = state.generations.get(self.table.id)
        if not listed:
            return {}
        first_row = listed[-1].first_row
        return {
            one.row: None
            for one in merged
            if one.row is not None and one.pushed >= 0 and one.row.row < first_row
        }

    def _fold(self, rows: Sequence[JobRow | None]) -> list[_Merged]:
        """Applies the rule of merging push by push; one result a key, in order of acceptance."""
        found: dict[bytes, _Merged] = {}
        command, debounce_us = self.command, self.settings.debounce_us
        pushes = zip(
            self.keys,
            rows,
            self.inserted,
            command.timestamps_us,
            self.dates,
            command.expires_at_us,
            command.priorities,
            strict=True,
        )
        for at, (key, row, inserted, stamp, date, expires, priority) in enumerate(pushes):
            one = found.get(key)
            if one is None and row is None:
                found[key] = _new(_Merged, (None, at, inserted, stamp, date, expires, priority))
                continue
            if one is None:
                assert row is not None
                first, updated, was, over = row[4], row[5], row[2], row[6]
                best, pushed = row[1], -1
            else:
                row, pushed, first, updated, was, over, best = one
            if stamp >= updated:
                if pushed < 0 and one is not None:
                    del found[key]  # those before were too old: this is the first that counts
                # Never earlier than it was, and moved back up to the cap at most.  Comparisons are
                # faster than min and max, and this is done for every row.
                if date > was:
                    cap = first + debounce_us
                    was = date if date < cap else max(was, cap)
                if over:
                    over = 0 if not expires else max(over, expires)
                if priority < best:
                    best = priority
                updated, pushed = stamp, at
            found[key] = _new(_Merged, (row, pushed, first, updated, was, over, best))
        return list(found.values())

    def _add(self, merged: Sequence[_Merged], probes: Sequence[int | None]) -> list[Op]:
        if not merged:
            return []
        found = [probe for probe in probes if probe is not None]
        if len(found) < len(merged):
            text = "254 keys with one and the same hash wait already; choose another key"
            raise RefusedError(Code.QUOTA, text)
        columns = (
            [one.inserted for one in merged],
            [one.updated for one in merged],
            [one.date for one in merged],
            [one.expires for one in merged],
            self._lanes([one.pushed for one in merged]),
            bytes([one.priority for one in merged]),
            bytes(found),
            *self._contents(merged),
        )
        return [Op(Opcode.JOB_ADD, self.table.id, len(merged), columns)]

    def _replace(self, merged: Sequence[_Merged]) -> list[Op]:
        if not merged:
            return []
        rows = [one.row for one in merged if one.row is not None]
        types, keys, domains, values = self._contents(merged)
        columns = (
            [row.row for row in rows],
            [one.inserted for one in merged],
            [one.updated for one in merged],
            [one.date for one in merged],
            [one.expires for one in merged],
            self._lanes([one.pushed for one in merged]),
            [row.expires_at_us for row in rows],
            [row.held for row in rows],
            [row.live_bytes for row in rows],
            bytes([one.priority for one in merged]),
            bytes([row.probe for row in rows]),
            types,
            Strings.of([row.place for row in rows]),
            keys,
            domains,
            values,
        )
        return [Op(Opcode.JOB_REPLACE, self.table.id, len(merged), columns)]

    def _contents(self, merged: Sequence[_Merged]) -> tuple[bytes, Strings, Strings, Strings]:
        """Returns types, keys, domains and values of the pushes that count."""
        command = self.command
        at = [one.pushed for one in merged]
        if len(at) == len(self.keys):  # all of them, in their order
            return command.types, command.keys, command.domains, command.values
        domains, values = command.domains.rows(), command.values.rows()
        return (
            bytes([command.types[position] for position in at]),
            Strings.of([self.keys[position] for position in at]),
            Strings.of([domains[position] for position in at]),
            Strings.of([values[position] for position in at]),
        )

    def _lanes(self, positions: Sequence[int]) -> Sequence[int]:
        if self.settings.fairness is jobs.Fairness.NONE:
            return repeat(0, len(positions))
        domains = self.command.domains
        return [
            layout.lane_of(domains[position] or jobs.domain_of(self.keys[position]))
            for position in positions
        ]


_new: Final = tuple.__new__


# -- what becomes of jobs that were taken ---------------------------------------------------------


@decides(commands.Finish)
def decide_finish(command: commands.Finish, state: State, now_us: int) -> Decision:
    check_rows(len(command.xids))
    table = catalog.find(state, command.table, kinds.Kind.JOBS)
    found, missing = _taken(state, table, command.xids)
    if missing and command.strict:
        text = f"{len(missing)} of {len(command.xids)} leases are over; nothing was done"
        raise RefusedError(Code.STALE_XID, text)
    if table is None or not found:
        return acted(state, (), missing)
    xids, data = zip(*found, strict=True)
    columns = (xids, *layout.done_parts(data))
    return acted(state, [Op(Opcode.JOB_DONE, table.id, len(xids), columns)], missing)


@decides(commands.Extend)
def decide_extend(command: commands.Extend, state: State, now_us: int) -> Decision:
    check_rows(len(command.xids))
    rules.check_lease(command.lease_us)
    table = catalog.find(state, command.table, kinds.Kind.JOBS)
    found, missing = _taken(state, table, command.xids)
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
    state: State, table: Table, held: Sequence[Held], lengths: Sequence[int]
) -> list[int]:
    """Returns when leases are over from now on.

    A deadline whose note stands for several jobs already is left to those, and one later taken.
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
def decide_fail(command: commands.Fail, state: State, now_us: int) -> Decision:
    rules.check_fail(command)
    table = catalog.find(state, command.table, kinds.Kind.JOBS)
    found, missing = _taken(state, table, command.xids)
    if table is None or not found:
        return acted(state, (), missing)
    held = [job_rows.taken(xid, data) for xid, data in found]
    if command.buries:
        reasons = [command.reason] * len(held)
        ops = job_rows.bury(table.id, held, reasons, died_us=now_us, how=How.FAIL)
        return acted(state, ops, missing)
    how = How.FAIL if command.counts else How.GIVEN_BACK
    back = GiveBack(state, table, now_us)
    date_us = now_us + command.delay_us if command.delay_us else None
    ops = back.ops(held, how, date_us=date_us, reason=command.reason)
    return acted(state, ops, missing)


def acted(state: State, ops: Sequence[Op], missing: Sequence[int]) -> Decision:
    """Returns the decision that says for whom there was nothing to do."""
    seq = state.next_seq - 1 + sum(op.rows for op in ops)
    return Decision(commands.Acted(master=state.master, seq=seq, missing=missing), ops)


# -- giving back ----------------------------------------------------------------------------------


class GiveBack:
    """Decides what becomes of jobs that are not worked on any more, and of dead ones that live."""

    def __init__(self, state: State, table: Table, now_us: int) -> None:
        self._state = state
        self._table = table
        self._now_us = now_us
        self._settings = rules.settings_of(table)
        self._expired: list[JobRow] = []  # that wait under the keys of these jobs
        self._outdated: list[JobRow] = []  # the same, and are older than these jobs

    def ops(
        self, held: Sequence[Held], how: How, *, date_us: int | None = None, reason: bytes = b""
    ) -> list[Op]:
        """Returns the ops for jobs, all of which are of this table."""
        expired = [one for one in held if one.row.is_expired(self._now_us)]
        overtaken = [one for one in expired if one.row.is_overtaken]
        if overtaken:
            expired = [one for one in expired if not one.row.is_overtaken]
        rest = [one for one in held if not one.row.is_expired(self._now_us)]
        kept, superseded = self._sort_out(rest)
        most = self._settings.timeouts_max
        counted = [(one, _timeouts(one, how)) for one in kept]
        dead = [(one, timeouts) for one, timeouts in counted if timeouts > most]
        alive = [(one, timeouts) for one, timeouts in counted if timeouts <= most]
        return [
            *job_rows.remove(self._table.id, expired, How.EXPIRE),
            *job_rows.remove_waiting(self._table.id, self._expired, How.EXPIRE),
            *job_rows.remove_waiting(self._table.id, self._outdated, How.SUPERSEDED),
            *job_rows.remove(self._table.id, [*overtaken, *superseded], How.SUPERSEDED),
            *self._bury(dead, how, reason),
            *job_rows.wait(self._table.id, self._waiting(alive, date_us), how),
        ]

    def _sort_out(self, held: Sequence[Held]) -> tuple[Sequence[Held], list[Held]]:
        """Returns the jobs that are still wanted, and those whose keys newer jobs have.

        Where one key comes twice here, or an older job waits under it, the newer one is wanted.
        """
        if not self._settings.merge:
            return held, []
        newest = {one.row.key: one.row.row for one in sorted(held, key=lambda one: one.row.row)}
        keys, hashes = list(newest), list(map(layout.digest, newest))
        waiting = job_rows.find(self._state, self._table.prefix, keys, hashes)
        rows = {one.row.row: one.row for one in held}
        for row in (row for row in waiting if row is not None):
            mine = rows[newest[row.key]]
            if row.is_expired(self._now_us):
                self._expired.append(row)
            elif row.age < mine.age:
                self._outdated.append(row)
            else:
                del newest[row.key]
        is_wanted = [newest.get(one.row.key) == one.row.row for one in held]
        return (
            [one for one, wanted in zip(held, is_wanted, strict=True) if wanted],
            [one for one, wanted in zip(held, is_wanted, strict=True) if not wanted],
        )

    def _bury(self, dead: Sequence[tuple[Held, int]], how: How, reason: bytes) -> list[Op]:
        word = "timed out" if how is How.TIMEOUT else "failed"
        tail = b": " + reason if reason else b""
        reasons = [_cut(f"{word} {timeouts} times".encode() + tail) for _, timeouts in dead]
        rows = [one._replace(row=one.row._replace(timeouts=timeouts)) for one, timeouts in dead]
        return job_rows.bury(self._table.id, rows, reasons, died_us=self._now_us, how=how)

    def _waiting(
        self, alive: Sequence[tuple[Held, int]], date_us: int | None
    ) -> list[tuple[Held, JobRow]]:
        """Returns the jobs that wait again, each with its new row."""
        rows = [_again(one.row, timeouts, date_us) for one, timeouts in alive]
        if self._settings.merge:
            prefix, hashes = self._table.prefix, [row.hash for row in rows]
            free = {row.slot for row in (*self._expired, *self._outdated)}
            slots = job_rows.FreeSlots(self._state, prefix, hashes, without=free)
            firsts = [prefix + hash_ + b"\0" for hash_ in hashes]
            places = self._state.get_many(Tree.JOBS_KEYS, firsts)
            probes = [slots.probe(*slot) for slot in zip(hashes, places, strict=True)]
            # Without a free slot a job can be found no more by its key, but it is not lost.
            rows = [
                row._replace(probe=layout.NO_PROBE if probe is None else probe)
                for row, probe in zip(rows, probes, strict=True)
            ]
        return [(one, row) for (one, _), row in zip(alive, rows, strict=True)]


def _cut(reason: bytes) -> bytes:
    """Returns as much of a reason as is kept, in whole characters."""
    return reason[: limits.REASON_BYTES_MAX].decode(errors="ignore").encode()


def _timeouts(one: Held, how: How) -> int:
    """Returns how often a job has failed by now."""
    if how is How.REVIVE:
        return 0
    return one.row.timeouts + (how is not How.GIVEN_BACK)


def _again(row: JobRow, timeouts: int, date_us: int | None) -> JobRow:
    return row._replace(
        timeouts=timeouts, process_at_us=row.process_at_us if date_us is None else date_us
    )


# -- small steps ----------------------------------------------------------------------------------


def _taken(
    state: State, table: Table | None, xids: Iterable[int]
) -> tuple[list[tuple[int, bytes]], list[int]]:
    """Returns what the index holds of taken jobs, and the positions of those not there any more."""
    wanted = list(xids)
    if table is None:
        return [], list(range(len(wanted)))
    prefix = table.prefix
    if len(wanted) > 1 and wanted == list(range(wanted[0], wanted[0] + len(wanted))):
        # As they were taken, so they stand together.
        start = prefix + XID.pack(wanted[0])
        items = state.scan(Tree.JOBS_TAKEN, start, layouts.end_of(prefix), len(wanted))
        if items and items[-1][0] == prefix + XID.pack(wanted[-1]):
            data_of = {XID.unpack_from(key, len(prefix))[0]: one for key, one in items}
            if len(data_of) == len(wanted):
                return list(data_of.items()), []
    data = state.get_many(Tree.JOBS_TAKEN, [prefix + xid for xid in map(XID.pack, wanted)])
    if None not in data and len(set(wanted)) == len(wanted):
        return [(xid, one) for xid, one in zip(wanted, data, strict=True) if one], []
    found: dict[int, bytes] = {}
    missing = []
    for at, (xid, one) in enumerate(zip(wanted, data, strict=True)):
        if one is None or xid in found:
            missing.append(at)
        else:
            found[xid] = one
    return list(found.items()), missing


# -- changes by hand: waiting jobs by key, dead ones by row ---------------------------------------


@decides(commands.Cancel)
def decide_cancel(command: commands.Cancel, state: State, now_us: int) -> Decision:
    rules.check_keys(command.keys)
    return _on_waiting(
        command.table,
        command.keys,
        state,
        now_us,
        lambda table, rows: job_rows.remove_waiting(table.id, rows, How.CANCEL),
    )


@decides(commands.Reschedule)
def decide_reschedule(command: commands.Reschedule, state: State, now_us: int) -> Decision:
    rules.check_reschedule(command, now_us)

    def change(table: Table, rows: Sequence[JobRow]) -> list[Op]:
        changed = [(job_rows.waiting(row), _rescheduled(row, command, now_us)) for row in rows]
        return job_rows.wait(table.id, changed, How.RESCHEDULE)

    return _on_waiting(command.table, command.keys, state, now_us, change)


@decides(commands.Bury)
def decide_bury(command: commands.Bury, state: State, now_us: int) -> Decision:
    rules.check_keys(command.keys)
    rules.check_reason(command.reason)

    def bury(table: Table, rows: Sequence[JobRow]) -> list[Op]:
        held = list(map(job_rows.waiting, rows))
        reasons = [command.reason] * len(held)
        return job_rows.bury(table.id, held, reasons, died_us=now_us, how=How.FAIL)

    return _on_waiting(command.table, command.keys, state, now_us, bury)


@decides(commands.Revive)
def decide_revive(command: commands.Revive, state: State, now_us: int) -> Decision:
    check_rows(len(command.rows))
    rules.check_delay(command.delay_us)

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
    return op.column("row") if op.opcode is Opcode.JOB_REMOVE else ()


@decides(commands.Discard)
def decide_discard(command: commands.Discard, state: State, now_us: int) -> Decision:
    check_rows(len(command.rows))
    return _on_dead(
        command.table,
        command.rows,
        state,
        lambda table, held: job_rows.remove(table.id, held, How.DISCARD),
    )


def _rescheduled(row: JobRow, command: commands.Reschedule, now_us: int) -> JobRow:
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
    change: Callable[[Table, Sequence[JobRow]], Sequence[Op]],
) -> Decision:
    """Changes the jobs that wait under keys; a key that comes twice counts once."""
    table = catalog.find(state, name, kinds.Kind.JOBS)
    wanted = keys.rows()
    if table is None:
        return acted(state, (), range(len(wanted)))
    rules.check_by_key(table)
    hashes = list(map(layout.digest, wanted))
    rows = job_rows.find(state, table.prefix, wanted, hashes)
    found: dict[bytes, JobRow] = {}
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
