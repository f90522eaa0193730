"""PUSH: jobs that are new wait; those whose key waits already are merged with it (SJ-16).

    insertion date   stays
    updated          the newest client date; an older push succeeds and changes nothing
    expiry           the largest, and never is the largest of all
    priority         the smallest
    process date     the largest, but no later than insertion date + debounce, or than it was
    timeouts         0
    value, domain    the new ones

A job that is taken is not touched: its key gets a new row beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from fjord import commands, jobs, kinds, limits
from fjord.columns import Strings, repeat
from fjord.errors import Code, RefusedError
from fjord.ops import Op, Opcode
from fjord.tables import catalog
from fjord.tables.jobs import layout, rules
from fjord.tables.jobs import rows as job_rows
from fjord.tables.jobs.layout import NO_PROBE, Row
from fjord.tables.state import Decision, State, Table, Tree, decides


def decide_staged(command: commands.Push, state: State, now_us: int) -> Decision:
    """Pushes jobs that were staged, even if the table has got other columns since."""
    return decide_push(command, state, now_us, is_staged=True)


@decides(commands.Push)
def decide_push(
    command: commands.Push, state: State, now_us: int, *, is_staged: bool = False
) -> Decision:
    rules.check_push(command, now_us)
    found = catalog.find_or_create(state, command.table, kinds.Kind.JOBS)
    table, creation = found
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

    row: Row | None  # None: it is new
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

    def _moved(self, state: State, merged: Sequence[_Merged]) -> dict[Row, None]:
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

    def _fold(self, rows: Sequence[Row | None]) -> list[_Merged]:
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
