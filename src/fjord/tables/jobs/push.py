"""PUSH: new waiting jobs; one whose key is already queued is merged with it (SJ-16).

    insertion date   stays
    updated          the newest client date; an older push succeeds and changes nothing
    expiry           the largest, and never is the largest of all
    priority         the smallest
    process date     the largest, but no later than insertion date + debounce, or than it was
    timeouts         0
    value, domain    the new ones

A taken job is not touched: its key gets a new row beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from fjord import commands, jobs, kinds, limits, ops
from fjord.columns import Strings, repeat
from fjord.errors import Code, RefusedError
from fjord.layouts import end_of
from fjord.ops import Op, Opcode
from fjord.tables import catalog, rules
from fjord.tables.jobs import layout
from fjord.tables.jobs import rows as job_rows
from fjord.tables.jobs.layout import COLLIDED, NO_PROBE, JobRow
from fjord.tables.state import Decision, Table, Tree, View, decides

_KEY_TOO_LONG: Final = f"a key of a job has at most {limits.JOB_KEY_BYTES_MAX} bytes"
_new: Final = tuple.__new__


def decide_staged(command: commands.Push, state: View, now_us: int) -> Decision:
    """Pushes staged jobs, even if the columns of the table have changed since."""
    return decide_push(command, state, now_us, is_staged=True)


@decides(commands.Push)
def decide_push(
    command: commands.Push, state: View, now_us: int, *, is_staged: bool = False
) -> Decision:
    _check_push(command, now_us)
    table, creation = catalog.find_or_create(state, command.table, kinds.Kind.JOBS)
    inserted = command.timestamps_us
    if max(inserted) > now_us:  # a client's clock is ahead
        inserted = [min(stamp, now_us) for stamp in inserted]
    dates = _dates(command, inserted, now_us)
    settings = jobs.decode_settings(table.settings)
    if not is_staged and (settings.columns or command.types.strip(rules.BUFFER)):
        rules.check_values(command.types, command.values, settings.declared)
    push = _Push(command, table, settings, inserted, dates, command.keys.rows())
    made = push.merged(state, now_us) if settings.merge else push.plain(NO_PROBE)
    is_fair = settings.fairness is not jobs.Fairness.NONE
    if is_fair and state.lanes.lanes(table.id) >= limits.LANES_MAX:
        text = f"jobs of {limits.LANES_MAX} domains are waiting already; work on some of them first"
        raise RefusedError(Code.QUOTA, text)
    return catalog.decision(state, [*creation, *made])


def _check_push(command: commands.Push, now_us: int) -> None:
    """Refuses an invalid push, except for its future dates and table-specific rules."""
    rows, stamps = len(command.types), command.timestamps_us
    keys, domains, values = command.keys, command.domains, command.values
    are_even = (
        rows == len(command.priorities) == len(stamps)
        and rows == len(command.process_at_us) == len(command.expires_at_us)
        and rows + 1 == len(keys.offsets) == len(domains.offsets) == len(values.offsets)
    )
    if not are_even:
        raise RefusedError(Code.BAD_BATCH, "the columns of a push differ in length")
    rules.check_sizes(keys, values, len(domains.data))
    if len(keys.data) > limits.JOB_KEY_BYTES_MAX < max(keys.lengths()):
        raise RefusedError(Code.KEY_TOO_LONG, _KEY_TOO_LONG)
    if len(domains.data) > limits.DOMAIN_BYTES_MAX < max(domains.lengths()):
        raise RefusedError(Code.BAD_DOMAIN, job_rows.DOMAIN_TOO_LONG)
    rules.check_timestamps(stamps, now_us)


def _dates(command: commands.Push, inserted: Sequence[int], now_us: int) -> Sequence[int]:
    """Returns process dates: not before the insertion, and now if none is given."""
    dates, expiries = command.process_at_us, command.expires_at_us
    if not any(dates):
        dates = repeat(now_us, len(dates))
    elif command.relative:
        dates = [now_us + delay for delay in dates]
    else:
        dates = [max(date or now_us, first) for date, first in zip(dates, inserted, strict=True)]
    last_us = now_us + limits.PROCESS_AHEAD_US_MAX
    if max(dates) > last_us or max(expiries) > last_us:
        raise RefusedError(Code.BAD_TIMEOUT, "a date is at most 366 days ahead")
    if any(expiries):
        for date_us, expires_at_us in zip(dates, expiries, strict=True):
            if expires_at_us and expires_at_us <= max(date_us, now_us):
                text = "a job must expire after its process date, and in the future"
                raise RefusedError(Code.BAD_TIMEOUT, text)
    return dates


class _Merged(NamedTuple):
    """The result for one key: a waiting job after all pushes of its key in a batch."""

    row: JobRow | None  # None: it is new
    pushed: int  # position of the push whose value it has; -1: none was accepted
    inserted: int
    updated: int
    date: int
    expires: int
    priority: int


@dataclass(slots=True)
class _Push:
    """A push with its dates resolved."""

    command: commands.Push
    table: Table
    settings: jobs.Settings
    inserted: Sequence[int]
    dates: Sequence[int]
    keys: list[bytes]

    def plain(self, probe: int) -> list[Op]:
        """Returns the op for jobs that merge with nothing."""
        command, count = self.command, len(self.keys)
        is_fair = self.settings.fairness is not jobs.Fairness.NONE
        columns = (
            self.inserted,
            command.timestamps_us,
            self.dates,
            command.expires_at_us,
            self._lanes(range(count)) if is_fair else repeat(0, count),
            command.priorities,
            bytes((probe,)) * count,
            command.types,
            command.keys,
            command.domains,
            command.values,
        )
        return [Op(Opcode.JOB_ADD, self.table.id, count, columns)]

    def merged(self, state: View, now_us: int) -> list[Op]:
        if not all(self.keys):
            text = "a key has at least one byte, except in a table created with merge off"
            raise RefusedError(Code.EMPTY_KEY, text)
        prefix = self.table.prefix
        hashes = list(map(layout.digest, self.keys))
        places = state.get_many(Tree.JOBS_KEYS, [prefix + hash_ + b"\0" for hash_ in hashes])
        is_new = not any(places) and len(set(hashes)) == len(hashes)
        if is_new and not _has_collisions(state, prefix):
            return self.plain(0)
        rows = _resolve(state, prefix, self.keys, hashes, places)
        gone = {row.key: row for row in rows if row is not None and row.is_expired(now_us)}
        waiting = [None if row is None or row.key in gone else row for row in rows]
        merged = self._fold(waiting)
        listed = state.generations.get(self.table.id)
        first_row = listed[-1].first_row if listed else 0
        accepted = [one for one in merged if one.pushed >= 0]
        # Jobs of earlier generations move to the current one.
        moved = {one.row: None for one in accepted if one.row and one.row.row < first_row}
        new = [one for one in accepted if one.row is None or one.row in moved]
        replaced = [one for one in accepted if one.row and one.row not in moved]
        probes = free_probes(
            state,
            prefix,
            [hashes[one.pushed] for one in new],
            [places[one.pushed] for one in new],
            without={row.slot for row in (*gone.values(), *moved)},
        )
        return [
            *job_rows.remove_waiting(self.table.id, gone.values(), jobs.How.EXPIRE),
            *job_rows.remove_waiting(self.table.id, moved, jobs.How.SUPERSEDED),
            *self._add(new, probes),
            *self._replace(replaced),
        ]

    def _fold(self, rows: Sequence[JobRow | None]) -> list[_Merged]:
        """Applies the merge rules push by push; one result per key, in order of acceptance."""
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
                    del found[key]  # the previous ones were too old: this is the first that counts
                # Never earlier than before, and moved back at most to the cap.  Comparisons
                # are faster than min and max, and this runs for every row.
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
            text = "254 keys with the same hash are waiting already; choose another key"
            raise RefusedError(Code.QUOTA, text)
        dates, priorities, contents = self._columns(merged)
        columns = (*dates, priorities, bytes(found), *contents)
        return [Op(Opcode.JOB_ADD, self.table.id, len(merged), columns)]

    def _replace(self, merged: Sequence[_Merged]) -> list[Op]:
        if not merged:
            return []
        rows = [one.row for one in merged if one.row is not None]
        dates, priorities, (types, *payload) = self._columns(merged)
        columns = (
            [row.row for row in rows],
            *dates,
            [row.expires_at_us for row in rows],
            [row.held for row in rows],
            [row.live_bytes for row in rows],
            priorities,
            bytes([row.probe for row in rows]),
            types,
            Strings.of([row.place for row in rows]),
            *payload,
        )
        return [Op(Opcode.JOB_REPLACE, self.table.id, len(merged), columns)]

    def _columns(
        self, merged: Sequence[_Merged]
    ) -> tuple[list[Sequence[int]], bytes, tuple[ops.Column, ...]]:
        """Returns dates and lanes, priorities, and the contents of the pushes that count."""
        command = self.command
        _, at, *dates, priorities = zip(*merged, strict=True)
        contents = (command.types, command.keys, command.domains, command.values)
        if len(at) < len(self.keys):  # else all of them, in their order
            domains, values = command.domains.rows(), command.values.rows()
            contents = (
                bytes([command.types[position] for position in at]),
                Strings.of([self.keys[position] for position in at]),
                Strings.of([domains[position] for position in at]),
                Strings.of([values[position] for position in at]),
            )
        return [*dates, self._lanes(at)], bytes(priorities), contents

    def _lanes(self, positions: Sequence[int]) -> Sequence[int]:
        if self.settings.fairness is jobs.Fairness.NONE:
            return repeat(0, len(positions))
        domains = self.command.domains
        return [
            layout.lane_of(domains[position] or jobs.domain_of(self.keys[position]))
            for position in positions
        ]


# -- finding waiting jobs by key, and a free slot for a new key -----------------------------------


def find(state: View, table: Table, keys: Sequence[bytes]) -> list[JobRow | None]:
    """Returns the job that waits under each key, expired ones included, else None."""
    if not jobs.decode_settings(table.settings).merge:
        text = f"table {table.name} was created with merge off: its jobs are not found by key"
        raise RefusedError(Code.WRONG_KIND, text)
    prefix, hashes = table.prefix, list(map(layout.digest, keys))
    places = state.get_many(Tree.JOBS_KEYS, [prefix + hash_ + b"\0" for hash_ in hashes])
    return _resolve(state, prefix, keys, hashes, places)


def _resolve(
    state: View,
    prefix: bytes,
    keys: Sequence[bytes],
    hashes: Sequence[bytes],
    places: Sequence[bytes | None],
) -> list[JobRow | None]:
    """Like `find`, where the content of the first slot of each key is known."""
    found = iter(_waiting(state, [prefix + place for place in places if place]))
    rows = [next(found) if place else None for place in places]
    has_collisions = _has_collisions(state, prefix)
    for at, (key, row) in enumerate(zip(keys, rows, strict=True)):
        if row is None or row.key != key:
            rows[at] = _find_collided(state, prefix, key, hashes[at]) if has_collisions else None
    return rows


def _waiting(state: View, places: Sequence[bytes]) -> list[JobRow]:
    """Returns the jobs at the index keys found in slots; these always exist."""
    rests = state.get_many(Tree.JOBS_READY, places)
    return [
        layout.decode_ready(place, rest) for place, rest in zip(places, rests, strict=True) if rest
    ]


def _has_collisions(state: View, prefix: bytes) -> bool:
    """Returns whether two keys of the table may have the same hash."""
    return bool(state.scan(Tree.JOBS_KEYS, prefix + COLLIDED, end_of(prefix), 1))


def _find_collided(state: View, prefix: bytes, key: bytes, hash_: bytes) -> JobRow | None:
    start = prefix + COLLIDED + hash_
    items = state.scan(Tree.JOBS_KEYS, start, start + b"\xff", NO_PROBE)
    rows = _waiting(state, [prefix + place for _, place in items])
    return next((row for row in rows if row.key == key), None)


def free_probes(
    state: View,
    prefix: bytes,
    hashes: Sequence[bytes],
    firsts: Sequence[bytes | None],
    *,
    without: Collection[bytes],
) -> list[int | None]:
    """Finds an unused probe for each new key, or None if there is none; all are different.

    Args:
        state: of the table.
        prefix: of the table.
        hashes: of the keys.
        firsts: the content of the first slot of each key.
        without: slots that count as free.
    """
    is_simple = len(set(hashes)) == len(hashes)  # no two of them need the same slot
    given: set[bytes] = set()

    def probe(hash_: bytes, first: bytes | None) -> int | None:
        if first is None and is_simple:
            return 0
        for probe in range(NO_PROBE):
            slot = layout.slot(hash_, probe)
            if slot in given:
                continue
            if slot in without or not state.get_many(Tree.JOBS_KEYS, [prefix + slot])[0]:
                given.add(slot)
                return probe
        return None

    return list(map(probe, hashes, firsts))
